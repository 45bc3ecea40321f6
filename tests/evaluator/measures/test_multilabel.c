/* Measures of several classes against numbers of scikit-learn, with labels that are missing, a
 * class that is always true, and one that never occurs. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>

#include "evaluator/measures/multilabel.h"

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-12)) fail_msg("%.17g is not %.17g", got, expected);
}

/* All measures; without the outputs, the same but for the areas. */
static void measure(const float *outputs, const float *truth, size_t count, uint32_t classes,
                    double values[PLM_MEASURES])
{
  struct plm_multilabel_count counts[3] = {0};
  double without[PLM_MEASURES];
  assert_true(classes <= 3);
  for (size_t i = 0; i < count; i++)
    plm_multilabel_add(outputs + i * classes, truth + i * classes, classes, counts);
  const struct plm_multilabel all = {counts, outputs, truth, count, classes},
                              counted = {counts, NULL, NULL, count, classes};
  assert_int_equal(plm_measure_multilabel(&all, values, NULL), PLM_OK);
  assert_int_equal(plm_measure_multilabel(&counted, without, NULL), PLM_OK);
  assert_true(isnan(without[PLM_MEASURE_AUROC]));
  without[PLM_MEASURE_AUROC] = values[PLM_MEASURE_AUROC];
  for (int k = 0; k < PLM_MEASURES; k++)
    assert_true(without[k] == values[k] || (isnan(without[k]) && isnan(values[k])));
}

/* accuracy_score, f1_score, matthews_corrcoef and roc_auc_score of each class, and their means. The
 * third class is always true: it counts in the first two. */
static void means_of_classes(void **state)
{
  (void)state;
  static const float outputs[] = {1.5F, -2,    0.5F, 0.25F, -1,   -0.5F, -0.75F, 3,  -1,
                                  2,    -0.5F, -2,   -1,    0.1F, -3,    0.5F,   -4, -0.25F};
  const float truth[] = {1, 0, 1, 0, 0, 1, 0, NAN, 1, 1, 1, 1, 1, 0, NAN, NAN, 1, 1};
  double values[PLM_MEASURES];
  measure(outputs, truth, 6, 3, values);
  near(values[PLM_MEASURE_ACCURACY], 0.4);
  near(values[PLM_MEASURE_MACRO_F1], 1.0 / 3);
  near(values[PLM_MEASURE_MCC], -0.12079081189859821);
  near(values[PLM_MEASURE_AUROC], 0.5);
  for (int k = 0; k < PLM_MEASURES_OF_NUMBERS; k++) assert_true(isnan(values[k]));
}

/* The first class is neither true nor predicted, so it has no F1; the second has no label. */
static void classes_that_do_not_occur(void **state)
{
  (void)state;
  static const float outputs[] = {-1, 1, 2, -2, 1, -1};
  const float truth[] = {0, NAN, 1, 0, NAN, 1};
  double values[PLM_MEASURES];
  measure(outputs, truth, 2, 3, values);
  near(values[PLM_MEASURE_ACCURACY], 0.75);
  near(values[PLM_MEASURE_MACRO_F1], 2.0 / 3);
  assert_true(isnan(values[PLM_MEASURE_MCC]) && isnan(values[PLM_MEASURE_AUROC]));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(means_of_classes),
      cmocka_unit_test(classes_that_do_not_occur),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
