/* Measures against numbers of scikit-learn and scipy, and what their intervals have to be. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evaluator/measures/bootstrap.h"
#include "evaluator/measures/class_counts.h"
#include "evaluator/measures/correlation.h"
#include "evaluator/measures/measured.h"
#include "evaluator/measures/roc_area.h"
#include "tests/support/harness/must.h"

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-12)) fail_msg("%.17g is not %.17g", got, expected);
}

static void numbers(void **state)
{
  (void)state;
  static const double truth[] = {1, 2, 3, 4, 5, 6.5}, predicted[] = {1.5, 1.5, 2.5, 5, 4, 6};
  static const double same[] = {2, 2, 2, 2, 2, 2};
  struct plm_measured got[PLM_MEASURES];
  assert_int_equal(plm_measure_numbers(predicted, truth, 6, true, got, NULL), PLM_OK);
  near(got[PLM_MEASURE_SPEARMAN].value, 0.9276336570439174);
  near(got[PLM_MEASURE_PEARSON].value, 0.9272925305612504);
  near(got[PLM_MEASURE_R2].value, 0.8515463917525774);
  near(got[PLM_MEASURE_RMSE].value, 0.7071067811865476);
  for (int k = 0; k <= PLM_MEASURE_RMSE; k++) {
    assert_true(got[k].low < got[k].value && got[k].value < got[k].high);
    assert_int_equal(got[k].count, 6);
  }
  assert_int_equal(plm_measure_numbers(same, truth, 6, true, got, NULL), PLM_OK);
  assert_true(isnan(got[PLM_MEASURE_PEARSON].value) && isnan(got[PLM_MEASURE_PEARSON].low));
  assert_true(isnan(got[PLM_MEASURE_SPEARMAN].value));
  assert_true(got[PLM_MEASURE_R2].value < 0);
}

/* The mean of three times 0.1 is not 0.1. */
static void equal_numbers_do_not_correlate(void **state)
{
  (void)state;
  static const double rising[] = {1, 2, 4}, same[] = {0.1, 0.1, 0.1}, unused[] = {1, 1, 0};
  static const double last[] = {0.1, 0.1, 7};
  assert_true(isnan(plm_pearson(rising, same, NULL, 3)));
  assert_true(isnan(plm_pearson(same, rising, NULL, 3)));
  assert_true(isnan(plm_determination(rising, same, NULL, 3)));
  assert_true(isnan(plm_pearson(rising, last, unused, 3)));
  near(plm_pearson(last, last, NULL, 3), 1);
}

static void classes(void **state)
{
  (void)state;
  static const int32_t truth[] = {0, 1, 2, 2, 1, 0, 1, 2};
  static const double probabilities[] = {.6, .3,  .1,  .2, .5, .3, .1, .2, .7, .4, .4, .2,
                                         .5, .25, .25, .6, .2, .2, .1, .8, .1, .3, .3, .4};
  const struct plm_class_predictions predictions = {
      .probabilities = probabilities, .truth = truth, .count = 8, .unit_count = 8, .classes = 3};
  struct plm_measured got[PLM_MEASURES];
  assert_int_equal(plm_measure_classes(&predictions, true, got, NULL), PLM_OK);
  near(got[PLM_MEASURE_ACCURACY].value, 0.75);
  near(got[PLM_MEASURE_MACRO_F1].value, 0.7555555555555555);
  near(got[PLM_MEASURE_MCC].value, 0.6831300510639733);
  near(got[PLM_MEASURE_AUROC].value, 0.8777777777777777);
  for (int k = PLM_MEASURE_ACCURACY; k <= PLM_MEASURE_AUROC; k++)
    assert_true(got[k].low < got[k].value && got[k].value <= got[k].high && got[k].count == 8);
}

static void two_classes(void **state)
{
  (void)state;
  static const int32_t truth[] = {0, 1, 1, 0, 1}, one[] = {1, 1, 1, 1, 1};
  static const double probabilities[] = {.8, .2, .4, .6, .6, .4, .6, .4, .1, .9};
  struct plm_class_predictions predictions = {
      .probabilities = probabilities, .truth = truth, .count = 5, .unit_count = 5, .classes = 2};
  struct plm_measured got[PLM_MEASURES];
  assert_int_equal(plm_measure_classes(&predictions, true, got, NULL), PLM_OK);
  near(got[PLM_MEASURE_AUROC].value, 0.9166666666666666);
  near(got[PLM_MEASURE_ACCURACY].value, 0.8);
  predictions.truth = one; /* one class only */
  assert_int_equal(plm_measure_classes(&predictions, true, got, NULL), PLM_OK);
  assert_true(isnan(got[PLM_MEASURE_AUROC].value) && isnan(got[PLM_MEASURE_AUROC].low));
  near(got[PLM_MEASURE_MCC].value, 0);
}

/* 400 predictions, of which three in four are right: the interval is close to that of the binomial
 * distribution. Drawn in units of 20 that are right or wrong together, it is sqrt(20) times as
 * wide. */
static void intervals(void **state)
{
  (void)state;
  enum { COUNT = 400, UNIT = 20 };
  static int32_t truth[COUNT];
  static double probabilities[2 * COUNT];
  static uint32_t units[COUNT];
  struct plm_class_predictions predictions = {.probabilities = probabilities,
                                              .truth = truth,
                                              .count = COUNT,
                                              .unit_count = COUNT,
                                              .classes = 2};
  struct plm_measured got[PLM_MEASURES], again[PLM_MEASURES];
  const double width = 2 * 1.96 * sqrt(0.75 * 0.25 / COUNT);
  for (int i = 0; i < COUNT; i++) {
    truth[i] = i % 2;
    units[i] = (uint32_t)i / UNIT;
    const bool right = units[i] % 4 != 0;
    probabilities[2 * i + (right ? truth[i] : 1 - truth[i])] = 1;
  }
  assert_int_equal(plm_measure_classes(&predictions, true, got, NULL), PLM_OK);
  assert_int_equal(plm_measure_classes(&predictions, true, again, NULL), PLM_OK);
  assert_memory_equal(&got[PLM_MEASURE_ACCURACY], &again[PLM_MEASURE_ACCURACY], 4 * sizeof *got);
  const struct plm_measured *accuracy = &got[PLM_MEASURE_ACCURACY];
  near(accuracy->value, 0.75);
  assert_true(fabs((accuracy->high - accuracy->low) / width - 1) < 0.2);
  predictions.units = units;
  predictions.unit_count = COUNT / UNIT;
  assert_int_equal(plm_measure_classes(&predictions, true, got, NULL), PLM_OK);
  near(accuracy->value, 0.75);
  assert_true(fabs((accuracy->high - accuracy->low) / (width * sqrt(UNIT)) - 1) < 0.2);
}

/* Of many classes of many predictions, the area has no interval: it would take minutes. Without
 * probabilities there is no area. */
static void the_area_has_no_interval_if_it_takes_long(void **state)
{
  enum { CLASSES = 4000, COUNT = 1001 };
  (void)state;
  double *probabilities = must(calloc((size_t)CLASSES * COUNT, sizeof *probabilities));
  static int32_t truth[COUNT];
  static uint32_t predicted[COUNT];
  struct plm_class_predictions predictions = {.probabilities = probabilities,
                                              .truth = truth,
                                              .count = COUNT,
                                              .unit_count = COUNT,
                                              .classes = CLASSES};
  struct plm_measured got[PLM_MEASURES];
  for (int i = 0; i < COUNT; i++) {
    truth[i] = i % 3;
    predicted[i] = (uint32_t)(i % 2);
    probabilities[(size_t)i * CLASSES + predicted[i]] = 1;
  }
  assert_int_equal(plm_measure_classes(&predictions, true, got, NULL), PLM_OK);
  assert_true(fabs(got[PLM_MEASURE_AUROC].value - 0.5) < 0.01);
  assert_true(isnan(got[PLM_MEASURE_AUROC].low) && isnan(got[PLM_MEASURE_AUROC].high));
  near(got[PLM_MEASURE_ACCURACY].value, 334.0 / COUNT);
  assert_true(got[PLM_MEASURE_ACCURACY].low < 334.0 / COUNT);
  predictions.classes = 3;
  predictions.probabilities = NULL;
  predictions.predicted = predicted;
  assert_int_equal(plm_measure_classes(&predictions, true, got, NULL), PLM_OK);
  assert_true(isnan(got[PLM_MEASURE_AUROC].value) && isnan(got[PLM_MEASURE_AUROC].low));
  near(got[PLM_MEASURE_ACCURACY].value, 334.0 / COUNT);
  free(probabilities);
}

/* Percentiles are interpolated between the two values beside their place; the order does not
 * matter, and replicates without a value are left out if they are not most. */
static void percentiles(void **state)
{
  (void)state;
  static double values[PLM_BOOTSTRAP_REPLICATES];
  double low, high;
  const size_t count = PLM_BOOTSTRAP_REPLICATES, half = count / 2;
  for (size_t i = 0; i < count; i++) values[i] = (double)(i * 7 % count);
  plm_bootstrap_interval(values, &low, &high);
  near(low, 0.025 * (double)(count - 1));
  near(high, 0.975 * (double)(count - 1));
  for (size_t i = 0; i < count; i++) values[i] = i % 2 == 0 ? 0.5 * (double)i : NAN;
  plm_bootstrap_interval(values, &low, &high);
  near(low, 0.025 * (double)(half - 1));
  near(high, 0.975 * (double)(half - 1));
  for (size_t i = 0; i < count; i++) values[i] = i % 2 == 0 && i > 0 ? 0.5 * (double)i : NAN;
  plm_bootstrap_interval(values, &low, &high);
  assert_true(isnan(low) && isnan(high));
}

/* A replicate draws as many units as there are, each replicate others, and every unit now and then.
 */
static void draws(void **state)
{
  (void)state;
  enum { UNITS = 10, REPLICATES = 200 };
  double drawn[UNITS + 1], other[UNITS + 1], sums[UNITS] = {0};
  for (size_t units = 1; units <= UNITS; units++) {
    double sum = 0;
    for (size_t i = 0; i <= UNITS; i++) drawn[i] = 99;
    plm_bootstrap_draw(3, units, drawn);
    for (size_t i = 0; i < units; i++) sum += drawn[i];
    assert_true(sum == (double)units && drawn[units] == 99);
  }
  plm_bootstrap_draw(4, UNITS, other);
  assert_memory_not_equal(drawn, other, UNITS * sizeof *drawn);
  for (uint32_t r = 0; r < REPLICATES; r++) {
    plm_bootstrap_draw(r, UNITS, drawn);
    for (size_t i = 0; i < UNITS; i++) sums[i] += drawn[i] / REPLICATES;
  }
  for (size_t i = 0; i < UNITS; i++) assert_true(fabs(sums[i] - 1) < 0.4);
}

/* Counts of three classes, the second of which is never predicted and the third never true. */
static void measures_of_counts(void **state)
{
  (void)state;
  static const struct plm_class_count counts[] = {{6, 8, 5}, {3, 0, 0}, {0, 1, 0}, {0, 0, 0}};
  double precision = -1;
  near(plm_class_f1(&counts[0], &precision), 2 * (5.0 / 8) * (5.0 / 6) / (5.0 / 8 + 5.0 / 6));
  near(precision, 5.0 / 8);
  near(plm_class_f1(&counts[1], &precision), 0);
  near(precision, 0);
  near(plm_class_f1(&counts[2], NULL), 0);
  near(plm_macro_f1(counts, 4), plm_class_f1(&counts[0], NULL) / 3);
  assert_true(isnan(plm_macro_f1(counts + 3, 1)));
  near(plm_matthews(counts, 4), (5.0 * 9 - 48) / sqrt((81.0 - 65) * (81 - 45)));
  near(plm_matthews(counts, 1), 0);
  static const double probabilities[] = {0.2, 0.4, 0.4, 0.1};
  assert_int_equal(plm_class_best(probabilities, 4), 1);
  assert_int_equal(plm_class_best(probabilities + 2, 2), 0);
  assert_int_equal(plm_class_best(probabilities, 1), 0);
}

/* Equal scores count one half, and weights say how often a pair counts. */
static void areas(void **state)
{
  (void)state;
  static const double scores[] = {0.3, 0.1, 0.3, 0.9, 0.5}, weights[] = {1, 2, 0, 1, 3};
  static const bool positive[] = {true, false, false, true, false}, none[5] = {0},
                    one[] = {false, false, false, false, true},
                    four[] = {true, true, false, true, true},
                    all[] = {true, true, true, true, true};
  size_t order[5];
  plm_roc_order(scores, 5, order);
  static const size_t expected[] = {1, 0, 2, 4, 3};
  assert_memory_equal(order, expected, sizeof order);
  near(plm_roc_area(scores, order, positive, NULL, 5), (3 + 1.5) / 6);
  near(plm_roc_area(scores, order, positive, weights, 5), (5.0 + 2) / (2 * 5));
  near(plm_roc_area(scores, order, one, NULL, 5), 3.0 / 4);
  near(plm_roc_area(scores, order, four, NULL, 5), (2 + 0.5) / 4);
  assert_true(isnan(plm_roc_area(scores, order, none, NULL, 5)));
  assert_true(isnan(plm_roc_area(scores, order, all, NULL, 5)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers),
      cmocka_unit_test(equal_numbers_do_not_correlate),
      cmocka_unit_test(classes),
      cmocka_unit_test(two_classes),
      cmocka_unit_test(intervals),
      cmocka_unit_test(percentiles),
      cmocka_unit_test(the_area_has_no_interval_if_it_takes_long),
      cmocka_unit_test(draws),
      cmocka_unit_test(measures_of_counts),
      cmocka_unit_test(areas),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
