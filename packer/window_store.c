/* The store of packed windows: three slots, worker threads, and buffers that are reused once libzmq
 * has sent all messages that point into them. */
#include "packer/window_store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/process/thread.h"
#include "common/base/process/wake.h"
#include "packer/store_plan.h"

enum {
  /* The workers may be busy with plans that nobody holds any more, so there is room for those. */
  STORE_PLANS = STORE_PLANS_HELD + STORE_WINDOWS + STORE_PROOFS + 1,
  STORE_SPARE = 3,
  STORE_THREADS = 8
};
/* Label records that were decompressed for a window's tables and wait for its chunks. */
#define STORE_LABELS_LIMIT ((size_t)64 << 20)

struct store_window {
  struct store_plan *plan;
  uint64_t epoch, window;
  enum window_state state;
  struct packed_window *packed; /* WINDOW_READY */
  struct plm_error error;       /* WINDOW_FAILED */
  uint64_t used_at;             /* last pass in which it was requested */
  uint64_t order;               /* workers take the lowest first; 0: a worker has taken it */
  bool served;
};

struct worker {
  pthread_t thread;
  struct window_store *store;
  struct plm_corpus_cursor *cursor;
  struct window_memory memory;
  bool started;
};

struct window_store {
  struct plm_corpus *corpus;
  struct proven_groups *proven;
  int wake;
  struct store_plan plans[STORE_PLANS]; /* the main thread's, except jobs */
  uint64_t plan_uses;
  uint64_t pass;
  struct worker workers[STORE_THREADS];
  unsigned worker_count;

  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t work;
  bool closing;
  struct store_window windows[STORE_WINDOWS];
  uint64_t orders;
  struct store_proof asked[STORE_PROOFS], done[STORE_PROOFS];
  unsigned asked_count, done_count, proofs_working;
  struct packed_window *spare;
  unsigned spare_count;
  uint64_t alive_bytes;   /* of the windows in slots, and of those that were replaced */
  uint64_t replaced_most; /* bytes */
};

int window_store_wake(const struct window_store *store)
{
  return store->wake;
}

void window_store_woken(struct window_store *store)
{
  plm_wake_clear(store->wake);
}

/* ---- buffers ------------------------------------------------------------------------------ */

/* Takes back a buffer whose last reference was released, perhaps by a thread of libzmq. */
static void buffer_back(struct packed_window *packed)
{
  struct window_store *store = packed->owner;
  pthread_mutex_lock(&store->mutex);
  PLM_ASSERT(store->alive_bytes >= packed->capacity);
  PLM_ASSERT(atomic_load(&packed->references) == 0);
  store->alive_bytes -= packed->capacity;
  const bool keep = store->spare_count < STORE_SPARE;
  if (keep) {
    packed->next = store->spare;
    store->spare = packed;
    store->spare_count++;
  }
  pthread_mutex_unlock(&store->mutex);
  if (!keep) packed_window_free(packed);
  plm_wake(store->wake); /* another window may have memory now */
}

static struct packed_window *acquire_buffer(struct window_store *store)
{
  struct packed_window *packed = store->spare;
  if (packed != NULL) {
    PLM_ASSERT(store->spare_count > 0);
    store->spare = packed->next;
    store->spare_count--;
  } else {
    packed = plm_alloc_zeroed(1, sizeof *packed);
  }
  packed->free = buffer_back;
  packed->owner = store;
  atomic_store(&packed->references, 1);
  return packed;
}

/* ---- plans -------------------------------------------------------------------------------- */

/* Forgets a plan that nobody uses, with the windows that were made from it. */
static void close_plan(struct window_store *store, struct store_plan *plan)
{
  struct packed_window *old[STORE_WINDOWS] = {NULL};
  pthread_mutex_lock(&store->mutex);
  PLM_ASSERT(plan->used && plan->holders == 0 && plan->jobs == 0);
  for (int i = 0; i < STORE_WINDOWS; i++) {
    struct store_window *window = &store->windows[i];
    if (window->state == WINDOW_ABSENT || window->plan != plan) continue;
    old[i] = window->packed;
    *window = (struct store_window){.state = WINDOW_ABSENT};
  }
  pthread_mutex_unlock(&store->mutex);
  for (int i = 0; i < STORE_WINDOWS; i++)
    if (old[i] != NULL) packed_window_release(old[i]);
  store_plan_close(plan);
  plan->used = false;
}

/* A free place, or that of the least recently used plan that nobody uses. */
static struct store_plan *plan_place(struct window_store *store)
{
  struct store_plan *place = NULL;
  pthread_mutex_lock(&store->mutex);
  for (int i = 0; i < STORE_PLANS; i++) {
    struct store_plan *plan = &store->plans[i];
    if (plan->used && (plan->holders > 0 || plan->jobs > 0)) continue;
    if (place == NULL || (place->used && (!plan->used || plan->used_at < place->used_at)))
      place = plan;
  }
  pthread_mutex_unlock(&store->mutex);
  PLM_ASSERT(place != NULL); /* only the main thread adds holders and jobs */
  return place;
}

struct store_plan *window_store_plan(struct window_store *store, enum plm_split split,
                                     const struct plm_plan_parameters *parameters,
                                     struct plm_hash hash)
{
  struct store_plan *found = NULL;
  for (int i = 0; i < STORE_PLANS && found == NULL; i++) {
    struct store_plan *plan = &store->plans[i];
    if (plan->used && plan->split == split && plm_hash_equal(plan->hash, hash)) found = plan;
  }
  if (found == NULL) {
    found = plan_place(store);
    if (found->used) close_plan(store, found);
    found->used = true;
    found->split = split;
    found->parameters = *parameters;
    found->hash = hash;
  }
  found->holders++;
  found->used_at = ++store->plan_uses;
  return found;
}

void window_store_drop_plan(struct window_store *store, struct store_plan *plan)
{
  if (plan == NULL) return;
  PLM_ASSERT(plan->holders > 0);
  plan->holders--;
  plan->used_at = ++store->plan_uses;
}

/* ---- workers ------------------------------------------------------------------------------ */

static void make_window(struct worker *worker, struct store_window *window)
{
  struct window_store *store = worker->store;
  struct store_plan *plan = window->plan;
  const uint64_t epoch = window->epoch, index = window->window;
  PLM_ASSERT(window->state == WINDOW_MAKING && window->order == 0 && window->packed == NULL);
  struct packed_window *packed = acquire_buffer(store);
  pthread_mutex_unlock(&store->mutex);
  struct plm_error error = {0};
  struct plm_plan *opened;
  plm_status status = store_plan_open(plan, store->corpus, &opened, &error);
  if (status == PLM_OK)
    status = packed_window_build(packed, &worker->memory, worker->cursor, plan->split, opened,
                                 epoch, index, &error);
  pthread_mutex_lock(&store->mutex);
  store->alive_bytes += packed->capacity;
  if (status == PLM_OK) {
    window->packed = packed;
  } else {
    pthread_mutex_unlock(&store->mutex);
    packed_window_release(packed);
    pthread_mutex_lock(&store->mutex);
  }
  PLM_ASSERT(window->state == WINDOW_MAKING && window->plan == plan); /* nobody takes its place */
  window->error = error;
  window->error.status = status;
  window->served = false;
  window->state = status == PLM_OK ? WINDOW_READY : WINDOW_FAILED;
  PLM_ASSERT((window->packed != NULL) == (window->state == WINDOW_READY) && plan->jobs > 0);
  plan->jobs--;
}

static void make_proof(struct worker *worker, struct store_proof *proof)
{
  struct window_store *store = worker->store;
  struct plm_plan *opened;
  struct plm_error *error = &proof->error;
  plm_status status = store_plan_open_unread(proof->plan, store->corpus, &opened, error);
  if (status == PLM_OK)
    status = window_proof_write(store->corpus, store->proven, worker->cursor, opened, proof, error);
  if (status == PLM_OK) return;
  error->status = status;
  free(proof->bytes);
  proof->bytes = NULL;
}

static struct store_window *next_window(struct window_store *store)
{
  struct store_window *next = NULL;
  for (int i = 0; i < STORE_WINDOWS; i++) {
    struct store_window *window = &store->windows[i];
    if (window->state == WINDOW_MAKING && window->order != 0 &&
        (next == NULL || window->order < next->order))
      next = window;
  }
  return next;
}

static void *window_store_work(void *argument)
{
  struct worker *worker = argument;
  struct window_store *store = worker->store;
  pthread_mutex_lock(&store->mutex);
  while (!store->closing) {
    struct store_window *window = next_window(store);
    if (store->asked_count > 0) {
      struct store_proof proof = store->asked[0];
      memmove(store->asked, store->asked + 1, --store->asked_count * sizeof proof);
      store->proofs_working++;
      pthread_mutex_unlock(&store->mutex);
      make_proof(worker, &proof);
      pthread_mutex_lock(&store->mutex);
      PLM_ASSERT(store->proofs_working > 0 && proof.plan->jobs > 0);
      PLM_ASSERT(store->done_count < STORE_PROOFS); /* as was asked for */
      store->proofs_working--;
      proof.plan->jobs--;
      store->done[store->done_count++] = proof;
    } else if (window != NULL) {
      window->order = 0; /* taken */
      make_window(worker, window);
    } else {
      pthread_cond_wait(&store->work, &store->mutex);
      continue;
    }
    plm_wake(store->wake);
  }
  pthread_mutex_unlock(&store->mutex);
  return NULL;
}

/* ---- the main thread's calls --------------------------------------------------------------- */

void window_store_pass(struct window_store *store)
{
  store->pass++;
}

/* Whether another window may take the slot: soon, if it is not requested yet itself. */
static bool evictable(const struct window_store *store, const struct store_window *window,
                      bool soon)
{
  if (window->state == WINDOW_ABSENT) return true;
  if (window->state == WINDOW_MAKING || window->used_at == store->pass) return false;
  return !soon || window->state == WINDOW_FAILED || window->served;
}

/* The slot that holds a window (*found), or one that it could take, or NULL. The mutex is held. */
static struct store_window *find_place(struct window_store *store, const struct store_plan *plan,
                                       uint64_t epoch, uint64_t window, bool soon, bool *found)
{
  struct store_window *place = NULL;
  for (int i = 0; i < STORE_WINDOWS; i++) {
    struct store_window *candidate = &store->windows[i];
    *found = candidate->state != WINDOW_ABSENT && candidate->plan == plan &&
             candidate->epoch == epoch && candidate->window == window;
    if (*found) return candidate;
    if (evictable(store, candidate, soon) && (place == NULL || candidate->used_at < place->used_at))
      place = candidate;
  }
  return place;
}

/* Bytes of windows that no slot holds any more, but messages that are not sent yet. */
static uint64_t replaced_bytes(const struct window_store *store)
{
  uint64_t held = 0;
  for (int i = 0; i < STORE_WINDOWS; i++)
    if (store->windows[i].packed != NULL) held += store->windows[i].packed->capacity;
  PLM_ASSERT(held <= store->alive_bytes);
  return store->alive_bytes - held;
}

/* Replaces what a slot holds, and tells a worker. The mutex is held; *old is to be released without
 * it. False: there is no slot, or too much memory waits to be sent. */
static bool begin_window(struct window_store *store, struct store_window *place,
                         const struct store_window *window, struct packed_window **old)
{
  if (place == NULL || replaced_bytes(store) > store->replaced_most) return false;
  PLM_ASSERT(place->state != WINDOW_MAKING && window->packed == NULL);
  *old = place->packed;
  *place = *window;
  place->state = WINDOW_MAKING;
  place->used_at = store->pass;
  place->order = ++store->orders;
  place->plan->jobs++;
  pthread_cond_signal(&store->work);
  return true;
}

enum window_state window_store_get(struct window_store *store, struct store_plan *plan,
                                   uint64_t epoch, uint64_t window, bool make,
                                   struct packed_window **packed, struct plm_error *error)
{
  const struct store_window wanted = {.plan = plan, .epoch = epoch, .window = window};
  struct packed_window *old = NULL;
  enum window_state state = WINDOW_ABSENT;
  bool found;
  pthread_mutex_lock(&store->mutex);
  struct store_window *place = find_place(store, plan, epoch, window, false, &found);
  if (found) {
    if (make) place->used_at = store->pass;
    state = place->state;
    *packed = place->packed;
    if (state == WINDOW_FAILED && error != NULL) *error = place->error;
  } else if (make && begin_window(store, place, &wanted, &old)) {
    state = WINDOW_MAKING;
  }
  pthread_mutex_unlock(&store->mutex);
  if (old != NULL) packed_window_release(old);
  return state;
}

bool window_store_prepare(struct window_store *store, struct store_plan *plan, uint64_t epoch,
                          uint64_t window)
{
  const struct store_window wanted = {.plan = plan, .epoch = epoch, .window = window};
  struct packed_window *old = NULL;
  bool found;
  pthread_mutex_lock(&store->mutex);
  struct store_window *place = find_place(store, plan, epoch, window, true, &found);
  const bool begun = found || begin_window(store, place, &wanted, &old);
  pthread_mutex_unlock(&store->mutex);
  if (old != NULL) packed_window_release(old);
  return begun;
}

bool window_store_served(struct window_store *store, const struct packed_window *packed)
{
  bool first = false;
  pthread_mutex_lock(&store->mutex);
  for (int i = 0; i < STORE_WINDOWS; i++) {
    struct store_window *window = &store->windows[i];
    if (window->state != WINDOW_READY || window->packed != packed) continue;
    first = !window->served;
    window->served = true;
  }
  pthread_mutex_unlock(&store->mutex);
  return first;
}

unsigned window_store_standby(struct window_store *store)
{
  unsigned count = 0;
  pthread_mutex_lock(&store->mutex);
  for (int i = 0; i < STORE_WINDOWS; i++)
    count += store->windows[i].state == WINDOW_READY && !store->windows[i].served;
  pthread_mutex_unlock(&store->mutex);
  return count;
}

bool window_store_ask_proof(struct window_store *store, const struct store_proof *ask)
{
  pthread_mutex_lock(&store->mutex);
  const bool room = store->asked_count + store->done_count + store->proofs_working < STORE_PROOFS;
  if (room) {
    store->asked[store->asked_count] = *ask;
    store->asked[store->asked_count++].bytes = NULL;
    ask->plan->jobs++;
    pthread_cond_signal(&store->work);
  }
  pthread_mutex_unlock(&store->mutex);
  return room;
}

bool window_store_pop_proof(struct window_store *store, struct store_proof *done)
{
  pthread_mutex_lock(&store->mutex);
  const bool any = store->done_count > 0;
  if (any) { /* in their order */
    *done = store->done[0];
    memmove(store->done, store->done + 1, --store->done_count * sizeof *done);
  }
  pthread_mutex_unlock(&store->mutex);
  return any;
}

/* ---- opening ------------------------------------------------------------------------------ */

plm_status window_store_open(struct plm_corpus *corpus, unsigned threads, uint64_t replaced_most,
                             struct window_store **store, struct plm_error *error)
{
  struct window_store *made = plm_alloc_zeroed(1, sizeof *made);
  made->corpus = corpus;
  made->replaced_most = replaced_most;
  plm_corpus_share_labels(corpus, STORE_LABELS_LIMIT);
  pthread_mutex_init(&made->mutex, NULL);
  pthread_cond_init(&made->work, NULL);
  for (int i = 0; i < STORE_PLANS; i++) pthread_mutex_init(&made->plans[i].lock, NULL);
  made->worker_count = threads < 1 ? 1 : threads > STORE_THREADS ? STORE_THREADS : threads;
  plm_status status = plm_wake_open(&made->wake, error);
  if (status == PLM_OK) status = proven_groups_open(corpus, &made->proven, error);
  for (unsigned i = 0; i < made->worker_count && status == PLM_OK; i++) {
    struct worker *worker = &made->workers[i];
    worker->store = made;
    status = plm_corpus_cursor_open(corpus, &worker->cursor, error);
    if (status != PLM_OK) break;
    status = plm_thread_start(&worker->thread, "windows", window_store_work, worker, error);
    worker->started = status == PLM_OK;
  }
  if (status != PLM_OK) {
    window_store_close(made);
    return status;
  }
  *store = made;
  return PLM_OK;
}

void window_store_close(struct window_store *store)
{
  if (store == NULL) return;
  pthread_mutex_lock(&store->mutex);
  store->closing = true;
  pthread_cond_broadcast(&store->work);
  pthread_mutex_unlock(&store->mutex);
  for (unsigned i = 0; i < store->worker_count; i++) {
    struct worker *worker = &store->workers[i];
    if (worker->started) pthread_join(worker->thread, NULL);
    if (worker->cursor != NULL) plm_corpus_cursor_close(worker->cursor);
    window_memory_deinit(&worker->memory);
  }
  for (int i = 0; i < STORE_WINDOWS; i++)
    if (store->windows[i].packed != NULL) packed_window_release(store->windows[i].packed);
  while (store->spare != NULL) {
    struct packed_window *next = store->spare->next;
    packed_window_free(store->spare);
    store->spare = next;
  }
  for (unsigned i = 0; i < store->done_count; i++) free(store->done[i].bytes);
  for (int i = 0; i < STORE_PLANS; i++) {
    store_plan_close(&store->plans[i]);
    pthread_mutex_destroy(&store->plans[i].lock);
  }
  proven_groups_close(store->proven);
  if (store->wake >= 0) close(store->wake);
  pthread_mutex_destroy(&store->mutex);
  pthread_cond_destroy(&store->work);
  free(store);
}
