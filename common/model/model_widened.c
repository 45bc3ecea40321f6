/* The operands that a backend widens or transposes for a product. The largest product is one of a
 * block: those of the head and of adapters are smaller. */
#include "common/model/architecture.h"
#include "common/model/model.h"

struct widest {
  const struct plm_ops *ops;
  uint64_t bytes;
};

static void take_product(struct widest *widest, int64_t N, int64_t I, int64_t O)
{
  const uint64_t bytes = widest->ops->linear_scratch(widest->ops, N, I, O);
  if (bytes > widest->bytes) widest->bytes = bytes;
}

uint64_t plm_model_widened(const struct plm_model_config *config, const struct plm_ops *ops,
                           uint32_t max_chunks)
{
  struct widest widest = {ops, 0};
  if (ops->linear_scratch == NULL) return 0;
  for (uint32_t i = 0; i < plm_architecture_blocks(config); i++) {
    struct plm_block_shape block;
    plm_architecture_block(config, i, &block);
    const int64_t N = (int64_t)max_chunks * (config->max_length >> block.level);
    const int64_t D = block.width, F = block.hidden;
    if (block.kind != PLM_BLOCK_BOTTLENECK) take_product(&widest, N, D, 3 * D);
    take_product(&widest, N, D, block.traits->mlp == PLM_MLP_SWIGLU ? 2 * F : F);
    take_product(&widest, N, F, D);
    if (block.input == PLM_INPUT_SAME) continue;
    const int64_t rows = (int64_t)max_chunks * (config->max_length >> (block.resample + 1));
    take_product(&widest, rows, 2 * (int64_t)plm_architecture_width(config, block.resample),
                 plm_architecture_width(config, block.resample + 1));
  }
  return widest.bytes;
}
