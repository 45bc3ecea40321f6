/* Sums of gradients and losses: their order is fixed, so their bits are. */
#include <math.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"

enum { N = 1500, VECTORS = 300 };

/* ---- trees over parts ---- */

/* Adds neighbours level by level; sums are in fp32. */
static float tree_of(const float *values, uint32_t count)
{
  float level[PLM_SUM_PARTS_MAX];
  memcpy(level, values, count * sizeof *level);
  while (count > 1) {
    const uint32_t pairs = count / 2;
    for (uint32_t j = 0; j < pairs; j++) level[j] = level[2 * j] + level[2 * j + 1];
    if (count % 2 != 0) level[pairs] = level[count - 1];
    count = pairs + count % 2;
  }
  return level[0];
}

/* to_part: the result replaces this part; -1: it has a buffer of its own. */
static void check_tree(struct ops_case *c, uint32_t count, int64_t n, int to_part)
{
  const float *parts[PLM_SUM_PARTS_MAX];
  float *device = NULL, *host[PLM_SUM_PARTS_MAX], expected[N], column[PLM_SUM_PARTS_MAX];
  for (uint32_t p = 0; p < count; p++) {
    double *values = ops_case_values(c, n, p % 3 == 0 ? 1000 : 1);
    float *made = ops_case_float(c, values, n);
    parts[p] = made;
    if ((int)p == to_part) device = made;
    host[p] = test_malloc((size_t)n * sizeof **host);
    for (int64_t i = 0; i < n; i++) host[p][i] = (float)values[i];
  }
  if (device == NULL) device = ops_case_empty_float(c, n);
  for (int64_t i = 0; i < n; i++) {
    for (uint32_t p = 0; p < count; p++) column[p] = host[p][i];
    expected[i] = tree_of(column, count);
  }
  c->ops->sum_parts(c->ops, device, parts, count, (size_t)n);
  const float *wanted = ops_case_device(c, expected, (size_t)n * sizeof *expected);
  ops_case_check_same(c, device, wanted, (size_t)n * sizeof *expected);
  for (uint32_t p = 0; p < count; p++) test_free(host[p]);
}

static void trees_case(struct ops_case *c)
{
  for (uint32_t count = 1; count <= 9; count++) check_tree(c, count, 1 + 37 * count, -1);
  check_tree(c, 16, N, -1);
  check_tree(c, 33, 300, -1);
  check_tree(c, 47, 300, -1);
  check_tree(c, PLM_SUM_PARTS_MAX, 300, -1);
  check_tree(c, 2, N, 0);
  check_tree(c, 2, N, 1);
  check_tree(c, 7, N, 6);
  check_tree(c, 3, 0, -1);
}

static void parts_are_added_as_a_tree(void **state)
{
  (void)state;
  ops_case_each(trees_case);
}

/* A share's sum, made by the rank that holds the share, is a subtree of the whole sum. */
static void subtrees_case(struct ops_case *c)
{
  enum { COUNT = 16 };
  const float *parts[COUNT], *sums[COUNT / 4];
  for (int p = 0; p < COUNT; p++) parts[p] = ops_case_float(c, ops_case_values(c, N, 1), N);
  float *whole = ops_case_empty_float(c, N), *again = ops_case_empty_float(c, N);
  c->ops->sum_parts(c->ops, whole, parts, COUNT, N);
  for (int r = 0; r < COUNT / 4; r++) {
    float *sum = ops_case_empty_float(c, N);
    c->ops->sum_parts(c->ops, sum, &parts[4 * r], 4, N);
    sums[r] = sum;
  }
  c->ops->sum_parts(c->ops, again, sums, COUNT / 4, N);
  ops_case_check_same(c, again, whole, N * sizeof *whole);
}

static void a_tree_of_subtrees_is_the_tree(void **state)
{
  (void)state;
  ops_case_each(subtrees_case);
}

/* ---- sums in double ---- */

static void in_order_case(struct ops_case *c)
{
  double *x = ops_case_values(c, N, 1), expected = 0, got[2];
  for (int i = 0; i < N; i++) expected += x[i];
  double *device = ops_case_device(c, x, N * sizeof *x), *sum = ops_case_device(c, got, sizeof got);
  c->ops->sum_in_order(c->ops, &sum[0], device, N);
  c->ops->sum_in_order(c->ops, &sum[1], device, 0);
  c->ops->download(c->ops, got, sum, sizeof got);
  assert_true(got[0] == expected && got[1] == 0);
}

static void doubles_are_added_in_their_order(void **state)
{
  (void)state;
  ops_case_each(in_order_case);
}

/* Each chunk has another number of rows, and the first and the last position of a chunk may have
 * one. What stands in the rows behind them all must not matter. */
static void chunks_case(struct ops_case *c)
{
  enum { B = 7, L = 700, SPARE = 40 };
  static const int64_t rows[B] = {0, L, 1, 257, 0, 33, 2};
  int32_t positions[B * L + SPARE];
  double expected[B] = {0}, size[B] = {0}, got[B], alone;
  int64_t first[B], n = 0;
  for (int b = 0; b < B; b++)
    for (int64_t i = (first[b] = n, 0); i < rows[b]; i++)
      positions[n++] = (int32_t)(b * L + (rows[b] == 1 ? L - 1 : i * (L - 1) / (rows[b] - 1)));
  double *values = ops_case_values(c, n + SPARE, 1);
  for (int64_t i = n; i < n + SPARE; i++) {
    positions[i] = -1;
    values[i] = NAN;
  }
  float *x = ops_case_float(c, values, n + SPARE);
  for (int64_t i = 0; i < n; i++) {
    expected[positions[i] / L] += values[i];
    size[positions[i] / L] += fabs(values[i]);
  }
  int32_t *at = ops_case_device(c, positions, (size_t)(n + SPARE) * sizeof *at);
  for (int b = 0; b < B; b++) got[b] = NAN;
  double *sums = ops_case_device(c, got, sizeof got);
  for (int spare = 0; spare <= SPARE; spare += SPARE) {
    c->ops->sum_chunks(c->ops, sums, x, at, n + spare, B, L);
    c->ops->download(c->ops, got, sums, sizeof got);
    for (int b = 0; b < B; b++) assert_true(fabs(got[b] - expected[b]) <= 1e-14 * size[b]);
  }
  for (int b = 0; b < B; b++) { /* the bits are the same without the other chunks */
    int32_t own[L + 1] = {0};
    for (int64_t i = 0; i < rows[b]; i++) own[i] = positions[first[b] + i] - b * L;
    const int32_t *there = ops_case_device(c, own, sizeof own);
    c->ops->sum_chunks(c->ops, sums, x + first[b], there, rows[b], 1, L);
    c->ops->download(c->ops, &alone, sums, sizeof alone);
    assert_true(alone == got[b]);
  }
}

static void rows_are_added_for_each_chunk(void **state)
{
  (void)state;
  ops_case_each(chunks_case);
}

static void squares_case(struct ops_case *c)
{
  struct plm_array vectors[VECTORS];
  double expected[VECTORS], got[VECTORS], one;
  for (int i = 0; i < VECTORS; i++) {
    const int64_t n = i % 50 == 0 ? 5000 : i % 7 * 40;
    double *values = ops_case_values(c, n, 1);
    vectors[i] = (struct plm_array){.x = ops_case_float(c, values, n), .n = (size_t)n};
    expected[i] = 0;
    for (int64_t e = 0; e < n; e++) expected[i] += values[e] * values[e];
  }
  double *sums = ops_case_device(c, expected, sizeof expected);
  double *single = ops_case_device(c, expected, sizeof *expected);
  c->ops->sum_squares(c->ops, sums, vectors, VECTORS);
  c->ops->download(c->ops, got, sums, sizeof got);
  for (int i = 0; i < VECTORS; i++) assert_true(fabs(got[i] - expected[i]) <= 1e-12 * expected[i]);
  for (int i = 0; i < VECTORS; i += 29) { /* whatever else is in the call */
    c->ops->sum_squares(c->ops, single, &vectors[i], 1);
    c->ops->download(c->ops, &one, single, sizeof one);
    assert_true(one == got[i]);
  }
}

/* Differences are rounded to fp32, as the operator says. A difference of itself is 0. */
static void differences_case(struct ops_case *c)
{
  static const int64_t sizes[] = {0, 1, 4095, 4097, 70001};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  struct plm_array vectors[2 * SIZES];
  double expected[2 * SIZES] = {0}, got[2 * SIZES];
  for (int i = 0; i < SIZES; i++) {
    const int64_t n = sizes[i];
    double *x = ops_case_values(c, n, 1), *minus = ops_case_values(c, n, 1);
    vectors[2 * i] = (struct plm_array){
        .x = ops_case_float(c, x, n), .n = (size_t)n, .minus = ops_case_float(c, minus, n)};
    vectors[2 * i + 1] = vectors[2 * i];
    vectors[2 * i + 1].minus = vectors[2 * i].x;
    for (int64_t e = 0; e < n; e++) {
      const float difference = (float)x[e] - (float)minus[e];
      expected[2 * i] += (double)difference * (double)difference;
    }
  }
  double *sums = ops_case_device(c, expected, sizeof expected);
  c->ops->sum_squares(c->ops, sums, vectors, 2 * SIZES);
  c->ops->download(c->ops, got, sums, sizeof got);
  for (int i = 0; i < 2 * SIZES; i++)
    assert_true(fabs(got[i] - expected[i]) <= 1e-12 * expected[i]);
}

static void squares_of_differences_are_summed(void **state)
{
  (void)state;
  ops_case_each(differences_case);
}

static void squares_are_summed_for_each_vector(void **state)
{
  (void)state;
  ops_case_each(squares_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_are_added_as_a_tree),
      cmocka_unit_test(a_tree_of_subtrees_is_the_tree),
      cmocka_unit_test(doubles_are_added_in_their_order),
      cmocka_unit_test(rows_are_added_for_each_chunk),
      cmocka_unit_test(squares_are_summed_for_each_vector),
      cmocka_unit_test(squares_of_differences_are_summed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
