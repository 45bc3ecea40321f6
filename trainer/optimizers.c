/* Optimizers. A table, built when opening, says for each parameter which rule updates it and where
 * its moments are. */
#include "trainer/optimizers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/schedule.h"

enum rule { RULE_ADAM, RULE_MUON };
static const double adam_eps = 1e-8;

struct slot {
  const struct plm_parameter *parameter;
  enum rule rule;
  size_t second_offset; /* of Adam's second moment; the first moment has the parameter's offset */
};

struct plm_optimizer {
  const struct plm_config_trainer *trainer;
  struct plm_model *model;
  struct plm_ops *ops;
  struct slot *slots;
  size_t slot_count;
  struct plm_optimizer_tensor *tensors;
  size_t tensor_count;
  struct plm_muon_matrix *matrices; /* (slot_count), the first matrix_count are used */
  struct plm_adam_tensor *adam;
  size_t matrix_count, adam_count;
  size_t arena_elements, second_elements;
  float *first, *second, *average, *scratch; /* device */
  uint64_t updates;
};

static enum rule rule_of(const struct plm_config_trainer *trainer,
                         const struct plm_parameter *parameter)
{
  return trainer->optimizer.name == PLM_OPTIMIZER_MUON && parameter->group == PLM_GROUP_HIDDEN &&
                 parameter->ndim == 2
             ? RULE_MUON
             : RULE_ADAM;
}

struct plm_learning_rates plm_optimizer_rates(const struct plm_config_trainer *trainer, uint64_t s)
{
  const struct plm_config_optimizer *optimizer = &trainer->optimizer;
  const double factor = plm_schedule_learning_rate(&trainer->schedule, trainer->steps, s);
  return (struct plm_learning_rates){{
      [PLM_GROUP_HIDDEN] = optimizer->lr_hidden * factor,
      [PLM_GROUP_EMBED] = optimizer->lr_embed * factor,
      [PLM_GROUP_HEAD] = optimizer->lr_head * factor,
      [PLM_GROUP_SCALAR] = optimizer->lr_scalar * factor,
  }};
}

/* Rounds up to the alignment of parameters' offsets. */
static size_t aligned(size_t count)
{
  return (count + 15) / 16 * 16;
}

struct sizes {
  size_t second, scratch; /* elements */
};

/* matrices: scratch memory with room for count elements. */
static struct sizes sizes_of(const struct plm_config_trainer *trainer, const struct plm_ops *ops,
                             const struct plm_parameter *table, size_t count,
                             struct plm_muon_matrix *matrices)
{
  struct sizes sizes = {0};
  size_t muon = 0;
  for (size_t i = 0; i < count; i++) {
    if (rule_of(trainer, &table[i]) == RULE_ADAM) {
      sizes.second += aligned(table[i].count);
      continue;
    }
    matrices[muon++] = (struct plm_muon_matrix){.rows = table[i].rows, .cols = table[i].cols};
  }
  sizes.scratch = ops->muon_scratch(ops, matrices, muon);
  return sizes;
}

static void add_tensor(struct plm_optimizer *optimizer, const struct plm_parameter *parameter,
                       const char *suffix, bool second, size_t offset)
{
  struct plm_optimizer_tensor *tensor = &optimizer->tensors[optimizer->tensor_count++];
  *tensor = (struct plm_optimizer_tensor){.rows = parameter->rows,
                                          .cols = parameter->cols,
                                          .ndim = parameter->ndim,
                                          .second = second,
                                          .offset = offset,
                                          .count = parameter->count};
  snprintf(tensor->name, sizeof tensor->name, "%s.%s", parameter->name, suffix);
}

static void lay_out(struct plm_optimizer *optimizer, const struct plm_parameter *table)
{
  for (size_t i = 0; i < optimizer->slot_count; i++) {
    struct slot *slot = &optimizer->slots[i];
    *slot = (struct slot){.parameter = &table[i], .rule = rule_of(optimizer->trainer, &table[i])};
    if (slot->rule == RULE_MUON) {
      add_tensor(optimizer, &table[i], "momentum", false, table[i].offset);
      continue;
    }
    slot->second_offset = optimizer->second_elements;
    optimizer->second_elements += aligned(table[i].count);
    add_tensor(optimizer, &table[i], "first_moment", false, table[i].offset);
    add_tensor(optimizer, &table[i], "second_moment", true, slot->second_offset);
  }
}

static plm_status take(struct plm_ops *ops, size_t elements, float **buffer,
                       struct plm_error *error)
{
  if (elements == 0) return PLM_OK;
  PLM_TRY(ops->allocate(ops, elements * sizeof(float), (void **)buffer, error));
  ops->zero(ops, *buffer, elements * sizeof(float));
  return PLM_OK;
}

/* Makes the tables that an update passes to the operators. They stay the same, so that updates can
 * be recorded. */
static void describe(struct plm_optimizer *optimizer)
{
  float *parameters = plm_model_parameter_arena(optimizer->model);
  float *gradients = plm_model_gradient_arena(optimizer->model);
  const struct plm_config_optimizer *options = &optimizer->trainer->optimizer;
  for (size_t i = 0; i < optimizer->slot_count; i++) {
    const struct slot *slot = &optimizer->slots[i];
    const struct plm_parameter *parameter = slot->parameter;
    const double rows = (double)parameter->rows, cols = (double)parameter->cols;
    const float decay = parameter->decay ? (float)options->weight_decay : 0;
    if (slot->rule == RULE_MUON)
      optimizer->matrices[optimizer->matrix_count++] =
          (struct plm_muon_matrix){.w = parameters + parameter->offset,
                                   .momentum = optimizer->first + parameter->offset,
                                   .g = gradients + parameter->offset,
                                   .rows = parameter->rows,
                                   .cols = parameter->cols,
                                   .weight_decay = decay,
                                   .update_scale = (float)(options->scale == PLM_MUON_MATCH_ADAMW
                                                               ? 0.2 * sqrt(fmax(rows, cols))
                                                               : sqrt(fmax(1, rows / cols))),
                                   .rate = (int32_t)parameter->group};
    else
      optimizer->adam[optimizer->adam_count++] =
          (struct plm_adam_tensor){.w = parameters + parameter->offset,
                                   .m = optimizer->first + parameter->offset,
                                   .v = optimizer->second + slot->second_offset,
                                   .g = gradients + parameter->offset,
                                   .n = parameter->count,
                                   .weight_decay = decay,
                                   .rate = (int32_t)parameter->group};
  }
}

plm_status plm_optimizer_open(const struct plm_config_trainer *trainer, struct plm_model *model,
                              struct plm_optimizer **out, struct plm_error *error)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  struct plm_optimizer *optimizer = calloc(1, sizeof *optimizer);
  if (optimizer == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the optimizer");
  optimizer->trainer = trainer;
  optimizer->model = model;
  optimizer->ops = plm_model_ops(model);
  optimizer->slot_count = count;
  optimizer->arena_elements = plm_model_arena_elements(model);
  optimizer->slots = calloc(count, sizeof *optimizer->slots);
  optimizer->tensors = calloc(2 * count, sizeof *optimizer->tensors);
  plm_status status = PLM_OK;
  optimizer->matrices = calloc(count, sizeof *optimizer->matrices);
  optimizer->adam = calloc(count, sizeof *optimizer->adam);
  if (optimizer->slots == NULL || optimizer->tensors == NULL || optimizer->matrices == NULL ||
      optimizer->adam == NULL) {
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the optimizer's tables");
    goto failed;
  }
  lay_out(optimizer, table);
  struct plm_ops *ops = optimizer->ops;
  const struct sizes sizes = sizes_of(trainer, ops, table, count, optimizer->matrices);
  PLM_ASSERT(sizes.second == optimizer->second_elements);
  PLM_TRY_GOTO(status, take(ops, optimizer->arena_elements, &optimizer->first, error), failed);
  PLM_TRY_GOTO(status, take(ops, sizes.second, &optimizer->second, error), failed);
  PLM_TRY_GOTO(status, take(ops, sizes.scratch, &optimizer->scratch, error), failed);
  if (trainer->ema > 0)
    PLM_TRY_GOTO(status, take(ops, optimizer->arena_elements, &optimizer->average, error), failed);
  describe(optimizer);
  *out = optimizer;
  return PLM_OK;
failed:
  plm_optimizer_close(optimizer);
  return status;
}

void plm_optimizer_close(struct plm_optimizer *optimizer)
{
  if (optimizer == NULL) return;
  float *const buffers[] = {optimizer->first, optimizer->second, optimizer->average,
                            optimizer->scratch};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    if (buffers[i] != NULL) optimizer->ops->release(optimizer->ops, buffers[i]);
  free(optimizer->slots);
  free(optimizer->tensors);
  free(optimizer->matrices);
  free(optimizer->adam);
  free(optimizer);
}

plm_status plm_optimizer_memory(const struct plm_config *config, const struct plm_ops *ops,
                                uint64_t *bytes, uint64_t *scratch_bytes, struct plm_error *error)
{
  struct plm_parameter *table = NULL;
  size_t count, arena;
  PLM_TRY(plm_model_parameters(&config->model, &table, &count, &arena, error));
  struct plm_muon_matrix *matrices = calloc(count, sizeof *matrices);
  if (matrices == NULL) {
    free(table);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the optimizer's tables");
  }
  const struct sizes sizes = sizes_of(&config->trainer, ops, table, count, matrices);
  free(matrices);
  free(table);
  *scratch_bytes = sizes.scratch * sizeof(float);
  *bytes =
      (arena * (config->trainer.ema > 0 ? 2 : 1) + sizes.second + sizes.scratch) * sizeof(float);
  return PLM_OK;
}

void plm_optimizer_start_average(struct plm_optimizer *optimizer)
{
  if (optimizer->average == NULL) return;
  optimizer->ops->copy(optimizer->ops, optimizer->average,
                       plm_model_parameter_arena(optimizer->model),
                       optimizer->arena_elements * sizeof(float));
}

void plm_optimizer_prepare(const struct plm_optimizer *optimizer, uint64_t s,
                           struct plm_update_inputs *inputs)
{
  const struct plm_config_trainer *trainer = optimizer->trainer;
  const struct plm_learning_rates rates = plm_optimizer_rates(trainer, s);
  const double t = (double)optimizer->updates + 1;
  _Static_assert((int)PLM_GROUP_COUNT <= (int)PLM_UPDATE_RATES, "a rate for each group");
  for (int group = 0; group < PLM_GROUP_COUNT; group++)
    inputs->rate[group] = (float)rates.of[group];
  inputs->momentum = (float)plm_schedule_momentum(&trainer->optimizer, s);
  inputs->correction1 = (float)(1 - pow(trainer->optimizer.betas[0], t));
  inputs->correction2 = (float)(1 - pow(trainer->optimizer.betas[1], t));
  inputs->average_decay = (float)plm_schedule_ema_decay(trainer->ema, optimizer->updates);
}

void plm_optimizer_update(struct plm_optimizer *optimizer, const struct plm_update *update)
{
  struct plm_ops *ops = optimizer->ops;
  const double *betas = optimizer->trainer->optimizer.betas;
  const struct plm_adam_options adam = {
      .beta1 = (float)betas[0], .beta2 = (float)betas[1], .eps = (float)adam_eps};
  ops->adam_step(ops, optimizer->adam, optimizer->adam_count, &adam, update);
  ops->muon_step(ops, optimizer->matrices, optimizer->matrix_count, optimizer->scratch, update);
  if (optimizer->average != NULL)
    ops->average_step(ops, optimizer->average, plm_model_parameter_arena(optimizer->model),
                      optimizer->arena_elements, update);
  plm_model_weights_changed(optimizer->model);
}

uint64_t plm_optimizer_updates(const struct plm_optimizer *optimizer)
{
  return optimizer->updates;
}

void plm_optimizer_set_updates(struct plm_optimizer *optimizer, uint64_t updates)
{
  optimizer->updates = updates;
}

struct plm_optimizer_state plm_optimizer_state(struct plm_optimizer *optimizer)
{
  return (struct plm_optimizer_state){
      .first = optimizer->first,
      .second = optimizer->second,
      .average = optimizer->average,
      .first_count = optimizer->arena_elements,
      .second_count = optimizer->second_elements,
      .average_count = optimizer->average == NULL ? 0 : optimizer->arena_elements,
  };
}

const struct plm_optimizer_tensor *plm_optimizer_tensors(const struct plm_optimizer *optimizer,
                                                         size_t *count)
{
  *count = optimizer->tensor_count;
  return optimizer->tensors;
}
