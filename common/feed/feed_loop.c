/* The I/O thread polls the ROUTER, its monitor and the caller's wake-ups, dispatches messages and
 * handles timeouts. It never blocks for long, so packers are answered whatever the caller does. */
#include "common/feed/feed_loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/thread.h"
#include "common/feed/feed_dispute.h"
#include "common/feed/feed_peers.h"
#include "common/feed/feed_ranges.h"
#include "common/feed/feed_sizes.h"

enum { MESSAGES_A_TURN = 64, TICK_MS = 20, IDLE_MS = 100 };

static void count_invalid(struct plm_feed *feed, struct feed_peer *peer, const char *what)
{
  const int64_t now = plm_clock_ms();
  feed->counters.invalid++;
  if (now - feed->logged_invalid_ms >= 1000) {
    feed->logged_invalid_ms = now;
    plm_warning("invalid message from %s: %s", peer != NULL ? peer->name : "an unknown peer", what);
  }
  if (peer != NULL && ++peer->invalid >= FEED_INVALID_MOST)
    feed_peer_ban(feed, peer, "it breaks the protocol");
}

/* DATA is checked without the mutex, because that is most of the work. */
static plm_status check_data(const struct plm_feed *feed, struct plm_message *message,
                             uint64_t *real_tokens, struct plm_error *error)
{
  const struct plm_header *header = &message->header;
  if (!plm_hash_equal(header->plan, feed->plan_hash) ||
      header->max_length != feed->plan.max_length ||
      header->dtype != feed->tokenizer->token_bytes || header->count == 0)
    return plm_error_set(error, PLM_PROTOCOL, "DATA is of another plan");
  const struct plm_data_shape shape = {feed->tokenizer, feed->plan.max_length, feed->plan.alignment,
                                       header->count};
  PLM_TRY(plm_data_check(&shape, zmq_msg_data(&message->payload), (size_t)header->payload_bytes,
                         real_tokens, error));
  if (*real_tokens != header->real_tokens)
    return plm_error_set(error, PLM_PROTOCOL, "DATA states a wrong number of real tokens");
  return PLM_OK;
}

static void rehello(struct plm_feed *feed, const struct plm_message *message)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_REHELLO, NULL);
  header.packer = message->header.packer;
  (void)plm_message_send(feed->router, message->identity, message->identity_bytes, &header, NULL, 0,
                         NULL); /* it may have left already */
}

static void take_pong(struct plm_feed *feed, struct feed_peer *peer, struct plm_message *message)
{
  struct plm_packer_counters counters;
  struct plm_error error;
  if (plm_counters_decode(zmq_msg_data(&message->payload), (size_t)message->header.payload_bytes,
                          &counters, &error) != PLM_OK) {
    count_invalid(feed, peer, error.what);
    return;
  }
  const uint64_t elapsed = counters.age_ms - peer->counters.age_ms;
  if (elapsed > 0 && elapsed < 60000)
    peer->tokens_per_second =
        1e3 * (double)(counters.tokens - peer->counters.tokens) / (double)elapsed;
  peer->counters = counters;
}

static void answer_ping(struct plm_feed *feed, struct feed_peer *peer)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_PONG, peer);
  (void)feed_peer_send(feed, peer, &header, NULL, 0);
}

/* Takes a message from a connected peer in its current incarnation. */
static void take_from_peer(struct plm_feed *feed, struct feed_peer *peer,
                           struct plm_message *message, uint64_t real_tokens,
                           struct plm_error *error)
{
  peer->heard_ms = plm_clock_ms();
  error->status = PLM_OK;
  switch (message->header.type) {
  case PLM_MESSAGE_DATA:
    if (!feed_ranges_data(feed, peer, message, real_tokens))
      count_invalid(feed, peer, "DATA is not what was asked for");
    break;
  case PLM_MESSAGE_SIZED:
    if (!feed_sizes_answer(feed, peer, message, error))
      feed->counters.dropped++;
    else if (error->status == PLM_PROTOCOL)
      count_invalid(feed, peer, error->what);
    break;
  case PLM_MESSAGE_NACK: feed_ranges_nack(feed, peer, message); break;
  case PLM_MESSAGE_PING: answer_ping(feed, peer); break;
  case PLM_MESSAGE_PONG: take_pong(feed, peer, message); break;
  case PLM_MESSAGE_BYE: feed_peer_gone(feed, peer, "it said BYE"); break;
  default: count_invalid(feed, peer, "a consumer's message from a packer"); break;
  }
}

static void take_message(struct plm_feed *feed, struct plm_message *message)
{
  struct plm_error error = {0};
  uint64_t real_tokens = 0;
  plm_status data = PLM_OK;
  if (message->header.type == PLM_MESSAGE_DATA)
    data = check_data(feed, message, &real_tokens, &error);
  pthread_mutex_lock(&feed->mutex);
  struct feed_peer *peer = feed_peer_find(feed, message->identity, message->identity_bytes);
  const struct plm_header *header = &message->header;
  if (feed_peer_banned(feed, message->identity, message->identity_bytes)) {
    feed->counters.dropped++;
  } else if (header->type == PLM_MESSAGE_HELLO) {
    if (header->consumer != 0 && header->consumer != feed->incarnation) feed->counters.dropped++;
    feed_peer_hello(feed, message);
  } else if (peer == NULL) {
    feed->counters.dropped++;
    if (header->type != PLM_MESSAGE_BYE) rehello(feed, message);
  } else if (header->consumer != feed->incarnation || header->packer != peer->incarnation ||
             !plm_hash_equal(header->run_id, feed->run_id)) {
    feed->counters.dropped++;
  } else if (data != PLM_OK) {
    count_invalid(feed, peer, error.what);
  } else {
    take_from_peer(feed, peer, message, real_tokens, &error);
  }
  pthread_mutex_unlock(&feed->mutex);
  zmq_msg_close(&message->payload);
}

static void take_messages(struct plm_feed *feed)
{
  for (int i = 0; i < MESSAGES_A_TURN; i++) {
    struct plm_message message;
    struct plm_error error;
    const plm_status status = plm_message_receive(feed->router, true, &message, &error);
    if (status == PLM_AGAIN) return;
    if (status == PLM_OK) {
      take_message(feed, &message);
      continue;
    }
    pthread_mutex_lock(&feed->mutex);
    if (status == PLM_PROTOCOL)
      count_invalid(feed, feed_peer_find(feed, message.identity, message.identity_bytes),
                    error.what);
    else
      feed_fail(feed, &error);
    pthread_mutex_unlock(&feed->mutex);
    if (status != PLM_PROTOCOL) return;
  }
}

static void take_events(struct plm_feed *feed)
{
  char reason[256];
  bool lost = false;
  enum plm_link_event event;
  while ((event = plm_monitor_next(feed->monitor, reason)) != PLM_LINK_NONE) {
    const int64_t now = plm_clock_ms();
    lost |= event == PLM_LINK_LOST;
    if (event != PLM_LINK_REFUSED) continue;
    pthread_mutex_lock(&feed->mutex);
    feed->counters.refused++;
    pthread_mutex_unlock(&feed->mutex);
    if (now - feed->logged_refusal_ms < 1000) continue;
    feed->logged_refusal_ms = now;
    plm_warning("refused a connection to the %s's feed: %s", feed->role, reason);
  }
  if (!lost) return;
  pthread_mutex_lock(&feed->mutex);
  feed_peers_probe(feed, plm_clock_ms());
  pthread_mutex_unlock(&feed->mutex);
}

/* Asks for the sizes that plm_feed_epoch_chunks waits for. */
static void tend_sizes(struct plm_feed *feed, int64_t now)
{
  if (!feed->sizes_wanted || feed->peer_count == 0) return;
  struct feed_sizes *sizes = feed_sizes_of(feed, feed->sizes_split, feed->sizes_epoch);
  if (!sizes->complete) feed_sizes_ask(feed, sizes, now);
}

static void say_bye(struct plm_feed *feed)
{
  for (int i = 0; i < FEED_PEERS; i++) {
    struct feed_peer *peer = &feed->peers[i];
    if (!peer->used) continue;
    struct plm_header header = feed_header(feed, PLM_MESSAGE_BYE, peer);
    (void)feed_peer_send(feed, peer, &header, NULL, 0);
  }
}

static void *run(void *argument)
{
  struct plm_feed *feed = argument;
  while (!atomic_load(&feed->closing)) {
    zmq_pollitem_t items[] = {{feed->router, 0, ZMQ_POLLIN, 0},
                              {plm_monitor_socket(feed->monitor), 0, ZMQ_POLLIN, 0},
                              {NULL, feed->wake, ZMQ_POLLIN, 0}};
    pthread_mutex_lock(&feed->mutex);
    const long timeout = feed->head != NULL || feed->wanted ? TICK_MS : IDLE_MS;
    pthread_mutex_unlock(&feed->mutex);
    if (zmq_poll(items, 3, timeout) < 0 && zmq_errno() != EINTR) {
      struct plm_error error;
      (void)plm_error_set(&error, PLM_IO, "poll: %s", zmq_strerror(zmq_errno()));
      pthread_mutex_lock(&feed->mutex);
      feed_fail(feed, &error);
      pthread_mutex_unlock(&feed->mutex);
      break;
    }
    uint64_t wakes;
    if (items[2].revents != 0 && read(feed->wake, &wakes, sizeof wakes) < 0) wakes = 0;
    take_messages(feed);
    take_events(feed);
    const int64_t now = plm_clock_ms();
    pthread_mutex_lock(&feed->mutex);
    feed_peers_tick(feed, now);
    if (feed->welcome_anew) feed_peers_welcome(feed);
    feed->welcome_anew = false;
    tend_sizes(feed, now);
    feed_dispute_tick(feed, now);
    feed_ranges_tick(feed, now);
    pthread_mutex_unlock(&feed->mutex);
  }
  pthread_mutex_lock(&feed->mutex);
  say_bye(feed);
  pthread_mutex_unlock(&feed->mutex);
  return NULL;
}

void feed_loop_wake(struct plm_feed *feed)
{
  const uint64_t one = 1;
  const ssize_t ignored = write(feed->wake, &one, sizeof one);
  (void)ignored; /* it only fails if the counter is full, and then the thread wakes as well */
}

plm_status feed_loop_start(struct plm_feed *feed, struct plm_error *error)
{
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&feed->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&feed->mutex, NULL);
  const plm_status status = plm_thread_start(&feed->thread, "feed", run, feed, error);
  if (status == PLM_OK) return PLM_OK;
  pthread_mutex_destroy(&feed->mutex);
  pthread_cond_destroy(&feed->changed);
  return status;
}

void feed_loop_stop(struct plm_feed *feed)
{
  atomic_store(&feed->closing, true);
  feed_loop_wake(feed);
  pthread_join(feed->thread, NULL);
}
