/* Opens a small model and runs the reference at the same weights. */
#include "tests/support/cases/model_case.h"

#include <stdlib.h>

#include "common/base/log/log.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/device_case.h"

static void succeed(plm_status status, const struct plm_error *error)
{
  if (status != PLM_OK) plm_error_print("model_case", error);
  PLM_ASSERT(status == PLM_OK);
}

struct plm_model_config model_case_small(enum plm_architecture architecture)
{
  return (struct plm_model_config){.architecture = architecture,
                                   .hidden_size = 64,
                                   .num_attention_heads = 2,
                                   .num_hidden_layers = 2,
                                   .num_unet_layers = 4,
                                   .num_extra_layers = 1,
                                   .expansion_ratio = 2,
                                   .soft_logit_cap = 16,
                                   .pattern = {PLM_ATTENTION_DOCUMENT},
                                   .pattern_count = 1,
                                   .window_start = 64,
                                   .window_end = 64,
                                   .max_length = 128,
                                   .vocab_size = 33};
}

void model_case_open(struct model_case *c, const struct plm_model_config *config,
                     const struct plm_model_options *options, int precision, uint64_t seed)
{
  struct plm_error error = {0};
  struct plm_ops *ops;
  if (device_case_is_real())
    ops = device_case_open(precision, 1);
  else
    succeed(plm_ops_cpu_open(precision, 1, NULL, &ops, &error), &error);
  model_case_open_on(c, ops, config, options, seed);
}

void model_case_open_on(struct model_case *c, struct plm_ops *ops,
                        const struct plm_model_config *config,
                        const struct plm_model_options *options, uint64_t seed)
{
  struct plm_error error = {0};
  *c = (struct model_case){
      .config = *config, .options = *options, .window = config->window_end, .ops = ops};
  c->loss.soft_cap = (float)config->soft_logit_cap;
  succeed(plm_model_open(config, c->ops, options, &c->model, &error), &error);
  succeed(plm_masks_open(config, c->ops, options->max_chunks, &c->masks, &error), &error);
  const size_t elements = plm_model_arena_elements(c->model);
  c->weights = must(malloc(elements * sizeof(float)));
  size_t count;
  const struct plm_parameter *table = plm_model_table(c->model, &count);
  case_weights(table, count, seed, c->weights);
  plm_model_load(c->model, c->weights);
}

void model_case_close(struct model_case *c)
{
  plm_masks_close(c->masks);
  plm_model_close(c->model);
  c->ops->close(c->ops);
  free(c->weights);
}

double model_case_step(struct model_case *c, const struct case_batch *placed, float loss_scale)
{
  struct plm_error error = {0};
  struct plm_loss_result result;
  plm_model_attention_masks(c->model, &placed->batch, c->window, c->masks);
  succeed(plm_model_gradients(c->model, &(struct plm_masked_batch){&placed->batch, c->masks},
                              &placed->targets, &c->loss, loss_scale, &result, NULL, &error),
          &error);
  PLM_ASSERT(result.rows == placed->targets.rows);
  return result.loss;
}

float *model_case_gradients(struct model_case *c)
{
  const size_t elements = plm_model_trained_elements(c->model);
  float *gradients = must(malloc(elements * sizeof(float)));
  c->ops->download(c->ops, gradients, plm_model_gradient_arena(c->model), elements * sizeof(float));
  return gradients;
}

float *model_case_gradients_of(struct model_case *c, const struct case_batch *placed, double *loss)
{
  plm_model_zero_gradients(c->model);
  *loss = model_case_step(c, placed, 1.0f);
  return model_case_gradients(c);
}

double *model_case_reference(const struct model_case *c, const struct case_batch *placed,
                             double loss_scale, enum reference_fault fault, double *loss,
                             double *hidden, double *logits)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(c->model, &count);
  const size_t elements = plm_model_arena_elements(c->model);
  double *values = must(malloc(elements * sizeof(double)));
  double *gradients = must(calloc(elements, sizeof(double)));
  struct reference_parameter *parameters = must(calloc(count, sizeof *parameters));
  for (size_t e = 0; e < elements; e++) values[e] = c->weights[e];
  for (size_t i = 0; i < count; i++)
    parameters[i] = (struct reference_parameter){.name = table[i].name,
                                                 .rows = table[i].rows,
                                                 .cols = table[i].cols,
                                                 .value = values + table[i].offset,
                                                 .gradient = gradients + table[i].offset};
  *loss = reference_model_loss(&(struct reference_request){.config = &c->config,
                                                           .parameters = parameters,
                                                           .parameter_count = count,
                                                           .batch = &placed->batch,
                                                           .window = c->window,
                                                           .targets = &placed->targets,
                                                           .loss = &c->loss,
                                                           .loss_scale = loss_scale,
                                                           .fault = fault,
                                                           .hidden = hidden,
                                                           .logits = logits});
  free(parameters);
  free(values);
  return gradients;
}
