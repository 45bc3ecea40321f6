/* Metrics against worked examples, and against their definitions summed in a simple, slow way. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/evaluate/confusion_matrix.h"

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-12 * (1 + fabs(expected))))
    fail_msg("%.17g is not %.17g", got, expected);
}

/* For truth 0 0 0 1 1 2 and predictions 0 0 1 1 2 2 scikit-learn gives these numbers. */
static void a_worked_example(void **state)
{
  (void)state;
  static const int32_t truth[] = {0, 0, 0, 1, 1, 2};
  static const int predicted[] = {0, 0, 1, 1, 2, 2};
  struct plm_confusion confusion;
  float logits[6][3] = {{0}};
  uint32_t residues[6] = {10, 64, 127, 128, 9000, 20000};
  for (int i = 0; i < 6; i++) logits[i][predicted[i]] = 1.0f;
  plm_confusion_init(&confusion, 3);
  const struct plm_classification none = plm_confusion_classification(&confusion);
  assert_true(none.accuracy == 0 && none.precision == 0 && none.recall == 0 && none.f1 == 0 &&
              none.mcc == 0);
  plm_confusion_add(&confusion, logits[0], truth, residues, 6);
  const struct plm_classification got = plm_confusion_classification(&confusion);
  near(got.accuracy, 4.0 / 6);
  near(got.recall, 4.0 / 6);
  near(got.precision, (3 * 1.0 + 2 * 0.5 + 1 * 0.5) / 6);
  near(got.f1, (3 * 0.8 + 2 * 0.5 + 1 * (2.0 / 3)) / 6);
  near(got.mcc, (4.0 * 6 - (2 * 3 + 2 * 2 + 2 * 1)) / sqrt((36.0 - 12) * (36.0 - 14)));
  const double hit = log(exp(1) + 2) - 1, miss = log(exp(1) + 2);
  near(confusion.loss_sum, 4 * hit + 2 * miss);
  assert_int_equal(confusion.bin_rows[0], 1);
  assert_int_equal(confusion.bin_rows[1], 2);
  assert_int_equal(confusion.bin_rows[2], 1);
  assert_int_equal(confusion.bin_rows[PLM_LENGTH_BINS - 1], 2);
  plm_confusion_deinit(&confusion);
}

/* exp() of differences from the largest logit neither overflows nor vanishes. */
static void large_logits_have_finite_losses(void **state)
{
  (void)state;
  static const int32_t truth[] = {1, 0, 2, 0};
  static const float logits[] = {-5000, 2000, 1000, 7000, -9000, 0, 100, 100, 90, 0, 0, 3000};
  static const uint32_t residues[4] = {1, 1, 1, 1};
  static const double losses[] = {0, 0, 10.693169880560, 3000};
  struct plm_confusion confusion;
  for (int row = 0; row < 4; row++) {
    plm_confusion_init(&confusion, 3);
    plm_confusion_add(&confusion, logits + 3 * row, truth + row, residues + row, 1);
    assert_true(fabs(confusion.loss_sum - losses[row]) < 1e-9);
    plm_confusion_deinit(&confusion);
  }
}

/* The multi-class MCC by its definition: Gorodkin's covariances over all indicator columns. */
static double slow_mcc(const int32_t *truth, const int *predicted, int rows, int V)
{
  double covariance[3] = {0}; /* xy, xx, yy */
  for (int k = 0; k < V; k++) {
    double mean_x = 0, mean_y = 0;
    for (int i = 0; i < rows; i++) {
      mean_x += (truth[i] == k) / (double)rows;
      mean_y += (predicted[i] == k) / (double)rows;
    }
    for (int i = 0; i < rows; i++) {
      const double x = (truth[i] == k) - mean_x, y = (predicted[i] == k) - mean_y;
      covariance[0] += x * y;
      covariance[1] += x * x;
      covariance[2] += y * y;
    }
  }
  return covariance[0] / sqrt(covariance[1] * covariance[2]);
}

static void random_tables_match_the_definition(void **state)
{
  (void)state;
  enum { rows = 500, V = 33 };
  static float logits[rows][V];
  static int32_t truth[rows];
  static int predicted[rows];
  static uint32_t residues[rows];
  struct plm_confusion whole, parts;
  double loss = 0;
  for (int i = 0; i < rows; i++) {
    truth[i] = (int32_t)(plm_philox(1, (uint32_t)i, 0, 0).w[0] % V);
    for (int v = 0; v < V; v++)
      logits[i][v] = (float)(plm_philox_unit(plm_philox(2, (uint32_t)i, (uint64_t)v, 0).w[0]) +
                             (v == truth[i] ? 0.4 : 0));
    double sum = 0;
    for (int v = 0; v < V; v++) {
      sum += exp(logits[i][v]);
      if (logits[i][v] > logits[i][predicted[i]]) predicted[i] = v;
    }
    loss += log(sum) - logits[i][truth[i]];
  }
  plm_confusion_init(&whole, V);
  plm_confusion_init(&parts, V);
  plm_confusion_add(&whole, logits[0], truth, residues, rows);
  plm_confusion_add(&parts, logits[0], truth, residues, 123);
  plm_confusion_add(&parts, logits[123], truth + 123, residues + 123, rows - 123);
  near(plm_confusion_classification(&whole).mcc, slow_mcc(truth, predicted, rows, V));
  assert_true(fabs(whole.loss_sum - loss) < 1e-9);
  assert_true(whole.loss_sum ==
              parts.loss_sum); /* the order of summation is the same, and so are the bits */
  assert_memory_equal(whole.counts, parts.counts, sizeof(uint64_t) * V * V);
  plm_confusion_reset(&parts);
  assert_int_equal(parts.rows, 0);
  assert_true(plm_confusion_classification(&parts).mcc == 0.0);
  plm_confusion_deinit(&whole);
  plm_confusion_deinit(&parts);
}

static void one_class_alone_has_no_correlation(void **state)
{
  (void)state;
  static const int32_t truth[] = {1, 1, 1};
  static const float logits[3][2] = {{0, 1}, {0, 1}, {0, 1}};
  static const uint32_t residues[3] = {1, 1, 1};
  struct plm_confusion confusion;
  plm_confusion_init(&confusion, 2);
  plm_confusion_add(&confusion, logits[0], truth, residues, 3);
  near(plm_confusion_classification(&confusion).accuracy, 1.0);
  near(plm_confusion_classification(&confusion).mcc, 0.0);
  plm_confusion_deinit(&confusion);
}

static void bins_have_names(void **state)
{
  (void)state;
  char name[32];
  plm_confusion_bin_name(0, name);
  assert_string_equal(name, "<64");
  plm_confusion_bin_name(1, name);
  assert_string_equal(name, "64-127");
  plm_confusion_bin_name(PLM_LENGTH_BINS - 1, name);
  assert_string_equal(name, ">=8192");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_worked_example),
      cmocka_unit_test(large_logits_have_finite_losses),
      cmocka_unit_test(random_tables_match_the_definition),
      cmocka_unit_test(one_class_alone_has_no_correlation),
      cmocka_unit_test(bins_have_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
