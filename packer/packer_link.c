/* The packer's side of a connection, from HELLO to BYE. */
#include "packer/packer_link.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/numbers/random.h"
#include "packer/link_requests.h"

enum {
  HELLO_MS = 1000,
  PING_MS = 1000,
  SILENCE_MS = 3000,
  BACKOFF_LEAST_MS = 500,
  BACKOFF_MOST_MS = 10000,
  SAY_MS = 10000,
  BYE_LINGER_MS = 200,
  MESSAGES_A_TURN = 64,
};

/* ---- opening and closing ------------------------------------------------------------------ */

static void drop_plans(struct packer_link *link)
{
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    window_store_drop_plan(link->store, link->plans[split]);
    link->plans[split] = NULL;
  }
}

void packer_link_close(struct packer_link *link, bool bye)
{
  if (link->socket == NULL) return;
  if (bye && link->state == LINK_SERVING) {
    const int linger_ms = BYE_LINGER_MS;
    struct plm_header header = packer_link_header(link, PLM_MESSAGE_BYE);
    (void)plm_message_send(link->socket, NULL, 0, &header, NULL, 0, NULL);
    zmq_setsockopt(link->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
  }
  plm_monitor_close(link->monitor, link->socket);
  zmq_close(link->socket);
  drop_plans(link);
  link->monitor = NULL;
  link->socket = NULL;
  link->state = LINK_CLOSED;
  link->connected = false;
  link->pending_count = 0;
  memset(link->prepare, 0, sizeof link->prepare);
}

/* Closes the link. A new socket with a new incarnation is opened after a delay, which doubles each
 * time. */
static void retry_later(struct packer_link *link, int64_t now)
{
  packer_link_close(link, false);
  link->backoff_ms = link->backoff_ms == 0 ? BACKOFF_LEAST_MS : 2 * link->backoff_ms;
  if (link->backoff_ms > BACKOFF_MOST_MS) link->backoff_ms = BACKOFF_MOST_MS;
  link->retry_ms = now + link->backoff_ms;
}

static void start_over(struct packer_link *link, int64_t now)
{
  packer_link_close(link, false);
  link->retry_ms = now;
}

void packer_link_suspend(struct packer_link *link, const struct packer_link *instead, int64_t now)
{
  plm_debug("%s is the same consumer as %s", link->endpoint, instead->endpoint);
  packer_link_close(link, false);
  link->same_as = instead;
  link->retry_ms = now + BACKOFF_MOST_MS;
}

/* Whether to log now: every ten seconds at most, and at once after WELCOME. */
static bool may_say(struct packer_link *link, int64_t now)
{
  if (link->said_ms != 0 && now - link->said_ms < SAY_MS) return false;
  link->said_ms = now;
  return true;
}

static void open_link(struct packer_link *link, struct packer_context *context, int64_t now)
{
  struct plm_error error;
  const char *key = link->server_key[0] != '\0' ? link->server_key : NULL;
  plm_status status = plm_endpoint_check(link->endpoint, context->keys, &error);
  if (status == PLM_OK)
    status =
        plm_socket_open(context->zmq, ZMQ_DEALER, PLM_WIRE_CONTROL_LIMIT, &link->socket, &error);
  if (status == PLM_OK) status = plm_socket_secure_client(link->socket, context->keys, key, &error);
  if (status == PLM_OK)
    status = plm_monitor_open(context->zmq, link->socket, &link->monitor, &error);
  if (status == PLM_OK) status = plm_socket_connect(link->socket, link->endpoint, &error);
  if (status != PLM_OK) {
    if (may_say(link, now)) plm_log_error(&error);
    retry_later(link, now);
    return;
  }
  if (plm_random_bytes(&link->incarnation, sizeof link->incarnation, NULL) != PLM_OK)
    link->incarnation ^= plm_clock_ns();
  link->incarnation |= 1; /* 0 means unknown */
  link->consumer = 0;
  link->state = LINK_HELLO;
  link->opened_ms = link->heard_ms = now;
  link->hello_ms = 0;
}

static void say_hello(struct packer_link *link, struct packer_context *context, int64_t now)
{
  uint8_t *payload = plm_alloc(PLM_WIRE_CONTROL_LIMIT + context->hello.schema_bytes);
  struct plm_header header = packer_link_header(link, PLM_MESSAGE_HELLO);
  link->hello_ms = now;
  (void)plm_message_send(link->socket, NULL, 0, &header, payload,
                         plm_hello_encode(&context->hello, payload),
                         NULL); /* repeated in a second */
  free(payload);
}

/* A consumer that said BYE has ended, perhaps for good, so its absence is not worth a message. */
static void packer_link_say_waiting(struct packer_link *link, int64_t now)
{
  if (now - link->opened_ms < HELLO_MS || !may_say(link, now)) return;
  if (link->connected)
    plm_warning("%s does not answer HELLO", link->endpoint);
  else if (link->said_bye)
    plm_debug("%s has not come back", link->endpoint);
  else
    plm_info("nobody listens at %s yet; trying again", link->endpoint);
}

void packer_link_tick(struct packer_link *link, struct packer_context *context, int64_t now)
{
  if (link->state == LINK_CLOSED) {
    if (now < link->retry_ms) return;
    if (link->same_as != NULL && link->same_as->used && link->same_as->state == LINK_SERVING &&
        link->same_as->consumer == link->served_consumer) {
      link->retry_ms = now + BACKOFF_MOST_MS;
      return;
    }
    link->same_as = NULL;
    open_link(link, context, now);
    return;
  }
  if (link->state == LINK_HELLO) {
    if (now - link->hello_ms >= HELLO_MS) say_hello(link, context, now);
    packer_link_say_waiting(link, now);
    if (link->connected && now - link->heard_ms > SILENCE_MS) retry_later(link, now);
    return;
  }
  if (now - link->heard_ms > SILENCE_MS) {
    plm_warning("%s has been silent for 3 s; connecting again", link->endpoint);
    start_over(link, now);
  } else if (now - link->ping_ms >= PING_MS) {
    struct plm_header header = packer_link_header(link, PLM_MESSAGE_PING);
    link->ping_ms = now;
    (void)plm_message_send(link->socket, NULL, 0, &header, NULL, 0,
                           NULL); /* if it is lost, the silence is noticed above */
  }
}

/* ---- what consumers say ------------------------------------------------------------------- */

/* Whether a plan is one of this corpus, as far as it says so. */
static bool is_for(const struct plm_plan_parameters *plan, const struct plm_hello *hello)
{
  static const struct plm_hash any = {0};
  return plm_hash_equal(plan->source, any) || plm_hello_is(hello, plan->source);
}

static bool handle_welcome(struct packer_link *link, struct packer_context *context,
                           struct plm_message *message, int64_t now)
{
  struct plm_error error = {0};
  struct plm_welcome welcome;
  if (plm_welcome_decode(zmq_msg_data(&message->payload), zmq_msg_size(&message->payload), &welcome,
                         &error) != PLM_OK ||
      plm_plan_parameters_check(&welcome.plan, &error) != PLM_OK ||
      !plm_hash_equal(plm_plan_hash(&welcome.plan), message->header.plan) ||
      welcome.plan.tokenizer != context->hello.tokenizer ||
      !is_for(&welcome.plan, &context->hello)) {
    context->counters.invalid++;
    if (may_say(link, now))
      plm_warning("%s sent an invalid WELCOME: %s", link->endpoint,
                  error.what[0] != '\0' ? error.what : "another plan, corpus or tokenizer");
    return false;
  }
  if (link->state == LINK_SERVING && link->consumer != message->header.consumer) return false;
  if (!plm_hash_equal(link->plan_hash, message->header.plan)) { /* of another plan */
    link->pending_count = 0;
    memset(link->prepare, 0, sizeof link->prepare);
  }
  if (link->state != LINK_SERVING)
    plm_info("serving %s%s", link->endpoint, link->served_before ? " again" : "");
  link->welcome = welcome;
  link->consumer = link->served_consumer = message->header.consumer;
  link->run_id = message->header.run_id;
  link->plan_hash = message->header.plan;
  link->state = LINK_SERVING;
  link->served_before = true;
  link->said_bye = false;
  link->backoff_ms = 0;
  link->said_ms = 0;
  link->ping_ms = now;
  drop_plans(link);
  link->store = context->store;
  for (int split = 0; split < PLM_SPLIT_COUNT; split++)
    link->plans[split] =
        window_store_plan(context->store, (enum plm_split)split, &welcome.plan, link->plan_hash);
  return true;
}

static void answer_ping(struct packer_link *link, struct packer_context *context, int64_t now)
{
  uint8_t payload[256];
  struct plm_header header = packer_link_header(link, PLM_MESSAGE_PONG);
  struct plm_packer_counters counters = context->counters;
  counters.queue = link->pending_count;
  counters.standby = window_store_standby(context->store);
  counters.age_ms = (uint64_t)(now - context->started_ms);
  (void)plm_message_send(link->socket, NULL, 0, &header, payload,
                         plm_counters_encode(&counters, payload), NULL);
}

static void handle_reject(struct packer_link *link, const struct plm_message *message, int64_t now)
{
  char text[PLM_WIRE_TEXT + 1];
  plm_reject_decode(zmq_msg_data((zmq_msg_t *)&message->payload),
                    (size_t)message->header.payload_bytes, text);
  if (message->header.request == PLM_REJECT_NOT_NEEDED) {
    plm_debug("%s needs no chunks of this corpus: %s", link->endpoint, text);
    link->backoff_ms = BACKOFF_MOST_MS;
  } else if (may_say(link, now)) {
    const bool lied = message->header.request == PLM_REJECT_FALSE_DATA;
    plm_warning("%s refuses this packer: %s%s", link->endpoint, text,
                lied ? "; verify its corpus: plm-pipeline corpus DIR --verify" : "");
  }
  retry_later(link, now);
}

/* True: it was WELCOME. The socket may be closed afterwards. */
static bool packer_link_handle_message(struct packer_link *link, struct packer_context *context,
                                       struct plm_message *message, int64_t now)
{
  const struct plm_header *header = &message->header;
  const bool known = link->state == LINK_SERVING && header->consumer == link->consumer;
  if (header->packer != link->incarnation && header->type != PLM_MESSAGE_REHELLO) {
    context->counters.invalid++; /* meant for an earlier incarnation */
    return false;
  }
  if (link->state == LINK_SERVING && header->consumer != link->consumer &&
      header->type != PLM_MESSAGE_REJECT) {
    plm_info("%s has restarted", link->endpoint);
    start_over(link, now);
    return false;
  }
  link->heard_ms = now;
  switch (header->type) {
  case PLM_MESSAGE_WELCOME: return handle_welcome(link, context, message, now);
  case PLM_MESSAGE_REJECT: handle_reject(link, message, now); return false;
  case PLM_MESSAGE_REHELLO: start_over(link, now); return false;
  default: break;
  }
  if (!known) {
    context->counters.invalid++;
    return false;
  }
  switch (header->type) {
  case PLM_MESSAGE_GET: link_requests_get(link, message, now); break;
  case PLM_MESSAGE_PROVE: link_requests_prove(link, context, message); break;
  case PLM_MESSAGE_PING: answer_ping(link, context, now); break;
  case PLM_MESSAGE_PONG: break;
  case PLM_MESSAGE_BYE:
    plm_info("%s said BYE; this packer serves it again if it comes back", link->endpoint);
    link->said_bye = true;
    retry_later(link, now);
    break;
  default: context->counters.invalid++; break;
  }
  return false;
}

/* True: the connection was lost. */
static bool packer_link_handle_events(struct packer_link *link, int64_t now)
{
  struct plm_link_report report;
  while (link->monitor != NULL && plm_monitor_next(link->monitor, &report)) {
    if (report.event == PLM_LINK_CONNECTED) {
      link->connected = true;
      link->heard_ms = now;
      link->hello_ms = 0;
    } else if (report.event == PLM_LINK_REFUSED) {
      /* A consumer that ends hangs up as well, so after serving only the second time is logged. */
      if (!(link->served_before && link->backoff_ms == 0) && may_say(link, now))
        plm_warning("%s refuses this packer: %s", link->endpoint, report.reason);
      retry_later(link, now);
    } else if (report.event == PLM_LINK_LOST) {
      return true;
    }
  }
  return false;
}

bool packer_link_receive(struct packer_link *link, struct packer_context *context, int64_t now)
{
  bool welcomed = false;
  const bool lost = packer_link_handle_events(link, now);
  for (int i = 0; i < MESSAGES_A_TURN && link->socket != NULL; i++) {
    struct plm_message message;
    struct plm_error error;
    const plm_status status = plm_message_receive(link->socket, false, &message, &error);
    if (status == PLM_AGAIN) break;
    if (status == PLM_OK) {
      welcomed |= packer_link_handle_message(link, context, &message, now);
      zmq_msg_close(&message.payload);
      continue;
    }
    context->counters.invalid++;
    if (may_say(link, now))
      plm_warning("invalid message from %s: %s%s%s", link->endpoint, error.what,
                  error.hint[0] != '\0' ? "; " : "", error.hint);
    if (status != PLM_PROTOCOL) retry_later(link, now);
  }
  if (lost && link->socket != NULL) { /* and the consumer did not say BYE before */
    if (link->state == LINK_SERVING) plm_info("lost the connection to %s", link->endpoint);
    start_over(link, now);
  }
  return welcomed;
}
