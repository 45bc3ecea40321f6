/* Passes FETCH on to the thread that reads, and sends its answers. */
#include "common/feed/feed_fetch.h"

#include <stdlib.h>
#include <string.h>

#include "common/fetch/fetch_server.h"

static struct plm_header header_of(const struct plm_feed *feed, enum plm_message_type type,
                                   uint64_t request_id)
{
  struct plm_header header = feed_header(&feed->lanes[0], type, NULL);
  header.request = request_id;
  return header;
}

static void feed_fetch_refuse(const struct plm_feed *feed, const struct plm_message *message,
                              enum plm_nack_reason reason, const char *why)
{
  uint8_t payload[4 + PLM_WIRE_TEXT];
  struct plm_header header = header_of(feed, PLM_MESSAGE_NACK, message->header.request);
  (void)plm_message_send(feed->router, message->routing_id, message->routing_id_bytes, &header,
                         payload, plm_nack_encode(reason, why, payload), NULL); /* it asks again */
}

static void feed_fetch_wake(void *context)
{
  const struct plm_feed *feed = context;
  plm_wake(feed->wake);
}

/* Starts the thread that reads when the first host asks. */
static plm_status open_server(struct plm_feed *feed, struct plm_error *error)
{
  if (feed->fetch != NULL) return PLM_OK;
  if (feed->folder_count > 0)
    return plm_fetch_server_open(feed->folders, feed->folder_count, feed_fetch_wake, feed,
                                 &feed->fetch, error);
  return plm_error_set(error, PLM_NOT_FOUND,
                       "this is not the address of the trainer's feed, which sends the corpus");
}

/* What is known of the corpus that is asked for. */
static struct plm_hash corpus_of(struct plm_feed *feed, uint32_t source)
{
  if (source >= feed->lane_count) return (struct plm_hash){0};
  const struct feed_state *lane = &feed->lanes[source];
  pthread_mutex_lock(&feed->mutex);
  const struct plm_hash corpus = plm_hash_known(lane->root) ? lane->root : lane->fingerprint;
  pthread_mutex_unlock(&feed->mutex);
  return corpus;
}

plm_status feed_fetch_handle(struct plm_feed *feed, const struct plm_message *message,
                             struct plm_error *error)
{
  struct plm_fetch_question question = {.routing_id_bytes = message->routing_id_bytes,
                                        .request_id = message->header.request};
  struct plm_error why;
  PLM_TRY(plm_fetch_decode(zmq_msg_data((zmq_msg_t *)&message->payload),
                           (size_t)message->header.payload_bytes, &question.request, error));
  memcpy(question.routing_id, message->routing_id, message->routing_id_bytes);
  question.corpus = corpus_of(feed, question.request.source);
  if (feed->gate != NULL && !plm_gate_allows(feed->gate, message->user))
    feed_fetch_refuse(feed, message, PLM_NACK_FAILED, "its key is no longer allowed");
  else if (open_server(feed, &why) != PLM_OK)
    feed_fetch_refuse(feed, message, PLM_NACK_FAILED, why.what);
  else if (!plm_fetch_server_ask(feed->fetch, &question))
    feed_fetch_refuse(feed, message, PLM_NACK_BUSY, "too many requests are waiting");
  return PLM_OK;
}

void feed_fetch_answer(struct plm_feed *feed)
{
  struct plm_fetch_answer answer;
  while (feed->fetch != NULL && plm_fetch_server_pop(feed->fetch, &answer)) {
    const enum plm_message_type type = answer.refused ? PLM_MESSAGE_NACK : PLM_MESSAGE_FILE_PART;
    struct plm_header header = header_of(feed, type, answer.question.request_id);
    (void)plm_message_send(feed->router, answer.question.routing_id,
                           answer.question.routing_id_bytes, &header, answer.payload,
                           answer.payload_bytes, NULL); /* if it is lost, the host asks again */
    free(answer.payload);
  }
}
