/* tool_gradients CONFIG FOLDER BATCH OUTPUT: computes loss and gradients of one step as plm-trainer
 * does, one micro-batch after another. test_gradients.py compares them with PyTorch's.
 *
 * CONFIG is a pipeline.yaml, FOLDER contains model.safetensors. BATCH is a safetensors file:
 *   tokens     U8 (B, L)
 *   documents  I32 (n, 3): chunk, first position and number of tokens of each document
 *   step       I64 (2): the step from 0, and the number of chunk 0 in the run
 * OUTPUT is another one: the summed gradient of each parameter under its name, and
 *   step.loss     F64 (1), summed
 *   step.count    I64 (1), its divisor
 *   step.inputs   I32 (B, L), after masking
 *   step.labels   I32 (B, L), -1 if there is none
 *   step.weights  F32 (B, L)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/cli/program.h"
#include "tests/support/harness/must.h"
#include "trainer/input/objective.h"
#include "trainer/input/step_chunks.h"
#include "trainer/input/step_input.h"
#include "trainer/optimizer/schedule.h"
#include "trainer/trainer_options.h"

struct step_case {
  struct plm_config config;
  struct plm_safetensors *file; /* of the batch */
  uint32_t *document_begin;
  struct plm_chunk_document *documents;
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_masks *masks;
  struct plm_objective_state objective;
  struct plm_batch batch;
  uint64_t s;
  /* results */
  double loss;
  int64_t count;
  int32_t *inputs, *labels; /* (B, L) */
  float *weights;           /* (B, L) */
};

static void succeed(plm_status status, const struct plm_error *error)
{
  if (status == PLM_OK) return;
  plm_error_print("tool_gradients", error);
  exit(2);
}

static const struct plm_tensor_info *tensor(const struct plm_safetensors *file, const char *name,
                                            enum plm_dtype dtype, int rank)
{
  const struct plm_tensor_info *info = plm_safetensors_find(file, name);
  if (info != NULL && info->dtype == dtype && info->rank == rank) return info;
  fprintf(stderr, "tool_gradients: the batch's %s is missing or of another kind\n", name);
  exit(2);
}

static void read_batch(struct step_case *c, const char *path)
{
  struct plm_error error = {0};
  succeed(plm_safetensors_open(path, &c->file, &error), &error);
  const struct plm_tensor_info *tokens = tensor(c->file, "tokens", PLM_U8, 2);
  const struct plm_tensor_info *table = tensor(c->file, "documents", PLM_I32, 2);
  const int64_t *step = tensor(c->file, "step", PLM_I64, 1)->data;
  const uint32_t chunks = (uint32_t)tokens->shape[0], count = (uint32_t)table->shape[0];
  uint32_t *begin = must(calloc(chunks + 1, sizeof *begin));
  struct plm_chunk_document *documents = must(calloc(count, sizeof *documents));
  const int32_t *row = table->data;
  for (uint32_t d = 0; d < count; d++, row += 3) {
    documents[d] = (struct plm_chunk_document){
        .number = d, .start = (uint32_t)row[1], .tokens = (uint32_t)row[2]};
    PLM_ASSERT(row[0] >= 0 && (uint32_t)row[0] < chunks);
    begin[row[0] + 1] = d + 1;
  }
  for (uint32_t b = 0; b < chunks; b++) /* a chunk without documents */
    if (begin[b + 1] < begin[b]) begin[b + 1] = begin[b];
  c->s = (uint64_t)step[0];
  c->document_begin = begin;
  c->documents = documents;
  c->batch = (struct plm_batch){.chunks = chunks,
                                .max_length = (uint32_t)tokens->shape[1],
                                .token_bytes = 1,
                                .tokens = tokens->data,
                                .document_begin = begin,
                                .documents = documents,
                                .first_chunk = (uint64_t)step[1]};
}

static void open_all(struct step_case *c, const char *config, const char *folder)
{
  struct plm_error error = {0};
  struct plm_config_problems *problems = NULL;
  const plm_status status = plm_config_load(config, NULL, 0, &c->config, &problems, &error);
  if (problems != NULL) plm_config_problems_print(problems);
  succeed(status, &error);
  const uint32_t micro = plm_trainer_micro_chunks(&c->config, 1);
  const struct plm_model_options options = {
      .max_chunks = micro, .training = true, .recompute = c->config.trainer.recompute};
  succeed(plm_ops_cpu_open(c->config.trainer.precision, 1, NULL, &c->ops, &error), &error);
  succeed(plm_model_open(&c->config.model, c->ops, &options, &c->model, &error), &error);
  succeed(plm_masks_open(&c->config.model, c->ops, micro, &c->masks, &error), &error);
  succeed(plm_parameters_load(folder, "model.safetensors", c->model, NULL, &error), &error);
  const struct plm_objective_options objective = plm_objective_options_of(&c->config);
  succeed(plm_objective_init(&c->objective, &objective, plm_trainer_step_chunks(&c->config), micro,
                             &error),
          &error);
}

static void keep_targets(struct step_case *c, const struct plm_targets *targets, size_t first,
                         size_t places)
{
  memcpy(c->inputs + first, targets->inputs, places * sizeof *c->inputs);
  for (uint32_t i = 0; i < targets->rows; i++) {
    c->labels[first + (size_t)targets->positions[i]] = targets->labels[i];
    c->weights[first + (size_t)targets->positions[i]] = targets->weights[i];
  }
}

static void run(struct step_case *c)
{
  struct plm_error error = {0};
  const uint32_t L = c->batch.max_length, micro = plm_trainer_micro_chunks(&c->config, 1);
  const struct plm_loss_options options = {.soft_cap = (float)c->config.model.soft_logit_cap,
                                           .label_smoothing =
                                               (float)c->config.trainer.label_smoothing,
                                           .z_loss = (float)c->config.trainer.z_loss};
  plm_model_zero_gradients(c->model);
  for (uint32_t first = 0; first < c->batch.chunks; first += micro) {
    const uint32_t left = c->batch.chunks - first;
    const struct plm_batch batch = plm_batch_slice(&c->batch, first, left < micro ? left : micro);
    struct plm_targets targets;
    struct plm_loss_result result;
    uint64_t count;
    plm_objective_targets(&c->objective, c->s, first, &batch, &targets, &count);
    keep_targets(c, &targets, (size_t)first * L, (size_t)batch.chunks * L);
    plm_model_attention_masks(c->model, &batch, plm_schedule_window(&c->config.model, c->s),
                              c->masks);
    succeed(plm_model_gradients(c->model, &(struct plm_masked_batch){&batch, c->masks}, &targets,
                                &options, 1, &result, NULL, &error),
            &error);
    c->loss += result.loss;
    c->count += (int64_t)count;
  }
}

static void write_all(const struct step_case *c, const char *path)
{
  struct plm_error error = {0};
  size_t count;
  const struct plm_parameter *table = plm_model_table(c->model, &count);
  const size_t bytes = plm_model_arena_elements(c->model) * sizeof(float);
  const uint64_t B = c->batch.chunks, L = c->batch.max_length;
  float *gradients = must(malloc(bytes));
  c->ops->download(c->ops, gradients, plm_model_gradient_arena(c->model), bytes);
  const struct plm_tensor_info step[] = {
      {"step.loss", PLM_F64, 1, {1}, sizeof c->loss, &c->loss},
      {"step.count", PLM_I64, 1, {1}, sizeof c->count, &c->count},
      {"step.inputs", PLM_I32, 2, {B, L}, B * L * sizeof *c->inputs, c->inputs},
      {"step.labels", PLM_I32, 2, {B, L}, B * L * sizeof *c->labels, c->labels},
      {"step.weights", PLM_F32, 2, {B, L}, B * L * sizeof *c->weights, c->weights},
  };
  enum { STEP_TENSORS = sizeof step / sizeof *step };
  struct plm_tensor_info *tensors = must(calloc(count + STEP_TENSORS, sizeof *tensors));
  for (size_t i = 0; i < count; i++) {
    const uint64_t rows = (uint64_t)table[i].rows, cols = (uint64_t)table[i].cols;
    tensors[i] = (struct plm_tensor_info){.name = table[i].name,
                                          .dtype = PLM_F32,
                                          .rank = table[i].ndim,
                                          .bytes = table[i].count * sizeof(float),
                                          .data = gradients + table[i].offset};
    tensors[i].shape[0] = table[i].ndim == 1 ? cols : rows;
    if (table[i].ndim == 2) tensors[i].shape[1] = cols;
  }
  memcpy(tensors + count, step, sizeof step);
  succeed(plm_safetensors_write(path, tensors, count + STEP_TENSORS, NULL, 0, &error), &error);
  free(tensors);
  free(gradients);
}

static void close_all(struct step_case *c)
{
  free(c->inputs);
  free(c->labels);
  free(c->weights);
  free(c->document_begin);
  free(c->documents);
  plm_objective_deinit(&c->objective);
  plm_masks_close(c->masks);
  plm_model_close(c->model);
  c->ops->close(c->ops);
  plm_config_deinit(&c->config);
  plm_safetensors_close(c->file);
}

int main(int argc, char **argv)
{
  struct step_case c = {0};
  plm_program_begin();
  if (argc != 5) {
    fputs("usage: tool_gradients CONFIG FOLDER BATCH OUTPUT\n", stderr);
    return 2;
  }
  read_batch(&c, argv[3]);
  open_all(&c, argv[1], argv[2]);
  const size_t places = (size_t)c.batch.chunks * c.batch.max_length;
  c.inputs = must(calloc(places, sizeof *c.inputs));
  c.labels = must(malloc(places * sizeof *c.labels));
  c.weights = must(calloc(places, sizeof *c.weights));
  for (size_t i = 0; i < places; i++) c.labels[i] = -1;
  run(&c);
  write_all(&c, argv[4]);
  close_all(&c);
  return 0;
}
