/* The sum over shares, one after another, has the bits of the tree over all of them. */
#include "trainer/optimizer/share_sums.h"

#include <math.h>
#include <stdlib.h>

#include "common/config/config.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"

enum { N = 700, PART = 140 };

static void check_sums(struct ops_case *c, uint32_t shares)
{
  struct plm_ops *ops = c->ops;
  struct plm_share_sums *sums;
  struct plm_error error = {0};
  const float *parts[PLM_SUM_PARTS_MAX];
  double *losses = ops_case_values(c, shares, 1), expected = 0, got;
  for (uint32_t s = 0; s < shares; s++)
    parts[s] = ops_case_float(c, ops_case_values(c, N, s % 2 == 0 ? 1 : 1000), N);
  double *each = ops_case_device(c, losses, shares * sizeof *losses);
  double *loss_sum = ops_case_device(c, &expected, sizeof expected);
  float *gradient = ops_case_empty_float(c, N), *tree = ops_case_empty_float(c, N);
  assert_int_equal(plm_share_sums_open(ops, shares, gradient, N, loss_sum, &sums, &error), PLM_OK);
  for (int step = 0; step < 2; step++) { /* the second one finds the sums of the first */
    ops->zero(ops, gradient, N * sizeof *gradient);
    ops->zero(ops, loss_sum, sizeof *loss_sum);
    for (uint32_t s = 0; s < shares; s++) {
      ops->add_sum(ops, loss_sum, gradient, N); /* 0: a share begins with nothing */
      ops->copy(ops, gradient, parts[s], N * sizeof *gradient);
      ops->copy(ops, loss_sum, &each[s], sizeof *each);
      if (s + 1 < shares) plm_share_sums_add(sums, s);
    }
    for (size_t first = 0; first < N; first += PART) plm_share_sums_finish(sums, first, PART);
    plm_share_sums_finish_loss(sums);
  }
  for (uint32_t s = 0; s < shares; s++) expected += losses[s];
  ops->sum_parts(ops, tree, parts, shares, N);
  ops_case_check_same(c, gradient, tree, N * sizeof *tree);
  ops->download(ops, &got, loss_sum, sizeof got);
  assert_true(got == expected);
  plm_share_sums_close(sums);
}

static void sums_case(struct ops_case *c)
{
  for (uint32_t shares = 1; shares <= 9; shares++) check_sums(c, shares);
  check_sums(c, 16);
  check_sums(c, 44);
}

static void shares_are_added_as_a_tree(void **state)
{
  (void)state;
  ops_case_each(sums_case);
}

static void levels_are_the_trees(void **state)
{
  (void)state;
  assert_int_equal(plm_share_levels(1), 0);
  assert_int_equal(plm_share_levels(2), 1);
  assert_int_equal(plm_share_levels(5), 3);
  assert_int_equal(plm_share_levels(8), 3);
  assert_int_equal(plm_share_levels(PLM_MAX_SHARES), PLM_SHARE_LEVELS_MAX);
}

static int allocated, failing; /* blocks that are held, and the number of the one that fails */

static plm_status allocate(struct plm_ops *ops, size_t bytes, void **out, struct plm_error *error)
{
  (void)ops;
  if (allocated == failing) return plm_error_set(error, PLM_NO_MEMORY, "none left");
  *out = malloc(bytes);
  allocated++;
  return PLM_OK;
}

static void release(struct plm_ops *ops, void *block)
{
  (void)ops;
  free(block);
  allocated--;
}

/* Each of the losses and of three levels has a block. */
static void without_memory_nothing_is_held(void **state)
{
  struct plm_ops ops = {.allocate = allocate, .release = release};
  struct plm_share_sums *sums = NULL;
  struct plm_error error = {0};
  float gradient[4];
  double loss_sum;
  (void)state;
  for (failing = 0; failing <= 4; failing++) {
    const plm_status status = plm_share_sums_open(&ops, 5, gradient, 4, &loss_sum, &sums, &error);
    assert_int_equal(status, failing < 4 ? PLM_NO_MEMORY : PLM_OK);
    if (failing < 4) assert_string_equal(error.what, "none left");
    if (failing == 4) plm_share_sums_close(sums);
    assert_int_equal(allocated, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares_are_added_as_a_tree),
      cmocka_unit_test(levels_are_the_trees),
      cmocka_unit_test(without_memory_nothing_is_held),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
