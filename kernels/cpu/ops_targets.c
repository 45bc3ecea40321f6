/* Targets of a step: the rule of common/ops/target_rule.h over all positions, in their order. */
#include "kernels/cpu/cpu_ops.h"

static void choose_targets(struct plm_ops *ops, int32_t *inputs, int32_t *positions,
                           int32_t *labels, float *weights, const void *tokens,
                           const uint32_t *ends, const struct plm_chunk_draw *draws,
                           const struct plm_masking *masking, int64_t B, int64_t L,
                           int64_t capacity)
{
  (void)ops;
  int64_t rows = 0;
  for (int64_t c = 0; c < B; c++)
    for (int64_t x = 0; x < L; x++) {
      const int64_t i = c * L + x;
      const struct plm_masked_token token = plm_masking_apply(
          masking, &draws[c], (uint32_t)x, plm_masking_token(masking, tokens, (size_t)i),
          plm_masking_next(masking, tokens, ends, (size_t)i));
      inputs[i] = token.input;
      if (token.label < 0) continue;
      PLM_ASSERT(rows < capacity);
      positions[rows] = (int32_t)i;
      labels[rows] = token.label;
      weights[rows++] = draws[c].weight;
    }
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
