/* The feed as its caller uses it: opening, positions, the next chunks, and what is shown. */
#include "common/feed/feed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/feed/feed_lanes.h"
#include "common/feed/feed_loop.h"
#include "common/fetch/fetch_server.h"

enum {
  WAIT_SLICE_MS = 100,
  BYE_LINGER_MS = 200,
  HURRIED_MS = 1000,
  /* Limits on connections. An unidentified peer is one that has not sent a message yet. */
  UNIDENTIFIED = 64,
  UNIDENTIFIED_BYTES = (128 << 10) + PLM_LABEL_SCHEMA_LIMIT, /* HELLO and the handshake */
  UNIDENTIFIED_MS = 5000,
  SILENCE_MS = 10000, /* of a connection; packers send PING once a second */
};

/* ---- opening ------------------------------------------------------------------------------ */

static plm_status open_sockets(struct plm_feed *feed, const struct plm_feed_options *options,
                               struct plm_error *error)
{
  PLM_TRY(plm_wake_open(&feed->wake, error));
  PLM_TRY(plm_plan_parameters_check(&options->plan, error));
  const size_t data_most = feed_data_most(&options->plan);
  PLM_TRY(plm_context_open(&feed->context, error));
  if (options->keys != NULL) /* the gate must be open before the first bind */
    PLM_TRY(plm_gate_open(feed->context, options->keys, &feed->gate, error));
  PLM_TRY(plm_socket_open(feed->context, ZMQ_ROUTER, data_most, &feed->router, error));
  PLM_TRY(plm_socket_secure_server(feed->router, options->keys, error));
  PLM_TRY(plm_monitor_open(feed->context, feed->router, &feed->monitor, error));
  PLM_TRY(plm_socket_bind(feed->router, options->endpoint, options->keys, feed->bound, error));
  const struct plm_limiter_limits limits = {.connections = FEED_PEERS + UNIDENTIFIED,
                                            .unidentified = UNIDENTIFIED,
                                            .unidentified_bytes = UNIDENTIFIED_BYTES,
                                            .message_bytes = data_most + PLM_HEADER_BYTES,
                                            .unidentified_ms = UNIDENTIFIED_MS,
                                            .silence_ms = SILENCE_MS};
  return plm_limiter_open(feed->bound, &limits, &feed->limiter, error);
}

static void close_sockets(struct plm_feed *feed)
{
  plm_monitor_close(feed->monitor, feed->router);
  if (feed->router != NULL) {
    const int linger_ms = BYE_LINGER_MS;
    plm_socket_unbind(feed->bound);
    zmq_setsockopt(feed->router, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_close(feed->router);
  }
  plm_limiter_close(feed->limiter);
  plm_gate_close(feed->gate);
  if (feed->context != NULL) zmq_ctx_term(feed->context);
  if (feed->wake >= 0) close(feed->wake);
}

plm_status plm_feed_open(const struct plm_feed_options *options, struct plm_feed **feed,
                         struct plm_error *error)
{
  struct plm_feed *made = plm_alloc_zeroed(1, sizeof *made);
  made->folders = options->folders;
  made->folder_count = options->folder_count;
  made->waiting = options->waiting;
  made->waiting_context = options->waiting_context;
  plm_status status = open_sockets(made, options, error);
  if (status == PLM_OK) status = feed_work_open(made->wake, &made->work, error);
  if (status == PLM_OK) status = feed_lanes_open(made, options, error);
  if (status == PLM_OK) status = feed_loop_start(made, error);
  if (status != PLM_OK) {
    feed_work_close(made->work);
    close_sockets(made);
    feed_lanes_close(made);
    free(made);
    return status;
  }
  *feed = made;
  return PLM_OK;
}

void plm_feed_close(struct plm_feed *feed)
{
  if (feed == NULL) return;
  feed_loop_stop(feed);
  feed_work_close(feed->work);
  plm_fetch_server_close(feed->fetch);
  close_sockets(feed);
  feed_lanes_close(feed);
  feed_batches_deinit(&feed->batches);
  pthread_mutex_destroy(&feed->mutex);
  pthread_cond_destroy(&feed->changed);
  free(feed);
}

const char *plm_feed_bound(const struct plm_feed *feed)
{
  return feed->bound;
}

void plm_feed_others(struct plm_feed *feed, const char *const *addresses, const char *const *keys,
                     uint32_t count)
{
  pthread_mutex_lock(&feed->mutex);
  for (uint32_t k = 0; k < feed->lane_count; k++)
    feed_machine_others(&feed->lanes[k], addresses, keys, count);
  pthread_mutex_unlock(&feed->mutex);
  plm_wake(feed->wake);
}

void plm_feed_packers_given_up(struct plm_feed *feed, bool given_up)
{
  pthread_mutex_lock(&feed->mutex);
  feed->packers_given_up = given_up;
  pthread_mutex_unlock(&feed->mutex);
}

void plm_feed_hurry(struct plm_feed *feed)
{
  pthread_mutex_lock(&feed->mutex);
  feed->hurried = true;
  pthread_mutex_unlock(&feed->mutex);
}

/* ---- positions ---------------------------------------------------------------------------- */

void plm_feed_seek(struct plm_feed *feed, uint32_t source, enum plm_split split,
                   const struct plm_plan_place *place)
{
  PLM_ASSERT(source < feed->lane_count);
  struct feed_state *lane = &feed->lanes[source];
  pthread_mutex_lock(&feed->mutex);
  feed_machine_seek(lane, split, place);
  feed->set_epoch = feed->lanes[0].place.epoch;
  lane->wanted = true; /* the I/O thread may now request chunks */
  if (lane->failed.status == PLM_NOT_FOUND) lane->failed.status = PLM_OK; /* another split */
  if (source == 0) feed->handed_out = 0;
  pthread_mutex_unlock(&feed->mutex);
  plm_wake(feed->wake);
}

void plm_feed_position(const struct plm_feed *feed, uint32_t source,
                       struct plm_feed_position *position)
{
  struct plm_feed *locked = (struct plm_feed *)(uintptr_t)feed;
  PLM_ASSERT(source < feed->lane_count);
  pthread_mutex_lock(&locked->mutex);
  feed_machine_position(&feed->lanes[source], position);
  pthread_mutex_unlock(&locked->mutex);
}

/* ---- waiting ------------------------------------------------------------------------------ */

struct waiting {
  int64_t since_ms, said_ms;
};

static int64_t wait_limit_ms(const struct plm_feed *feed)
{
  return feed->packers_given_up && feed->wait_packers_ms > FEED_GIVEN_UP_MS ? FEED_GIVEN_UP_MS
                                                                            : feed->wait_packers_ms;
}

static void feed_say_waiting(const struct plm_feed *feed, const struct feed_state *lane,
                             int64_t waited_ms)
{
  if (lane->peer_count == 0)
    plm_warning("the %s has waited %lld s for a packer%s; packers connect to %s (plm-packer "
                "--corpus DIR --connect %s%s%s)",
                lane->role, (long long)(waited_ms / 1000), lane->of_source, feed->bound,
                feed->bound, feed->gate != NULL ? " --keys " : "",
                feed->gate != NULL ? plm_gate_keys(feed->gate) : "");
  else
    plm_warning("the %s has waited %lld s for chunks%s; %u packers are connected to %s, but none "
                "answers",
                lane->role, (long long)(waited_ms / 1000), lane->of_source, lane->peer_count,
                feed->bound);
}

/* A failure of any lane ends every wait. */
static plm_status check_lanes(const struct plm_feed *feed, struct plm_error *error)
{
  for (uint32_t k = 0; k < feed->lane_count; k++) {
    const struct plm_error *failed = &feed->lanes[k].failed;
    if (failed->status == PLM_OK) continue;
    if (error != NULL) *error = *failed;
    if (feed->lane_count > 1 && error != NULL && error->where[0] == '\0')
      (void)plm_error_where(error, "corpus%s", feed->lanes[k].of_source);
    return failed->status;
  }
  return PLM_OK;
}

/* The mutex is held, but released for the call, which may write a file. */
static void feed_tell_waiting(struct plm_feed *feed, const struct feed_state *lane)
{
  const uint32_t packers = lane->peer_count;
  if (feed->waiting == NULL) return;
  pthread_mutex_unlock(&feed->mutex);
  feed->waiting(feed->waiting_context, packers);
  pthread_mutex_lock(&feed->mutex);
}

/* Waits briefly for the I/O thread, with the mutex held. Anything but PLM_OK ends the wait. */
static plm_status wait_slice(struct plm_feed *feed, const struct feed_state *lane,
                             struct waiting *waiting, const volatile int *stop,
                             struct plm_error *error)
{
  const int64_t now = plm_clock_ms();
  if (stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0)
    return plm_error_set(error, PLM_INTERRUPTED, "interrupted");
  PLM_TRY(check_lanes(feed, error));
  if (waiting->since_ms == 0) waiting->since_ms = waiting->said_ms = now;
  if (lane->progress_ms > waiting->since_ms) waiting->since_ms = lane->progress_ms;
  const int64_t waited = now - waiting->since_ms;
  if (feed->hurried && lane->peer_count == 0 && waited >= HURRIED_MS)
    return plm_error_set(error, PLM_INTERRUPTED, "interrupted, since there is no packer%s",
                         lane->of_source);
  if (waited >= wait_limit_ms(feed)) {
    (void)plm_error_set(error, PLM_TIMEOUT, "no packer%s served the %s for %lld s", lane->of_source,
                        lane->role, (long long)(waited / 1000));
    return lane->lie[0] != '\0'
               ? plm_error_hint(error, "%s; verify its corpus: plm-pipeline corpus DIR --verify",
                                lane->lie)
               : plm_error_hint(error, "packers connect to %s; network.wait_packers_s is the limit",
                                feed->bound);
  }
  if (waited >= FEED_WAITING_MS && now - waiting->said_ms >= FEED_WAITING_MS) {
    waiting->said_ms = now;
    feed_say_waiting(feed, lane, waited);
  }
  const struct timespec until = plm_clock_after_ms(WAIT_SLICE_MS);
  pthread_cond_timedwait(&feed->changed, &feed->mutex, &until);
  feed_tell_waiting(feed, lane);
  return PLM_OK;
}

static plm_status source_corpus(struct plm_feed *feed, uint32_t source, const volatile int *stop,
                                struct plm_feed_corpus *corpus, struct plm_error *error)
{
  struct waiting waiting = {0};
  plm_status status = PLM_OK;
  PLM_ASSERT(source < feed->lane_count);
  pthread_mutex_lock(&feed->mutex);
  const struct feed_state *lane = &feed->lanes[source];
  while (!lane->corpus_known && status == PLM_OK)
    status = wait_slice(feed, lane, &waiting, stop, error);
  if (status == PLM_OK) *corpus = lane->corpus;
  pthread_mutex_unlock(&feed->mutex);
  return status;
}

plm_status plm_feed_corpus(struct plm_feed *feed, const volatile int *stop,
                           struct plm_feed_corpus *corpus, struct plm_error *error)
{
  return source_corpus(feed, 0, stop, corpus, error);
}

plm_status plm_feed_labels(struct plm_feed *feed, uint32_t source, const volatile int *stop,
                           const struct plm_label_schema **schema, struct plm_error *error)
{
  struct plm_feed_corpus corpus;
  PLM_TRY(source_corpus(feed, source, stop, &corpus, error));
  *schema = corpus.labels;
  return PLM_OK;
}

/* ---- batches ------------------------------------------------------------------------------ */

/* Copies up to `most` chunks that are ready. The mutex is held, but released while copying. */
static plm_status copy_ready(struct plm_feed *feed, struct feed_state *lane,
                             const struct feed_ready *ready, struct feed_batch *batch,
                             uint32_t *got, struct plm_error *error)
{
  pthread_mutex_unlock(&feed->mutex);
  const plm_status status = feed_batch_copy(batch, *got, ready, error);
  pthread_mutex_lock(&feed->mutex);
  if (status == PLM_OK) *got += ready->chunks;
  if (feed_machine_end(lane, ready, status == PLM_OK)) plm_wake(feed->wake);
  return status;
}

/* Fills chunks of the batch up to `end` from one lane; of_epoch: unless the epoch ends before. */
static plm_status dequeue_chunks(struct plm_feed *feed, struct feed_state *lane,
                                 struct feed_batch *batch, uint32_t *got, uint32_t end,
                                 bool of_epoch, const volatile int *stop, struct plm_error *error)
{
  struct waiting waiting = {0};
  struct feed_ready ready;
  plm_status status = PLM_OK;
  while (status == PLM_OK && *got < end) {
    if (of_epoch && lane->place.epoch != feed->set_epoch) break;
    if (feed_machine_begin(lane, end - *got, &ready)) {
      status = copy_ready(feed, lane, &ready, batch, got, error);
      waiting = (struct waiting){0};
      continue;
    }
    lane->starved = true;
    status = wait_slice(feed, lane, &waiting, stop, error);
  }
  return status;
}

static void want_chunks(struct plm_feed *feed)
{
  bool wake = false;
  for (uint32_t k = 0; k < feed->lane_count; k++) {
    wake |= !feed->lanes[k].wanted;
    feed->lanes[k].wanted = true;
  }
  if (wake) plm_wake(feed->wake);
}

/* The chunks of plm_feed_next, or with of_epoch, those of plm_feed_next_of_epoch. The mutex is
 * held.
 */
static plm_status dequeue(struct plm_feed *feed, const uint8_t *sources, uint32_t chunks,
                          bool of_epoch, const volatile int *stop, struct feed_batch *batch,
                          uint32_t *got, struct plm_error *error)
{
  uint32_t end = 0;
  while (*got == end && end < chunks) {
    const uint32_t source = sources != NULL ? sources[end] : 0;
    PLM_ASSERT(source < feed->lane_count);
    do end++;
    while (end < chunks && (sources == NULL || sources[end] == source));
    PLM_TRY(dequeue_chunks(feed, &feed->lanes[source], batch, got, end, of_epoch, stop, error));
  }
  if (*got == 0) feed->set_epoch = feed->lanes[0].place.epoch;
  return PLM_OK;
}

static plm_status next_batch(struct plm_feed *feed, const uint8_t *sources, uint32_t chunks,
                             bool of_epoch, const volatile int *stop, struct plm_batch *batch,
                             struct plm_error *error)
{
  const struct feed_state *first = &feed->lanes[0];
  struct feed_batch *taken = NULL;
  struct feed_place places[PLM_MAX_SOURCES];
  uint32_t got = 0;
  PLM_ASSERT(chunks > 0);
  pthread_mutex_lock(&feed->mutex);
  feed_lanes_places(feed, places);
  want_chunks(feed);
  plm_status status = feed_batch_acquire(&feed->batches, chunks, first->plan.max_length,
                                         first->tokenizer->token_bytes, &taken, error);
  if (status == PLM_OK) status = dequeue(feed, sources, chunks, of_epoch, stop, taken, &got, error);
  if (status == PLM_OK) {
    *batch = feed_batch_view(taken, got, feed->handed_out);
    feed->handed_out += got;
  } else {
    feed_lanes_return(feed, places); /* those that have moved */
    feed_batch_give(&feed->batches, taken->tokens);
  }
  pthread_mutex_unlock(&feed->mutex);
  return status;
}

plm_status plm_feed_next(struct plm_feed *feed, const uint8_t *sources, uint32_t chunks,
                         const volatile int *stop, struct plm_batch *batch, struct plm_error *error)
{
  return next_batch(feed, sources, chunks, false, stop, batch, error);
}

plm_status plm_feed_next_of_epoch(struct plm_feed *feed, uint32_t most, const volatile int *stop,
                                  struct plm_batch *batch, struct plm_error *error)
{
  return next_batch(feed, NULL, most, true, stop, batch, error);
}

void plm_feed_release(struct plm_feed *feed, struct plm_batch *batch)
{
  pthread_mutex_lock(&feed->mutex);
  feed_batch_give(&feed->batches, batch->tokens);
  memset(batch, 0, sizeof *batch);
  pthread_mutex_unlock(&feed->mutex);
}
