/* Measures against numbers of scikit-learn and scipy, and what their intervals have to be. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "evaluator/measures/correlation.h"
#include "evaluator/measures/measured.h"

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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers),   cmocka_unit_test(equal_numbers_do_not_correlate),
      cmocka_unit_test(classes),   cmocka_unit_test(two_classes),
      cmocka_unit_test(intervals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
