/* Optimizers. A table, built when opening, says for each parameter which rule updates it and where
 * its moments are. */
#include "trainer/optimizer/optimizers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/numbers/size.h"
#include "trainer/optimizer/schedule.h"

enum rule { RULE_ADAM, RULE_MUON };
static const double adam_eps = 1e-8;

/* Offsets of a parameter in the arenas on the device; only held parameters have them. */
struct slot {
  const struct plm_parameter *parameter;
  enum rule rule;
  bool held;
  size_t first;  /* of the momentum or Adam's first moment, and of the average */
  size_t second; /* of Adam's second moment */
};

struct plm_optimizer {
  const struct plm_config_trainer *trainer;
  struct plm_model *model;
  struct plm_ops *ops;
  const struct plm_held *held; /* NULL: all parameters */
  struct slot *slots;
  size_t slot_count;
  struct plm_optimizer_tensor *tensors;
  size_t tensor_count;
  struct plm_muon_matrix *matrices; /* (slot_count), the first matrix_count are used */
  struct plm_adam_tensor *adam;
  size_t matrix_count, adam_count;
  size_t first_held, second_held;            /* elements on the device */
  struct plm_optimizer_sizes sizes;          /* of a snapshot */
  float *first, *second, *average, *scratch; /* device */
  uint64_t updates;
};

bool plm_optimizer_is_muon(const struct plm_config_trainer *trainer,
                           const struct plm_parameter *parameter)
{
  return trainer->optimizer.name == PLM_OPTIMIZER_MUON && parameter->group == PLM_GROUP_HIDDEN &&
         parameter->ndim == 2 && parameter->adapter == 0;
}

static enum rule rule_of(const struct plm_config_trainer *trainer,
                         const struct plm_parameter *parameter)
{
  return plm_optimizer_is_muon(trainer, parameter) ? RULE_MUON : RULE_ADAM;
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
static size_t optimizers_aligned(size_t count)
{
  return plm_size_round_up(count, PLM_PARAMETER_ALIGNMENT);
}

struct need {
  size_t first, second, scratch; /* elements */
};

/* What the device needs for the held parameters. matrices: scratch memory with room for count
 * elements. */
static struct need need_of(const struct plm_config_trainer *trainer, const struct plm_ops *ops,
                           const struct plm_parameter *table, size_t count,
                           const struct plm_held *held, struct plm_muon_matrix *matrices)
{
  struct need need = {0};
  size_t muon = 0;
  for (size_t i = 0; i < count; i++) {
    if (table[i].frozen || !plm_is_held(held, i)) continue;
    need.first += optimizers_aligned(table[i].count);
    if (rule_of(trainer, &table[i]) == RULE_ADAM) {
      need.second += optimizers_aligned(table[i].count);
      continue;
    }
    matrices[muon++] = (struct plm_muon_matrix){.rows = table[i].rows, .cols = table[i].cols};
  }
  need.scratch = ops->muon_scratch(ops, matrices, muon);
  return need;
}

static void add_tensor(struct plm_optimizer *optimizer, size_t parameter, const char *suffix,
                       bool second, size_t offset)
{
  const struct plm_parameter *of = optimizer->slots[parameter].parameter;
  struct plm_optimizer_tensor *tensor = &optimizer->tensors[optimizer->tensor_count++];
  *tensor = (struct plm_optimizer_tensor){.rows = of->rows,
                                          .cols = of->cols,
                                          .ndim = of->ndim,
                                          .parameter = parameter,
                                          .second = second,
                                          .offset = offset,
                                          .count = of->count};
  snprintf(tensor->name, sizeof tensor->name, "%s.%s", of->name, suffix);
}

/* The arenas have the layout of the gradients' arena, without those that are not held. So if
 * everything is held, it is that of a snapshot. */
static void lay_out(struct plm_optimizer *optimizer, const struct plm_parameter *table)
{
  for (size_t i = 0; i < optimizer->slot_count; i++) {
    struct slot *slot = &optimizer->slots[i];
    *slot = (struct slot){.parameter = &table[i],
                          .rule = rule_of(optimizer->trainer, &table[i]),
                          .held = !table[i].frozen && plm_is_held(optimizer->held, i),
                          .first = optimizer->first_held,
                          .second = optimizer->second_held};
    if (table[i].frozen) continue;
    if (slot->held) optimizer->first_held += optimizers_aligned(table[i].count);
    if (slot->rule == RULE_MUON) {
      add_tensor(optimizer, i, "momentum", false, table[i].offset);
      continue;
    }
    add_tensor(optimizer, i, "first_moment", false, table[i].offset);
    add_tensor(optimizer, i, "second_moment", true, optimizer->sizes.second);
    optimizer->sizes.second += optimizers_aligned(table[i].count);
    if (slot->held) optimizer->second_held += optimizers_aligned(table[i].count);
  }
}

static plm_status allocate_zeros(struct plm_ops *ops, size_t elements, float **buffer,
                                 struct plm_error *error)
{
  if (elements == 0) return PLM_OK;
  PLM_TRY(ops->allocate(ops, elements * sizeof(float), (void **)buffer, error));
  ops->zero(ops, *buffer, elements * sizeof(float));
  return PLM_OK;
}

/* Makes the tables that an update passes to the operators. They stay the same, so that updates can
 * be recorded. */
static void optimizers_describe(struct plm_optimizer *optimizer)
{
  float *gradients = plm_model_gradient_arena(optimizer->model);
  const struct plm_config_optimizer *options = &optimizer->trainer->optimizer;
  for (size_t i = 0; i < optimizer->slot_count; i++) {
    const struct slot *slot = &optimizer->slots[i];
    if (!slot->held) continue;
    const struct plm_parameter *parameter = slot->parameter;
    float *weights = plm_model_parameter(optimizer->model, i);
    const double rows = (double)parameter->rows, cols = (double)parameter->cols;
    const float decay = parameter->decay ? (float)options->weight_decay : 0;
    if (slot->rule == RULE_MUON)
      optimizer->matrices[optimizer->matrix_count++] =
          (struct plm_muon_matrix){.w = weights,
                                   .momentum = optimizer->first + slot->first,
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
          (struct plm_adam_tensor){.w = weights,
                                   .m = optimizer->first + slot->first,
                                   .v = optimizer->second + slot->second,
                                   .g = gradients + parameter->offset,
                                   .n = parameter->count,
                                   .weight_decay = decay,
                                   .rate = (int32_t)parameter->group};
  }
}

/* Entries of the tables that describe() makes, of parameters before `parameter`. */
struct listed {
  size_t adam, matrices;
};

static struct listed listed_before(const struct plm_optimizer *optimizer, size_t parameter)
{
  struct listed listed = {0};
  for (size_t i = 0; i < parameter; i++) {
    if (!optimizer->slots[i].held) continue;
    if (optimizer->slots[i].rule == RULE_MUON)
      listed.matrices++;
    else
      listed.adam++;
  }
  return listed;
}

static plm_status allocate_tables(struct plm_optimizer *optimizer, size_t count,
                                  struct plm_error *error)
{
  optimizer->slot_count = count;
  optimizer->slots = calloc(count, sizeof *optimizer->slots);
  optimizer->tensors = calloc(2 * count, sizeof *optimizer->tensors);
  optimizer->matrices = calloc(count, sizeof *optimizer->matrices);
  optimizer->adam = calloc(count, sizeof *optimizer->adam);
  if (optimizer->slots == NULL || optimizer->tensors == NULL || optimizer->matrices == NULL ||
      optimizer->adam == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the optimizer's tables");
  return PLM_OK;
}

static plm_status allocate_arenas(struct plm_optimizer *optimizer, const struct need *need,
                                  struct plm_error *error)
{
  struct plm_ops *ops = optimizer->ops;
  PLM_ASSERT(need->first == optimizer->first_held && need->second == optimizer->second_held);
  PLM_TRY(allocate_zeros(ops, need->first, &optimizer->first, error));
  PLM_TRY(allocate_zeros(ops, need->second, &optimizer->second, error));
  PLM_TRY(allocate_zeros(ops, need->scratch, &optimizer->scratch, error));
  if (optimizer->trainer->ema > 0)
    PLM_TRY(allocate_zeros(ops, need->first, &optimizer->average, error));
  return PLM_OK;
}

plm_status plm_optimizer_open(const struct plm_config_trainer *trainer, struct plm_model *model,
                              const struct plm_held *held, struct plm_optimizer **out,
                              struct plm_error *error)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  const size_t arena = plm_model_trained_elements(model);
  struct plm_optimizer *optimizer = calloc(1, sizeof *optimizer);
  if (optimizer == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the optimizer");
  *optimizer = (struct plm_optimizer){.trainer = trainer,
                                      .model = model,
                                      .ops = plm_model_ops(model),
                                      .held = held,
                                      .sizes = {.first = arena}};
  if (trainer->ema > 0) optimizer->sizes.average = arena;
  plm_status status = allocate_tables(optimizer, count, error);
  if (status == PLM_OK) {
    lay_out(optimizer, table);
    const struct need need =
        need_of(trainer, optimizer->ops, table, count, held, optimizer->matrices);
    status = allocate_arenas(optimizer, &need, error);
  }
  if (status != PLM_OK) {
    plm_optimizer_close(optimizer);
    return status;
  }
  optimizers_describe(optimizer);
  *out = optimizer;
  return PLM_OK;
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

plm_status plm_optimizer_memory(const struct plm_config_trainer *trainer,
                                const struct plm_model_config *model, const struct plm_ops *ops,
                                const struct plm_held *held, uint64_t *bytes,
                                uint64_t *scratch_bytes, struct plm_error *error)
{
  struct plm_parameter *table = NULL;
  size_t count, arena;
  PLM_TRY(plm_model_parameters(model, &table, &count, &arena, error));
  const struct plm_freeze freeze = plm_config_freeze(trainer, model);
  plm_parameters_freeze(table, count, &freeze);
  struct plm_muon_matrix *matrices = calloc(count, sizeof *matrices);
  if (matrices == NULL) {
    free(table);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the optimizer's tables");
  }
  const struct need need = need_of(trainer, ops, table, count, held, matrices);
  free(matrices);
  free(table);
  *scratch_bytes = need.scratch * sizeof(float);
  *bytes = (need.first * (trainer->ema > 0 ? 2 : 1) + need.second + need.scratch) * sizeof(float);
  return PLM_OK;
}

/* Elements that follow each other both in the weights and in the average. */
struct run {
  const float *weights;
  size_t average, count;
};

/* The next run of held parameters from slot *next on; false if there is none before `end`. */
static bool next_run(const struct plm_optimizer *optimizer, size_t *next, size_t end,
                     struct run *run)
{
  size_t i = *next;
  while (i < end && !optimizer->slots[i].held) i++;
  if (i == end) return false;
  const struct slot *first = &optimizer->slots[i], *last = first;
  *run = (struct run){.weights = plm_model_parameter(optimizer->model, i), .average = first->first};
  for (; i < end; i++) {
    const struct slot *slot = &optimizer->slots[i];
    const size_t from_first = slot->first - first->first;
    if (!slot->held) break;
    PLM_ASSERT(plm_model_parameter(optimizer->model, i) == run->weights + from_first);
    last = slot;
  }
  run->count = last->first + last->parameter->count - first->first;
  *next = i;
  return true;
}

void plm_optimizer_start_average(struct plm_optimizer *optimizer)
{
  struct plm_ops *ops = optimizer->ops;
  struct run run;
  if (optimizer->average == NULL) return;
  for (size_t next = 0; next_run(optimizer, &next, optimizer->slot_count, &run);)
    ops->copy(ops, optimizer->average + run.average, run.weights, run.count * sizeof(float));
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

static void update_average(struct plm_optimizer *optimizer, const struct plm_update *update,
                           struct plm_parameter_range range)
{
  struct plm_ops *ops = optimizer->ops;
  struct run run;
  for (size_t next = range.first; next_run(optimizer, &next, range.end, &run);)
    ops->average_step(ops, optimizer->average + run.average, run.weights, run.count, update);
}

struct plm_parameter_range plm_optimizer_all(const struct plm_optimizer *optimizer)
{
  return (struct plm_parameter_range){0, optimizer->slot_count};
}

void plm_optimizer_update(struct plm_optimizer *optimizer, const struct plm_update *update,
                          struct plm_parameter_range range)
{
  struct plm_ops *ops = optimizer->ops;
  const double *betas = optimizer->trainer->optimizer.betas;
  const struct plm_adam_options adam = {
      .beta1 = (float)betas[0], .beta2 = (float)betas[1], .eps = (float)adam_eps};
  const struct listed before = listed_before(optimizer, range.first);
  const struct listed until = listed_before(optimizer, range.end);
  ops->adam_step(ops, optimizer->adam + before.adam, until.adam - before.adam, &adam, update);
  ops->muon_step(ops, optimizer->matrices + before.matrices, until.matrices - before.matrices,
                 optimizer->scratch, update);
  if (optimizer->average != NULL) update_average(optimizer, update, range);
}

uint64_t plm_optimizer_updates(const struct plm_optimizer *optimizer)
{
  return optimizer->updates;
}

void plm_optimizer_set_updates(struct plm_optimizer *optimizer, uint64_t updates)
{
  optimizer->updates = updates;
}

float *plm_optimizer_tensor_data(struct plm_optimizer *optimizer, size_t i)
{
  const struct slot *slot = &optimizer->slots[optimizer->tensors[i].parameter];
  if (!slot->held) return NULL;
  return optimizer->tensors[i].second ? optimizer->second + slot->second
                                      : optimizer->first + slot->first;
}

float *plm_optimizer_average_data(struct plm_optimizer *optimizer, size_t parameter)
{
  const struct slot *slot = &optimizer->slots[parameter];
  return slot->held && optimizer->average != NULL ? optimizer->average + slot->first : NULL;
}

struct plm_optimizer_sizes plm_optimizer_sizes(const struct plm_optimizer *optimizer)
{
  return optimizer->sizes;
}

struct plm_optimizer_state plm_optimizer_state(struct plm_optimizer *optimizer)
{
  PLM_ASSERT(optimizer->first_held == optimizer->sizes.first);
  return (struct plm_optimizer_state){
      .first = optimizer->first,
      .second = optimizer->second,
      .average = optimizer->average,
  };
}

const struct plm_optimizer_tensor *plm_optimizer_tensors(const struct plm_optimizer *optimizer,
                                                         size_t *count)
{
  *count = optimizer->tensor_count;
  return optimizer->tensors;
}
