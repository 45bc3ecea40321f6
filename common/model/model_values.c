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
  if (kept == NULL || model->act_bytes == sizeof(float)) return;
  PLM_ASSERT(model->options.training);
  model->kept_at = plm_alloc_zeroed(model->table_count, sizeof *model->kept_at);
  model->kept_elements = 0;
  for (size_t i = 0; i < model->table_count; i++) {
    const struct plm_parameter *parameter = &model->table[i];
    model->kept_at[i] = NOT_KEPT;
    if (!kept[i] && is_of_products(parameter)) continue;
    model->kept_at[i] = model->kept_elements;
    model->kept_elements += plm_size_round_up(parameter->count, PLM_PARAMETER_ALIGNMENT);
  }
}

bool plm_model_keeps_all(const struct plm_model *model)
{
  return model->kept_at == NULL;
}

/* The number of the parameter that has a place of the arenas. */
static size_t parameter_at(const struct plm_model *model, size_t place)
{
  size_t first = 0, end = model->table_count;
  while (end - first > 1) {
    const size_t middle = first + (end - first) / 2;
    if (model->table[middle].offset <= place)
      first = middle;
    else
      end = middle;
  }
  return first;
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
  const size_t *at = model->kept_at;
  for (size_t i = 0, end; i < model->table_count; i = end) {
    const struct plm_parameter *first = &model->table[i];
    end = i + 1;
    if (at[i] == NOT_KEPT) continue;
    while (end < model->table_count && at[end] != NOT_KEPT &&
           at[end] - at[i] == model->table[end].offset - first->offset)
      end++;
    const struct plm_parameter *last = &model->table[end - 1];
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
  if (model->kept_at != NULL)
    round_kept(model);
  else if (model->weights != model->parameters)
    ops->round_weights(ops, model->weights, model->parameters, model->arena_elements);
  make_token_vectors(model);
}

/* ---- loading --------------------------------------------------------------------------------- */

float *plm_model_loading_arena(struct plm_model *model)
{
  return model->kept_at == NULL ? model->parameters : model->gradients;
}

void plm_model_loaded(struct plm_model *model)
{
  struct plm_ops *ops = model->ops;
  for (size_t i = 0; i < model->table_count && model->kept_at != NULL; i++) {
    const struct plm_parameter *parameter = &model->table[i];
    float *value = plm_model_parameter(model, i);
    if (value != NULL)
      ops->copy(ops, value, model->gradients + parameter->offset, parameter->count * sizeof(float));
    else
      ops->round_weights(ops, plm_model_used(model, i), model->gradients + parameter->offset,
                         parameter->count);
  }
  plm_model_weights_changed(model);
}
