/* The MLP's products with relu2 for sm_90a (wgmma, TMA), emulated or on a GPU of compute
 * capability 9.0, compared with double precision; and how a backend chooses them. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/numbers/philox.h"
#include "common/ops/device.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/emulation/planted_hopper.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/device_case.h"

enum { MARGIN = 64, CANARY = 0x4242 }; /* elements around a result, which must not change */

struct problem {
  int64_t N, I, O;
  uint16_t *x, *dy, *w, *hidden, *up_out, *dup; /* the last two have margins */
};

static float number(uint16_t bits)
{
  const uint32_t word = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}

/* Multiples of 1/64 below 2, which are exact in bf16. */
static uint16_t *draw(int64_t n, uint64_t seed, bool squares)
{
  uint16_t *values = must(malloc((size_t)n * sizeof *values));
  for (int64_t i = 0; i < n; i++) {
    const uint32_t word = plm_philox(seed, (uint32_t)i, 0, 97).w[0];
    float x = (float)((int)(word & 255) - 128) / 64;
    if (squares) x = x < 0 ? 0 : x * x * (float)(1 << (word >> 8 & 7)); /* rounded down below */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    values[i] = (uint16_t)(bits >> 16);
  }
  return values;
}

static uint16_t *result(int64_t n)
{
  const size_t count = (size_t)n + (size_t)(2 * MARGIN);
  uint16_t *values = must(malloc(count * sizeof *values));
  memset(values, 0xff, count * sizeof *values); /* NaN, so that unwritten elements show */
  for (size_t i = 0; i < MARGIN; i++) values[i] = values[count - 1 - i] = CANARY;
  return values;
}

static void problem_init(struct problem *p, int64_t N, int64_t I, int64_t O)
{
  *p = (struct problem){.N = N, .I = I, .O = O};
  p->x = draw(N * I, 1, false);
  p->dy = draw(N * O, 2, false);
  p->w = draw(O * I, 3, false);
  p->hidden = draw(N * I, 4, true);
  p->up_out = result(N * O);
  p->dup = result(N * I);
}

static void problem_deinit(struct problem *p)
{
  uint16_t *const all[] = {p->x, p->dy, p->w, p->hidden, p->up_out, p->dup};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Runs both operators on this backend, which stays open. */
static void run_on(struct problem *p, struct plm_ops *ops)
{
  const size_t sizes[] = {(size_t)(p->N * p->I),
                          (size_t)(p->N * p->O),
                          (size_t)(p->O * p->I),
                          (size_t)(p->N * p->I),
                          (size_t)(p->N * p->O + 2 * MARGIN),
                          (size_t)(p->N * p->I + 2 * MARGIN)};
  uint16_t *const hosts[] = {p->x, p->dy, p->w, p->hidden, p->up_out, p->dup};
  uint16_t *at[6];
  for (int i = 0; i < 6; i++) at[i] = device_case_upload(ops, hosts[i], sizes[i] * 2);
  ops->linear_relu2_forward(ops, at[4] + MARGIN, at[0], at[2], p->N, p->I, p->O);
  ops->linear_relu2_backward_input(ops, at[5] + MARGIN, at[1], at[2], at[3], p->N, p->I, p->O);
  ops->linear_relu2_forward(ops, at[4], at[0], at[2], 0, p->I, p->O); /* no rows: nothing */
  ops->linear_relu2_backward_input(ops, at[5], at[1], at[2], at[3], 0, p->I, p->O);
  for (int i = 4; i < 6; i++) device_case_download(ops, hosts[i], at[i], sizes[i] * 2);
  for (int i = 0; i < 6; i++) ops->release(ops, at[i]);
}

static void run(struct problem *p, uint64_t order)
{
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, order);
  run_on(p, ops);
  ops->close(ops);
}

/* The allowed error: half a unit of bf16, which has 8 bits, and the rounding of fp32 sums times the
 * slope by which they enter. */
static bool close_to(uint16_t got, double exact, double magnitude, double slope)
{
  const double half = exact != 0 ? ldexp(1, ilogb(exact) - 8) : 0;
  const double allowed = half + 0x1p-20 * magnitude * slope + 1e-30;
  return fabs((double)number(got) - exact) <= allowed;
}

static const char *wrong_forward(const struct problem *p)
{
  static char text[128];
  for (int64_t n = 0; n < p->N; n++)
    for (int64_t o = 0; o < p->O; o++) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < p->I; i++) {
        const double term = (double)number(p->x[n * p->I + i]) * (double)number(p->w[o * p->I + i]);
        sum += term, magnitude += fabs(term);
      }
      const double up = sum > 0 ? sum : 0;
      if (close_to(p->up_out[MARGIN + n * p->O + o], up * up, magnitude, 2 * fabs(sum) + 1e-3))
        continue;
      snprintf(text, sizeof text, "hidden (%lld, %lld) is %g, not %g", (long long)n, (long long)o,
               (double)number(p->up_out[MARGIN + n * p->O + o]), up * up);
      return text;
    }
  return NULL;
}

static const char *wrong_backward(const struct problem *p)
{
  static char text[128];
  double *sums = must(calloc((size_t)p->I * 2, sizeof *sums)), *magnitudes = sums + p->I;
  const char *wrong = NULL;
  for (int64_t n = 0; n < p->N && wrong == NULL; n++) {
    memset(sums, 0, (size_t)p->I * 2 * sizeof *sums);
    for (int64_t o = 0; o < p->O; o++) {
      const double dy = (double)number(p->dy[n * p->O + o]);
      for (int64_t i = 0; i < p->I; i++) {
        const double term = dy * (double)number(p->w[o * p->I + i]);
        sums[i] += term, magnitudes[i] += fabs(term);
      }
    }
    for (int64_t i = 0; i < p->I && wrong == NULL; i++) {
      const double slope = 2 * sqrt((double)number(p->hidden[n * p->I + i]));
      const uint16_t got = p->dup[MARGIN + n * p->I + i];
      if (close_to(got, sums[i] * slope, magnitudes[i], slope)) continue;
      snprintf(text, sizeof text, "dup (%lld, %lld) is %g, not %g", (long long)n, (long long)i,
               (double)number(got), sums[i] * slope);
      wrong = text;
    }
  }
  free(sums);
  return wrong;
}

static bool margins_stay(const uint16_t *values, int64_t n)
{
  for (int64_t i = 0; i < MARGIN; i++)
    if (values[i] != CANARY || values[MARGIN + n + i] != CANARY) return false;
  return true;
}

static void check(int64_t N, int64_t I, int64_t O)
{
  struct problem p;
  problem_init(&p, N, I, O);
  run(&p, (uint64_t)(N + O));
  const char *wrong = wrong_forward(&p);
  if (wrong == NULL) wrong = wrong_backward(&p);
  if (wrong != NULL)
    fail_msg("%lld rows, %lld to %lld: %s", (long long)N, (long long)I, (long long)O, wrong);
  assert_true(margins_stay(p.up_out, N * O) && margins_stay(p.dup, N * I));
  problem_deinit(&p);
}

static void small_and_whole_tiles(void **state)
{
  (void)state;
  check(1, 8, 8);
  check(128, 64, 256);
  check(128, 256, 64);
}

/* One row more or less than a tile, half a tile, columns that end within a tile; sums that end
 * within a stage, and sums longer than all stages. */
static void tails(void **state)
{
  (void)state;
  check(64, 72, 248);
  check(129, 136, 264);
  check(191, 520, 72);
  check(257, 40, 536);
}

/* More tiles than blocks, and more rows of tiles than a group has; sums of one stage. */
static void many_tiles(void **state)
{
  (void)state;
  check(2200, 8, 264);
  check(300, 264, 520);
  if (device_case_is_real()) check(18001, 72, 264); /* more tiles than a GPU has multiprocessors */
}

static void any_order_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  struct problem one, other;
  problem_init(&one, 200, 328, 264);
  problem_init(&other, 200, 328, 264);
  run(&one, 1);
  for (uint64_t order = 2; order <= 5; order++) {
    run(&other, order);
    assert_memory_equal(one.up_out, other.up_out, (size_t)(200 * 264 + 2 * MARGIN) * 2);
    assert_memory_equal(one.dup, other.dup, (size_t)(200 * 328 + 2 * MARGIN) * 2);
  }
  problem_deinit(&one);
  problem_deinit(&other);
}

/* An infinity or NaN in the operands gives one in the result, not a zero. */
static void what_is_no_number_stays_so(void **state)
{
  (void)state;
  struct problem p;
  problem_init(&p, 3, 16, 16);
  p.x[16] = 0x7fc0;
  p.dy[16] = 0x7fc0;
  run(&p, 1);
  for (int64_t i = 0; i < 16; i++) {
    assert_true(isnan(number(p.up_out[MARGIN + 16 + i])));
    assert_true(isnan(number(p.dup[MARGIN + 16 + i])));
    assert_false(isnan(number(p.up_out[MARGIN + 32 + i])));
  }
  problem_deinit(&p);
}

/* A kernel with a planted fault gives wrong results or ends the process. */
static void faults_are_seen(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  struct problem p;
  problem_init(&p, 136, 328, 264);
  for (int fault = PLM_EVERYWHERE_SOUND; fault < PLM_EVERYWHERE_FAULTS; fault++) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      if (freopen("/dev/null", "w", stderr) == NULL) _exit(9);
      plm_cuda_planted_everywhere((enum plm_planted_everywhere)fault);
      run(&p, 3);
      _exit((wrong_forward(&p) != NULL) + 2 * (wrong_backward(&p) != NULL));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    /* these faults concern a turned B, which only the backward pass has */
    const bool backward = fault == PLM_EVERYWHERE_LEADING || fault == PLM_EVERYWHERE_TURNED;
    /* and these concern attention: rings of one stage, chunks, and what workers exchange. (A named
     * barrier only lets one worker begin before the other.) */
    const bool none = fault == PLM_EVERYWHERE_SOUND || fault == PLM_EVERYWHERE_TURN_FULL ||
                      fault == PLM_EVERYWHERE_TURN_EMPTY || fault == PLM_EVERYWHERE_CHUNK ||
                      fault >= PLM_EVERYWHERE_MATRICES;
    const int expected = none ? 0 : backward ? 2 : 3;
    if (WIFEXITED(status) ? WEXITSTATUS(status) != expected : none)
      fail_msg("fault %d: status %#x", fault, (unsigned)status);
  }
  problem_deinit(&p);
}

/* ---- choices ---- */

static struct plm_ops *open_tuning(uint64_t tuning)
{
  unsetenv("PLM_CUDA_RELU2");
  plm_emulation_tuning(tuning);
  return device_case_open(PLM_PRECISION_BF16, 1);
}

/* The two ways differ in their bits: the library's product is rounded before the pass. */
static bool same(const struct problem *a, const struct problem *b)
{
  return memcmp(a->up_out, b->up_out, (size_t)(a->N * a->O + 2 * MARGIN) * 2) == 0 &&
         memcmp(a->dup, b->dup, (size_t)(a->N * a->I + 2 * MARGIN) * 2) == 0;
}

static void both_ways(struct problem *library, struct problem *fused)
{
  setenv("PLM_CUDA_RELU2", "library", 1);
  run(library, 1);
  setenv("PLM_CUDA_RELU2", "fused", 1);
  run(fused, 1);
  assert_false(same(library, fused));
}

/* On a device of 9.0 whose kernels agree, the library computes products until tuning finds the
 * kernel faster. A backend that imports these algorithms does the same. */
static void tuning_chooses_and_algorithms_keep_it(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  struct problem library, fused, p;
  struct plm_ops *ops;
  struct plm_error error = {0};
  char *algorithms = NULL, *again = NULL;
  uint64_t seed = 0;
  problem_init(&library, 40, 72, 136);
  problem_init(&fused, 40, 72, 136);
  problem_init(&p, 40, 72, 136);
  both_ways(&library, &fused);
  plm_emulation_capability(90, false);
  ops = open_tuning(0);
  run_on(&p, ops);
  assert_true(same(&p, &library)); /* it is not tuned yet */
  ops->close(ops);
  for (bool found = false; !found; seed++) { /* until the kernel is chosen for both products */
    assert_true(seed < 64);
    free(algorithms);
    ops = open_tuning(seed);
    ops->tune(ops, true, NULL);
    run_on(&p, ops);
    assert_int_equal(ops->export_algorithms(ops, &algorithms, NULL), PLM_OK);
    found = strstr(algorithms, "relu2_forward 40 72 136 fused\n") != NULL &&
            strstr(algorithms, "relu2_backward 40 72 136 fused\n") != NULL;
    assert_int_equal(found, same(&p, &fused));
    ops->close(ops);
  }
  ops = open_tuning(99);
  assert_int_equal(ops->import_algorithms(ops, algorithms, NULL), PLM_OK);
  run_on(&p, ops);
  assert_true(same(&p, &fused));
  assert_int_equal(ops->export_algorithms(ops, &again, NULL), PLM_OK);
  assert_string_equal(algorithms, again);
  ops->close(ops);
  plm_emulation_capability(80, false);
  ops = open_tuning(99); /* on a device where the kernel does not run */
  assert_int_equal(ops->import_algorithms(ops, algorithms, &error), PLM_UNSUPPORTED);
  assert_non_null(strstr(error.what, "relu2"));
  ops->close(ops);
  plm_emulation_capability(90, false);
  setenv("PLM_CUDA_RELU2", "fused", 1);
  free(algorithms);
  free(again);
  problem_deinit(&library);
  problem_deinit(&fused);
  problem_deinit(&p);
}

/* A choice that is forced while a run tunes is kept for its resume. */
static void a_forced_choice_is_kept(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  struct problem p;
  char *algorithms;
  problem_init(&p, 40, 72, 136);
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  ops->tune(ops, true, NULL);
  run_on(&p, ops);
  assert_int_equal(ops->export_algorithms(ops, &algorithms, NULL), PLM_OK);
  assert_non_null(strstr(algorithms, "relu2_forward 40 72 136 fused\n"));
  assert_null(strstr(algorithms, "relu2_forward 0 ")); /* which a resume would refuse */
  ops->close(ops);
  free(algorithms);
  problem_deinit(&p);
}

static void damaged_choices_are_named(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  static const char *const damaged[] = {"relu2_sideways 1 8 8 fused\n", "relu2_forward 1 8 fused\n",
                                        "relu2_forward 1 8 8 fast\n", "relu2_forward 0 8 8 fused\n",
                                        "relu2_forward 1 8 8 fused"};
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    struct plm_error error = {0};
    char *algorithms, text[256];
    assert_int_equal(ops->export_algorithms(ops, &algorithms, NULL), PLM_OK);
    snprintf(text, sizeof text, "%s%s", algorithms, damaged[i]);
    assert_int_equal(ops->import_algorithms(ops, text, &error), PLM_FORMAT);
    assert_non_null(strstr(error.what, "relu2_"));
    free(algorithms);
  }
  ops->close(ops);
}

/* On a device of 9.0 whose products are wrong, one of them or all by little, the library is used,
 * tuned or not. */
static void a_device_is_checked(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  struct problem library, fused, p;
  char *algorithms;
  problem_init(&library, 40, 72, 136);
  problem_init(&fused, 40, 72, 136);
  problem_init(&p, 40, 72, 136);
  both_ways(&library, &fused);
  for (int i = 0; i < 2; i++) {
    plm_emulation_capability(90, i == 0);
    if (i == 1) plm_emulation_card("products=large");
    struct plm_ops *ops = open_tuning(1);
    ops->tune(ops, true, NULL);
    run_on(&p, ops);
    assert_int_equal(ops->export_algorithms(ops, &algorithms, NULL), PLM_OK);
    assert_null(strstr(algorithms, "relu2"));
    ops->close(ops);
    free(algorithms);
  }
  plm_emulation_card("products=right");
  plm_emulation_capability(90, false);
  setenv("PLM_CUDA_RELU2", "fused", 1);
  problem_deinit(&library);
  problem_deinit(&fused);
  problem_deinit(&p);
}

static void an_unknown_choice_is_refused(void **state)
{
  (void)state;
  struct plm_ops *ops;
  struct plm_error error = {0};
  if (device_case_is_real()) skip("it tests the emulation");
  setenv("PLM_CUDA_RELU2", "both", 1);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "PLM_CUDA_RELU2=both"));
  assert_non_null(strstr(error.hint, "library or fused"));
  setenv("PLM_CUDA_RELU2", "fused", 1);
}

static void a_device_without_the_kernels_is_refused(void **state)
{
  (void)state;
  struct plm_ops *ops;
  struct plm_error error = {0};
  if (device_case_is_real()) skip("it tests the emulation");
  plm_emulation_capability(80, false);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, &error), PLM_UNSUPPORTED);
  assert_non_null(strstr(error.what, "PLM_CUDA_RELU2=fused"));
  plm_emulation_capability(90, false);
}

int main(void)
{
  plm_emulation_capability(90, false);
  setenv("PLM_CUDA_RELU2", "fused", 1);
  setenv("PLM_CUDA_ATTENTION", "mma", 1); /* a forced choice is not checked */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_and_whole_tiles),
      cmocka_unit_test(tails),
      cmocka_unit_test(many_tiles),
      cmocka_unit_test(any_order_of_threads_gives_the_same_bits),
      cmocka_unit_test(what_is_no_number_stays_so),
      cmocka_unit_test(faults_are_seen),
      cmocka_unit_test(tuning_chooses_and_algorithms_keep_it),
      cmocka_unit_test(a_forced_choice_is_kept),
      cmocka_unit_test(damaged_choices_are_named),
      cmocka_unit_test(a_device_is_checked),
      cmocka_unit_test(an_unknown_choice_is_refused),
      cmocka_unit_test(a_device_without_the_kernels_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
