/* Targets of a step: the rule of common/ops/target_rule.h over all positions, in their order. */
#include "kernels/cpu/cpu_ops.h"

static void choose_targets(struct plm_ops *ops, int32_t *inputs, int32_t *positions,
                           int32_t *labels, float *weights, const void *tokens,
                           const uint32_t *ends, const struct plm_chunk_draw *draws,
                           const struct plm_masking *masking, int64_t B, int64_t L,
                           int64_t capacity)
{
  (void)ops;
  int64_t rows = plm_masking_targets(masking, draws, tokens, ends, B, L, inputs, positions, labels,
                                     weights, capacity);
  for (; rows < capacity; rows++) {
    positions[rows] = -1;
    labels[rows] = 0;
    weights[rows] = 0;
  }
}

void plm_cpu_targets_register(struct plm_cpu *cpu)
{
  cpu->ops.choose_targets = choose_targets;
}
