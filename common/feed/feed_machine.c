/* The state machine from outside: dispatches messages, takes turns, hands out what is ready. */
#include "common/feed/feed_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/feed/feed_audit.h"
#include "common/feed/feed_dispute.h"
#include "common/feed/feed_peers.h"
#include "common/feed/feed_ranges.h"
#include "common/feed/feed_sizes.h"

/* ---- opening ------------------------------------------------------------------------------ */

void feed_machine_init(struct feed_state *feed, const struct feed_machine_options *options,
                       const struct feed_network *network, int64_t now)
{
  memset(feed, 0, sizeof *feed);
  feed->network = *network;
  snprintf(feed->role, sizeof feed->role, "%s", options->role);
  feed->run_id = options->run_id;
  feed->plan = options->plan;
  feed->plan_hash = plm_plan_hash(&options->plan);
  feed->tokenizer = plm_tokenizer_of(options->plan.tokenizer);
  feed->incarnation = network->draw(network->context) | 1; /* 0 stands for unknown */
  feed->credit_most = options->credit_bytes;
  feed->one_of_several = options->one_of_several;
  feed->credit = feed->credit_most < FEED_CREDIT_START ? feed->credit_most : FEED_CREDIT_START;
  feed->fingerprint = options->fingerprint;
  feed->fingerprint_known = options->fingerprint.low != 0 || options->fingerprint.high != 0;
  feed->welcome.plan = options->plan;
  feed->split = options->split;
  feed->seeking = true;
  feed->tail = &feed->head;
  feed->now_ms = feed->progress_ms = feed->rate_ms = feed->log_filled_ms = now;
  feed->log_left = FEED_LOG_MOST;
}

void feed_machine_deinit(struct feed_state *feed)
{
  feed_ranges_clear(feed);
  while (feed->spare != NULL) {
    struct feed_range *next = feed->spare->next;
    free(feed->spare);
    feed->spare = next;
  }
  for (int i = 0; i < FEED_EPOCHS; i++) {
    free(feed->sizes[i].counts);
    free(feed->sizes[i].sole);
  }
}

/* ---- messages ----------------------------------------------------------------------------- */

static void count_invalid(struct feed_state *feed, struct feed_peer *peer, const char *what)
{
  const int64_t now = feed->now_ms;
  feed->counters.invalid++;
  if (now - feed->logged_invalid_ms >= 1000) {
    feed->logged_invalid_ms = now;
    plm_warning("invalid message from %s: %s", peer != NULL ? peer->name : "an unknown peer", what);
  }
  if (peer != NULL && ++peer->invalid >= FEED_INVALID_MOST)
    feed_peer_ban(feed, peer->packer_id, "it breaks the protocol");
}

plm_status feed_machine_check(const struct feed_state *feed, struct plm_message *message,
                              uint64_t *real_tokens, struct plm_error *error)
{
  const struct plm_header *header = &message->header;
  *real_tokens = 0;
  if (header->type != PLM_MESSAGE_DATA) return PLM_OK;
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

static void rehello(struct feed_state *feed, const struct plm_message *message)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_REHELLO, NULL);
  header.packer = message->header.packer;
  (void)feed->network.send(feed->network.context, message->identity, message->identity_bytes,
                           &header, NULL, 0, NULL); /* it may have left already */
}

static void take_pong(struct feed_state *feed, struct feed_peer *peer, struct plm_message *message)
{
  struct plm_packer_counters counters;
  struct plm_error error;
  if (plm_counters_decode(zmq_msg_data(&message->payload), (size_t)message->header.payload_bytes,
                          &counters, &error) != PLM_OK) {
    count_invalid(feed, peer, error.what);
    return;
  }
  feed_rate_add(&peer->rate, (struct feed_rate_report){counters.age_ms, counters.tokens});
  peer->counters = counters;
}

static void answer_ping(struct feed_state *feed, struct feed_peer *peer)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_PONG, peer);
  (void)feed_peer_send(feed, peer, &header, NULL, 0);
}

/* Takes a message from a connected peer in its current incarnation. */
static void take_from_peer(struct feed_state *feed, struct feed_peer *peer,
                           struct plm_message *message, uint64_t real_tokens,
                           struct plm_error *error)
{
  peer->heard_ms = feed->now_ms;
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

void feed_machine_take(struct feed_state *feed, struct plm_message *message,
                       const struct plm_error *wrong, uint64_t real_tokens, int64_t now)
{
  struct plm_error error = {0};
  feed->now_ms = now;
  struct feed_peer *peer = feed_peer_find(feed, message->identity, message->identity_bytes);
  const struct plm_header *header = &message->header;
  if (feed_peer_banned(feed, message->identity, message->identity_bytes)) {
    feed->counters.dropped++;
  } else if (header->type == PLM_MESSAGE_HELLO) {
    if (header->consumer != 0 && header->consumer != feed->incarnation) feed->counters.dropped++;
    if (!feed_peer_hello(feed, message)) count_invalid(feed, peer, "it is not a valid HELLO");
  } else if (peer == NULL) {
    feed->counters.dropped++;
    if (header->type != PLM_MESSAGE_BYE) rehello(feed, message);
  } else if (header->consumer != feed->incarnation || header->packer != peer->incarnation ||
             !plm_hash_equal(header->run_id, feed->run_id)) {
    feed->counters.dropped++;
  } else if (wrong->status != PLM_OK) {
    count_invalid(feed, peer, wrong->what);
  } else {
    take_from_peer(feed, peer, message, real_tokens, &error);
  }
}

void feed_machine_invalid(struct feed_state *feed, const struct plm_message *message,
                          const char *what, int64_t now)
{
  feed->now_ms = now;
  count_invalid(feed, feed_peer_find(feed, message->identity, message->identity_bytes), what);
}

void feed_machine_lost(struct feed_state *feed, int64_t now)
{
  feed->now_ms = now;
  feed_peers_probe(feed, now);
}

/* ---- turns -------------------------------------------------------------------------------- */

/* Asks for the sizes that plm_feed_epoch_chunks waits for. */
static void tend_sizes(struct feed_state *feed, int64_t now)
{
  if (!feed->sizes_wanted || feed->peer_count == 0) return;
  struct feed_sizes *sizes = feed_sizes_of(feed, feed->sizes_split, feed->sizes_epoch);
  if (!sizes->complete) feed_sizes_ask(feed, sizes, now);
}

void feed_machine_bye(struct feed_state *feed)
{
  for (int i = 0; i < FEED_PEERS; i++) {
    struct feed_peer *peer = &feed->peers[i];
    if (!peer->used) continue;
    struct plm_header header = feed_header(feed, PLM_MESSAGE_BYE, peer);
    (void)feed_peer_send(feed, peer, &header, NULL, 0);
  }
}

void feed_machine_turn(struct feed_state *feed, int64_t now)
{
  feed->now_ms = now;
  feed_peers_tick(feed, now);
  if (feed->welcome_anew) feed_peers_welcome(feed);
  feed->welcome_anew = false;
  tend_sizes(feed, now);
  feed_audit_tick(feed, now);
  feed_dispute_tick(feed, now);
  feed_ranges_tick(feed, now);
}

/* ---- the user's side ---------------------------------------------------------------------- */

void feed_machine_others(struct feed_state *feed, const char *const *addresses,
                         const char *const *keys, uint32_t count)
{
  struct plm_welcome *welcome = &feed->welcome;
  welcome->peers = count < PLM_WIRE_PEERS ? count : PLM_WIRE_PEERS;
  for (uint32_t i = 0; i < welcome->peers; i++) {
    snprintf(welcome->address[i], sizeof welcome->address[i], "%s", addresses[i]);
    snprintf(welcome->key[i], sizeof welcome->key[i], "%s",
             keys != NULL && keys[i] != NULL ? keys[i] : "");
  }
  feed->welcome_anew = true;
}

void feed_machine_seek(struct feed_state *feed, enum plm_split split, uint64_t epoch,
                       uint64_t chunk)
{
  feed_ranges_clear(feed);
  feed->split = split;
  feed->epoch = epoch;
  feed->chunk = chunk;
  feed->seeking = true;
}

bool feed_machine_begin(struct feed_state *feed, uint32_t most, struct feed_ready *ready)
{
  const struct feed_range *range = feed->head;
  if (feed->failed.status != PLM_OK || feed->dispute.open || range == NULL ||
      range->state != RANGE_READY)
    return false;
  const uint32_t left = range->span.count - range->taken;
  ready->chunks = left < most ? left : most;
  ready->payload =
      (const uint8_t *)zmq_msg_data((zmq_msg_t *)&feed->head->payload) + range->taken_bytes;
  feed->reading = true;
  feed_sizes_rely(feed, feed->split, range->span.epoch, range->span.window + 1);
  return true;
}

bool feed_machine_end(struct feed_state *feed, const struct feed_ready *ready, size_t bytes)
{
  struct feed_range *range = feed->head;
  feed->reading = false;
  range->taken += ready->chunks;
  range->taken_bytes += bytes;
  feed->chunk += ready->chunks;
  feed->consumed_bytes += bytes;
  if (range->taken < range->span.count) return false;
  if (range->last_of_epoch) {
    feed_sizes_rely(feed, feed->split, range->span.epoch, UINT64_MAX);
    feed->epoch++;
    feed->chunk = 0;
  }
  feed_ranges_pop(feed);
  return true;
}

void feed_machine_abandon(struct feed_state *feed)
{
  feed->reading = false;
}
