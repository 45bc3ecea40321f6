/* The rule over all positions, in their order. */
#include "common/ops/target_rule.h"

#include "common/base/status.h"

int64_t plm_masking_targets(const struct plm_masking *masking, const struct plm_chunk_draw *draws,
                            const void *tokens, const uint32_t *ends, int64_t B, int64_t L,
                            int32_t *inputs, int32_t *positions, int32_t *labels, float *weights,
                            int64_t capacity)
{
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
  return rows;
}
