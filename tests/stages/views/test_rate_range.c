/* The learning-rate range test: smoothing, divergence and suggestions of known curves. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "stages/views/rate_range.h"

static void assert_near(double a, double b)
{
  if (!(fabs(a - b) <= 1e-12 * (1 + fabs(b)))) fail_msg("%.17g is not %.17g", a, b);
}

static void the_mean_counts_recent_losses_more(void **state)
{
  (void)state;
  struct plm_rate_range range = {0};
  plm_rate_range_add(&range, 0.5, 3);
  plm_rate_range_add(&range, 1, 1);
  plm_rate_range_add(&range, 2, 2);
  assert_int_equal(range.count, 3);
  assert_near(range.smoothed[0], 3); /* a first value stands for itself */
  assert_near(range.smoothed[1], (0.9 * 3 + 1) / 1.9);
  assert_near(range.smoothed[2], (0.81 * 3 + 0.9 * 1 + 2) / 2.71);
  assert_true(range.rates[0] == 0.5 && range.rates[2] == 2);
  assert_int_equal(range.best, 1);
  assert_false(range.diverged);
  plm_rate_range_deinit(&range);
  assert_null(range.rates);
}

/* After one loss of 1, the mean of the second is (0.9 + loss) / 1.9: four times 1 at 6.7. */
static void more_than_four_times_the_least_diverges(void **state)
{
  (void)state;
  static const struct {
    double loss;
    bool diverges;
  } cases[] = {{6.69, false}, {6.71, true}, {NAN, true}, {INFINITY, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_rate_range range = {0};
    plm_rate_range_add(&range, 1, 1);
    plm_rate_range_add(&range, 2, cases[i].loss);
    assert_int_equal(range.diverged, cases[i].diverges);
    assert_int_equal(range.count, isfinite(cases[i].loss) ? 2 : 1);
    const size_t before = range.count;
    plm_rate_range_add(&range, 3, 1); /* nothing counts after that */
    assert_int_equal(range.count, before + !cases[i].diverges);
    plm_rate_range_deinit(&range);
  }
}

/* Losses whose smoothed values are `wanted`: the smoothing is undone. */
static void add_smoothed(struct plm_rate_range *range, double rate, double wanted)
{
  const double correction = 1 - pow(0.9, (double)range->count + 1);
  plm_rate_range_add(range, rate, (wanted * correction - 0.9 * range->mean) / (1 - 0.9));
}

static void the_suggestions_are_those_of_the_curve(void **state)
{
  (void)state;
  /* flat, then falling fastest from the 7th to the 9th, least at the 12th, then rising */
  static const double curve[] = {3,   3,   2.9, 2.9, 2.8, 2.7, 2.5, 2.2,
                                 1.8, 1.6, 1.5, 1.4, 1.5, 1.7, 2,   2.5};
  struct plm_rate_range range = {0};
  struct plm_rate_suggestion found;
  for (size_t i = 0; i < sizeof curve / sizeof *curve; i++) {
    add_smoothed(&range, pow(10, (double)i - 8), curve[i]);
    assert_near(range.smoothed[i], curve[i]);
  }
  assert_true(plm_rate_range_suggest(&range, &found));
  assert_near(found.steepest, 0.1); /* number 7: from 2.5 to 1.8 */
  assert_near(found.tenth, 100);    /* number 11 is 1000 */
  plm_rate_range_deinit(&range);
}

static void no_suggestion_without_a_fall(void **state)
{
  (void)state;
  for (int steps = 9; steps <= 10; steps++) {
    struct plm_rate_range falling = {0}, rising = {0};
    struct plm_rate_suggestion found;
    for (int i = 0; i < steps; i++) {
      add_smoothed(&falling, i + 1, 3 - 0.1 * i);
      add_smoothed(&rising, i + 1, 1 + 0.1 * i);
    }
    assert_int_equal(plm_rate_range_suggest(&falling, &found), steps == 10); /* ten at least */
    assert_false(plm_rate_range_suggest(&rising, &found));
    plm_rate_range_deinit(&falling);
    plm_rate_range_deinit(&rising);
  }
  struct plm_rate_range none = {0};
  struct plm_rate_suggestion found;
  assert_false(plm_rate_range_suggest(&none, &found));
}

/* The first tenth is noise: a fall there is not suggested. */
static void the_first_tenth_does_not_count(void **state)
{
  (void)state;
  struct plm_rate_range range = {0};
  struct plm_rate_suggestion found;
  for (int i = 0; i < 40; i++) {
    double wanted = 2 - 0.01 * i; /* slow all the way, */
    if (i < 3) wanted = 5 - i;    /* but fast at first */
    add_smoothed(&range, i + 1, i == 20 ? wanted - 0.005 : wanted);
  }
  assert_true(plm_rate_range_suggest(&range, &found));
  assert_near(found.steepest, 20); /* number 19: the step to number 20 is the deepest */
  assert_near(found.tenth, 4);
  plm_rate_range_deinit(&range);
}

static void many_steps_are_kept(void **state)
{
  (void)state;
  struct plm_rate_range range = {0};
  for (int i = 0; i < 1000; i++) plm_rate_range_add(&range, i, 2);
  assert_int_equal(range.count, 1000);
  for (int i = 0; i < 1000; i++) {
    assert_true(range.rates[i] == i);
    assert_near(range.smoothed[i], 2);
  }
  plm_rate_range_deinit(&range);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_mean_counts_recent_losses_more),
      cmocka_unit_test(more_than_four_times_the_least_diverges),
      cmocka_unit_test(the_suggestions_are_those_of_the_curve),
      cmocka_unit_test(no_suggestion_without_a_fall),
      cmocka_unit_test(the_first_tenth_does_not_count),
      cmocka_unit_test(many_steps_are_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
