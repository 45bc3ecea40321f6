/* The emulation of sm_90a's instructions gives the right results in any order of threads, and finds
 * faults: reads that are too early, stages that are freed too soon, registers that change under
 * way, barriers that never complete. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/emulation/planted_hopper.h"

enum { N = PLM_PLANTED_SIDE, ORDERS = 32 };

static _Alignas(16) uint16_t a[N * N], b[N * N];
static float scores[2 * N * N], sums[N * N];

static uint16_t to_bf16(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t x)
{
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Small integers, so that every sum is exact. */
static void fill(void)
{
  for (int i = 0; i < N * N; i++) {
    a[i] = to_bf16((float)(i * 7 % 5 - 2));
    b[i] = to_bf16((float)(i * 11 % 7 - 3));
  }
}

static int right_results(enum plm_planted_hopper fault)
{
  static float expected[2 * N * N], expected_sums[N * N];
  memset(expected_sums, 0, sizeof expected_sums);
  for (int t = 0; t < 2; t++)
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        float *score = &expected[(t * N + i) * N + j];
        *score = 0;
        if (i + 32 * t >= N || j + 32 * t >= N) continue;
        for (int k = 0; k < N; k++)
          *score += from_bf16(a[(i + 32 * t) * N + k]) * from_bf16(b[(j + 32 * t) * N + k]);
        for (int k = 0; k < N; k++)
          expected_sums[i * N + k] +=
              from_bf16(to_bf16(*score)) * from_bf16(b[(j + 32 * t) * N + k]);
      }
  int right = 0;
  for (int order = 1; order <= ORDERS; order++) {
    plm_emulation_order((uint64_t)order);
    plm_cuda_planted_hopper_run(fault, scores, sums, a, b);
    right += memcmp(scores, expected, sizeof scores) == 0 &&
             memcmp(sums, expected_sums, sizeof sums) == 0;
  }
  return right;
}

static void right_in_any_order(void **state)
{
  (void)state;
  fill();
  assert_int_equal(right_results(PLM_PLANTED_SOUND), ORDERS);
}

static void early_reads_and_late_ones_show(void **state)
{
  (void)state;
  fill();
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
    const int right = right_results(PLM_PLANTED_FULL_WAIT);
    _exit(right == ORDERS ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_true(right_results(PLM_PLANTED_EARLY_RELEASE) < ORDERS);
  assert_int_equal(right_results(PLM_PLANTED_PRODUCT_WAIT), 0);
}

static void faults_end_the_process(void **state)
{
  (void)state;
  fill();
  for (int fault = PLM_PLANTED_FENCE; fault < PLM_PLANTED_HOPPER_FAULTS; fault++) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
      plm_cuda_planted_hopper_run((enum plm_planted_hopper)fault, scores, sums, a, b);
      _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) fail_msg("fault %d is not found", fault);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(right_in_any_order),
      cmocka_unit_test(early_reads_and_late_ones_show),
      cmocka_unit_test(faults_end_the_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
