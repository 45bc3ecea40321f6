/* Applies the rule of target_rule.h to all positions of a micro-batch, in order, on the host. */
#include "common/ops/target_rule.h"

#include "common/base/status.h"

int64_t plm_masking_targets(const struct plm_masking *masking, const struct plm_target_tokens *from,
                            const struct plm_target_rows *to)
{
  int64_t rows = 0;
  for (int64_t c = 0; c < from->B; c++)
    for (int64_t x = 0; x < from->L; x++) {
      const int64_t i = c * from->L + x;
      const struct plm_masked_token token =
          plm_masking_apply(masking, &from->draws[c], (uint32_t)x,
                            plm_masking_token(masking, from->tokens, (size_t)i),
                            plm_masking_next(masking, from->tokens, from->ends, (size_t)i));
      to->inputs[i] = token.input;
      if (token.label < 0) continue;
      PLM_ASSERT(rows < to->capacity);
      to->positions[rows] = (int32_t)i;
      to->labels[rows] = token.label;
      to->weights[rows++] = from->draws[c].weight;
    }
  return rows;
}
