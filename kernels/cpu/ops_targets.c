/* Targets of a step: applies the rule of common/ops/target_rule.h to all positions, in order. */
#include "kernels/cpu/cpu_ops.h"

static void choose_targets(struct plm_ops *ops, const struct plm_target_rows *to,
                           const struct plm_target_tokens *from, const struct plm_masking *masking)
{
  (void)ops;
  for (int64_t row = plm_masking_targets(masking, from, to); row < to->capacity; row++) {
    to->positions[row] = -1;
    to->labels[row] = 0;
    to->weights[row] = 0;
  }
}

void plm_cpu_targets_register(struct plm_cpu *cpu)
{
  cpu->ops.choose_targets = choose_targets;
}
