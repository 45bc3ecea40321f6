/* Keeps answers, orders them by document, and measures them. */
#include "evaluator/labels/label_answers.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "evaluator/labels/label_loss.h"
#include "evaluator/measures/multilabel.h"

struct plm_label_answers {
  const struct plm_label_match *match;
  enum plm_label_task task;
  uint32_t outputs; /* K */
  size_t kept;      /* of classes: probabilities */
  size_t count, capacity;
  uint64_t missing;
  uint64_t *documents; /* (capacity) number of the document in its split */
  int32_t *classes;    /* (capacity) of one class: the class of the column that is true */
  uint32_t *chosen;    /* (capacity) of one class: the output that is the largest */
  double *losses;      /* (capacity) of classes; of several, the sum over those that are known */
  float *truth;        /* (capacity, K) of numbers and several classes; NaN: missing */
  float *values;       /* (capacity, K) outputs */
  bool left_out;       /* truth and values are no longer kept, and NULL */
  /* Of several classes. */
  float *row;                          /* (K) of truth, in the order of the outputs */
  struct plm_multilabel_count *counts; /* (K) */
};

void plm_label_result_deinit(struct plm_label_result *result)
{
  free(result->columns);
  *result = (struct plm_label_result){0};
}

static bool is_one_class(const struct plm_label_answers *answers)
{
  return answers->task == PLM_TASK_CLASSIFICATION || answers->task == PLM_TASK_RESIDUES;
}

struct plm_label_answers *plm_label_answers_open(const struct plm_label_match *match,
                                                 uint32_t outputs, size_t kept)
{
  struct plm_label_answers *answers = plm_alloc_zeroed(1, sizeof *answers);
  answers->match = match;
  answers->task = match->choice.task;
  answers->outputs = outputs;
  answers->kept = kept;
  answers->row = plm_alloc_zeroed(outputs, sizeof *answers->row);
  answers->counts = plm_alloc_zeroed(outputs, sizeof *answers->counts);
  return answers;
}

void plm_label_answers_close(struct plm_label_answers *answers)
{
  if (answers == NULL) return;
  free(answers->documents);
  free(answers->classes);
  free(answers->chosen);
  free(answers->losses);
  free(answers->truth);
  free(answers->values);
  free(answers->row);
  free(answers->counts);
  free(answers);
}

/* ---- adding -----------------------------------------------------------------------------------
 */

static bool answers_resize(void *array, size_t count, size_t size)
{
  void **at = array;
  void *moved = realloc(*at, count * size);
  if (moved != NULL) *at = moved;
  return moved != NULL;
}

/* The classes that have probabilities: those of one class that the model does not know have 0. */
static size_t classes_of(const struct plm_label_answers *answers)
{
  return answers->outputs + (is_one_class(answers) ? answers->match->foreign : 0);
}

static plm_status answers_reserve(struct plm_label_answers *answers, size_t more,
                                  struct plm_error *error)
{
  const size_t wanted = answers->count + more, K = answers->outputs;
  if (answers->task != PLM_TASK_REGRESSION && wanted > answers->kept / classes_of(answers)) {
    free(answers->truth);
    free(answers->values);
    answers->truth = answers->values = NULL;
    answers->left_out = true;
  }
  if (wanted <= answers->capacity) return PLM_OK;
  const size_t capacity = wanted + wanted / 2 + 64;
  bool enough = answers_resize(&answers->documents, capacity, sizeof *answers->documents);
  if (is_one_class(answers))
    enough = enough && answers_resize(&answers->classes, capacity, sizeof *answers->classes) &&
             answers_resize(&answers->chosen, capacity, sizeof *answers->chosen);
  else if (!answers->left_out)
    enough = enough && answers_resize(&answers->truth, capacity, K * sizeof *answers->truth);
  if (answers->task != PLM_TASK_REGRESSION)
    enough = enough && answers_resize(&answers->losses, capacity, sizeof *answers->losses);
  if (!answers->left_out)
    enough = enough && answers_resize(&answers->values, capacity, K * sizeof *answers->values);
  if (!enough) {
    plm_error_set(error, PLM_NO_MEMORY, "no memory for what the model predicts of %zu labels",
                  capacity);
    return plm_error_hint(error, "evaluate fewer tokens (evaluator.max_tokens, or --max-tokens)");
  }
  answers->capacity = capacity;
  return PLM_OK;
}

static void add_class(struct plm_label_answers *answers, int32_t class, const float *values)
{
  const size_t at = answers->count, K = answers->outputs;
  const struct plm_label_match *match = answers->match;
  answers->classes[at] = class;
  answers->chosen[at] = plm_label_largest(values, answers->outputs);
  answers->losses[at] = plm_label_class_loss(values, answers->outputs, match->output[class]);
  if (!answers->left_out) memcpy(answers->values + at * K, values, K * sizeof *values);
}

/* Brings classes of the column into the order of the outputs. */
static const float *order_classes(struct plm_label_answers *answers, const float *truth)
{
  const struct plm_label_match *match = answers->match;
  if (match->output == NULL) return truth;
  for (size_t k = 0; k < answers->outputs; k++) answers->row[k] = NAN; /* no such class */
  for (uint32_t c = 0; c < match->choice.outputs; c++)
    if (match->output[c] != PLM_NO_OUTPUT) answers->row[match->output[c]] = truth[c];
  return answers->row;
}

/* Numbers or several classes. */
static void add_values(struct plm_label_answers *answers, const float *of_column,
                       const float *values)
{
  const size_t at = answers->count, K = answers->outputs;
  const float *truth = order_classes(answers, of_column);
  if (answers->task != PLM_TASK_REGRESSION) {
    double loss = 0;
    for (size_t k = 0; k < K; k++)
      if (!isnan(truth[k])) loss += plm_label_binary_loss((double)values[k], (double)truth[k]);
    answers->losses[at] = loss;
    plm_multilabel_add(values, truth, answers->outputs, answers->counts);
  }
  if (answers->left_out) return;
  memcpy(answers->truth + at * K, truth, K * sizeof *truth);
  memcpy(answers->values + at * K, values, K * sizeof *values);
}

/* Labels of the batch that are missing. */
static uint64_t missing_of(const struct plm_label_answers *answers,
                           const struct plm_batch_labels *labels)
{
  uint64_t all = labels->documents;
  if (answers->task == PLM_TASK_RESIDUES) {
    all = 0;
    for (uint32_t d = 0; d < labels->documents; d++) all += labels->spans[d].residues;
  } else if (answers->task != PLM_TASK_CLASSIFICATION) {
    all *= labels->outputs;
  }
  return all - labels->known;
}

plm_status plm_label_answers_add(struct plm_label_answers *answers, const struct plm_batch *batch,
                                 const struct plm_batch_labels *labels,
                                 const struct plm_labelled_rows *rows, const float *values,
                                 struct plm_error *error)
{
  const struct plm_chunk_document *documents = batch->documents + batch->document_begin[0];
  PLM_TRY(answers_reserve(answers, rows->count, error));
  answers->missing += missing_of(answers, labels);
  for (uint32_t r = 0; r < rows->count; r++, answers->count++) {
    const uint32_t d = rows->documents[r];
    const float *row = values + (size_t)r * answers->outputs;
    answers->documents[answers->count] = documents[d].number;
    if (answers->task == PLM_TASK_RESIDUES)
      add_class(answers, labels->residues[rows->begin[r]], row);
    else if (answers->task == PLM_TASK_CLASSIFICATION)
      add_class(answers, labels->classes[d], row);
    else
      add_values(answers, labels->values + (size_t)d * labels->outputs, row);
  }
  return PLM_OK;
}

/* ---- the order --------------------------------------------------------------------------------
 */

static int by_document(const void *left, const void *right, void *context)
{
  const struct plm_label_answers *answers = context;
  const size_t a = *(const size_t *)left, b = *(const size_t *)right;
  const uint64_t x = answers->documents[a], y = answers->documents[b];
  if (x != y) return x < y ? -1 : 1;
  return (a > b) - (a < b); /* residues of a document are already in their order */
}

static plm_status order_answers(struct plm_label_answers *answers, size_t **order,
                                struct plm_error *error)
{
  *order = malloc(answers->count * sizeof **order);
  if (*order == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the order of %zu labels",
                         answers->count);
  for (size_t i = 0; i < answers->count; i++) (*order)[i] = i;
  qsort_r(*order, answers->count, sizeof **order, by_document, answers);
  return PLM_OK;
}

/* ---- measures ---------------------------------------------------------------------------------
 */

static void put_reason(struct plm_label_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put_reason(struct plm_label_result *result, const char *format, ...)
{
  va_list arguments;
  if (result->reason[0] != '\0') return; /* the first one is enough */
  va_start(arguments, format);
  (void)vsnprintf(result->reason, sizeof result->reason, format, arguments);
  va_end(arguments);
}

/* One class. Classes that the model does not know come after its outputs, and are never predicted.
 */
struct class_rows {
  int32_t *truth;
  uint32_t *predicted;
  double *probabilities; /* NULL: left out */
};

static void fill_class_rows(const struct plm_label_answers *answers, const size_t *order,
                            uint32_t classes, const struct class_rows *rows,
                            struct plm_label_result *result)
{
  const struct plm_label_match *match = answers->match;
  const struct plm_label_column *column = &match->choice.columns[0];
  const size_t K = answers->outputs;
  int32_t *place = plm_alloc_zeroed(column->class_count, sizeof *place), next = (int32_t)K;
  double sum = 0;
  uint64_t known = 0;
  for (uint32_t c = 0; c < column->class_count; c++)
    place[c] = match->output[c] == PLM_NO_OUTPUT ? next++ : match->output[c];
  for (size_t i = 0; i < answers->count; i++) {
    const size_t from = order[i];
    const int32_t class = answers->classes[from];
    rows->truth[i] = place[class];
    rows->predicted[i] = answers->chosen[from];
    const bool foreign = match->output[class] == PLM_NO_OUTPUT;
    result->unseen += foreign || (column->labels[0] > 0 && column->counts[class] == 0);
    if (!foreign) sum += answers->losses[from];
    known += !foreign;
    if (rows->probabilities != NULL)
      plm_label_softmax(answers->values + from * K, answers->outputs,
                        rows->probabilities + i * classes, classes);
  }
  result->loss = sum / (double)known; /* a class that the model does not know has no loss */
  free(place);
}

static void say_class_reasons(const struct plm_label_answers *answers,
                              struct plm_label_result *result)
{
  const int32_t *classes = answers->classes;
  const char *const *names = (const char *const *)answers->match->choice.columns[0].classes;
  bool one = true;
  for (size_t i = 1; i < answers->count; i++) one = one && classes[i] == classes[0];
  if (one)
    put_reason(result, "all labels are of class \"%.100s\", so auroc does not exist and mcc is 0",
               names[classes[0]]);
  else if (answers->left_out)
    put_reason(result, "auroc is left out: %zu labels of %u classes are too many", answers->count,
               (uint32_t)classes_of(answers));
}

static plm_status measure_classes(const struct plm_label_answers *answers, const size_t *order,
                                  struct plm_label_result *result, struct plm_error *error)
{
  const size_t N = answers->count;
  const uint32_t classes = (uint32_t)classes_of(answers);
  struct plm_measured measured[PLM_MEASURES];
  struct class_rows rows = {
      .truth = malloc((N + 1) * sizeof *rows.truth),
      .predicted = malloc((N + 1) * sizeof *rows.predicted),
      .probabilities =
          answers->left_out ? NULL : malloc((N + 1) * classes * sizeof *rows.probabilities)};
  plm_status status = PLM_OK;
  if (rows.truth == NULL || rows.predicted == NULL ||
      (rows.probabilities == NULL && !answers->left_out))
    status =
        plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu labels of %u classes", N, classes);
  if (status == PLM_OK) {
    fill_class_rows(answers, order, classes, &rows, result);
    const struct plm_class_predictions predictions = {.probabilities = rows.probabilities,
                                                      .predicted = rows.predicted,
                                                      .truth = rows.truth,
                                                      .count = N,
                                                      .unit_count = N,
                                                      .classes = classes};
    status = plm_measure_classes(&predictions, false, measured, error);
  }
  for (int k = PLM_MEASURES_OF_NUMBERS; k < PLM_MEASURES && status == PLM_OK; k++)
    result->values[k] = measured[k].value;
  say_class_reasons(answers, result);
  free(rows.truth);
  free(rows.predicted);
  free(rows.probabilities);
  return status;
}

/* Column k: what is known of it, in the units of the corpus, but without the mean, on which no
 * measure depends. Returns how many. */
static size_t list_column(const struct plm_label_answers *answers, const size_t *order, uint32_t k,
                          double *predicted, double *truth, double *loss)
{
  const struct plm_label_choice *choice = &answers->match->choice;
  size_t known = 0;
  for (size_t i = 0; i < answers->count; i++) {
    const size_t at = order[i] * answers->outputs + k;
    const double label = (double)answers->truth[at], value = (double)answers->values[at];
    if (isnan(label)) continue;
    *loss += (value - label) * (value - label);
    predicted[known] = value * choice->deviation[k];
    truth[known++] = label * choice->deviation[k];
  }
  return known;
}

static void say_number_reasons(const char *name, const double *predicted, const double *truth,
                               size_t count, struct plm_label_result *result)
{
  bool labels = true, predictions = true;
  for (size_t i = 1; i < count; i++) {
    labels = labels && truth[i] == truth[0];
    predictions = predictions && predicted[i] == predicted[0];
  }
  if (count == 0)
    put_reason(result, "column \"%.100s\" has no label in this split", name);
  else if (count == 1)
    put_reason(result, "column \"%.100s\" has one label only", name);
  else if (labels)
    put_reason(result, "all labels of column \"%.100s\" are equal", name);
  else if (predictions)
    put_reason(result, "the model predicts the same number everywhere for column \"%.100s\"", name);
}

/* The means over the columns where a measure exists. */
static void average_columns(struct plm_label_result *result)
{
  for (int m = 0; m < PLM_MEASURES_OF_NUMBERS; m++) {
    double sum = 0, met = 0;
    for (uint32_t k = 0; k < result->column_count; k++) {
      if (isnan(result->columns[k].values[m])) continue;
      sum += result->columns[k].values[m];
      met++;
    }
    result->values[m] = sum / met;
  }
}

static plm_status measure_column(const char *name, const double *predicted, const double *truth,
                                 size_t count, struct plm_label_column_result *column,
                                 struct plm_label_result *result, struct plm_error *error)
{
  struct plm_measured measured[PLM_MEASURES];
  *column = (struct plm_label_column_result){.name = name, .labels = count};
  for (int k = 0; k < PLM_MEASURES; k++) column->values[k] = NAN;
  result->labels += count;
  say_number_reasons(name, predicted, truth, count, result);
  PLM_TRY(plm_measure_numbers(predicted, truth, count, false, measured, error));
  for (int k = 0; k < PLM_MEASURES_OF_NUMBERS; k++) column->values[k] = measured[k].value;
  return PLM_OK;
}

static plm_status measure_numbers(const struct plm_label_answers *answers, const size_t *order,
                                  struct plm_label_result *result, struct plm_error *error)
{
  const uint32_t K = answers->outputs;
  double *predicted = malloc((answers->count + 1) * sizeof *predicted);
  double *truth = malloc((answers->count + 1) * sizeof *truth), loss = 0;
  plm_status status = PLM_OK;
  if (predicted == NULL || truth == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu labels", answers->count);
  result->columns = plm_alloc_zeroed(K, sizeof *result->columns);
  result->column_count = K;
  result->labels = 0;
  for (uint32_t k = 0; k < K && status == PLM_OK; k++) {
    const size_t known = list_column(answers, order, k, predicted, truth, &loss);
    status = measure_column(answers->match->choice.columns[k].name, predicted, truth, known,
                            &result->columns[k], result, error);
  }
  free(predicted);
  free(truth);
  PLM_TRY(status);
  average_columns(result);
  result->loss = loss / (double)result->labels;
  if (K > 1) return PLM_OK;
  free(result->columns); /* the same as the means */
  result->columns = NULL;
  result->column_count = 0;
  return PLM_OK;
}

static plm_status measure_several(const struct plm_label_answers *answers, const size_t *order,
                                  struct plm_label_result *result, struct plm_error *error)
{
  const struct plm_multilabel multilabel = {answers->counts, answers->values, answers->truth,
                                            answers->count, answers->outputs};
  double loss = 0, labels = 0;
  for (size_t i = 0; i < answers->count; i++) loss += answers->losses[order[i]];
  for (uint32_t k = 0; k < answers->outputs; k++)
    labels += answers->counts[k].sides[0].truth + answers->counts[k].sides[1].truth;
  result->labels = (uint64_t)labels;
  result->loss = loss / labels;
  PLM_TRY(plm_measure_multilabel(&multilabel, result->values, error));
  if (isnan(result->values[PLM_MEASURE_MCC]))
    put_reason(result, "no class is true somewhere but not everywhere, so auroc and mcc do not "
                       "exist");
  else if (answers->left_out)
    put_reason(result, "auroc is left out: %zu labels of %u classes are too many", answers->count,
               answers->outputs);
  return PLM_OK;
}

plm_status plm_label_answers_measure(struct plm_label_answers *answers,
                                     struct plm_label_result *result, struct plm_error *error)
{
  size_t *order;
  *result = (struct plm_label_result){
      .task = answers->task, .loss = NAN, .labels = answers->count, .missing = answers->missing};
  for (int k = 0; k < PLM_MEASURES; k++) result->values[k] = NAN;
  if (answers->count == 0) {
    put_reason(result, "no %s of this split has a label",
               answers->task == PLM_TASK_RESIDUES ? "residue" : "document");
    return PLM_OK;
  }
  PLM_TRY(order_answers(answers, &order, error));
  const plm_status status = is_one_class(answers) ? measure_classes(answers, order, result, error)
                            : answers->task == PLM_TASK_REGRESSION
                                ? measure_numbers(answers, order, result, error)
                                : measure_several(answers, order, result, error);
  free(order);
  if (status != PLM_OK) plm_label_result_deinit(result);
  return status;
}
