/* The losses of labels, and how their measures are reported: as a line of JSON, as numbers that are
 * plotted, and in words. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evaluator/labels/label_loss.h"
#include "evaluator/labels/label_report.h"
#include "tests/support/harness/captured.h"

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-12 * (1 + fabs(expected))))
    fail_msg("%.17g is not %.17g", got, expected);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void losses_of_one_class(void **state)
{
  (void)state;
  static const float outputs[] = {1, 3, 3, -2};
  const double sum = exp(1) + 2 * exp(3) + exp(-2);
  assert_int_equal(plm_label_largest(outputs, 4), 1);
  assert_int_equal(plm_label_largest(outputs + 2, 2), 0);
  assert_int_equal(plm_label_largest(outputs, 2), 1);
  assert_int_equal(plm_label_largest(outputs, 1), 0);
  for (int32_t k = 0; k < 4; k++)
    near(plm_label_class_loss(outputs, 4, k), log(sum) - (double)outputs[k]);
  assert_true(isnan(plm_label_class_loss(outputs, 4, -1)));
  static const float far[] = {1000, 990}; /* exp(1000) is infinite */
  near(plm_label_class_loss(far, 2, 0), log1p(exp(-10)));
  near(plm_label_class_loss(far, 2, 1), 10 + log1p(exp(-10)));
}

static void probabilities_of_one_class(void **state)
{
  (void)state;
  static const float outputs[] = {1, 3, -2};
  const double sum = exp(1) + exp(3) + exp(-2);
  double probabilities[5] = {9, 9, 9, 9, 9};
  plm_label_softmax(outputs, 3, probabilities, 4);
  for (int k = 0; k < 3; k++) near(probabilities[k], exp((double)outputs[k]) / sum);
  assert_true(probabilities[3] == 0 && probabilities[4] == 9);
}

static void losses_of_several_classes(void **state)
{
  (void)state;
  static const double outputs[] = {-3, 0, 0.5, 4}, truths[] = {0, 0.25, 1};
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 3; j++)
      near(plm_label_binary_loss(outputs[i], truths[j]),
           log(1 + exp(outputs[i])) - truths[j] * outputs[i]);
  near(plm_label_binary_loss(1000, 0), 1000); /* exp(1000) is infinite */
  near(plm_label_binary_loss(-1000, 1), 1000);
}

/* ---- reports --------------------------------------------------------------------------------- */

enum { COLUMNS = 2 };

static struct plm_label_column_result columns[COLUMNS];

static struct plm_label_result classes(void)
{
  struct plm_label_result result = {
      .task = PLM_TASK_CLASSIFICATION, .loss = 0.5, .labels = 30, .missing = 4, .unseen = 2};
  for (int k = 0; k < PLM_MEASURES; k++)
    result.values[k] = k < PLM_MEASURES_OF_NUMBERS ? NAN : k / 10.0;
  result.values[PLM_MEASURE_AUROC] = NAN;
  snprintf(result.reason, sizeof result.reason, "x"); /* however short */
  return result;
}

static struct plm_label_result numbers(void)
{
  struct plm_label_result result = {.task = PLM_TASK_REGRESSION,
                                    .loss = 0.25,
                                    .labels = 50,
                                    .columns = columns,
                                    .column_count = COLUMNS};
  columns[0].name = "Tm";
  columns[1].name = "half-life";
  for (int k = 0; k < PLM_MEASURES; k++) {
    result.values[k] = k < PLM_MEASURES_OF_NUMBERS ? 0.5 + k : NAN;
    columns[0].values[k] = k < PLM_MEASURES_OF_NUMBERS ? 1.5 + k : NAN;
    columns[1].values[k] = k < PLM_MEASURES_OF_NUMBERS ? 2.5 + k : NAN;
  }
  columns[1].values[PLM_MEASURE_PEARSON] = NAN;
  return result;
}

static void lines(void **state)
{
  (void)state;
  const struct plm_label_result of_classes = classes(), of_numbers = numbers();
  static const struct {
    bool numbers;
    const char *text;
  } cases[] = {
      {false,
       "{\"loss\":0.5,\"accuracy\":0.4,\"macro_f1\":0.5,\"mcc\":0.6,\"auroc\":null,\"labels\":30,"
       "\"missing_labels\":4,\"unseen_labels\":2,\"reason\":\"x\"}"},
      {true,
       "{\"loss\":0.25,\"spearman\":0.5,\"pearson\":1.5,\"r2\":2.5,\"rmse\":3.5,\"labels\":50,"
       "\"missing_labels\":0,\"spearman_by_label\":{\"Tm\":1.5,\"half-life\":2.5},"
       "\"pearson_by_label\":{\"Tm\":2.5,\"half-life\":null},"
       "\"r2_by_label\":{\"Tm\":3.5,\"half-life\":4.5},"
       "\"rmse_by_label\":{\"Tm\":4.5,\"half-life\":5.5}}"},
  };
  for (int i = 0; i < 2; i++) {
    cJSON *line = cJSON_CreateObject();
    plm_label_report(cases[i].numbers ? &of_numbers : &of_classes, line);
    char *text = cJSON_PrintUnformatted(line);
    assert_string_equal(text, cases[i].text);
    free(text);
    cJSON_Delete(line);
  }
}

static void put(void *context, const char *name, double value)
{
  struct plm_text *text = context;
  plm_text_printf(text, "%s=%g ", name, value);
}

static void plotted_numbers(void **state)
{
  (void)state;
  struct plm_text text = {0};
  struct plm_label_result result = classes();
  plm_label_report_each(&result, put, &text);
  assert_string_equal(text.data, "loss=0.5 accuracy=0.4 macro_f1=0.5 mcc=0.6 ");
  plm_text_clear(&text);
  result = numbers();
  plm_label_report_each(&result, put, &text);
  assert_string_equal(text.data,
                      "loss=0.25 spearman=0.5 pearson=1.5 r2=2.5 rmse=3.5 "
                      "spearman_by_label/Tm=1.5 pearson_by_label/Tm=2.5 r2_by_label/Tm=3.5 "
                      "rmse_by_label/Tm=4.5 spearman_by_label/half-life=2.5 "
                      "r2_by_label/half-life=4.5 rmse_by_label/half-life=5.5 ");
  plm_text_clear(&text);
  result.loss = NAN;
  result.column_count = 0;
  plm_label_report_each(&result, put, &text);
  assert_string_equal(text.data, "spearman=0.5 pearson=1.5 r2=2.5 rmse=3.5 ");
  plm_text_deinit(&text);
}

static void words(void **state)
{
  (void)state;
  struct plm_text text = {0};
  struct plm_label_result result = classes();
  plm_label_report_words(&result, &text);
  assert_string_equal(text.data, "loss 0.5000, accuracy 0.4000, macro_f1 0.5000, mcc 0.6000; x");
  plm_text_clear(&text);
  result = numbers();
  plm_label_report_words(&result, &text);
  assert_string_equal(text.data,
                      "loss 0.2500, spearman 0.5000, pearson 1.5000, r2 2.5000, rmse 3.5000");
  plm_text_clear(&text);
  for (int k = 0; k < PLM_MEASURES; k++) result.values[k] = NAN;
  result.loss = NAN;
  snprintf(result.reason, sizeof result.reason, "there are no labels");
  plm_label_report_words(&result, &text);
  assert_string_equal(text.data, "there are no labels");
  plm_text_deinit(&text);
}

static void printed(void **state)
{
  (void)state;
  struct plm_label_result result = classes();
  captured_begin(STDOUT_FILENO);
  plm_label_report_print(&result);
  assert_string_equal(captured_end(),
                      "labels       30, and 4 missing\n"
                      "unseen       2 labels of classes that were not in training\n"
                      "loss         0.500000\n"
                      "measures     accuracy 0.4000   macro_f1 0.5000   mcc 0.6000   auroc -\n"
                      "reason       x\n");
  result = numbers();
  result.loss = NAN;
  captured_begin(STDOUT_FILENO);
  plm_label_report_print(&result);
  assert_string_equal(captured_end(),
                      "labels       50, and 0 missing\n"
                      "measures     spearman 0.5000   pearson 1.5000   r2 2.5000   rmse 3.5000\n"
                      "  Tm         spearman 1.5000   pearson 2.5000   r2 3.5000   rmse 4.5000\n"
                      "  half-life  spearman 2.5000   pearson -   r2 4.5000   rmse 5.5000\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_of_one_class),
      cmocka_unit_test(probabilities_of_one_class),
      cmocka_unit_test(losses_of_several_classes),
      cmocka_unit_test(lines),
      cmocka_unit_test(plotted_numbers),
      cmocka_unit_test(words),
      cmocka_unit_test(printed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
