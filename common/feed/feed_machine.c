/* The state machine from outside: dispatches messages, takes turns, hands out what is ready. */
#include "common/feed/feed_machine.h"

#include <stdio.h>
#include <string.h>

#include "common/feed/feed_peers.h"
#include "common/feed/feed_ranges.h"
#include "common/feed/feed_requests.h"
#include "common/feed/feed_windows.h"

/* ---- opening ------------------------------------------------------------------------------ */

static void name_source(struct feed_state *feed, uint32_t number, const char *name)
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(feed->fingerprint, hex);
  snprintf(feed->of_source, sizeof feed->of_source, " of source %u, %.200s (fingerprint %s)",
           number, name, hex);
}

void feed_machine_init(struct feed_state *feed, const struct plm_feed_options *options,
                       const struct plm_feed_source_options *source,
                       const struct feed_network *network, int64_t now)
{
  memset(feed, 0, sizeof *feed);
  feed->network = *network;
  snprintf(feed->role, sizeof feed->role, "%s", options->role);
  feed->run_id = options->run_id;
  feed->plan = source->plan;
  feed->plan_hash = plm_plan_hash(&source->plan);
  feed->tokenizer = plm_tokenizer_of(source->plan.tokenizer);
  feed->incarnation = network->draw(network->context) | 1; /* 0 stands for unknown */
  feed->credit_most =
      options->credit_bytes / (options->source_count > 0 ? options->source_count : 1);
  feed->one_of_several = options->one_of_several;
  feed->credit = feed->credit_most < FEED_CREDIT_START ? feed->credit_most : FEED_CREDIT_START;
  feed->fingerprint = source->fingerprint;
  feed->root = source->root;
  if (source->name != NULL) name_source(feed, (uint32_t)(source - options->sources), source->name);
  feed->welcome.plan = source->plan;
  feed->split = options->split;
  feed->seeking = true;
  feed->tail = &feed->head;
  feed->window_tail = &feed->windows;
  feed->now_ms = feed->progress_ms = feed->alone_ms = feed->rate_ms = feed->log_filled_ms = now;
  feed->log_left = FEED_LOG_MOST;
}

void feed_machine_deinit(struct feed_state *feed)
{
  feed_ranges_clear(feed);
  feed_windows_clear(feed);
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    plm_plan_close(feed->plans[split]);
    plm_known_groups_close(feed->known[split]);
  }
  plm_label_schema_deinit(&feed->labels);
}

/* ---- messages ----------------------------------------------------------------------------- */

static void count_invalid(struct feed_state *feed, struct feed_peer *peer, const char *what)
{
  feed->counters.invalid++;
  if (feed_is_time(feed, &feed->logged_invalid_ms, FEED_LOG_SOME_MS))
    plm_warning("invalid message from %s: %s", peer != NULL ? peer->name : "an unknown peer", what);
  if (peer != NULL && ++peer->invalid >= FEED_INVALID_MOST)
    feed_peer_breaks_protocol(feed, peer->packer_id);
}

static void handle_pong(struct feed_state *feed, struct feed_peer *peer,
                        struct plm_message *message)
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
  feed_peer_send(feed, peer, &header, NULL, 0);
}

/* Takes what was asked for. */
static void handle_answer(struct feed_state *feed, struct feed_peer *peer,
                          struct plm_message *message)
{
  const struct plm_header *header = &message->header;
  peer->progress_ms = feed->now_ms;
  const bool asked = header->type == PLM_MESSAGE_PROOF ? feed_windows_proof(feed, peer, message)
                                                       : feed_ranges_data(feed, peer, message);
  /* Otherwise it was asked for before a seek, or another packer was quicker. */
  feed->counters.dropped += !asked;
}

static void feed_machine_handle_nack(struct feed_state *feed, struct feed_peer *peer,
                                     struct plm_message *message)
{
  enum plm_nack_reason reason;
  char text[PLM_WIRE_TEXT + 1];
  struct plm_error error;
  if (plm_nack_decode(zmq_msg_data(&message->payload), (size_t)message->header.payload_bytes,
                      &reason, text, &error) != PLM_OK) {
    count_invalid(feed, peer, error.what);
    return;
  }
  if (feed_is_time(feed, &feed->logged_invalid_ms, FEED_LOG_SOME_MS))
    plm_warning("packer %s does not serve what it was asked for: %s", peer->name, text);
  feed_requests_refused(feed, peer, message->header.request);
}

/* Takes a message from a connected peer in its current incarnation. */
static void handle_from_peer(struct feed_state *feed, struct feed_peer *peer,
                             struct plm_message *message)
{
  peer->heard_ms = feed->now_ms;
  switch (message->header.type) {
  case PLM_MESSAGE_DATA:
  case PLM_MESSAGE_PROOF: handle_answer(feed, peer, message); break;
  case PLM_MESSAGE_NACK: feed_machine_handle_nack(feed, peer, message); break;
  case PLM_MESSAGE_PING: answer_ping(feed, peer); break;
  case PLM_MESSAGE_PONG: handle_pong(feed, peer, message); break;
  case PLM_MESSAGE_BYE: feed_peer_gone(feed, peer, "it said BYE"); break;
  default: count_invalid(feed, peer, "a consumer's message from a packer"); break;
  }
}

void feed_machine_handle(struct feed_state *feed, struct plm_message *message, int64_t now)
{
  feed->now_ms = now;
  struct feed_peer *peer = feed_peer_find(feed, message->routing_id, message->routing_id_bytes);
  const struct plm_header *header = &message->header;
  if (feed_peer_dropped(feed, message->routing_id, message->routing_id_bytes)) {
    feed->counters.dropped++;
  } else if (header->type == PLM_MESSAGE_HELLO) {
    if (header->consumer != 0 && header->consumer != feed->incarnation) feed->counters.dropped++;
    if (!feed_peer_hello(feed, message)) count_invalid(feed, peer, "it is not a valid HELLO");
  } else if (peer == NULL) {
    feed->counters.dropped++;
    if (header->type != PLM_MESSAGE_BYE) feed_peer_reply(feed, message, PLM_MESSAGE_REHELLO, 0, "");
  } else if (header->consumer != feed->incarnation || header->packer != peer->incarnation ||
             !plm_hash_equal(header->run_id, feed->run_id)) {
    feed->counters.dropped++;
  } else {
    handle_from_peer(feed, peer, message);
  }
}

void feed_machine_done(struct feed_state *feed, struct feed_job *job, int64_t now)
{
  const plm_status status = job->error.status;
  const bool lie = status == PLM_CORRUPT || status == PLM_PROTOCOL;
  PLM_ASSERT(job->feed == feed);
  feed->now_ms = now;
  if (status != PLM_OK && !lie) feed_fail(feed, &job->error);
  if (job->tables)
    feed_windows_checked(feed, job, status == PLM_OK);
  else
    feed_ranges_checked(feed, job, status == PLM_OK);
  if (lie) feed_peer_lied(feed, job->packer_id, job->name, &job->error);
  feed->network.changed(feed->network.context);
}

void feed_machine_invalid(struct feed_state *feed, const struct plm_message *message,
                          const char *what, int64_t now)
{
  feed->now_ms = now;
  count_invalid(feed, feed_peer_find(feed, message->routing_id, message->routing_id_bytes), what);
}

void feed_machine_other_version(struct feed_state *feed, const struct plm_message *message,
                                const char *what, int64_t now)
{
  feed->now_ms = now;
  feed_peer_other_version(feed, message, what);
}

void feed_machine_lost(struct feed_state *feed, int64_t now)
{
  feed->now_ms = now;
  feed_peers_probe(feed, now);
}

/* ---- turns -------------------------------------------------------------------------------- */

void feed_machine_bye(struct feed_state *feed)
{
  for (int i = 0; i < FEED_PEERS; i++) {
    struct feed_peer *peer = &feed->peers[i];
    if (!peer->used) continue;
    struct plm_header header = feed_header(feed, PLM_MESSAGE_BYE, peer);
    feed_peer_send(feed, peer, &header, NULL, 0);
  }
}

/* Half the time for which the credit lasts at the measured rate, from 10 ms to FEED_LATE_MS. */
static int64_t late_ms(const struct feed_state *feed)
{
  if (feed->rate <= 0) return FEED_LATE_MS;
  const double half = 500.0 * (double)feed->credit / feed->rate;
  return half >= FEED_LATE_MS ? FEED_LATE_MS : half < 10 ? 10 : (int64_t)half;
}

/* Sets the credit to what the caller uses in 2.5 seconds. It doubles while the caller has to wait,
 * and shrinks slowly. */
static void feed_machine_measure(struct feed_state *feed, int64_t now)
{
  const int64_t elapsed = now - feed->rate_ms;
  if (elapsed < 250) return;
  const double rate = 1e3 * (double)(feed->consumed_bytes - feed->rate_bytes) / (double)elapsed;
  feed->rate_bytes = feed->consumed_bytes;
  feed->rate_ms = now;
  feed->rate = feed->rate > 0 ? 0.7 * feed->rate + 0.3 * rate : rate;
  uint64_t credit = (uint64_t)(2.5 * feed->rate);
  if (feed->starved && credit < 2 * feed->credit) credit = 2 * feed->credit;
  if (!feed->starved && credit < feed->credit) credit = feed->credit - (feed->credit - credit) / 8;
  if (credit < FEED_CREDIT_START) credit = FEED_CREDIT_START;
  feed->credit = credit < feed->credit_most ? credit : feed->credit_most;
  feed->starved = false;
}

void feed_machine_turn(struct feed_state *feed, int64_t now)
{
  feed->now_ms = now;
  feed_peers_tick(feed, now);
  if (feed->welcome_anew) feed_peers_welcome(feed);
  feed->welcome_anew = false;
  feed_machine_measure(feed, now);
  if (!feed->wanted || feed->failed.status != PLM_OK) return;
  const int64_t late = late_ms(feed);
  feed_windows_tick(feed, late);
  feed_ranges_tick(feed, late);
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

void feed_machine_seek(struct feed_state *feed, enum plm_split split,
                       const struct plm_plan_place *place)
{
  PLM_ASSERT(!feed->reading);
  feed->split = split;
  feed->place = *place;
  feed->seeking = true;
  feed_ranges_clear(feed);
  feed_windows_clear(feed);
}

void feed_machine_position(const struct feed_state *feed, struct plm_feed_position *position)
{
  const struct feed_window *window = feed->windows;
  const struct plm_plan *plan = feed->plans[feed->split];
  const bool planned = window != NULL && window->request.state == REQUEST_DONE;
  *position = (struct plm_feed_position){
      .place = feed->place,
      .windows = plan != NULL ? plm_plan_windows(plan) : 0,
      .window_chunks = planned ? window->planned->window.chunks : 0,
  };
}

bool feed_machine_begin(struct feed_state *feed, uint32_t most, struct feed_ready *ready)
{
  const struct feed_range *range = feed->head;
  PLM_ASSERT(!feed->reading);
  if (feed->failed.status != PLM_OK || range == NULL || range->request.state != REQUEST_DONE)
    return false;
  const uint32_t left = range->count - range->taken;
  const struct feed_planned *planned = range->planned;
  ready->planned = planned;
  ready->first = range->first + range->taken;
  ready->chunks = left < most ? left : most;
  ready->payload = (const uint8_t *)zmq_msg_data((zmq_msg_t *)&feed->head->payload) +
                   (planned->offset[ready->first] - planned->offset[range->first]);
  feed->reading = true;
  PLM_ASSERT(planned->epoch == feed->place.epoch && planned->index == feed->place.window &&
             ready->first == feed->place.chunk);
  return true;
}

bool feed_machine_end(struct feed_state *feed, const struct feed_ready *ready, bool used)
{
  struct feed_range *range = feed->head;
  const uint64_t *offset = ready->planned->offset;
  PLM_ASSERT(feed->reading && range != NULL && range->request.state == REQUEST_DONE);
  PLM_ASSERT(ready->first == range->first + range->taken && range->planned == ready->planned);
  feed->reading = false;
  if (!used) return false;
  range->taken += ready->chunks;
  PLM_ASSERT(range->taken <= range->count);
  feed->place.chunk += ready->chunks;
  feed->consumed_bytes += offset[ready->first + ready->chunks] - offset[ready->first];
  feed_windows_leave(feed);
  if (range->taken < range->count) return false;
  feed_ranges_pop(feed);
  return true;
}
