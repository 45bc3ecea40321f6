/* Asks for several parts at once and takes them in order. A part that is lost is asked for again
 * with all after it. */
#include "common/fetch/fetch_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/run/stop.h"
#include "common/wire/socket.h"

/* Encryption adds some bytes to a message. */
#define MESSAGE_MOST (PLM_FILE_PART_HEAD + PLM_FILE_PART_BYTES + 1024)

enum {
  AHEAD = 8, /* parts that are asked for at once */
  POLL_MS = 100,
  BUSY_MS = 200,   /* after the head had too much to do */
  LOST_MS = 5000,  /* without a part: ask again */
  SAY_MS = 10000,  /* between two lines about waiting */
  HOPE_MS = 15000, /* how long a connected head may be silent before the line has a hint */
};

struct plm_fetch_link {
  char endpoint[512];
  void *context, *socket;
  struct plm_monitor *monitor;
  bool connected, refused;
  char reason[256]; /* of the last refusal */
  uint64_t request; /* of the newest FETCH; ids ascend */
};

/* One file that is being fetched. */
struct transfer {
  struct plm_fetch_link *link;
  struct plm_fetch_request next; /* the next part that the sink needs */
  uint64_t asked;                /* up to this offset, parts are asked for */
  uint64_t file_bytes;           /* UINT64_MAX: unknown */
  uint64_t first_request;        /* older answers are dropped */
  int64_t heard_ms, begun_ms;    /* when an answer last came, and when the parts were asked for */
  int64_t said_ms, retry_ms;
};

plm_status plm_fetch_link_open(const char *endpoint, const char *keys, struct plm_fetch_link **link,
                               struct plm_error *error)
{
  *link = NULL;
  PLM_TRY(plm_endpoint_check(endpoint, keys, error));
  struct plm_fetch_link *opened = plm_alloc_zeroed(1, sizeof *opened);
  snprintf(opened->endpoint, sizeof opened->endpoint, "%s", endpoint);
  plm_status status = plm_context_open(&opened->context, error);
  if (status == PLM_OK)
    status = plm_socket_open(opened->context, ZMQ_DEALER, MESSAGE_MOST, &opened->socket, error);
  if (status == PLM_OK) status = plm_socket_secure_client(opened->socket, keys, NULL, error);
  if (status == PLM_OK)
    status = plm_monitor_open(opened->context, opened->socket, &opened->monitor, error);
  if (status == PLM_OK) status = plm_socket_connect(opened->socket, endpoint, error);
  if (status != PLM_OK)
    plm_fetch_link_close(opened);
  else
    *link = opened;
  return status;
}

void plm_fetch_link_close(struct plm_fetch_link *link)
{
  if (link == NULL) return;
  const int linger_ms = 0;
  plm_monitor_close(link->monitor, link->socket);
  if (link->socket != NULL) {
    zmq_setsockopt(link->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_close(link->socket);
  }
  if (link->context != NULL) zmq_ctx_term(link->context);
  free(link);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Forgets what was asked for; the next turn asks again. */
static void start_over(struct transfer *transfer, int64_t now)
{
  transfer->begun_ms = now;
  transfer->asked = transfer->next.offset;
  transfer->first_request = transfer->link->request + 1;
}

static void fetch_link_ask(struct transfer *transfer, int64_t now)
{
  struct plm_fetch_link *link = transfer->link;
  /* how many parts there are is known from the first answer on */
  const uint64_t ahead = transfer->file_bytes == UINT64_MAX ? 1 : AHEAD * PLM_FILE_PART_BYTES;
  if (now < transfer->retry_ms) return;
  while (transfer->asked < transfer->file_bytes &&
         transfer->asked - transfer->next.offset < ahead) {
    uint8_t payload[16];
    struct plm_fetch_request request = transfer->next;
    struct plm_header header = {.type = PLM_MESSAGE_FETCH, .request = ++link->request};
    request.offset = transfer->asked;
    request.bytes = (uint32_t)PLM_FILE_PART_BYTES;
    if (plm_message_send(link->socket, NULL, 0, &header, payload,
                         plm_fetch_encode(&request, payload), NULL) != PLM_OK)
      return; /* not connected: later */
    transfer->asked += PLM_FILE_PART_BYTES;
  }
}

/* Says what the transfer waits for, but not more often than every 10 s. */
static void fetch_link_say_waiting(struct transfer *transfer, int64_t now)
{
  const struct plm_fetch_link *link = transfer->link;
  const int64_t silent_ms = now - transfer->heard_ms;
  if (silent_ms < LOST_MS || now - transfer->said_ms < SAY_MS) return;
  transfer->said_ms = now;
  if (link->refused)
    plm_warning("%s refuses this host: %s", link->endpoint, link->reason);
  else if (!link->connected)
    plm_warning("nobody answers at %s yet; is the run started there?", link->endpoint);
  else if (silent_ms < HOPE_MS)
    plm_warning("%s is silent; asking again", link->endpoint);
  else
    plm_warning("%s is silent; is it the run's network.feed, and of this version of plm-pipeline?",
                link->endpoint);
}

/* ---- answers --------------------------------------------------------------------------------- */

static plm_status fetch_link_handle_nack(struct transfer *transfer,
                                         const struct plm_message *message, int64_t now,
                                         struct plm_error *error)
{
  char text[PLM_WIRE_TEXT + 1];
  enum plm_nack_reason reason;
  PLM_TRY(plm_nack_decode(zmq_msg_data((zmq_msg_t *)&message->payload),
                          (size_t)message->header.payload_bytes, &reason, text, error));
  if (reason != PLM_NACK_BUSY) {
    (void)plm_error_set(error, PLM_NOT_FOUND, "%s does not send the corpus: %s",
                        transfer->link->endpoint, text);
    return plm_error_hint(error, "copy the corpus to this host, and name it with --corpus");
  }
  start_over(transfer, now);
  transfer->retry_ms = now + BUSY_MS;
  return PLM_OK;
}

/* *taken: the part was the next one, and the sink has it. */
static plm_status take_part(struct transfer *transfer, const struct plm_message *message,
                            plm_fetch_sink *sink, void *context, uint16_t *sources,
                            struct plm_error *error)
{
  struct plm_file_part part;
  const uint8_t *payload = zmq_msg_data((zmq_msg_t *)&message->payload);
  PLM_TRY(plm_file_part_decode(payload, (size_t)message->header.payload_bytes, &part, error));
  if (part.of.source != transfer->next.source || part.of.file != transfer->next.file ||
      part.of.offset != transfer->next.offset)
    return PLM_OK; /* an earlier one was lost, so this one will be asked for again */
  PLM_TRY(sink(context, &part, payload + PLM_FILE_PART_HEAD, error));
  *sources = part.sources;
  transfer->file_bytes = part.file_bytes;
  transfer->next.offset += part.of.bytes;
  return PLM_OK;
}

static void fetch_link_handle_events(struct plm_fetch_link *link, struct transfer *transfer)
{
  struct plm_link_report report;
  while (plm_monitor_next(link->monitor, &report)) {
    link->connected =
        report.event == PLM_LINK_CONNECTED || (link->connected && report.event != PLM_LINK_LOST);
    if (report.event == PLM_LINK_CONNECTED) link->refused = false;
    if (report.event == PLM_LINK_LOST) start_over(transfer, plm_clock_ms());
    if (report.event != PLM_LINK_REFUSED) continue;
    link->refused = true;
    memcpy(link->reason, report.reason, sizeof link->reason);
  }
}

static plm_status fetch_link_handle_messages(struct transfer *transfer, plm_fetch_sink *sink,
                                             void *context, uint16_t *sources,
                                             struct plm_error *error)
{
  for (;;) {
    struct plm_message message;
    plm_status status = plm_message_receive(transfer->link->socket, false, &message, error);
    if (status == PLM_AGAIN) return PLM_OK;
    if (status == PLM_PROTOCOL) continue; /* damaged: it is missed, and asked for again */
    PLM_TRY(status);
    const int64_t now = plm_clock_ms();
    if (message.header.request >= transfer->first_request) {
      transfer->heard_ms = now;
      if (message.header.type == PLM_MESSAGE_NACK)
        status = fetch_link_handle_nack(transfer, &message, now, error);
      if (message.header.type == PLM_MESSAGE_FILE_PART)
        status = take_part(transfer, &message, sink, context, sources, error);
    }
    zmq_msg_close(&message.payload);
    PLM_TRY(status);
  }
}

plm_status plm_fetch_file(struct plm_fetch_link *link, const struct plm_fetch_request *from,
                          const char *stop_consequence, plm_fetch_sink *sink, void *context,
                          uint16_t *sources, struct plm_error *error)
{
  const int64_t begun_ms = plm_clock_ms();
  struct transfer transfer = {.link = link,
                              .next = *from,
                              .file_bytes = UINT64_MAX,
                              .heard_ms = begun_ms,
                              .said_ms = begun_ms - SAY_MS};
  start_over(&transfer, begun_ms);
  while (transfer.next.offset < transfer.file_bytes) {
    PLM_TRY(plm_stop_check(stop_consequence, error));
    const int64_t now = plm_clock_ms();
    if (now - transfer.heard_ms >= LOST_MS && now - transfer.begun_ms >= LOST_MS)
      start_over(&transfer, now);
    fetch_link_ask(&transfer, now);
    fetch_link_say_waiting(&transfer, now);
    zmq_pollitem_t items[] = {{link->socket, 0, ZMQ_POLLIN, 0},
                              {plm_monitor_socket(link->monitor), 0, ZMQ_POLLIN, 0}};
    if (zmq_poll(items, 2, POLL_MS) < 0 && zmq_errno() != EINTR)
      return plm_error_set(error, PLM_IO, "poll: %s", zmq_strerror(zmq_errno()));
    fetch_link_handle_events(link, &transfer);
    PLM_TRY(fetch_link_handle_messages(&transfer, sink, context, sources, error));
  }
  return PLM_OK;
}
