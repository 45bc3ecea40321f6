/* The emulation finds the faults that it exists for: a missing barrier, a copy that was not waited
 * for, a write beyond shared memory, threads that wait for each other forever. A kernel without
 * faults gives the same result in any order of its threads. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ops/device.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/emulation/planted.h"

enum { N = PLM_PLANTED_VALUES, ORDERS = 8, LANES = 32 };

static float in[N], out[N];

/* Launches the kernel once on the device, from `in` to `out`. */
static void run(enum plm_planted fault, int order)
{
  struct plm_ops *ops;
  void *from, *to;
  for (int i = 0; i < N; i++) in[i] = (float)(i + 1);
  plm_emulation_order((uint64_t)order);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, sizeof in, &from, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, sizeof out, &to, NULL), PLM_OK);
  ops->upload(ops, from, in, sizeof in);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  plm_cuda_planted_run(fault, to, from);
  ops->download(ops, out, to, sizeof out);
  ops->release(ops, from);
  ops->release(ops, to);
  ops->close(ops);
}

/* The number of orders that give the reversed values. */
static int right_results(enum plm_planted fault)
{
  int right = 0;
  for (int order = 1; order <= ORDERS; order++) {
    int equal = 0;
    run(fault, order);
    for (int i = 0; i < N; i++) equal += out[i] == in[N - 1 - i];
    right += equal == N;
  }
  return right;
}

static void a_right_kernel_is_right_in_any_order(void **state)
{
  (void)state;
  assert_int_equal(right_results(PLM_PLANTED_NOTHING), ORDERS);
}

static void a_missing_barrier_shows(void **state)
{
  (void)state;
  assert_int_equal(right_results(PLM_PLANTED_MISSING_BARRIER), 0);
}

static void a_copy_that_was_not_waited_for_is_not_there(void **state)
{
  (void)state;
  assert_int_equal(right_results(PLM_PLANTED_MISSING_WAIT), 0);
  assert_true(isnan(out[0]));
}

/* Both warps write the first value; it is that of the warp that comes last. */
static void a_race_of_two_warps_shows(void **state)
{
  (void)state;
  int first[2] = {0, 0};
  for (int order = 1; order <= ORDERS; order++) {
    run(PLM_PLANTED_RACE, order);
    assert_true(out[0] == 1 || out[0] == 33 || out[0] == N);
    first[out[0] == 33]++;
  }
  assert_true(first[0] > 0 && first[1] > 0);
}

/* The value of the first warp's lane that writes last. */
static int last_lane(int order)
{
  run(PLM_PLANTED_LANES, order);
  assert_true(out[0] >= 1 && out[0] <= LANES);
  return (int)out[0] - 1;
}

/* Any lane may be the last one, about as often as any other. A seed always gives the same order. */
static void a_race_of_lanes_shows(void **state)
{
  (void)state;
  int last[LANES] = {0};
  for (int order = 1; order <= LANES * ORDERS; order++) {
    const int lane = last_lane(order);
    last[lane]++;
    assert_int_equal(last_lane(order), lane);
  }
  for (int lane = 0; lane < LANES; lane++) assert_true(last[lane] > 0 && last[lane] < 3 * ORDERS);
}

static void what_nobody_wrote_is_nan(void **state)
{
  (void)state;
#ifndef __SANITIZE_ADDRESS__ /* which keeps locals elsewhere */
  for (int order = 1; order <= ORDERS; order++) {
    run(PLM_PLANTED_LOCALS, order);
    for (int i = 0; i < N; i++) assert_true(isnan(out[i]));
  }
#endif
  assert_int_equal(right_results(PLM_PLANTED_UNWRITTEN), 0);
  assert_true(isnan(out[0]));
#ifndef __SANITIZE_ADDRESS__
  assert_int_equal(right_results(PLM_PLANTED_GLOBAL_READ), 0);
  assert_true(isnan(out[0]));
#endif
}

static void ends_the_process(enum plm_planted fault)
{
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
    run(fault, 1);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_write_beyond_shared_memory_ends_the_process(void **state)
{
  (void)state;
  ends_the_process(PLM_PLANTED_OUT_OF_BOUNDS);
  ends_the_process(PLM_PLANTED_BEFORE);
}

static void a_write_beyond_a_buffer_ends_the_process(void **state)
{
  (void)state;
  ends_the_process(PLM_PLANTED_GLOBAL_WRITE);
#ifdef __SANITIZE_ADDRESS__
  ends_the_process(PLM_PLANTED_GLOBAL_READ);
#endif
}

static void threads_that_never_meet_end_the_process(void **state)
{
  (void)state;
  ends_the_process(PLM_PLANTED_LOST_THREAD);
  ends_the_process(PLM_PLANTED_DIVERGENCE);
}

/* Under ASan device memory is host memory with guarded ends. */
static void the_host_cannot_read_the_devices_memory(void **state)
{
  (void)state;
#ifndef __SANITIZE_ADDRESS__
  struct plm_ops *ops;
  void *buffer;
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, 64, &buffer, NULL), PLM_OK);
  ops->zero(ops, buffer, 64);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*(volatile const char *)buffer);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  ops->release(ops, buffer);
  ops->close(ops);
#endif
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_right_kernel_is_right_in_any_order),
      cmocka_unit_test(a_missing_barrier_shows),
      cmocka_unit_test(a_race_of_two_warps_shows),
      cmocka_unit_test(a_race_of_lanes_shows),
      cmocka_unit_test(what_nobody_wrote_is_nan),
      cmocka_unit_test(a_copy_that_was_not_waited_for_is_not_there),
      cmocka_unit_test(a_write_beyond_shared_memory_ends_the_process),
      cmocka_unit_test(a_write_beyond_a_buffer_ends_the_process),
      cmocka_unit_test(the_host_cannot_read_the_devices_memory),
      cmocka_unit_test(threads_that_never_meet_end_the_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
