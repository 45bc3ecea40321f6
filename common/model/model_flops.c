/* The FLOPs of a batch. */
#include <math.h>

#include "common/model/model_state.h"

/* FLOPs of a product of `size` multiplications, as a multiple of it: 2 forward, and backward 2 for
 * the gradient of its input and 2 for that of its weights, if they are wanted. */
static double product_flops(double size, bool input, bool weights)
{
  return (2.0 + (input ? 2.0 : 0.0) + (weights ? 2.0 : 0.0)) * size;
}

/* The elements of A and B of the adapters of block i. */
static double adapter_elements(const struct plm_model *model, uint32_t i)
{
  double elements = 0;
  for (size_t p = 0; p < model->table_count && model->config.lora.rank > 0; p++)
    if (model->table[p].adapter != 0 && model->table[p].part == (int32_t)i)
      elements += (double)model->table[p].count;
  return elements;
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
    const double width = shape->width;
    const bool backward = i >= model->trained_from, weights = backward && !block->frozen;
    double size = (shape->traits->mlp == PLM_MLP_SWIGLU ? 3.0 : 2.0) * width * shape->hidden;
    if (shape->kind != PLM_BLOCK_BOTTLENECK) {
      size += 4.0 * width * width;
      pairs += (backward ? 12.0 : 4.0) * width *
               (double)plm_masks_pairs(masks, shape->level, (int)shape->entry);
    }
    if (block->projects) size += width * D;
    per_token += ldexp(product_flops(adapter_elements(model, i), true, true), -shape->level);
    per_token += ldexp(product_flops(size, backward, weights), -shape->level);
    if (shape->input != PLM_INPUT_SAME) {
      const double shallow = plm_architecture_width(&model->config, shape->resample);
      const double deep = plm_architecture_width(&model->config, shape->resample + 1);
      per_token +=
          ldexp(product_flops(2.0 * shallow * deep, backward, weights), -(shape->resample + 1));
    }
  }
  return per_token * (double)tokens + pairs;
}
