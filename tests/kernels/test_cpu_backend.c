/* The CPU backend below its operators: the pool of threads, memory, prepared products, and how it
 * is opened. */
#include "tests/support/harness/cmocka_all.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/process/pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"
#include "tests/support/harness/must.h"

enum { THREADS_MOST = 5, TILES = 1000, MIB = 1 << 20, GUARD = 64 };

/* ---- the pool -------------------------------------------------------------------------------- */

struct job {
  atomic_int calls[THREADS_MOST], tiles[TILES], wrong;
  uint32_t threads;
  int slow; /* index of a thread that takes longer than the others wait actively; -1: none */
};

static void pause_a_little(void)
{
  const struct timespec pause = {.tv_nsec = 2 * 1000 * 1000};
  nanosleep(&pause, NULL);
}

static void count_call(void *context, uint32_t index, uint32_t count)
{
  struct job *job = context;
  if (job->slow == (int)index) pause_a_little();
  if (index >= job->threads || count != job->threads)
    job->wrong++;
  else
    job->calls[index]++;
}

static void count_tile(void *context, int64_t tile, uint32_t thread)
{
  struct job *job = context;
  if (thread >= job->threads || tile < 0 || tile >= TILES)
    job->wrong++;
  else
    job->tiles[tile]++;
}

/* Also if the caller or a worker is so late that the others have gone to sleep. */
static void each_thread_runs_a_job_once(void **state)
{
  (void)state;
  for (uint32_t threads = 1; threads <= THREADS_MOST; threads++) {
    struct plm_pool *pool;
    struct job job = {.threads = threads};
    assert_int_equal(plm_pool_open(threads, &pool, NULL), PLM_OK);
    assert_int_equal(plm_pool_threads(pool), threads);
    for (int round = 0; round < 300; round++) {
      job.slow = round % 30 == 0 ? round / 30 % (int)threads : -1;
      if (round % 50 == 7) pause_a_little();
      plm_pool_run(pool, count_call, &job);
      for (uint32_t i = 0; i < threads; i++) assert_int_equal(job.calls[i], round + 1);
    }
    assert_int_equal(job.wrong, 0);
    plm_pool_close(pool);
  }
  plm_pool_close(NULL);
}

static void each_tile_is_done_once(void **state)
{
  static const int64_t counts[] = {0, 1, 2, 3, TILES};
  (void)state;
  for (uint32_t threads = 1; threads <= 3; threads++)
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      struct plm_pool *pool;
      struct job job = {.threads = threads};
      assert_int_equal(plm_pool_open(threads, &pool, NULL), PLM_OK);
      for (int round = 1; round <= 3; round++) {
        plm_pool_tiles(pool, counts[i], count_tile, &job);
        for (int64_t tile = 0; tile < TILES; tile++)
          assert_int_equal(job.tiles[tile], tile < counts[i] ? round : 0);
      }
      assert_int_equal(job.wrong, 0);
      plm_pool_close(pool);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Around the MiB at which the work is divided. */
static void memory_is_copied_and_zeroed(void **state)
{
  static const size_t sizes[] = {0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 5};
  (void)state;
  for (uint32_t threads = 1; threads <= 3; threads += 2)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      const size_t size = sizes[i];
      struct plm_ops *ops;
      uint8_t *from = must(malloc(size + GUARD)), *wanted = must(calloc(1, size + GUARD));
      uint8_t *to;
      assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, threads, NULL, &ops, NULL), PLM_OK);
      assert_int_equal(ops->allocate(ops, size + GUARD, (void **)&to, NULL), PLM_OK);
      for (size_t b = 0; b < size + GUARD; b++) from[b] = (uint8_t)(b * 7 + b / 251 + 1);
      memset(to, 0xaa, size + GUARD);
      memset(wanted, 0xaa, size + GUARD);
      memcpy(wanted, from, size);
      ops->copy(ops, to, from, size);
      assert_memory_equal(to, wanted, size + GUARD);
      memset(wanted, 0, size);
      ops->zero(ops, to, size);
      assert_memory_equal(to, wanted, size + GUARD);
      memcpy(wanted, from, size);
      ops->upload(ops, to, from, size);
      assert_memory_equal(to, wanted, size + GUARD);
      memset(from, 0xaa, size + GUARD);
      ops->download(ops, from, to, size);
      assert_memory_equal(from, wanted, size + GUARD);
      ops->release(ops, to);
      ops->close(ops);
      free(from);
      free(wanted);
    }
}

static void buffers_are_aligned(void **state)
{
  static const struct {
    size_t bytes, alignment;
  } cases[] = {{0, 64},           {1, 64}, {64, 64}, {2 * MIB - 1, 64}, {2 * MIB, 2 * MIB},
               {5 * MIB, 2 * MIB}};
  struct plm_ops *ops;
  (void)state;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    void *buffer;
    assert_int_equal(ops->allocate(ops, cases[i].bytes, &buffer, NULL), PLM_OK);
    assert_int_equal((uintptr_t)buffer % cases[i].alignment, 0);
    memset(buffer, 1, cases[i].bytes);
    ops->release(ops, buffer);
  }
  void *buffer;
  struct plm_error error = {0};
  assert_int_equal(ops->allocate(ops, (size_t)1 << 60, &buffer, &error), PLM_NO_MEMORY);
  assert_string_equal(error.what, "no memory for a buffer of 1152921504606846976 bytes");
  ops->close(ops);
}

/* MemAvailable of /proc/meminfo, in bytes. */
static uint64_t available(void)
{
  unsigned long long kib = 0;
  char line[256];
  FILE *file = fopen("/proc/meminfo", "re");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, "MemAvailable:", 13) == 0) kib = strtoull(line + 13, NULL, 10);
  fclose(file);
  assert_true(kib > 0);
  return 1024 * (uint64_t)kib;
}

/* Other processes take and free memory meanwhile, but not half of it. */
static void the_memory_of_the_machine_is_known(void **state)
{
  uint64_t free_bytes = 0, total_bytes = 0;
  struct plm_ops *ops;
  (void)state;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  ops->memory_size(ops, &free_bytes, &total_bytes);
  assert_int_equal(total_bytes,
                   (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
  assert_true(free_bytes > available() / 2 && free_bytes / 2 < available());
  ops->close(ops);
}

/* ---- products -------------------------------------------------------------------------------- */

/* A product belongs to its whole shape. */
static void a_shape_is_prepared_once(void **state)
{
  const struct plm_product_shape shape = {.M = 3, .N = 4, .K = 5, .lda = 6, .ldb = 7, .ldc = 8};
  struct plm_product_shape others[9];
  const struct plm_product *made[10];
  struct plm_products *products;
  (void)state;
  for (int i = 0; i < 9; i++) others[i] = shape;
  others[0].M++;
  others[1].N++;
  others[2].K++;
  others[3].lda++;
  others[4].ldb++;
  others[5].ldc++;
  others[6].transpose_a = 1;
  others[7].transpose_b = 1;
  others[8].accumulate = 1;
  assert_int_equal(plm_products_open(1, &products, NULL), PLM_OK);
  made[9] = plm_products_get(products, &shape);
  assert_non_null(made[9]);
  for (int i = 0; i < 9; i++) {
    made[i] = plm_products_get(products, &others[i]);
    assert_non_null(made[i]);
    for (int j = 0; j < i; j++) assert_ptr_not_equal(made[i], made[j]);
    assert_ptr_not_equal(made[i], made[9]);
  }
  for (int i = 0; i < 9; i++) assert_ptr_equal(plm_products_get(products, &others[i]), made[i]);
  assert_ptr_equal(plm_products_get(products, &shape), made[9]);
  assert_int_equal(plm_products_error(products, NULL), PLM_OK);
  plm_products_close(products);
  plm_products_close(NULL);
}

/* It is reported, and running it does nothing. */
static void a_product_that_cannot_be_prepared_is_an_error(void **state)
{
  const struct plm_product_shape wrong = {
      .M = -1, .N = 4, .K = 5, .lda = 5, .ldb = 4, .ldc = 4, .is_bf16 = 1};
  struct plm_products *products;
  struct plm_error error = {0};
  (void)state;
  if (strncmp(plm_products_library(), "oneDNN ", 7) != 0) skip("the products are not oneDNN's");
  assert_int_equal(plm_products_open(1, &products, NULL), PLM_OK);
  assert_null(plm_products_get(products, &wrong));
  assert_int_equal(plm_products_error(products, &error), PLM_FAILURE);
  assert_int_equal(error.status, PLM_FAILURE);
  assert_non_null(strstr(error.what, "oneDNN cannot prepare a bf16 product of -1 x 4 x 5 (its "));
  assert_int_equal(plm_products_error(products, NULL), PLM_FAILURE);
  plm_product_run(NULL, 0, NULL, NULL, NULL);
  plm_products_close(products);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void wrong_requests_are_refused(void **state)
{
  struct plm_error error = {0};
  struct plm_ops *ops;
  cpu_set_t set;
  (void)state;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 257, NULL, &ops, &error), PLM_LIMIT);
  assert_string_equal(error.what, "257 threads are more than 256");
  assert_null(ops);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, "mmx", &ops, &error), PLM_UNSUPPORTED);
  assert_string_equal(error.what, "unknown instruction set \"mmx\"");
  assert_null(ops);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 256, "portable", &ops, &error), PLM_OK);
  assert_int_equal(ops->threads, 256);
  assert_string_equal(ops->isa, "portable");
  assert_string_equal(ops->name, "cpu");
  assert_string_equal(ops->products, plm_products_library());
  assert_int_equal(ops->act_bytes, 4);
  ops->close(ops);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 0, NULL, &ops, &error), PLM_OK);
  assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
  assert_int_equal(ops->threads, CPU_COUNT(&set) < 256 ? CPU_COUNT(&set) : 256);
  ops->close(ops);
}

/* The workspace grows, and stays where it is as long as it is large enough. */
static void the_workspace_grows(void **state)
{
  struct plm_ops *ops;
  (void)state;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  struct plm_cpu *cpu = plm_cpu_of(ops);
  void *host;
  assert_int_equal(ops->allocate_host(ops, 100, &host, NULL), PLM_OK);
  memset(host, 1, 100);
  ops->release_host(ops, host); /* memory of the host is the backend's as well */
  void *first = plm_cpu_workspace(cpu, 1000);
  assert_non_null(first);
  assert_ptr_equal(plm_cpu_workspace(cpu, 1000), first);
  assert_ptr_equal(plm_cpu_workspace(cpu, 10), first);
  void *larger = plm_cpu_workspace(cpu, 1001);
  assert_non_null(larger);
  memset(larger, 1, 1001);
  assert_ptr_equal(plm_cpu_workspace(cpu, 1001), larger);
  assert_null(plm_cpu_workspace(cpu, (size_t)1 << 60));
  assert_int_equal(ops->synchronize(ops, NULL), PLM_NO_MEMORY);
  struct plm_error error = {0};
  assert_int_equal(ops->synchronize(ops, &error), PLM_NO_MEMORY);
  assert_int_equal(error.status, PLM_NO_MEMORY);
  ops->close(ops);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_thread_runs_a_job_once),
      cmocka_unit_test(each_tile_is_done_once),
      cmocka_unit_test(memory_is_copied_and_zeroed),
      cmocka_unit_test(buffers_are_aligned),
      cmocka_unit_test(the_memory_of_the_machine_is_known),
      cmocka_unit_test(a_shape_is_prepared_once),
      cmocka_unit_test(a_product_that_cannot_be_prepared_is_an_error),
      cmocka_unit_test(wrong_requests_are_refused),
      cmocka_unit_test(the_workspace_grows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
