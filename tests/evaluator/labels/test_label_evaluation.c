/* The evaluation of a model that predicts one class: its loss and accuracy over batches against the
 * outputs of the model for the same documents; what is begun anew, and what is not finite. */
#include "tests/support/harness/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/labels/label_record.h"
#include "evaluator/evaluate/evaluate.h"
#include "evaluator/labels/label_evaluation.h"
#include "evaluator/labels/label_loss.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { L = 32, OUTPUTS = 3, MOST = 16, RECORD = 2 };

static const uint32_t lengths[] = {30, 20, 9, 12, 25, 6, 7, 0};

static struct model_case model;
static struct plm_inference inference;
static struct case_batch placed;
static char folder[PLM_PATH_SIZE];
static char *names[] = {"C", "E", "H"};
static uint64_t counts[OUTPUTS] = {5, 5, 0}; /* of the last class, the training split has none */
static struct plm_label_column column = {.name = "y",
                                         .kind = PLM_LABEL_CLASS,
                                         .classes = names,
                                         .class_count = OUTPUTS,
                                         .counts = counts};
static struct plm_label_schema schema = {.columns = &column, .count = 1};
static uint8_t records[MOST * RECORD];
static uint64_t label_at[MOST + 1];
static uint8_t sources[MOST]; /* of the chunks: of a mixture, the second one is evaluated */

/* Every third document has no label. */
static int32_t class_of(uint32_t document)
{
  return document % 3 == 2 ? -1 : (int32_t)((document / 2) % OUTPUTS);
}

static int begin(void **state)
{
  (void)state;
  static struct case_documents documents;
  char path[PLM_PATH_SIZE];
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 2, L);
  config.head = (struct plm_head_config){
      .kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS, .outputs = OUTPUTS};
  case_documents_draw(&documents, lengths, config.vocab_size, 3);
  case_batch_place(&placed, &documents, L, 1, false);
  for (uint32_t d = 0; d < documents.count; d++) {
    label_at[d] = (uint64_t)d * RECORD;
    plm_label_put_class(records + label_at[d], class_of(d));
  }
  label_at[documents.count] = (uint64_t)documents.count * RECORD;
  column.labels[0] = 10;
  memset(sources, 1, sizeof sources);
  placed.batch.sources = sources;
  placed.batch.labels = records;
  placed.batch.label_at = label_at;
  const struct plm_model_options options = {.max_chunks = placed.batch.chunks};
  model_case_open(&model, &config, &options, PLM_PRECISION_FP32, 8);
  inference = (struct plm_inference){.config = config,
                                     .tokenizer = plm_tokenizer_of(PLM_TOKENIZER_ESM),
                                     .window = model.window,
                                     .max_chunks = placed.batch.chunks,
                                     .ops = model.ops,
                                     .model = model.model,
                                     .masks = model.masks};
  snprintf(folder, sizeof folder, "%s", scratch_path("model"));
  const struct plm_label_names of = {OUTPUTS, names, NULL, NULL};
  char *text = plm_huggingface_config_print_labels(&config, model.window,
                                                   PLM_OBJECTIVE_CLASSIFICATION, "float32", &of);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "config.json", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  free(text);
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}

static int end(void **state)
{
  (void)state;
  case_batch_free(&placed);
  model_case_close(&model);
  return 0;
}

/* The outputs (OUTPUTS) of each document that has a label, in order. Returns how many there are. */
static uint32_t outputs_of(float *outputs, int32_t classes[MOST])
{
  const struct plm_batch *batch = &placed.batch;
  const size_t positions = (size_t)batch->chunks * L;
  int32_t rows_begin[MOST], rows_end[MOST], *ids = must(calloc(positions, sizeof *ids));
  uint32_t rows = 0;
  for (size_t i = 0; i < positions; i++) ids[i] = placed.tokens[i];
  for (uint32_t c = 0; c < batch->chunks; c++)
    for (uint32_t d = batch->document_begin[c]; d < batch->document_begin[c + 1]; d++) {
      if (class_of(d) < 0) continue;
      const struct plm_chunk_document *document = &batch->documents[d];
      classes[rows] = class_of(d);
      rows_begin[rows] = (int32_t)(c * L + document->start + 1);
      rows_end[rows] = rows_begin[rows] + (int32_t)document->tokens - 2;
      rows++;
    }
  const struct plm_label_targets targets = {
      .inputs = ids, .rows = rows, .begin = rows_begin, .end = rows_end};
  plm_model_attention_masks(model.model, batch, model.window, model.masks);
  assert_int_equal(plm_model_predict(model.model, &(struct plm_masked_batch){batch, model.masks},
                                     &targets, outputs, NULL),
                   PLM_OK);
  free(ids);
  return rows;
}

/* Begins, adds the batch so many times and ends; what it warns of is kept in `said`. */
static const struct plm_label_result *evaluate(struct plm_label_evaluation *evaluation, int times,
                                               char said[512])
{
  const struct plm_label_result *result = NULL;
  struct plm_error error = {0};
  static const char *const chosen[] = {"y"};
  if (plm_label_evaluation_begin(evaluation, &schema, chosen, 1, false, &error) != PLM_OK)
    fail_msg("%s", error.what);
  for (int i = 0; i < times; i++)
    if (plm_label_evaluation_add(evaluation, &placed.batch, &error) != PLM_OK)
      fail_msg("%s", error.what);
  struct plm_batch empty = placed.batch; /* which changes nothing */
  empty.chunks = 0;
  assert_int_equal(plm_label_evaluation_add(evaluation, &empty, &error), PLM_OK);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_label_evaluation_end(evaluation, &result, &error);
  snprintf(said, 512, "%s", captured_end());
  assert_int_equal(status, PLM_OK);
  return result;
}

static void labels_are_compared_with_outputs(void **state)
{
  (void)state;
  struct plm_label_evaluation *evaluation;
  float outputs[MOST * OUTPUTS];
  int32_t classes[MOST];
  char said[512];
  double loss = 0, right = 0;
  uint64_t unseen = 0;
  const uint32_t rows = outputs_of(outputs, classes),
                 documents = placed.batch.document_begin[placed.batch.chunks];
  assert_true(rows > 0 && rows < documents);
  for (uint32_t r = 0; r < rows; r++) {
    loss += plm_label_class_loss(outputs + r * OUTPUTS, OUTPUTS, classes[r]) / rows;
    right += plm_label_largest(outputs + r * OUTPUTS, OUTPUTS) == (uint32_t)classes[r];
    unseen += classes[r] == 2;
  }
  assert_true(unseen > 0);
  assert_int_equal(plm_label_evaluation_open(&inference, folder, &evaluation, NULL), PLM_OK);
  for (int times = 1; times <= 2; times++) { /* nothing is left from the first time */
    const struct plm_label_result *result = evaluate(evaluation, times, said);
    const uint32_t n = (uint32_t)times;
    assert_true(fabs(result->loss - loss) < 1e-4);
    assert_true(fabs(result->values[PLM_MEASURE_ACCURACY] - right / rows) < 1e-9);
    assert_int_equal(result->labels, n * rows);
    assert_int_equal(result->missing, n * (documents - rows));
    assert_int_equal(result->unseen, n * unseen);
    char expected[128];
    snprintf(expected, sizeof expected, "%llu labels are of classes that the model does not know",
             (unsigned long long)n * unseen);
    assert_non_null(strstr(said, expected));
  }
  counts[2] = 5; /* now the training split has them */
  assert_int_equal(evaluate(evaluation, 1, said)->unseen, 0);
  assert_string_equal(said, "");
  counts[2] = 0;
  plm_label_evaluation_close(evaluation);
}

/* A batch may have a single label. */
static void one_label_is_enough(void **state)
{
  (void)state;
  struct plm_label_evaluation *evaluation;
  const struct plm_label_result *result;
  static const char *const chosen[] = {"y"};
  float outputs[MOST * OUTPUTS];
  int32_t classes[MOST];
  const uint32_t documents = placed.batch.document_begin[placed.batch.chunks];
  outputs_of(outputs, classes);
  for (uint32_t d = 1; d < documents; d++) plm_label_put_class(records + label_at[d], -1);
  assert_int_equal(plm_label_evaluation_open(&inference, folder, &evaluation, NULL), PLM_OK);
  assert_int_equal(plm_label_evaluation_begin(evaluation, &schema, chosen, 1, false, NULL), PLM_OK);
  assert_int_equal(plm_label_evaluation_add(evaluation, &placed.batch, NULL), PLM_OK);
  assert_int_equal(plm_label_evaluation_end(evaluation, &result, NULL), PLM_OK);
  assert_int_equal(result->labels, 1);
  assert_true(fabs(result->loss - plm_label_class_loss(outputs, OUTPUTS, classes[0])) < 1e-4);
  plm_label_evaluation_close(evaluation);
}

static void what_is_missing_is_told(void **state)
{
  (void)state;
  struct plm_label_evaluation *evaluation;
  struct plm_error error = {0};
  static const char *const known[] = {"y"}, *const chosen[] = {"z"};
  assert_int_equal(plm_label_evaluation_open(&inference, folder, &evaluation, NULL), PLM_OK);
  assert_int_equal(plm_label_evaluation_begin(evaluation, &schema, known, 1, false, NULL), PLM_OK);
  assert_int_equal(plm_label_evaluation_begin(evaluation, &schema, chosen, 1, false, &error),
                   PLM_CONFIG);
  assert_string_equal(error.what,
                      "there is no column of labels called z; the model predicts a class: C, E, H");
  plm_label_evaluation_close(evaluation);
  assert_int_not_equal(
      plm_label_evaluation_open(&inference, scratch_path("none"), &evaluation, &error), PLM_OK);
}

/* Finite weights with which the head overflows. */
static void not_finite_outputs_name_the_sequence(void **state)
{
  (void)state;
  struct plm_label_evaluation *evaluation;
  struct plm_error error = {0};
  static const char *const chosen[] = {"y"};
  size_t count;
  const struct plm_parameter *table = plm_model_table(model.model, &count);
  for (size_t p = 0; p < count; p++)
    for (size_t i = 0; i < table[p].count && table[p].rows == OUTPUTS; i++)
      model.weights[table[p].offset + i] *= FLT_MAX;
  plm_model_load(model.model, model.weights);
  assert_int_equal(plm_label_evaluation_open(&inference, folder, &evaluation, NULL), PLM_OK);
  assert_int_equal(plm_label_evaluation_begin(evaluation, &schema, chosen, 1, false, NULL), PLM_OK);
  assert_int_equal(plm_label_evaluation_add(evaluation, &placed.batch, &error), PLM_NOT_FINITE);
  char expected[64];
  snprintf(expected, sizeof expected, "for sequence %llu (from 0) of its split",
           (unsigned long long)placed.batch.documents[0].number);
  assert_non_null(strstr(error.what, expected));
  plm_label_evaluation_close(evaluation);
}

static plm_status no_labels(void *context, const struct plm_label_schema **of,
                            struct plm_error *error)
{
  (void)context, (void)of;
  return plm_error_set(error, PLM_BUSY, "later");
}

/* A model that predicts labels has no pseudo-perplexity, of either kind. */
static void other_measures_are_refused(void **state)
{
  const struct plm_chunk_stream stream = {.labels = no_labels};
  struct plm_evaluation *evaluation;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE];
  size_t count;
  (void)state;
  const struct plm_parameter *table = plm_model_table(model.model, &count);
  assert_int_equal(plm_path_join(path, folder, "model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_parameters_write(path, table, count, model.weights, NULL), PLM_OK);
  assert_int_equal(plm_evaluation_open(folder, 0, model.ops, &evaluation, NULL), PLM_OK);
  for (int measure = 0; measure < 3; measure++) {
    struct plm_evaluation_result result;
    const struct plm_evaluation_options options = {.mask_rate = 0.15,
                                                   .pseudo_perplexity = measure == 1,
                                                   .pseudo_perplexity_fast = measure == 2};
    assert_int_equal(plm_evaluation_run(evaluation, &stream, PLM_SPLIT_VALID, &options, NULL, NULL,
                                        &result, &error),
                     measure == 0 ? PLM_BUSY : PLM_CONFIG);
    assert_string_equal(error.what, measure == 0
                                        ? "later"
                                        : "a model that predicts labels has no pseudo-perplexity");
  }
  plm_evaluation_close(evaluation);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(labels_are_compared_with_outputs, begin, end),
      cmocka_unit_test_setup_teardown(one_label_is_enough, begin, end),
      cmocka_unit_test_setup_teardown(what_is_missing_is_told, begin, end),
      cmocka_unit_test_setup_teardown(not_finite_outputs_name_the_sequence, begin, end),
      cmocka_unit_test_setup_teardown(other_measures_are_refused, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
