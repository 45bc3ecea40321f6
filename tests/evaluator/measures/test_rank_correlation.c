/* Spearman's correlation against numbers of scipy.stats.spearmanr, with ties, and where it is
 * undefined. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>

#include "evaluator/measures/rank_correlation.h"

static struct plm_rank_correlation correlate(const double *x, const double *y, size_t count)
{
  struct plm_rank_correlation correlation;
  assert_int_equal(plm_rank_correlate(x, y, count, &correlation, NULL), PLM_OK);
  assert_int_equal(correlation.count, count);
  return correlation;
}

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-12)) fail_msg("%.17g is not %.17g", got, expected);
}

static void orders_count_and_not_distances(void **state)
{
  (void)state;
  static const double x[] = {1, 2, 3, 4, 5}, steep[] = {-9, 0, 1e-9, 7, 1e300};
  static const double down[] = {5, 4, 3, 2, 1}, swapped[] = {2, 1, 3, 4, 5};
  near(correlate(x, steep, 5).value, 1);
  near(correlate(x, down, 5).value, -1);
  near(correlate(x, swapped, 5).value, 1 - 6.0 * 2 / (5 * 24)); /* 1 - 6 sum d^2 / (n (n^2-1)) */
}

/* Ranks 1.5 1.5 3 4.5 4.5 against 2 1 4 4 4: the formula above does not hold with ties. */
static void ties_share_their_ranks(void **state)
{
  (void)state;
  static const double x[] = {3, 3, 5, 8, 8}, y[] = {2, 1, 7, 7, 7};
  const struct plm_rank_correlation got = correlate(x, y, 5);
  near(got.value, 7.5 / sqrt(9.0 * 8.0));
  const double z = atanh(got.value),
               spread = 1.959963984540054 * sqrt((1 + got.value * got.value / 2) / 2);
  near(got.low, tanh(z - spread));
  near(got.high, tanh(z + spread));
}

static void too_little_has_no_correlation(void **state)
{
  (void)state;
  static const double x[] = {1, 2, 3, 4}, same[] = {7, 7, 7, 7};
  assert_true(isnan(correlate(x, x, 0).value));
  assert_true(isnan(correlate(x, x, 1).value));
  assert_true(isnan(correlate(x, same, 4).value));
  assert_true(isnan(correlate(x, x, 3).low));
  near(correlate(x, x, 4).low, 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(orders_count_and_not_distances),
      cmocka_unit_test(ties_share_their_ranks),
      cmocka_unit_test(too_little_has_no_correlation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
