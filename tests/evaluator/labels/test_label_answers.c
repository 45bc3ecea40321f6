/* The order in which documents come changes no bit of a result, and labels that are missing or of
 * classes that the model does not know are counted. The measures themselves are compared with
 * scikit-learn in tests/golden/test_evaluate_labels.py. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/labels/label_answers.h"

enum { DOCUMENTS = 40, OUTPUTS = 3, CLASSES = 4 };

static float output_of(uint32_t document, uint32_t k)
{
  return (float)(plm_philox(5, document, k, 0).w[0] >> 8) * 0x1p-22F - 2;
}

/* The class of the column, whose last one the model does not know; every seventh is missing. */
static int32_t class_of(uint32_t document)
{
  return document % 7 == 3 ? -1 : (int32_t)(plm_philox(6, document, 0, 0).w[0] % CLASSES);
}

/* Documents in the order first, first + stride, ... modulo DOCUMENTS, one in each batch. */
static struct plm_label_result measure(const struct plm_label_match *match, uint32_t stride)
{
  const bool numbers = match->choice.task == PLM_TASK_REGRESSION;
  struct plm_label_answers *answers = plm_label_answers_open(match, numbers ? 1 : OUTPUTS);
  struct plm_label_result result;
  for (uint32_t i = 0; i < DOCUMENTS; i++) {
    const uint32_t number = (3 + i * stride) % DOCUMENTS, begin[] = {0, 1};
    const struct plm_chunk_document document = {.number = number, .tokens = 5, .residues = 3};
    const struct plm_batch batch = {
        .chunks = 1, .max_length = 8, .document_begin = begin, .documents = &document};
    struct plm_label_span span = {.tokens = 5, .first_residue = 1, .residues = 3, .whole = true};
    int32_t class = class_of(number);
    float value = class < 0 ? NAN : output_of(number, 7), outputs[OUTPUTS];
    for (uint32_t k = 0; k < OUTPUTS; k++) outputs[k] = output_of(number, k);
    struct plm_batch_labels labels = {.task = match->choice.task,
                                      .B = 1,
                                      .L = 8,
                                      .outputs = numbers ? 1 : CLASSES,
                                      .documents = 1,
                                      .spans = &span,
                                      .values = &value,
                                      .classes = &class,
                                      .known = class >= 0};
    struct plm_labelled_rows rows = {0};
    const struct plm_head_config head = {.kind = PLM_PREDICTS_SEQUENCES};
    assert_int_equal(plm_labelled_rows_list(&head, &labels, &rows, NULL), PLM_OK);
    assert_int_equal(rows.count, labels.known);
    if (rows.count > 0) assert_true(rows.begin[0] == 1 && rows.end[0] == 4);
    assert_int_equal(plm_label_answers_add(answers, &batch, &labels, &rows, outputs, NULL), PLM_OK);
    plm_labelled_rows_deinit(&rows);
  }
  assert_int_equal(plm_label_answers_measure(answers, &result, NULL), PLM_OK);
  plm_label_answers_close(answers);
  return result;
}

static void same(const struct plm_label_match *match, struct plm_label_result *result)
{
  static const uint32_t strides[] = {7, 39, 13};
  *result = measure(match, 1);
  for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
    struct plm_label_result other = measure(match, strides[i]);
    assert_memory_equal(&other.loss, &result->loss, sizeof result->loss);
    assert_memory_equal(other.values, result->values, sizeof result->values);
    assert_true(other.labels == result->labels && other.missing == result->missing &&
                other.unseen == result->unseen);
    plm_label_result_deinit(&other);
  }
}

static void classes_in_any_order(void **state)
{
  (void)state;
  char *names[] = {"a", "b", "c", "d"};
  uint64_t counts[CLASSES] = {5, 0, 5, 5}; /* the training split has no "b" */
  struct plm_label_column column = {
      .kind = PLM_LABEL_CLASS, .classes = names, .class_count = CLASSES, .counts = counts};
  column.labels[0] = 15;
  int32_t output[] = {2, 0, 1, PLM_NO_OUTPUT};
  const struct plm_label_match match = {
      .choice = {PLM_TASK_CLASSIFICATION, CLASSES, 1, &column, NULL, NULL},
      .output = output,
      .foreign = 1};
  struct plm_label_result result;
  uint64_t known = 0, unseen = 0, right = 0;
  double loss = 0, with_loss = 0;
  for (uint32_t d = 0; d < DOCUMENTS; d++) {
    const int32_t class = class_of(d);
    uint32_t best = 0;
    double sum = 0;
    if (class < 0) continue;
    known++;
    unseen += class == 1 || class == 3;
    for (uint32_t k = 0; k < OUTPUTS; k++) {
      if (output_of(d, k) > output_of(d, best)) best = k;
      sum += exp((double)output_of(d, k));
    }
    right += output[class] == (int32_t)best;
    if (class == 3) continue;
    loss += log(sum) - (double)output_of(d, (uint32_t)output[class]);
    with_loss++;
  }
  same(&match, &result);
  assert_true(result.labels == known && result.missing == DOCUMENTS - known);
  assert_true(unseen > 0 && result.unseen == unseen);
  assert_true(fabs(result.values[PLM_MEASURE_ACCURACY] - (double)right / (double)known) < 1e-12);
  assert_true(fabs(result.loss - loss / with_loss) < 1e-12);
  assert_true(result.values[PLM_MEASURE_AUROC] > 0 && isnan(result.values[PLM_MEASURE_RMSE]));
  assert_string_equal(result.reason, "");
}

static void numbers_in_any_order(void **state)
{
  (void)state;
  char name[] = "tm";
  struct plm_label_column column = {.name = name, .kind = PLM_LABEL_NUMBER};
  double mean = 50, deviation = 8;
  const struct plm_label_match match = {
      .choice = {PLM_TASK_REGRESSION, 1, 1, &column, &mean, &deviation}};
  struct plm_label_result result;
  double squares = 0, known = 0;
  for (uint32_t d = 0; d < DOCUMENTS; d++) {
    const double apart = (double)output_of(d, 0) - (double)output_of(d, 7);
    if (class_of(d) < 0) continue;
    squares += apart * apart;
    known++;
  }
  same(&match, &result);
  assert_true(fabs(result.loss - squares / known) < 1e-12);
  assert_true(fabs(result.values[PLM_MEASURE_RMSE] - 8 * sqrt(squares / known)) < 1e-10);
  assert_true((double)result.labels == known && result.column_count == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(classes_in_any_order),
      cmocka_unit_test(numbers_in_any_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
