/* The order in which documents come changes no bit of a result, and labels that are missing or of
 * classes that the model does not know are counted. The measures themselves are compared with
 * scikit-learn in tests/golden/test_evaluate_labels.py. */
#include "tests/support/harness/failing_memory.h"

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

/* Whether class c of several is true; every fifth is missing. */
static float truth_of(uint32_t document, uint32_t c)
{
  const uint32_t drawn = plm_philox(7, document, c, 0).w[0];
  return class_of(document) < 0 || drawn % 5 == 0 ? NAN : (float)(drawn >> 16 & 1);
}

/* Documents in the order first, first + stride, ... modulo DOCUMENTS, one in each batch. */
static struct plm_label_result measure_kept(const struct plm_label_match *match, uint32_t stride,
                                            size_t kept)
{
  const bool numbers = match->choice.task == PLM_TASK_REGRESSION,
             several = match->choice.task == PLM_TASK_MULTILABEL;
  struct plm_label_answers *answers = plm_label_answers_open(match, numbers ? 1 : OUTPUTS, kept);
  struct plm_label_result result;
  for (uint32_t i = 0; i < DOCUMENTS; i++) {
    const uint32_t number = (3 + i * stride) % DOCUMENTS, begin[] = {0, 1};
    const struct plm_chunk_document document = {.number = number, .tokens = 5, .residues = 3};
    const struct plm_batch batch = {
        .chunks = 1, .max_length = 8, .document_begin = begin, .documents = &document};
    struct plm_label_span span = {.tokens = 5, .first_residue = 1, .residues = 3, .whole = true};
    int32_t class = class_of(number);
    float value = class < 0 ? NAN : output_of(number, 7), outputs[OUTPUTS], truth[CLASSES + 1];
    uint32_t known = 0;
    for (uint32_t c = 0; c < CLASSES; c++) {
      truth[c] = truth_of(number, c);
      known += !isnan(truth[c]);
    }
    truth[CLASSES] = 9; /* must not be read; nor must what is behind the outputs of the classes */
    for (uint32_t k = 0; k < OUTPUTS; k++) outputs[k] = output_of(number, k);
    struct plm_batch_labels labels = {.task = match->choice.task,
                                      .B = 1,
                                      .L = 8,
                                      .outputs = numbers ? 1 : CLASSES,
                                      .documents = 1,
                                      .spans = &span,
                                      .values = several ? truth : &value,
                                      .classes = &class,
                                      .known = several ? known : class >= 0};
    struct plm_labelled_rows rows = {0};
    const struct plm_head_config head = {.kind = PLM_PREDICTS_SEQUENCES};
    assert_int_equal(plm_labelled_rows_list(&head, &labels, &rows, NULL), PLM_OK);
    assert_int_equal(rows.count, labels.known > 0);
    if (rows.count > 0) assert_true(rows.begin[0] == 1 && rows.end[0] == 4);
    assert_int_equal(plm_label_answers_add(answers, &batch, &labels, &rows, outputs, NULL), PLM_OK);
    plm_labelled_rows_deinit(&rows);
  }
  assert_int_equal(plm_label_answers_measure(answers, &result, NULL), PLM_OK);
  plm_label_answers_close(answers);
  return result;
}

static struct plm_label_result measure(const struct plm_label_match *match, uint32_t stride)
{
  return measure_kept(match, stride, PLM_LABEL_VALUES_KEPT);
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

/* One protein whose residues have the classes of the documents above gives the same result. */
static void residues_in_place_of_documents(void **state)
{
  (void)state;
  struct plm_label_column column = {.kind = PLM_LABEL_CLASS,
                                    .classes = (char *[]){"a", "b", "c", "d"},
                                    .class_count = CLASSES,
                                    .counts = (uint64_t[]){5, 5, 5, 5}};
  struct plm_label_match match = {
      .choice = {PLM_TASK_CLASSIFICATION, CLASSES, 1, &column, NULL, NULL},
      .output = (int32_t[]){2, 0, 1, PLM_NO_OUTPUT},
      .foreign = 1};
  struct plm_label_result documents = measure(&match, 1), residues;
  match.choice.task = PLM_TASK_RESIDUES;
  int32_t classes[DOCUMENTS + 1] = {-1}, begin[DOCUMENTS]; /* behind <cls> */
  uint32_t of[DOCUMENTS] = {0};
  float outputs[DOCUMENTS * OUTPUTS];
  struct plm_labelled_rows rows = {.begin = begin, .documents = of};
  for (int32_t i = 1; i <= DOCUMENTS; i++) {
    classes[i] = class_of((uint32_t)i - 1);
    if (classes[i] < 0) continue;
    for (uint32_t k = 0; k < OUTPUTS; k++)
      outputs[rows.count * OUTPUTS + k] = output_of((uint32_t)i - 1, k);
    begin[rows.count++] = i;
  }
  struct plm_label_span span = {.first_residue = 1, .residues = DOCUMENTS, .whole = true};
  const struct plm_chunk_document document = {.number = 0};
  const struct plm_batch batch = {
      .chunks = 1, .document_begin = (uint32_t[]){0, 1}, .documents = &document};
  const struct plm_batch_labels labels = {
      .outputs = CLASSES, .documents = 1, .spans = &span, .residues = classes, .known = rows.count};
  struct plm_label_answers *answers =
      plm_label_answers_open(&match, OUTPUTS, PLM_LABEL_VALUES_KEPT);
  assert_int_equal(plm_label_answers_add(answers, &batch, &labels, &rows, outputs, NULL), PLM_OK);
  assert_int_equal(plm_label_answers_measure(answers, &residues, NULL), PLM_OK);
  assert_true(residues.labels == documents.labels && residues.missing == documents.missing);
  assert_true(residues.loss == documents.loss && residues.unseen == documents.unseen);
  assert_memory_equal(residues.values, documents.values, sizeof residues.values);
  plm_label_answers_close(answers);
  plm_label_result_deinit(&residues);
  plm_label_result_deinit(&documents);
}

static const struct plm_label_match several = {
    .choice = {PLM_TASK_MULTILABEL, CLASSES, 1, NULL, NULL, NULL},
    .output = (int32_t[]){2, 0, 1, PLM_NO_OUTPUT, 1},
    .foreign = 1};

static void several_classes_in_any_order(void **state)
{
  (void)state;
  struct plm_label_result result;
  double loss = 0, labels = 0, right[OUTPUTS] = {0}, known[OUTPUTS] = {0}, accuracy = 0;
  for (uint32_t d = 0; d < DOCUMENTS; d++)
    for (uint32_t c = 0; c + 1 < CLASSES; c++) {
      const uint32_t k = (uint32_t)several.output[c];
      const float truth = truth_of(d, c), output = output_of(d, k);
      if (isnan(truth)) continue;
      loss += log(1 + exp(truth > 0 ? -(double)output : (double)output));
      right[k] += (output > 0) == (truth > 0);
      known[k]++;
      labels++;
    }
  for (uint32_t k = 0; k < OUTPUTS; k++) accuracy += right[k] / known[k] / OUTPUTS;
  same(&several, &result);
  assert_true((double)result.labels == labels);
  assert_true(fabs(result.loss - loss / labels) < 1e-6);
  assert_true(fabs(result.values[PLM_MEASURE_ACCURACY] - accuracy) < 1e-12);
  assert_true(result.values[PLM_MEASURE_AUROC] > 0);
  assert_string_equal(result.reason, "");
}

/* With one probability more than are kept, everything else is as before. */
static void expect_bound(const struct plm_label_match *match, size_t probabilities,
                         const char *reason)
{
  const struct plm_label_result all = measure_kept(match, 1, probabilities),
                                less = measure_kept(match, 1, probabilities - 1);
  assert_string_equal(all.reason, "");
  assert_string_equal(less.reason, reason);
  assert_true(all.values[PLM_MEASURE_AUROC] > 0 && isnan(less.values[PLM_MEASURE_AUROC]));
  assert_true(all.labels == less.labels && all.missing == less.missing && all.loss == less.loss);
  for (int k = PLM_MEASURES_OF_NUMBERS; k < PLM_MEASURES; k++)
    assert_true(k == PLM_MEASURE_AUROC || all.values[k] == less.values[k]);
}

/* Of one class, those that the model does not know have probabilities as well. */
static void too_many_probabilities_are_not_kept(void **state)
{
  (void)state;
  struct plm_label_column column = {.kind = PLM_LABEL_CLASS,
                                    .classes = (char *[]){"a", "b", "c", "d"},
                                    .class_count = CLASSES,
                                    .counts = (uint64_t[]){5, 5, 5, 5}};
  const struct plm_label_match one = {
      .choice = {PLM_TASK_CLASSIFICATION, CLASSES, 1, &column, NULL, NULL},
      .output = several.output,
      .foreign = 1};
  size_t documents = 0, labelled = 0;
  for (uint32_t d = 0; d < DOCUMENTS; d++) {
    bool any = false;
    for (uint32_t c = 0; c < CLASSES; c++) any = any || !isnan(truth_of(d, c));
    documents += class_of(d) >= 0;
    labelled += any;
  }
  assert_true(documents == 34 && labelled == 34);
  expect_bound(&one, documents * CLASSES, "auroc is left out: 34 labels of 4 classes are too many");
  expect_bound(&several, labelled * OUTPUTS,
               "auroc is left out: 34 labels of 3 classes are too many");
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

/* ---- what does not exist --------------------------------------------------------------------- */

enum { MOST_LABELS = 3 };

struct reason_row {
  enum plm_label_task task;
  uint32_t count;
  float truth[MOST_LABELS], values[MOST_LABELS];
  const char *reason;
  enum plm_measure missing; /* PLM_MEASURES: none */
};

/* Each column has one output, and the classes are "a" and, unknown to the model, "b". */
static const struct reason_row reason_rows[] = {
    {PLM_TASK_CLASSIFICATION,
     3,
     {0, 0, 0},
     {1, 2, 3},
     "all labels are of class \"a\", so auroc does not exist and mcc is 0",
     PLM_MEASURE_AUROC},
    {PLM_TASK_CLASSIFICATION,
     2,
     {1, 1},
     {1, 2},
     "all labels are of class \"b\", so auroc does not exist and mcc is 0",
     PLM_MEASURE_AUROC},
    {PLM_TASK_CLASSIFICATION, 3, {0, 0, 1}, {1, 2, 3}, "", PLM_MEASURES},
    {PLM_TASK_CLASSIFICATION, 3, {0, 1, 0}, {1, 2, 3}, "", PLM_MEASURES},
    {PLM_TASK_CLASSIFICATION, .reason = "no document of this split has a label"},
    {PLM_TASK_RESIDUES, .reason = "no residue of this split has a label"},
    {PLM_TASK_REGRESSION, .reason = "no document of this split has a label"},
    {PLM_TASK_REGRESSION,
     1,
     {NAN},
     {1},
     "column \"tm\" has no label in this split",
     PLM_MEASURE_RMSE},
    {PLM_TASK_REGRESSION, 1, {1}, {1}, "column \"tm\" has one label only", PLM_MEASURE_SPEARMAN},
    {PLM_TASK_REGRESSION,
     3,
     {4, 4, 4},
     {2, 2, 2},
     "all labels of column \"tm\" are equal",
     PLM_MEASURE_SPEARMAN},
    {PLM_TASK_REGRESSION,
     3,
     {4, 5, 4},
     {2, 2, 2},
     "the model predicts the same number everywhere for column \"tm\"",
     PLM_MEASURE_SPEARMAN},
    {PLM_TASK_REGRESSION, 3, {4, 4, 5}, {2, 2, 3}, "", PLM_MEASURES},
    {PLM_TASK_REGRESSION, 2, {4, 5}, {2, 3}, "", PLM_MEASURES},
    {PLM_TASK_REGRESSION, 3, {4, 5, 4}, {2, 3, 2}, "", PLM_MEASURES},
    {PLM_TASK_MULTILABEL,
     3,
     {1, 1, 1},
     {-1, 2, 3},
     "no class is true somewhere but not everywhere, so auroc and mcc do not exist",
     PLM_MEASURE_MCC},
    {PLM_TASK_MULTILABEL, 3, {1, 0, 1}, {-1, 2, 3}, "", PLM_MEASURES},
};

static void measure_row(const struct reason_row *row, struct plm_label_result *result)
{
  static const struct plm_chunk_document documents[MOST_LABELS] = {
      {.number = 0}, {.number = 1}, {.number = 2}};
  struct plm_label_column column = {.name = (char[]){"tm"},
                                    .classes = (char *[]){"a", "b"},
                                    .class_count = 2,
                                    .counts = (uint64_t[]){5, 5}};
  const struct plm_batch batch = {
      .chunks = 1, .document_begin = (uint32_t[]){0, MOST_LABELS}, .documents = documents};
  const bool one_class = row->task == PLM_TASK_CLASSIFICATION;
  const struct plm_label_match match = {
      .choice = {row->task, 1, 1, &column, (double[]){50}, (double[]){8}},
      .output = one_class ? (int32_t[]){0, PLM_NO_OUTPUT} : NULL,
      .foreign = one_class};
  float truth[MOST_LABELS];
  int32_t classes[MOST_LABELS];
  for (int d = 0; d < MOST_LABELS; d++) truth[d] = row->truth[d];
  for (int d = 0; d < MOST_LABELS; d++) classes[d] = truth[d] > 0;
  const struct plm_batch_labels labels = {.outputs = 1, .values = truth, .classes = classes};
  const struct plm_labelled_rows listed = {.count = row->count, .documents = (uint32_t[]){0, 1, 2}};
  struct plm_label_answers *answers = plm_label_answers_open(&match, 1, PLM_LABEL_VALUES_KEPT);
  assert_int_equal(plm_label_answers_add(answers, &batch, &labels, &listed, row->values, NULL),
                   PLM_OK);
  assert_int_equal(plm_label_answers_measure(answers, result, NULL), PLM_OK);
  plm_label_answers_close(answers);
}

/* A measure that does not exist has a reason, the first one that there is. */
static void reasons_are_given(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof reason_rows / sizeof *reason_rows; i++) {
    const struct reason_row *row = &reason_rows[i];
    struct plm_label_result result;
    measure_row(row, &result);
    if (strcmp(result.reason, row->reason) != 0) fail_msg("row %zu: %s", i, result.reason);
    for (int k = 0; k < PLM_MEASURES && row->count == 0; k++) assert_true(isnan(result.values[k]));
    if (row->missing < PLM_MEASURES) assert_true(isnan(result.values[row->missing]));
    plm_label_result_deinit(&result);
  }
}

/* ---- several columns ------------------------------------------------------------------------- */

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-12 * (1 + fabs(expected))))
    fail_msg("%.17g is not %.17g", got, expected);
}

/* The errors of the first column are 1, 1 and 1 of its deviations, those of the second 0, 0 and 1.
 */
static void check_numbers(const struct plm_label_result *result)
{
  const double spearman[] = {1, sqrt(3) / 2}, r2[] = {1 - 3 / (14.0 / 3), 0.5},
               rmse[] = {2, 4 * sqrt(1.0 / 3)};
  near(result->loss, 4.0 / 6);
  for (uint32_t k = 0; k < 2; k++) {
    near(result->columns[k].values[PLM_MEASURE_SPEARMAN], spearman[k]);
    near(result->columns[k].values[PLM_MEASURE_R2], r2[k]);
    near(result->columns[k].values[PLM_MEASURE_RMSE], rmse[k]);
    assert_true(isnan(result->columns[k].values[PLM_MEASURE_ACCURACY]));
  }
  near(result->values[PLM_MEASURE_SPEARMAN], (spearman[0] + spearman[1]) / 2);
  near(result->values[PLM_MEASURE_R2], (r2[0] + r2[1]) / 2);
  near(result->values[PLM_MEASURE_RMSE], (rmse[0] + rmse[1]) / 2);
}

/* The first class is always right, and the second one twice. */
static void check_classes(const struct plm_label_result *result)
{
  double loss = 0;
  for (int i = 0; i < 6; i++) loss += log1p(exp((double)(float[]){-2, -1, -2, -1, -3, 1}[i])) / 6;
  near(result->loss, loss);
  near(result->values[PLM_MEASURE_ACCURACY], 5.0 / 6);
  near(result->values[PLM_MEASURE_AUROC], (1 + 0.75) / 2);
}

/* Two columns of numbers; or two classes that may both be true, of one column or each of its own.
 */
struct two_columns {
  enum plm_label_task task;
  bool one_column;
};

static plm_status measure_two(void *context, struct plm_error *error)
{
  static const float outputs[] = {-2, 1, 2, -1, 3, 1};
  static float truth[] = {-1, 1, 1, -1, 2, 0}, truths[] = {0, 1, 1, 0, 1, 0};
  static const struct plm_chunk_document documents[MOST_LABELS] = {
      {.number = 0}, {.number = 1}, {.number = 2}};
  const struct two_columns *two = context;
  const bool numbers = two->task == PLM_TASK_REGRESSION;
  struct plm_label_column columns[] = {{.name = (char[]){"a"}}, {.name = (char[]){"b"}}};
  const struct plm_batch batch = {
      .chunks = 1, .document_begin = (uint32_t[]){0, MOST_LABELS}, .documents = documents};
  const struct plm_label_match match = {
      .choice = {two->task, 2, numbers ? 2 : 1, columns, (double[]){10, 20}, (double[]){2, 4}},
      .output = two->one_column ? (int32_t[]){0, 1} : NULL};
  const struct plm_batch_labels labels = {.outputs = 2, .values = numbers ? truth : truths};
  const struct plm_labelled_rows listed = {.count = MOST_LABELS,
                                           .documents = (uint32_t[]){0, 1, 2}};
  struct plm_label_answers *answers = plm_label_answers_open(&match, 2, PLM_LABEL_VALUES_KEPT);
  struct plm_label_result result;
  plm_status status = plm_label_answers_add(answers, &batch, &labels, &listed, outputs, error);
  if (status == PLM_OK) status = plm_label_answers_measure(answers, &result, error);
  plm_label_answers_close(answers);
  PLM_TRY(status);
  assert_int_equal(result.labels, 2 * MOST_LABELS);
  assert_int_equal(result.column_count, numbers ? 2 : 0);
  for (uint32_t k = 0; k < result.column_count; k++) {
    assert_string_equal(result.columns[k].name, columns[k].name);
    assert_int_equal(result.columns[k].labels, MOST_LABELS);
  }
  assert_string_equal(result.reason, "");
  if (numbers)
    check_numbers(&result);
  else
    check_classes(&result);
  plm_label_result_deinit(&result);
  assert_true(result.columns == NULL && result.column_count == 0); /* a second time is fine */
  plm_label_result_deinit(&result);
  return PLM_OK;
}

static void each_column_is_measured_or_memory_lacks(void **state)
{
  static struct two_columns cases[] = {
      {PLM_TASK_REGRESSION, false}, {PLM_TASK_MULTILABEL, true}, {PLM_TASK_MULTILABEL, false}};
  (void)state;
  for (int i = 0; i < 3; i++) {
    assert_int_equal(measure_two(&cases[i], NULL), PLM_OK);
    failing_memory_try(measure_two, &cases[i], 3);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(classes_in_any_order),
      cmocka_unit_test(residues_in_place_of_documents),
      cmocka_unit_test(several_classes_in_any_order),
      cmocka_unit_test(numbers_in_any_order),
      cmocka_unit_test(too_many_probabilities_are_not_kept),
      cmocka_unit_test(reasons_are_given),
      cmocka_unit_test(each_column_is_measured_or_memory_lacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
