/* Threads of a pool: each takes part in each job once, and each tile is done once. */
#include "common/base/process/pool.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_starts.h"

enum { MOST_THREADS = 5, MOST_TILES = 1000, JOBS = 300 };

static const uint32_t thread_counts[] = {1, 2, 3, MOST_THREADS};
enum { COUNTS = sizeof thread_counts / sizeof *thread_counts };

/* A thread writes only its own fields, without atomics: the pool has to order them. */
struct job {
  uint32_t value; /* what the caller wrote before */
  bool slow;      /* the threads besides the caller take longer */
  uint32_t runs[MOST_THREADS], values[MOST_THREADS], counts[MOST_THREADS];
  uint32_t tiles[MOST_TILES], tile_threads[MOST_TILES];
};

static void pause_ms(long ms)
{
  const struct timespec pause = {.tv_nsec = ms * 1000000};
  nanosleep(&pause, NULL);
}

static void note(void *context, uint32_t index, uint32_t count)
{
  struct job *job = context;
  if (job->slow && index > 0) pause_ms(20);
  job->runs[index]++;
  job->values[index] += job->value;
  job->counts[index] = count;
}

static void each_thread_runs_each_job_once(void **state)
{
  (void)state;
  for (int c = 0; c < COUNTS; c++) {
    const uint32_t threads = thread_counts[c];
    struct plm_pool *pool;
    struct job job = {0};
    uint32_t sum = 0;
    assert_int_equal(plm_pool_open(threads, &pool, NULL), PLM_OK);
    assert_int_equal(plm_pool_threads(pool), threads);
    for (uint32_t j = 1; j <= JOBS; j++) {
      job.slow = j % 100 == 0;
      if (j % 100 == 50) pause_ms(20); /* until they sleep, if they are quick */
      job.value = j;
      sum += j;
      plm_pool_run(pool, note, &job);
      for (uint32_t t = 0; t < MOST_THREADS; t++) {
        assert_int_equal(job.runs[t], t < threads ? j : 0);
        assert_int_equal(job.values[t], t < threads ? sum : 0);
        assert_int_equal(job.counts[t], t < threads ? threads : 0);
      }
    }
    plm_pool_close(pool);
  }
}

static void take_tile(void *context, int64_t tile, uint32_t thread)
{
  struct job *job = context;
  job->tiles[tile]++;
  job->tile_threads[tile] = thread;
}

static void each_tile_is_done_once(void **state)
{
  (void)state;
  static const int64_t tile_counts[] = {0, 1, 2, 3, 7, MOST_TILES - 1};
  for (int c = 0; c < COUNTS; c++) {
    struct plm_pool *pool;
    assert_int_equal(plm_pool_open(thread_counts[c], &pool, NULL), PLM_OK);
    for (size_t k = 0; k < sizeof tile_counts / sizeof *tile_counts; k++) {
      struct job job = {0};
      plm_pool_tiles(pool, tile_counts[k], take_tile, &job);
      for (int64_t i = 0; i < MOST_TILES; i++) {
        assert_int_equal(job.tiles[i], i < tile_counts[k]);
        assert_true(job.tile_threads[i] < thread_counts[c]);
      }
    }
    plm_pool_close(pool);
  }
  plm_pool_close(NULL);
}

static void shares_begin_at_multiples_of_the_grain(void **state)
{
  (void)state;
  static const struct {
    int64_t n, grain, ends[3];
  } rows[] = {
      {10, 4, {4, 8, 10}}, {12, 4, {4, 8, 12}}, {13, 4, {4, 8, 13}}, {4, 4, {0, 0, 4}},
      {5, 4, {0, 4, 5}},   {0, 4, {0, 0, 0}},   {3, 1, {1, 2, 3}},   {7, 1, {2, 4, 7}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (uint32_t t = 0; t < 3; t++) {
      int64_t begin, end;
      plm_pool_share(rows[i].n, rows[i].grain, t, 3, &begin, &end);
      assert_int_equal(begin, t > 0 ? rows[i].ends[t - 1] : 0);
      assert_int_equal(end, rows[i].ends[t]);
    }
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  struct plm_pool *pool = context;
  const plm_status status = plm_pool_open(3, &pool, error);
  assert_true(status == PLM_OK || pool == NULL);
  plm_pool_close(pool);
  return status;
}

static void a_pool_has_all_its_threads_or_is_an_error(void **state)
{
  assert_int_equal(failing_starts_try(open_and_close, state), 2);
}

static void memory_that_is_lacking_is_asked_for_again(void **state)
{
  (void)state;
  struct plm_pool *pool;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  plm_alloc_persist(0);
  for (int at = 0; at < 3; at++) { /* the pool, its threads, and the start of one */
    checked_memory_fail(at);
    assert_int_equal(plm_pool_open(2, &pool, NULL), PLM_OK);
    assert_true(checked_memory_pause() == at && checked_memory_calls() == 4);
    assert_int_equal(plm_pool_threads(pool), 2);
    plm_pool_close(pool);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_thread_runs_each_job_once),
      cmocka_unit_test(each_tile_is_done_once),
      cmocka_unit_test(shares_begin_at_multiples_of_the_grain),
      cmocka_unit_test(a_pool_has_all_its_threads_or_is_an_error),
      cmocka_unit_test(memory_that_is_lacking_is_asked_for_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
