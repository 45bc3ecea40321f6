/* The feed as its caller uses it: opening, positions, the next chunks, and what is shown. */
#include "common/feed/feed.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/feed/feed_loop.h"
#include "common/feed/feed_ranges.h"
#include "common/feed/feed_sizes.h"

enum { WAIT_SLICE_MS = 100, BYE_LINGER_MS = 200 };

/* ---- opening ------------------------------------------------------------------------------ */

static void set_others(struct plm_welcome *welcome, const char *const *addresses,
                       const char *const *keys, uint32_t count)
{
  welcome->peers = count < PLM_WIRE_PEERS ? count : PLM_WIRE_PEERS;
  for (uint32_t i = 0; i < welcome->peers; i++) {
    snprintf(welcome->address[i], sizeof welcome->address[i], "%s", addresses[i]);
    snprintf(welcome->key[i], sizeof welcome->key[i], "%s",
             keys != NULL && keys[i] != NULL ? keys[i] : "");
  }
}

static plm_status fill(struct plm_feed *feed, const struct plm_feed_options *options,
                       struct plm_error *error)
{
  PLM_TRY(plm_plan_parameters_check(&options->plan, error));
  snprintf(feed->role, sizeof feed->role, "%s", options->role);
  feed->run_id = options->run_id;
  feed->plan = options->plan;
  feed->plan_hash = plm_plan_hash(&options->plan);
  feed->tokenizer = plm_tokenizer_of(options->plan.tokenizer);
  feed->credit_most = options->credit_bytes;
  feed->credit = feed->credit_most < FEED_CREDIT_START ? feed->credit_most : FEED_CREDIT_START;
  feed->wait_packers_ms = (int64_t)(options->wait_packers_s * 1e3);
  feed->fingerprint = options->fingerprint;
  feed->fingerprint_known = options->fingerprint.low != 0 || options->fingerprint.high != 0;
  feed->welcome.plan = options->plan;
  feed->split = options->split;
  feed->seeking = true;
  feed->tail = &feed->head;
  feed->wake = -1;
  feed->progress_ms = feed->rate_ms = plm_clock_ms();
  set_others(&feed->welcome, options->other_addresses, options->other_keys, options->other_count);
  if (getrandom(&feed->incarnation, sizeof feed->incarnation, 0) < 0)
    return plm_error_errno(error, "no random numbers");
  feed->incarnation |= 1; /* 0 means unknown */
  return PLM_OK;
}

static plm_status open_sockets(struct plm_feed *feed, const struct plm_feed_options *options,
                               struct plm_error *error)
{
  feed->context = zmq_ctx_new();
  feed->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (feed->context == NULL || feed->wake < 0)
    return plm_error_errno(error, "cannot open the feed");
  PLM_TRY(plm_endpoint_check(options->endpoint, options->keys, error));
  if (options->keys != NULL) /* the gate must be open before the first bind */
    PLM_TRY(plm_gate_open(feed->context, options->keys, &feed->gate, error));
  PLM_TRY(plm_socket_open(feed->context, ZMQ_ROUTER, PLM_WIRE_DATA_LIMIT, &feed->router, error));
  PLM_TRY(plm_socket_secure_server(feed->router, options->keys, error));
  PLM_TRY(plm_monitor_open(feed->context, feed->router, &feed->monitor, error));
  return plm_socket_bind(feed->router, options->endpoint, options->keys, feed->bound, error);
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
  plm_gate_close(feed->gate);
  if (feed->context != NULL) zmq_ctx_term(feed->context);
  if (feed->wake >= 0) close(feed->wake);
}

plm_status plm_feed_open(const struct plm_feed_options *options, struct plm_feed **feed,
                         struct plm_error *error)
{
  struct plm_feed *made = calloc(1, sizeof *made);
  if (made == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the feed");
  made->wake = -1;
  plm_status status = fill(made, options, error);
  if (status == PLM_OK) status = open_sockets(made, options, error);
  if (status == PLM_OK) status = feed_loop_start(made, error);
  if (status != PLM_OK) {
    close_sockets(made);
    free(made);
    return status;
  }
  *feed = made;
  return PLM_OK;
}

static void free_batches(struct feed_batch *batch)
{
  while (batch != NULL) {
    struct feed_batch *next = batch->next;
    free(batch->tokens);
    free(batch->begin);
    free(batch->documents);
    free(batch);
    batch = next;
  }
}

void plm_feed_close(struct plm_feed *feed)
{
  if (feed == NULL) return;
  feed_loop_stop(feed);
  feed_ranges_clear(feed);
  close_sockets(feed);
  while (feed->spare != NULL) {
    struct feed_range *next = feed->spare->next;
    free(feed->spare);
    feed->spare = next;
  }
  for (int i = 0; i < FEED_EPOCHS; i++) free(feed->sizes[i].counts);
  free_batches(feed->free_batches);
  free_batches(feed->used_batches);
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
  set_others(&feed->welcome, addresses, keys, count);
  feed->welcome_anew = true;
  pthread_mutex_unlock(&feed->mutex);
  feed_loop_wake(feed);
}

void plm_feed_packers_given_up(struct plm_feed *feed, bool given_up)
{
  pthread_mutex_lock(&feed->mutex);
  feed->packers_given_up = given_up;
  pthread_mutex_unlock(&feed->mutex);
}

/* ---- positions ---------------------------------------------------------------------------- */

static void seek(struct plm_feed *feed, enum plm_split split, uint64_t epoch, uint64_t chunk)
{
  feed_ranges_clear(feed);
  feed->split = split;
  feed->epoch = epoch;
  feed->chunk = chunk;
  feed->seeking = true;
}

void plm_feed_seek(struct plm_feed *feed, enum plm_split split, uint64_t epoch, uint64_t chunk)
{
  pthread_mutex_lock(&feed->mutex);
  seek(feed, split, epoch, chunk);
  feed->handed_out = 0;
  feed->wanted = true; /* the I/O thread may now request chunks */
  if (feed->failed.status == PLM_NOT_FOUND) feed->failed.status = PLM_OK; /* another split */
  pthread_mutex_unlock(&feed->mutex);
  feed_loop_wake(feed);
}

void plm_feed_position(const struct plm_feed *feed, uint64_t *epoch, uint64_t *chunk)
{
  struct plm_feed *locked = (struct plm_feed *)(uintptr_t)feed;
  pthread_mutex_lock(&locked->mutex);
  *epoch = feed->epoch;
  *chunk = feed->chunk;
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

static void say_waiting(const struct plm_feed *feed, int64_t waited_ms)
{
  if (feed->peer_count == 0)
    plm_warning("the %s has waited %lld s for a packer; packers connect to %s (plm-packer --corpus "
                "DIR --connect %s%s)",
                feed->role, (long long)(waited_ms / 1000), feed->bound, feed->bound,
                feed->gate != NULL ? " --keys DIR" : "");
  else
    plm_warning("the %s has waited %lld s for chunks; %u packers are connected to %s, but none "
                "answers",
                feed->role, (long long)(waited_ms / 1000), feed->peer_count, feed->bound);
}

/* Waits briefly for the I/O thread, with the mutex held. Anything but PLM_OK ends the wait. */
static plm_status wait_slice(struct plm_feed *feed, struct waiting *waiting,
                             const volatile int *stop, struct plm_error *error)
{
  struct timespec until;
  const int64_t now = plm_clock_ms();
  if (stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0)
    return plm_error_set(error, PLM_INTERRUPTED, "interrupted");
  if (feed->failed.status != PLM_OK) {
    if (error != NULL) *error = feed->failed;
    return feed->failed.status;
  }
  if (waiting->since_ms == 0) waiting->since_ms = waiting->said_ms = now;
  if (feed->progress_ms > waiting->since_ms) waiting->since_ms = feed->progress_ms;
  const int64_t waited = now - waiting->since_ms;
  if (waited >= wait_limit_ms(feed)) {
    (void)plm_error_set(error, PLM_TIMEOUT, "no packer served the %s for %lld s", feed->role,
                        (long long)(waited / 1000));
    return plm_error_hint(error, "packers connect to %s; network.wait_packers_s is the limit",
                          feed->bound);
  }
  if (waited >= FEED_WAITING_MS && now - waiting->said_ms >= FEED_WAITING_MS) {
    waiting->said_ms = now;
    say_waiting(feed, waited);
  }
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += WAIT_SLICE_MS * 1000000L;
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    until.tv_sec++;
  }
  pthread_cond_timedwait(&feed->changed, &feed->mutex, &until);
  return PLM_OK;
}

plm_status plm_feed_epoch_chunks(struct plm_feed *feed, enum plm_split split, uint64_t epoch,
                                 const volatile int *stop, uint64_t *chunks,
                                 struct plm_error *error)
{
  struct waiting waiting = {0};
  plm_status status = PLM_OK;
  pthread_mutex_lock(&feed->mutex);
  feed->sizes_wanted = true;
  feed->sizes_split = split;
  feed->sizes_epoch = epoch;
  feed_loop_wake(feed);
  struct feed_sizes *sizes;
  while (!(sizes = feed_sizes_of(feed, split, epoch))->complete && status == PLM_OK)
    status = wait_slice(feed, &waiting, stop, error);
  feed->sizes_wanted = false;
  *chunks = sizes->chunks;
  pthread_mutex_unlock(&feed->mutex);
  if (status == PLM_OK && *chunks == 0) {
    (void)plm_error_set(error, PLM_NOT_FOUND, "the corpus has no documents in split %s",
                        plm_split_name(split));
    return plm_error_hint(error, "ingest more sequences, or with another --split");
  }
  return status;
}

plm_status plm_feed_corpus(struct plm_feed *feed, const volatile int *stop,
                           struct plm_feed_corpus *corpus, struct plm_error *error)
{
  struct waiting waiting = {0};
  plm_status status = PLM_OK;
  pthread_mutex_lock(&feed->mutex);
  while (!feed->corpus_known && status == PLM_OK) status = wait_slice(feed, &waiting, stop, error);
  if (status == PLM_OK) *corpus = feed->corpus;
  pthread_mutex_unlock(&feed->mutex);
  return status;
}

/* ---- batches ------------------------------------------------------------------------------ */

static plm_status no_memory(struct plm_error *error)
{
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for a batch");
}

/* Takes a free batch with room for the tokens. Its table of documents grows as chunks are copied.
 */
static plm_status take_batch(struct plm_feed *feed, uint32_t chunks, struct feed_batch **taken,
                             struct plm_error *error)
{
  const size_t bytes = (size_t)chunks * feed->plan.max_length * feed->tokenizer->token_bytes;
  struct feed_batch *batch = feed->free_batches;
  if (batch != NULL)
    feed->free_batches = batch->next;
  else if ((batch = calloc(1, sizeof *batch)) == NULL)
    return no_memory(error);
  batch->next = feed->used_batches;
  feed->used_batches = batch;
  batch->document_count = 0;
  *taken = batch;
  if (bytes > batch->token_capacity) {
    free(batch->tokens);
    batch->token_capacity = 0;
    const size_t rounded = (bytes + 63) & ~(size_t)63;
    if ((batch->tokens = aligned_alloc(64, rounded)) == NULL) return no_memory(error);
    batch->token_capacity = rounded;
  }
  if (chunks + 1 > batch->begin_capacity) {
    uint32_t *begin = realloc(batch->begin, (chunks + 1) * sizeof *begin);
    if (begin == NULL) return no_memory(error);
    batch->begin = begin;
    batch->begin_capacity = chunks + 1;
  }
  return PLM_OK;
}

static plm_status grow_documents(struct feed_batch *batch, size_t more, struct plm_error *error)
{
  if (batch->document_count + more <= batch->document_capacity) return PLM_OK;
  const size_t capacity = 2 * (batch->document_count + more) + 64;
  struct plm_chunk_document *documents = realloc(batch->documents, capacity * sizeof *documents);
  if (documents == NULL) return no_memory(error);
  batch->documents = documents;
  batch->document_capacity = capacity;
  return PLM_OK;
}

/* Fills chunks [got, got + count) of the batch from a payload that was checked on arrival. */
static plm_status copy_chunks(const struct plm_feed *feed, struct feed_batch *batch, uint32_t got,
                              uint32_t count, const uint8_t *payload, size_t *used,
                              struct plm_error *error)
{
  const size_t token_bytes = (size_t)feed->plan.max_length * feed->tokenizer->token_bytes;
  const uint8_t *bytes = payload;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t documents = plm_data_read_count(bytes);
    PLM_TRY(grow_documents(batch, documents, error));
    bytes += 4;
    batch->begin[got + i] = (uint32_t)batch->document_count;
    for (uint32_t j = 0; j < documents; j++, bytes += PLM_DATA_DOCUMENT_BYTES)
      plm_data_read_document(bytes, &batch->documents[batch->document_count++]);
    memcpy((uint8_t *)batch->tokens + (got + i) * token_bytes, bytes, token_bytes);
    bytes += token_bytes;
  }
  *used = (size_t)(bytes - payload);
  return PLM_OK;
}

/* Takes the chunks that the first range has. The mutex is held, but released while copying. */
static plm_status take_head(struct plm_feed *feed, struct feed_batch *batch, uint32_t *got,
                            uint32_t chunks, struct plm_error *error)
{
  struct feed_range *range = feed->head;
  const uint32_t left = range->span.count - range->taken;
  const uint32_t count = left < chunks - *got ? left : chunks - *got;
  const uint8_t *payload = (const uint8_t *)zmq_msg_data(&range->payload) + range->taken_bytes;
  size_t used = 0;
  feed->reading = true;
  pthread_mutex_unlock(&feed->mutex);
  const plm_status status = copy_chunks(feed, batch, *got, count, payload, &used, error);
  pthread_mutex_lock(&feed->mutex);
  feed->reading = false;
  PLM_TRY(status);
  range->taken += count;
  range->taken_bytes += used;
  feed->chunk += count;
  feed->consumed_bytes += used;
  *got += count;
  if (range->taken < range->span.count) return PLM_OK;
  if (range->last_of_epoch) {
    feed->epoch++;
    feed->chunk = 0;
  }
  feed_ranges_pop(feed);
  feed_loop_wake(feed);
  return PLM_OK;
}

plm_status plm_feed_next(struct plm_feed *feed, uint32_t chunks, const volatile int *stop,
                         struct plm_batch *batch, struct plm_error *error)
{
  struct feed_batch *taken = NULL;
  struct waiting waiting = {0};
  uint32_t got = 0;
  PLM_ASSERT(chunks > 0);
  pthread_mutex_lock(&feed->mutex);
  const uint64_t epoch = feed->epoch, chunk = feed->chunk;
  if (!feed->wanted) {
    feed->wanted = true;
    feed_loop_wake(feed);
  }
  plm_status status = take_batch(feed, chunks, &taken, error);
  while (status == PLM_OK && got < chunks) {
    if (feed->failed.status == PLM_OK && !feed->dispute.open && feed->head != NULL &&
        feed->head->state == RANGE_READY) {
      status = take_head(feed, taken, &got, chunks, error);
      waiting = (struct waiting){0};
      continue;
    }
    feed->starved = true;
    status = wait_slice(feed, &waiting, stop, error);
  }
  if (status != PLM_OK && got > 0) seek(feed, feed->split, epoch, chunk);
  if (status == PLM_OK) {
    taken->begin[chunks] = (uint32_t)taken->document_count;
    *batch = (struct plm_batch){.chunks = chunks,
                                .max_length = feed->plan.max_length,
                                .token_bytes = feed->tokenizer->token_bytes,
                                .tokens = taken->tokens,
                                .document_begin = taken->begin,
                                .documents = taken->documents,
                                .first_chunk = feed->handed_out};
    feed->handed_out += chunks;
  }
  pthread_mutex_unlock(&feed->mutex);
  if (status != PLM_OK && taken != NULL)
    plm_feed_release(feed, &(struct plm_batch){.tokens = taken->tokens});
  return status;
}

void plm_feed_release(struct plm_feed *feed, struct plm_batch *batch)
{
  pthread_mutex_lock(&feed->mutex);
  for (struct feed_batch **at = &feed->used_batches; *at != NULL; at = &(*at)->next) {
    struct feed_batch *found = *at;
    if (found->tokens != batch->tokens) continue;
    *at = found->next;
    found->next = feed->free_batches;
    feed->free_batches = found;
    break;
  }
  memset(batch, 0, sizeof *batch);
  pthread_mutex_unlock(&feed->mutex);
}

/* ---- what is shown ------------------------------------------------------------------------ */

char *plm_feed_peers_json(struct plm_feed *feed)
{
  cJSON *peers = cJSON_CreateArray();
  pthread_mutex_lock(&feed->mutex);
  const int64_t now = plm_clock_ms();
  for (int i = 0; i < FEED_PEERS; i++) {
    const struct feed_peer *peer = &feed->peers[i];
    if (!peer->used) continue;
    cJSON *row = cJSON_CreateObject();
    const bool standby = peer->serial == feed->prepared && peer->serial != feed->home;
    cJSON_AddStringToObject(row, "packer", peer->name);
    cJSON_AddStringToObject(row, "host", peer->host);
    cJSON_AddNumberToObject(row, "pid", peer->pid);
    cJSON_AddStringToObject(row, "state", standby ? "standby" : "serving");
    cJSON_AddNumberToObject(row, "windows", (double)peer->counters.windows);
    cJSON_AddNumberToObject(row, "documents", (double)peer->counters.documents);
    cJSON_AddNumberToObject(row, "tokens", (double)peer->counters.tokens);
    cJSON_AddNumberToObject(row, "padded_tokens", (double)peer->counters.padded_tokens);
    cJSON_AddNumberToObject(row, "queue", (double)peer->counters.queue);
    cJSON_AddBoolToObject(row, "standby", standby);
    cJSON_AddNumberToObject(row, "rate", peer->tokens_per_second);
    cJSON_AddNumberToObject(row, "age_s", (double)(now - peer->joined_ms) / 1e3);
    cJSON_AddItemToArray(peers, row);
  }
  pthread_mutex_unlock(&feed->mutex);
  char *text = cJSON_PrintUnformatted(peers);
  cJSON_Delete(peers);
  return text;
}

void plm_feed_counters(struct plm_feed *feed, struct plm_feed_counters *counters)
{
  pthread_mutex_lock(&feed->mutex);
  *counters = feed->counters;
  pthread_mutex_unlock(&feed->mutex);
}
