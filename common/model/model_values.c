/* The values of parameters: which fp32 values are kept, and how weights as used follow from them.
 */
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/numbers/size.h"
#include "common/model/model.h"
#include "common/model/model_state.h"

/* ---- which are kept -------------------------------------------------------------------------- */

/* Whether passes read a parameter only as the weights of products. */
static bool is_of_products(const struct plm_parameter *parameter)
{
  return parameter->ndim == 2 &&
         (parameter->group == PLM_GROUP_HIDDEN || parameter->group == PLM_GROUP_HEAD);
}

void plm_model_keep(struct plm_model *model)
{
  const bool *kept = model->options.kept;
  model->options.kept = NULL; /* the caller's memory */
  model->kept_elements = model->arena_elements;
  model->keeps_trained = true;
  if (model->int8 == NULL && model->act_bytes == sizeof(float)) return;
  const bool training = model->options.training;
  if (training && kept == NULL && model->trained_elements == model->arena_elements) return;
  PLM_ASSERT(training || kept == NULL);
  model->kept_at = plm_alloc_zeroed(model->table_count, sizeof *model->kept_at);
  model->kept_elements = 0;
  for (size_t n = 0; n < model->table_count; n++) {
    const size_t i = model->order[n];
    const struct plm_parameter *parameter = &model->table[i];
    const bool updated = training && (kept != NULL ? kept[i] : !parameter->frozen);
    const bool elsewhere = model->int8 != NULL ? plm_model_is_int8(model, parameter)
                                               : !updated && is_of_products(parameter);
    model->kept_at[i] = NOT_KEPT;
    if (elsewhere) {
      model->keeps_trained = model->keeps_trained && parameter->frozen;
      continue;
    }
    model->kept_at[i] = model->kept_elements;
    model->kept_elements += plm_size_round_up(parameter->count, PLM_PARAMETER_ALIGNMENT);
  }
}

bool plm_model_keeps_all(const struct plm_model *model)
{
  return model->kept_at == NULL;
}

float *plm_model_trained_arena(struct plm_model *model)
{
  return model->keeps_trained ? model->parameters : NULL;
}

/* The number of the parameter that has a place of the arenas. */
static size_t parameter_at(const struct plm_model *model, size_t place)
{
  size_t first = 0, end = model->table_count;
  while (end - first > 1) {
    const size_t middle = first + (end - first) / 2;
    if (model->table[model->order[middle]].offset <= place)
      first = middle;
    else
      end = middle;
  }
  return model->order[first];
}

const float *model_value(const struct plm_model *model, size_t place)
{
  if (model->kept_at == NULL) return model->parameters + place;
  const size_t i = parameter_at(model, place);
  PLM_ASSERT(model->kept_at[i] != NOT_KEPT);
  return model->parameters + model->kept_at[i] + (place - model->table[i].offset);
}

float *plm_model_parameter_arena(struct plm_model *model)
{
  PLM_ASSERT(model->kept_at == NULL);
  return model->parameters;
}

float *plm_model_parameter(struct plm_model *model, size_t i)
{
  if (model->kept_at == NULL) return model->parameters + model->table[i].offset;
  return model->kept_at[i] == NOT_KEPT ? NULL : model->parameters + model->kept_at[i];
}

/* ---- weights as used ------------------------------------------------------------------------- */

size_t plm_parameter_used_bytes(const struct plm_parameter *parameter, size_t act_bytes)
{
  return parameter->count * (is_of_products(parameter) ? act_bytes : sizeof(float));
}

void *plm_model_used(struct plm_model *model, size_t i)
{
  const struct plm_parameter *parameter = &model->table[i];
  if (!is_of_products(parameter)) return plm_model_parameter(model, i);
  return (char *)model->weights + parameter->offset * model->act_bytes;
}

/* Rounds what is kept, in runs that follow each other both there and in the weights. */
static void round_kept(struct plm_model *model)
{
  struct plm_ops *ops = model->ops;
  const size_t *at = model->kept_at, *order = model->order;
  for (size_t n = 0, end; n < model->table_count; n = end) {
    const size_t i = order[n];
    const struct plm_parameter *first = &model->table[i];
    end = n + 1;
    if (at[i] == NOT_KEPT) continue;
    while (end < model->table_count && at[order[end]] != NOT_KEPT) end++;
    const struct plm_parameter *last = &model->table[order[end - 1]];
    PLM_ASSERT(at[order[end - 1]] - at[i] == last->offset - first->offset);
    ops->round_weights(ops, (char *)model->weights + first->offset * model->act_bytes,
                       model->parameters + at[i], last->offset + last->count - first->offset);
  }
}

static void make_token_vectors(struct plm_model *model)
{
  struct plm_ops *ops = model->ops;
  const int64_t V = model->config.vocab_size, mask = plm_architecture_mask_token(&model->config);
  for (uint32_t i = 0; i < model->table_total; i++) {
    const struct token_table *table = &model->tables[i];
    const float *rows = model_value(model, table->place);
    const size_t row_bytes = (size_t)table->width * sizeof(float);
    if (i == 0 && model->rules->normalises_tables)
      ops->norm_rows_forward(ops, table->vectors, rows, V, table->width);
    else
      ops->copy(ops, table->vectors, rows, (size_t)V * row_bytes);
    if (model->config.token_dropout && !model->rules->scales_dropout)
      ops->zero(ops, table->vectors + mask * table->width, row_bytes);
    if (table->rounded != NULL && table->rounded != (act *)table->vectors)
      ops->round_weights(ops, table->rounded, table->vectors, (size_t)(V * table->width));
  }
}

void plm_model_weights_changed(struct plm_model *model)
{
  struct plm_ops *ops = model->ops;
  if (model->kept_at != NULL && model->int8 == NULL)
    round_kept(model);
  else if (model->int8 == NULL && model->weights != model->parameters)
    ops->round_weights(ops, model->weights, model->parameters, model->arena_elements);
  make_token_vectors(model);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Rounds values to the weights of products, through a buffer of activations. */
static void load_used(struct plm_model *model, size_t i, const float *values)
{
  struct plm_ops *ops = model->ops;
  const struct plm_parameter *parameter = &model->table[i];
  float *room = (float *)model->activations.base;
  const size_t most = model->activations.used_bytes / sizeof(float);
  char *to = plm_model_used(model, i);
  for (size_t at = 0, part; at < parameter->count; at += part) {
    part = parameter->count - at < most ? parameter->count - at : most;
    ops->upload(ops, room, values + at, part * sizeof(float));
    ops->round_weights(ops, to + at * model->act_bytes, room, part);
  }
}

void plm_model_load_parameter(struct plm_model *model, size_t i, const float *values)
{
  float *value = plm_model_parameter(model, i);
  if (value != NULL)
    model->ops->upload(model->ops, value, values, model->table[i].count * sizeof(float));
  else if (model->int8 != NULL)
    plm_model_load_int8(model, i, values);
  else
    load_used(model, i, values);
}

plm_status plm_model_parameter_room(const struct plm_model *model, float **room,
                                    struct plm_error *error)
{
  size_t most = 0;
  for (size_t i = 0; i < model->table_count; i++)
    if (model->table[i].count > most) most = model->table[i].count;
  *room = malloc(most * sizeof **room);
  if (*room != NULL) return PLM_OK;
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for a tensor of %zu weights", most);
}

void plm_model_load(struct plm_model *model, const float *values)
{
  struct plm_ops *ops = model->ops;
  if (model->kept_at == NULL)
    ops->upload(ops, model->parameters, values, model->arena_elements * sizeof(float));
  for (size_t i = 0; i < model->table_count && model->kept_at != NULL; i++)
    plm_model_load_parameter(model, i, values + model->table[i].offset);
  plm_model_weights_changed(model);
}
