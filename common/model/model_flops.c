/* The FLOPs of a batch. */
#include <math.h>

#include "common/model/model_state.h"

/* FLOPs of a product of `size` multiplications, as a multiple of it: 2 forward, and backward 2 for
 * the gradient of its input and 2 for that of its weights, if they are wanted. */
static double product_flops(double size, bool input, bool weights)
{
  return (2.0 + (input ? 2.0 : 0.0) + (weights ? 2.0 : 0.0)) * size;
}

/* Whether the backward pass computes the gradient of what this part of block i reads. */
static bool goes_beyond(const struct plm_model *model, uint32_t i, enum model_reach part)
{
  return i >= model->trained_from && model->blocks[i].reach < part;
}

/* Of the adapters of block i. B always needs the gradient of its input, since A is trained. */
static double adapter_flops(const struct plm_model *model, uint32_t i)
{
  double flops = 0;
  for (size_t p = 0; p + 1 < model->table_count && model->config.lora.rank > 0; p++) {
    const struct plm_parameter *a = &model->table[p], *b = &model->table[p + 1];
    if (a->adapter == 0) continue;
    p++; /* A is followed by its B */
    if (a->part != (int32_t)i) continue;
    flops += product_flops((double)a->count, goes_beyond(model, i, model_reach_of(a)), true);
    flops += product_flops((double)b->count, true, true);
  }
  return flops;
}

/* Of the products of block i, except that of its resampling. */
static double block_flops(const struct plm_model *model, uint32_t i)
{
  const struct model_block *block = &model->blocks[i];
  const struct plm_block_shape *shape = &block->shape;
  const double width = shape->width, hidden = shape->hidden;
  const bool weights = i >= model->trained_from && !block->frozen;
  const double up = shape->traits->mlp == PLM_MLP_SWIGLU ? 2.0 : 1.0;
  double flops = product_flops(width * hidden, goes_beyond(model, i, REACH_DOWN), weights) +
                 product_flops(up * width * hidden, goes_beyond(model, i, REACH_UP), weights);
  if (shape->kind != PLM_BLOCK_BOTTLENECK)
    flops += product_flops(width * width, goes_beyond(model, i, REACH_OUTPUT), weights) +
             product_flops(3.0 * width * width, goes_beyond(model, i, REACH_QKV), weights);
  if (block->projects)
    flops += product_flops(width * model->config.hidden_size, model->trains_embeddings, weights);
  return flops + adapter_flops(model, i);
}

double plm_model_flops(const struct plm_model *model, const struct plm_masks *masks,
                       uint64_t tokens)
{
  const double D = model->config.hidden_size, V = model->config.vocab_size;
  const struct plm_head_config *head = &model->config.head;
  double per_token = product_flops(D * D, model->trains_trunk, !model->dense.frozen), pairs = 0.0;
  if (!model->config.tie_embeddings) per_token += product_flops(V * D, true, true);
  if (head->kind != PLM_PREDICTS_TOKENS) /* that of sequences is counted as nothing */
    per_token = head->kind == PLM_PREDICTS_RESIDUES
                    ? product_flops(head->outputs * D, model->trains_trunk, true)
                    : 0.0;
  for (uint32_t i = 0; i < model->block_count; i++) {
    const struct model_block *block = &model->blocks[i];
    const struct plm_block_shape *shape = &block->shape;
    const bool weights = i >= model->trained_from && !block->frozen;
    if (shape->kind != PLM_BLOCK_BOTTLENECK)
      pairs += (goes_beyond(model, i, REACH_OUTPUT) ? 12.0 : 4.0) * shape->width *
               (double)plm_masks_pairs(masks, shape->level, (int)shape->entry);
    per_token += ldexp(block_flops(model, i), -shape->level);
    if (shape->input != PLM_INPUT_SAME) {
      const double shallow = plm_architecture_width(&model->config, shape->resample);
      const double deep = plm_architecture_width(&model->config, shape->resample + 1);
      per_token +=
          ldexp(product_flops(2.0 * shallow * deep, goes_beyond(model, i, REACH_INPUT), weights),
                -(shape->resample + 1));
    }
  }
  return per_token * (double)tokens + pairs;
}
