/* Thread pool of the operators: a new generation starts a job, a countdown of workers ends it. */
#include "common/base/process/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/process/thread.h"

/* About 20 us, which is longer than the gaps between the operators of a step and shorter than a
 * time slice. */
enum { SPINS = 2000 };

struct plm_pool {
  uint32_t threads;
  pthread_t *workers;
  uint32_t started;

  pthread_mutex_t mutex;
  pthread_cond_t begun, finished;
  _Alignas(64) atomic_uint generation; /* a new value means a new job, or the end */
  _Alignas(64) atomic_uint pending;    /* workers that have not finished the job */
  _Alignas(64) atomic_llong next_tile;
  bool stopping;

  plm_pool_function function;
  void *context;
};

struct worker_start {
  struct plm_pool *pool;
  uint32_t index;
};

static inline void relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static unsigned wait_for_job(struct plm_pool *pool, unsigned seen)
{
  unsigned now;
  for (int i = 0; i < SPINS; i++) {
    now = atomic_load_explicit(&pool->generation, memory_order_acquire);
    if (now != seen) return now;
    relax();
  }
  pthread_mutex_lock(&pool->mutex);
  while ((now = atomic_load_explicit(&pool->generation, memory_order_acquire)) == seen)
    pthread_cond_wait(&pool->begun, &pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
  return now;
}

static void wait_for_workers(struct plm_pool *pool)
{
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&pool->pending, memory_order_acquire) == 0) return;
    relax();
  }
  pthread_mutex_lock(&pool->mutex);
  while (atomic_load_explicit(&pool->pending, memory_order_acquire) != 0)
    pthread_cond_wait(&pool->finished, &pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument)
{
  const struct worker_start start = *(struct worker_start *)argument;
  free(argument);
  struct plm_pool *pool = start.pool;
  unsigned seen = 0;
  for (;;) {
    seen = wait_for_job(pool, seen);
    if (pool->stopping) return NULL;
    pool->function(pool->context, start.index, pool->threads);
    if (atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_acq_rel) == 1) {
      pthread_mutex_lock(&pool->mutex);
      pthread_cond_signal(&pool->finished);
      pthread_mutex_unlock(&pool->mutex);
    }
  }
}

/* Announces a job, or the end, under the mutex, so that no waiting thread misses it. */
static void pool_announce(struct plm_pool *pool)
{
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add_explicit(&pool->generation, 1, memory_order_acq_rel);
  pthread_cond_broadcast(&pool->begun);
  pthread_mutex_unlock(&pool->mutex);
}

static plm_status start_worker(struct plm_pool *pool, uint32_t index, struct plm_error *error)
{
  struct worker_start *start = plm_alloc(sizeof *start);
  *start = (struct worker_start){pool, index};
  const plm_status status =
      plm_thread_start(&pool->workers[index - 1], "compute", worker_main, start, error);
  if (status != PLM_OK)
    free(start);
  else
    pool->started++;
  return status;
}

plm_status plm_pool_open(uint32_t threads, struct plm_pool **out, struct plm_error *error)
{
  PLM_ASSERT(threads >= 1);
  *out = NULL;
  struct plm_pool *pool = aligned_alloc(64, sizeof *pool);
  while (pool == NULL) {
    plm_alloc_lacks(1, sizeof *pool);
    pool = aligned_alloc(64, sizeof *pool);
  }
  *pool = (struct plm_pool){.threads = threads,
                            .workers = plm_alloc_zeroed(threads, sizeof *pool->workers)};
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->begun, NULL);
  pthread_cond_init(&pool->finished, NULL);

  plm_status status = PLM_OK;
  for (uint32_t i = 1; i < threads && status == PLM_OK; i++) status = start_worker(pool, i, error);
  if (status != PLM_OK) {
    plm_pool_close(pool);
    return status;
  }
  *out = pool;
  return PLM_OK;
}

void plm_pool_close(struct plm_pool *pool)
{
  if (pool == NULL) return;
  pool->stopping = true;
  pool_announce(pool);
  for (uint32_t i = 0; i < pool->started; i++) pthread_join(pool->workers[i], NULL);
  pthread_mutex_destroy(&pool->mutex);
  pthread_cond_destroy(&pool->begun);
  pthread_cond_destroy(&pool->finished);
  free(pool->workers);
  free(pool);
}

uint32_t plm_pool_threads(const struct plm_pool *pool)
{
  return pool->threads;
}

void plm_pool_run(struct plm_pool *pool, plm_pool_function function, void *context)
{
  if (pool->threads == 1) {
    function(context, 0, 1);
    return;
  }
  pool->function = function;
  pool->context = context;
  atomic_store_explicit(&pool->pending, pool->threads - 1, memory_order_relaxed);
  pool_announce(pool);
  function(context, 0, pool->threads);
  wait_for_workers(pool);
}

struct tile_job {
  struct plm_pool *pool;
  plm_pool_tile function;
  void *context;
  int64_t tiles;
};

static void pool_run_tiles(void *context, uint32_t index, uint32_t count)
{
  (void)count;
  const struct tile_job *job = context;
  for (;;) {
    const int64_t tile = atomic_fetch_add_explicit(&job->pool->next_tile, 1, memory_order_relaxed);
    if (tile >= job->tiles) return;
    job->function(job->context, tile, index);
  }
}

void plm_pool_tiles(struct plm_pool *pool, int64_t tiles, plm_pool_tile function, void *context)
{
  if (tiles <= 1) { /* nobody need be woken */
    for (int64_t i = 0; i < tiles; i++) function(context, i, 0);
    return;
  }
  struct tile_job job = {pool, function, context, tiles};
  atomic_store_explicit(&pool->next_tile, 0, memory_order_relaxed);
  plm_pool_run(pool, pool_run_tiles, &job);
}
