/* Products of bf16 operands by fp32 products: which processors compute them so, and that results
 * are those of the fp32 backend on the same values, rounded once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/ops/device.h"
#include "common/ops/ops.h"
#include "kernels/cpu/bf16_products.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"
#include "tests/support/harness/cmocka_all.h"

/* ---- the table ---- */
static void the_table_decides(void **state)
{
  (void)state;
  static const struct {
    struct plm_bf16_machine machine;
    bool has, faster;
  } cases[] = {
      {{PLM_PROCESSOR_PORTABLE, "GenuineIntel", 206}, false, false},
      {{PLM_PROCESSOR_AVX2, "GenuineIntel", 206}, false, false},
      {{PLM_PROCESSOR_AVX2, "AuthenticAMD", 301}, false, false},
      {{PLM_PROCESSOR_AVX512, "GenuineIntel", 206}, false, false},
      {{PLM_PROCESSOR_AVX512, "AuthenticAMD", 206}, false, false},
      {{PLM_PROCESSOR_AVX512_BF16, "GenuineIntel", 206}, true, false},
      {{PLM_PROCESSOR_AVX512_BF16, "GenuineIntel", 301}, true, false},
      {{PLM_PROCESSOR_AVX512_BF16, "", 206}, true, false},
      {{PLM_PROCESSOR_AVX512_BF16, "AuthenticAMD", 206}, true, true},
      {{PLM_PROCESSOR_AVX512_BF16, "AuthenticAMD", 301}, true, true},
      {{PLM_PROCESSOR_AVX512_BF16, "AuthenticAMD", 205}, true, false},
      {{PLM_PROCESSOR_AMX, "GenuineIntel", 206}, true, true},
      {{PLM_PROCESSOR_AMX, "GenuineIntel", 301}, true, true},
      {{PLM_PROCESSOR_AMX, "", 206}, true, true},
      {{PLM_PROCESSOR_AMX, "GenuineIntel", 205}, true, false},
      {{PLM_PROCESSOR_AMX, "GenuineIntel", 0}, false, false}, /* a CBLAS */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_bf16_machine *machine = &cases[i].machine;
    assert_int_equal(plm_bf16_has_native(machine), cases[i].has);
    assert_int_equal(plm_bf16_is_faster(machine), cases[i].faster);
    const char *gain = plm_bf16_gain(machine);
    const char *start = cases[i].faster ? "bf16 is faster than fp32 here: its products "
                                        : "bf16 saves memory but no time here: its products ";
    assert_memory_equal(gain, start, strlen(start));
    assert_non_null(strstr(gain, !cases[i].faster                      ? "fp32 ones"
                                 : machine->level == PLM_PROCESSOR_AMX ? "AMX"
                                                                       : "AVX512_BF16"));
  }
}

/* The machine is described by the lesser of its own level and the library's. */
static void the_machine_is_described(void **state)
{
  (void)state;
  const struct plm_bf16_machine machine = plm_bf16_machine();
  const struct plm_products_kind library = plm_products_kind();
  assert_true(machine.level <= plm_processor_level() && machine.level <= library.level);
  assert_int_equal(machine.library, library.version);
  char start[32];
  snprintf(start, sizeof start, "oneDNN %u.%u.", library.version / 100, library.version % 100);
  const bool is_onednn = strncmp(plm_products_library(), start, strlen(start)) == 0;
  assert_int_equal(is_onednn, library.version > 0);
#if defined(__x86_64__)
  assert_int_equal(strlen(machine.vendor), 12);
#endif
}

static struct plm_ops *open_as(enum plm_precision precision, enum plm_bf16_products by,
                               uint32_t threads)
{
  const struct plm_cpu_request request = {.precision = precision, .bf16 = by, .threads = threads};
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open_as(&request, &ops, NULL), PLM_OK);
  return ops;
}

static void expect_opened(enum plm_precision precision, enum plm_bf16_products wanted, size_t bytes,
                          const char *by)
{
  struct plm_ops *ops = open_as(precision, wanted, 1);
  assert_int_equal(ops->act_bytes, bytes);
  if (by == NULL)
    assert_null(ops->bf16_products);
  else
    assert_string_equal(ops->bf16_products, by);
  ops->close(ops);
}

static void the_choice_is_kept(void **state)
{
  (void)state;
  const struct plm_bf16_machine machine = plm_bf16_machine();
  const bool faster = plm_bf16_is_faster(&machine), has = plm_bf16_has_native(&machine);
  expect_opened(PLM_PRECISION_FP32, PLM_BF16_AUTO, 4, NULL);
  expect_opened(PLM_PRECISION_FP32, PLM_BF16_BY_FP32, 4, NULL);
  expect_opened(PLM_PRECISION_AUTO, PLM_BF16_AUTO, faster ? 2 : 4, faster ? "native" : NULL);
  expect_opened(PLM_PRECISION_BF16, PLM_BF16_AUTO, 2, faster ? "native" : "fp32");
  expect_opened(PLM_PRECISION_BF16, PLM_BF16_BY_FP32, 2, "fp32");
  if (has) {
    expect_opened(PLM_PRECISION_BF16, PLM_BF16_NATIVE, 2, "native");
    return;
  }
  const struct plm_cpu_request native = {
      .precision = PLM_PRECISION_BF16, .bf16 = PLM_BF16_NATIVE, .threads = 1};
  struct plm_error error = {0};
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open_as(&native, &ops, &error), PLM_UNSUPPORTED);
  assert_non_null(strstr(error.what, "has no bf16 instructions"));
  assert_null(ops);
}

/* ---- values ---- */
/* An operand in both precisions; all floats are values that bf16 has. */
struct pair {
  bf16 *narrow;
  float *wide;
  int64_t n;
};

static struct pair make_pair(struct plm_ops *ops, uint64_t seed, int64_t n, float scale)
{
  struct pair pair = {malloc((size_t)n * sizeof(bf16)), malloc((size_t)n * sizeof(float)), n};
  assert_non_null(pair.narrow);
  assert_non_null(pair.wide);
  for (int64_t i = 0; i < n; i++)
    pair.wide[i] =
        scale * ((float)plm_philox_unit(plm_philox(seed, 0, (uint64_t)i, 98).w[0]) - 0.5f);
  ops->float_to_bf16(ops, pair.narrow, pair.wide, (size_t)n);
  ops->bf16_to_float(ops, pair.wide, pair.narrow, (size_t)n);
  return pair;
}

static void free_pair(struct pair *pair)
{
  free(pair->narrow);
  free(pair->wide);
}

/* The float results, rounded, are the bf16 results. */
static void expect_rounded(struct plm_ops *ops, const struct pair *result)
{
  bf16 *rounded = malloc((size_t)result->n * sizeof *rounded);
  assert_non_null(rounded);
  ops->float_to_bf16(ops, rounded, result->wide, (size_t)result->n);
  assert_memory_equal(result->narrow, rounded, (size_t)result->n * sizeof *rounded);
  free(rounded);
}

/* Runs the linear operators of both backends on the same values. */
static void linear_is_rounded(struct plm_ops *narrow, struct plm_ops *wide, int64_t N, int64_t I,
                              int64_t O)
{
  struct pair x = make_pair(narrow, 1, N * I, 4), w = make_pair(narrow, 2, O * I, 1);
  struct pair y = make_pair(narrow, 3, N * O, 4), from = make_pair(narrow, 4, N * O, 4);
  struct pair dx = make_pair(narrow, 5, N * I, 4);
  narrow->linear_forward(narrow, y.narrow, x.narrow, w.narrow, NULL, N, I, O);
  wide->linear_forward(wide, y.wide, x.wide, w.wide, NULL, N, I, O);
  expect_rounded(narrow, &y);
  narrow->linear_forward(narrow, y.narrow, x.narrow, w.narrow, from.narrow, N, I, O);
  wide->linear_forward(wide, y.wide, x.wide, w.wide, from.wide, N, I, O);
  expect_rounded(narrow, &y);
  narrow->linear_backward_input(narrow, dx.narrow, from.narrow, w.narrow, N, I, O, true);
  wide->linear_backward_input(wide, dx.wide, from.wide, w.wide, N, I, O, true);
  expect_rounded(narrow, &dx);
  narrow->linear_backward_input(narrow, dx.narrow, from.narrow, w.narrow, N, I, O, false);
  wide->linear_backward_input(wide, dx.wide, from.wide, w.wide, N, I, O, false);
  expect_rounded(narrow, &dx);
  float *dw[2];
  for (int i = 0; i < 2; i++) {
    dw[i] = malloc((size_t)(O * I) * sizeof(float));
    assert_non_null(dw[i]);
    for (int64_t k = 0; k < O * I; k++) dw[i][k] = (float)(k % 7);
  }
  narrow->linear_backward_weight(narrow, dw[0], from.narrow, x.narrow, N, I, O);
  wide->linear_backward_weight(wide, dw[1], from.wide, x.wide, N, I, O);
  assert_memory_equal(dw[0], dw[1], (size_t)(O * I) * sizeof(float));
  assert_int_equal(narrow->synchronize(narrow, NULL), PLM_OK);
  assert_int_equal(wide->synchronize(wide, NULL), PLM_OK);
  for (int i = 0; i < 2; i++) free(dw[i]);
  free_pair(&x);
  free_pair(&w);
  free_pair(&y);
  free_pair(&from);
  free_pair(&dx);
}

/* Columns that are cut (few rows, many columns), whole and partial tiles of rows, panels. */
static void results_are_those_of_fp32(void **state)
{
  (void)state;
  static const int64_t shapes[][3] = {{1, 24, 700},  {7, 300, 16},   {33, 64, 48}, {200, 264, 260},
                                      {300, 40, 72}, {4129, 16, 24}, {530, 49, 28}};
  for (uint32_t threads = 1; threads <= 3; threads += 2) {
    struct plm_ops *narrow = open_as(PLM_PRECISION_BF16, PLM_BF16_BY_FP32, threads);
    struct plm_ops *wide = open_as(PLM_PRECISION_FP32, PLM_BF16_AUTO, threads);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      linear_is_rounded(narrow, wide, shapes[i][0], shapes[i][1], shapes[i][2]);
    narrow->close(narrow);
    wide->close(wide);
  }
}

/* ---- memory ---- */
/* What products of a shape have left as workspace is what was expected. Rows may be padded, to 128
 * at most. */
static void expect_workspace(struct plm_ops *ops, size_t floats, int64_t I, int64_t O)
{
  const size_t padding = (size_t)(128 * (I + O)) * sizeof(float), wanted = floats * sizeof(float);
  const size_t taken = plm_cpu_of(ops)->workspace_bytes;
  if (taken > wanted + padding || taken + padding < wanted)
    fail_msg("%zu bytes were expected, and %zu taken (%lld x %lld)", wanted, taken, (long long)I,
             (long long)O);
  ops->release_workspace(ops);
  assert_int_equal(plm_cpu_of(ops)->workspace_bytes, 0);
  assert_null(plm_cpu_of(ops)->workspace);
}

static void products_take(struct plm_ops *ops, int64_t N, int64_t I, int64_t O, size_t activations,
                          size_t weights)
{
  struct pair x = make_pair(ops, 1, N * I, 4), w = make_pair(ops, 2, O * I, 1);
  struct pair y = make_pair(ops, 3, N * O, 4);
  float *dw = calloc((size_t)(O * I), sizeof *dw);
  assert_non_null(dw);
  const size_t most = activations > weights ? activations : weights;
  assert_int_equal(ops->linear_scratch(ops, N, I, O), most * sizeof(float));
  ops->release_workspace(ops);
  ops->linear_forward(ops, y.narrow, x.narrow, w.narrow, NULL, N, I, O);
  ops->linear_backward_input(ops, x.narrow, y.narrow, w.narrow, N, I, O, false);
  expect_workspace(ops, activations, I, O);
  ops->linear_backward_weight(ops, dw, y.narrow, x.narrow, N, I, O);
  expect_workspace(ops, weights, I, O);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  free(dw);
  free_pair(&x);
  free_pair(&w);
  free_pair(&y);
}

/* Threads that have no tile take no memory for it. A panel has the rows of the largest share of the
 * weights, in units of 16 rows, and 16 more. */
static void the_memory_is_what_is_estimated(void **state)
{
  (void)state;
  static const struct {
    uint32_t threads;
    int64_t N, I, O;
    size_t activations, weights;
  } cases[] = {
      {1, 100, 64, 400, 64 * 400 + 100 * 464, 100 * (416 + 64)},
      {1, 1000, 48, 32, 48 * 32 + 256 * 80, 256 * (48 + 48)},
      {8, 256, 512, 512, 512 * 512 + 256 * 1024, 8 * 256 * (80 + 512)}, /* one tile */
      {8, 8, 300, 400, 300 * 400 + 8 * 700, 8 * 8 * (80 + 300)},        /* a small one */
      {8, 300, 24, 16, 24 * 16 + 2 * 256 * 40, 8 * 256 * (32 + 24)},
      {2, 768, 512, 600, 512 * 600 + 2 * 256 * 1112, 2 * 256 * (328 + 512)},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_ops *ops = open_as(PLM_PRECISION_BF16, PLM_BF16_BY_FP32, cases[i].threads);
    products_take(ops, cases[i].N, cases[i].I, cases[i].O, cases[i].activations, cases[i].weights);
    ops->close(ops);
  }
}

/* In fp32, products of many rows transpose the weights, with oneDNN at least for these depths. */
static void weights_are_transposed_for_many_rows(void **state)
{
  enum { N = 1024, I = 512, O = 480, WEIGHTS = I * O };
  (void)state;
  struct plm_ops *ops = open_as(PLM_PRECISION_FP32, PLM_BF16_AUTO, 2);
  float *x = calloc(N * I, sizeof *x), *w = calloc(WEIGHTS, sizeof *w);
  float *y = calloc(N * O, sizeof *y);
  assert_non_null(x);
  assert_non_null(w);
  assert_non_null(y);
  assert_int_equal(ops->linear_scratch(ops, N - 1, I, O), 0);
  assert_int_equal(ops->linear_scratch(ops, N, I, O), WEIGHTS * sizeof(float));
  ops->linear_forward(ops, y, x, w, NULL, N - 1, I, O);
  expect_workspace(ops, 0, I, O);
  ops->linear_backward_input(ops, x, y, w, N, I, O, false);
  expect_workspace(ops, 0, I, O);
  ops->linear_forward(ops, y, x, w, NULL, N, I, O);
  if (strncmp(plm_products_library(), "oneDNN", 6) == 0) expect_workspace(ops, WEIGHTS, I, O);
  ops->close(ops);
  free(x);
  free(w);
  free(y);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_decides),
      cmocka_unit_test(the_machine_is_described),
      cmocka_unit_test(the_choice_is_kept),
      cmocka_unit_test(results_are_those_of_fp32),
      cmocka_unit_test(the_memory_is_what_is_estimated),
      cmocka_unit_test(weights_are_transposed_for_many_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
