/* tool_label_steps CONFIG FOLDER BATCH [OUTPUT]: trains a model that predicts labels for
 * trainer.steps steps on one batch, as plm-trainer's steps do, and prints a JSON line for each with
 * loss, grad_norm, count, rows and accuracy. OUTPUT receives the final weights.
 *
 * CONFIG is a pipeline.yaml, of which only data.max_length, seed and trainer are used. FOLDER has
 * model.safetensors and config.json. BATCH is a safetensors file:
 *   tokens     U8 (B, L)
 *   documents  I32 (n, 3): chunk, first position and number of tokens of each document
 *   and one of
 *   numbers    F32 (n, K), NaN where one is missing
 *   classes    I32 (n), -1 where it is missing
 *   terms      I32 (n, K): 0 or 1; a document whose first one is -1 has no labels
 *   residues   I32 (B, L): a class for each residue, -1 where there is none */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/cli/program.h"
#include "common/huggingface/huggingface.h"
#include "common/labels/label_record.h"
#include "tests/support/harness/must.h"
#include "trainer/input/step_chunks.h"
#include "trainer/step/step.h"
#include "trainer/trainer_options.h"

struct labelled_run {
  struct plm_config config;
  struct plm_safetensors *file;
  struct plm_batch batch;
  uint32_t *begin, *owners;
  struct plm_chunk_document *documents;
  uint64_t *label_at;
  uint8_t *records;
  struct plm_label_schema schema;
  const struct plm_label_schema *schemas[1];
  struct plm_label_choice choice;
  struct plm_label_source source;
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_masks *masks;
  struct plm_objective_state objective;
  struct plm_optimizer *optimizer;
  struct plm_clip clip;
  struct plm_ranks ranks;
  struct plm_step *step;
};

static void succeed(plm_status status, const struct plm_error *error)
{
  if (status == PLM_OK) return;
  plm_error_print("tool_label_steps", error);
  exit(2);
}

/* ---- the batch ----------------------------------------------------------------------------- */

static void read_batch(struct labelled_run *run, const char *path)
{
  struct plm_error error = {0};
  succeed(plm_safetensors_open(path, &run->file, &error), &error);
  const struct plm_tensor_info *tokens = plm_safetensors_find(run->file, "tokens");
  const struct plm_tensor_info *table = plm_safetensors_find(run->file, "documents");
  PLM_ASSERT(tokens != NULL && table != NULL);
  const uint32_t chunks = (uint32_t)tokens->shape[0], count = (uint32_t)table->shape[0];
  const int32_t *row = table->data;
  run->begin = must(calloc(chunks + 1, sizeof *run->begin));
  run->documents = must(calloc(count, sizeof *run->documents));
  for (uint32_t d = 0; d < count; d++, row += 3) {
    run->documents[d] = (struct plm_chunk_document){.number = d,
                                                    .start = (uint32_t)row[1],
                                                    .tokens = (uint32_t)row[2],
                                                    .residues = (uint32_t)row[2] - 2};
    run->begin[row[0] + 1] = d + 1;
  }
  for (uint32_t b = 0; b < chunks; b++)
    if (run->begin[b + 1] < run->begin[b]) run->begin[b + 1] = run->begin[b];
  run->batch = (struct plm_batch){.chunks = chunks,
                                  .max_length = (uint32_t)tokens->shape[1],
                                  .token_bytes = 1,
                                  .tokens = tokens->data,
                                  .document_begin = run->begin,
                                  .documents = run->documents};
}

/* Columns of one kind, with class_count classes. */
static void make_schema(struct labelled_run *run, enum plm_label_kind kind, uint32_t columns,
                        uint32_t classes)
{
  run->schema = (struct plm_label_schema){
      .columns = plm_alloc_zeroed(columns, sizeof *run->schema.columns), .count = columns};
  for (uint32_t i = 0; i < columns; i++) {
    struct plm_label_column *column = &run->schema.columns[i];
    char name[32];
    (void)snprintf(name, sizeof name, "y%u", i);
    column->name = must(strdup(name));
    column->kind = kind;
    column->class_count = classes;
  }
  run->schemas[0] = &run->schema;
}

static void put_labels(struct labelled_run *run, uint32_t chunk, uint32_t d, uint8_t *record)
{
  const struct plm_chunk_document *document = &run->documents[d];
  const struct plm_tensor_info *residues = plm_safetensors_find(run->file, "residues");
  const struct plm_tensor_info *numbers = plm_safetensors_find(run->file, "numbers");
  const struct plm_tensor_info *classes = plm_safetensors_find(run->file, "classes");
  const struct plm_tensor_info *terms = plm_safetensors_find(run->file, "terms");
  const uint32_t outputs = run->choice.outputs;
  for (uint32_t k = 0; numbers != NULL && k < outputs; k++)
    plm_label_put_number(record + plm_label_record_offset(&run->schema, k, document->residues),
                         (double)((const float *)numbers->data)[(size_t)d * outputs + k]);
  if (classes != NULL) plm_label_put_class(record, ((const int32_t *)classes->data)[d]);
  const int32_t *of = terms != NULL ? (const int32_t *)terms->data + (size_t)d * outputs : NULL;
  if (of != NULL && of[0] >= 0) plm_label_put_one_of(record, -1);
  for (uint32_t k = 0; of != NULL && of[0] >= 0 && k < outputs; k++)
    if (of[k] == 1) plm_label_put_one_of(record, (int32_t)k);
  const size_t first = (size_t)chunk * run->batch.max_length + document->start + 1;
  for (uint32_t i = 0; residues != NULL && i < document->residues; i++)
    plm_label_put_residue(record, i, ((const int32_t *)residues->data)[first + i]);
}

static void read_labels(struct labelled_run *run)
{
  const uint32_t outputs = run->config.model.head.outputs;
  const uint32_t count = run->begin[run->batch.chunks];
  const bool numbers = plm_safetensors_find(run->file, "numbers") != NULL;
  run->choice =
      (struct plm_label_choice){.outputs = outputs, .column_count = numbers ? outputs : 1};
  if (numbers) {
    run->choice.task = PLM_TASK_REGRESSION;
    make_schema(run, PLM_LABEL_NUMBER, outputs, 0);
  } else if (plm_safetensors_find(run->file, "terms") != NULL) {
    run->choice.task = PLM_TASK_MULTILABEL;
    make_schema(run, PLM_LABEL_CLASSES, 1, outputs);
  } else if (plm_safetensors_find(run->file, "residues") != NULL) {
    run->choice.task = PLM_TASK_RESIDUES;
    make_schema(run, PLM_LABEL_RESIDUES, 1, outputs);
  } else {
    run->choice.task = PLM_TASK_CLASSIFICATION;
    make_schema(run, PLM_LABEL_CLASS, 1, outputs);
  }
  run->choice.columns = run->schema.columns;
  run->choice.mean = must(calloc(outputs, sizeof *run->choice.mean));
  run->choice.deviation = must(calloc(outputs, sizeof *run->choice.deviation));
  for (uint32_t k = 0; k < outputs; k++) run->choice.deviation[k] = 1;
  size_t bytes = 0;
  run->label_at = must(calloc(count, sizeof *run->label_at));
  for (uint32_t d = 0; d < count; d++) {
    run->label_at[d] = bytes;
    bytes += plm_label_record_size(&run->schema, run->documents[d].residues);
  }
  run->records = must(calloc(bytes, 1));
  for (uint32_t c = 0; c < run->batch.chunks; c++)
    for (uint32_t d = run->begin[c]; d < run->begin[c + 1]; d++) {
      uint8_t *record = run->records + run->label_at[d];
      plm_label_record_clear(&run->schema, run->documents[d].residues, record);
      put_labels(run, c, d, record);
    }
  run->batch.labels = run->records;
  run->batch.label_at = run->label_at;
  run->source = (struct plm_label_source){&run->choice, run->schemas};
}

/* ---- training ------------------------------------------------------------------------------ */

static void open_parts(struct labelled_run *run, const char *config, const char *folder)
{
  struct plm_error error = {0};
  struct plm_config_problems *problems = NULL;
  const plm_status status = plm_config_load(config, NULL, 0, &run->config, &problems, &error);
  if (problems != NULL) plm_config_problems_print(problems);
  succeed(status, &error);
  succeed(plm_huggingface_config_read(folder, &run->config.model, NULL, NULL, &error), &error);
  run->config.model.max_length = run->config.data.max_length;
  const uint32_t micro = plm_trainer_micro_chunks(&run->config, 1);
  const struct plm_model_options options = {
      .max_chunks = micro,
      .training = true,
      .recompute = run->config.trainer.recompute,
      .freeze = plm_config_freeze(&run->config.trainer, &run->config.model)};
  succeed(plm_ops_cpu_open(run->config.trainer.precision, 1, NULL, &run->ops, &error), &error);
  succeed(plm_model_open(&run->config.model, run->ops, &options, &run->model, &error), &error);
  succeed(plm_masks_open(&run->config.model, run->ops, micro, &run->masks, &error), &error);
  succeed(plm_parameters_load(folder, "model.safetensors", run->model, NULL, &error), &error);
  const struct plm_objective_options objective = plm_objective_options_of(&run->config);
  succeed(plm_objective_init(&run->objective, &objective, run->batch.chunks, 0, &error), &error);
  succeed(plm_optimizer_open(&run->config.trainer, run->model, NULL, &run->optimizer, &error),
          &error);
}

static void open_step(struct labelled_run *run)
{
  struct plm_error error = {0};
  size_t count;
  (void)plm_model_table(run->model, &count);
  run->owners = must(calloc(count, sizeof *run->owners));
  run->ranks = plm_ranks_single();
  const uint32_t shares = run->config.trainer.shares;
  const struct plm_step_parts parts = {.trainer = &run->config.trainer,
                                       .model = run->model,
                                       .masks = run->masks,
                                       .objective = &run->objective,
                                       .optimizer = run->optimizer,
                                       .clip = &run->clip,
                                       .labels = &run->source,
                                       .label_options = {.seed = run->config.seed},
                                       .step_chunks = run->batch.chunks,
                                       .micro_chunks = plm_trainer_micro_chunks(&run->config, 1),
                                       .max_length = run->batch.max_length,
                                       .shares = shares != 0 ? shares : 1,
                                       .ranks = &run->ranks,
                                       .owners = run->owners};
  succeed(plm_step_open(&parts, &run->step, &error), &error);
}

static void train(struct labelled_run *run)
{
  struct plm_error error = {0};
  struct plm_step_input input;
  struct plm_step_result result;
  const struct plm_step_shape shape = plm_step_shape(run->step);
  void *block = must(calloc(1, plm_step_input_bytes(&shape)));
  plm_step_input_init(&input, &shape, block);
  for (uint64_t s = 0; s < run->config.trainer.steps; s++) {
    run->batch.first_chunk = s * run->batch.chunks;
    succeed(plm_step_input_fill(&input, &shape, s, &run->batch, &error), &error);
    succeed(plm_step_launch(run->step, &input, NULL, NULL, &error), &error);
    succeed(plm_step_finish(run->step, &input, &result, &error), &error);
    char accuracy[32] = "null"; /* of numbers and of several classes */
    if (!isnan(result.accuracy))
      (void)snprintf(accuracy, sizeof accuracy, "%.17g", result.accuracy);
    printf("{\"loss\": %.17g, \"grad_norm\": %.17g, \"count\": %llu, \"rows\": %llu, "
           "\"accuracy\": %s}\n",
           result.loss, result.grad_norm, (unsigned long long)result.totals.count,
           (unsigned long long)result.totals.rows, accuracy);
  }
  plm_step_input_deinit(&input);
  free(block);
}

static void write_weights(struct labelled_run *run, const char *path)
{
  struct plm_error error = {0};
  size_t count;
  const struct plm_parameter *table = plm_model_table(run->model, &count);
  const size_t bytes = plm_model_arena_elements(run->model) * sizeof(float);
  float *values = must(malloc(bytes));
  run->ops->download(run->ops, values, plm_model_parameter_arena(run->model), bytes);
  succeed(plm_parameters_write(path, table, count, values, &error), &error);
  free(values);
}

static void close_run(struct labelled_run *run)
{
  plm_step_close(run->step);
  plm_optimizer_close(run->optimizer);
  plm_objective_deinit(&run->objective);
  plm_masks_close(run->masks);
  plm_model_close(run->model);
  run->ops->close(run->ops);
  plm_config_deinit(&run->config);
  plm_safetensors_close(run->file);
  for (uint32_t i = 0; i < run->schema.count; i++) free(run->schema.columns[i].name);
  free(run->schema.columns);
  free(run->choice.mean);
  free(run->choice.deviation);
  free(run->begin);
  free(run->owners);
  free(run->documents);
  free(run->label_at);
  free(run->records);
}

int main(int argc, char **argv)
{
  struct labelled_run run = {0};
  plm_program_begin();
  if (argc < 4 || argc > 5) {
    fputs("usage: tool_label_steps CONFIG FOLDER BATCH [OUTPUT]\n", stderr);
    return 2;
  }
  read_batch(&run, argv[3]);
  open_parts(&run, argv[1], argv[2]);
  read_labels(&run);
  open_step(&run);
  train(&run);
  if (argc == 5) write_weights(&run, argv[4]);
  close_run(&run);
  return 0;
}
