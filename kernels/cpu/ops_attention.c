/* Registers attention in struct plm_ops, with the kernels that suit the processor. */
#include "kernels/cpu/attention.h"

#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/processor.h"

static void attention_forward(struct plm_ops *ops, act *out, float *lse,
                              const struct plm_attention_inputs *in,
                              const struct plm_interval_mask *mask,
                              const struct plm_attention_shape *shape)
{
  plm_attention_forward(plm_cpu_of(ops)->attention, out, lse, in, mask, shape);
}

static void attention_backward(struct plm_ops *ops, const struct plm_attention_gradients *to,
                               const act *dout, const act *out, const float *lse,
                               const struct plm_attention_inputs *in,
                               const struct plm_interval_mask *mask,
                               const struct plm_attention_shape *shape)
{
  plm_attention_backward(plm_cpu_of(ops)->attention, to, dout, out, lse, in, mask, shape);
}

static void narrow_mask(struct plm_ops *ops, int32_t *key_begin, int32_t *key_end,
                        const struct plm_interval_mask *mask, const int32_t *positions, int64_t R)
{
  const size_t bytes = (size_t)mask->B * (size_t)mask->L * sizeof *key_begin;
  (void)ops;
  memset(key_begin, 0, bytes);
  memset(key_end, 0, bytes);
  for (int64_t r = 0; r < R; r++) {
    if (positions[r] < 0) continue;
    PLM_ASSERT(positions[r] < mask->B * (int64_t)mask->L);
    key_begin[positions[r]] = mask->key_begin[positions[r]];
    key_end[positions[r]] = mask->key_end[positions[r]];
  }
}

static const struct plm_attention_kernels *const KERNELS[PLM_ISA_COUNT] = {
    [PLM_ISA_PORTABLE] = &plm_attention_kernels_portable,
#if defined(__x86_64__)
    [PLM_ISA_AVX2] = &plm_attention_kernels_avx2,
    [PLM_ISA_AVX512] = &plm_attention_kernels_avx512,
#endif
};

void plm_cpu_attention_register(struct plm_cpu *cpu)
{
  const struct plm_attention_kernels *kernels = KERNELS[cpu->isa];
#if defined(__x86_64__)
  const enum plm_processor_level level = plm_processor_level();
  if (cpu->isa == PLM_ISA_AVX512 && level >= PLM_PROCESSOR_AVX512_BF16) {
    kernels = &plm_attention_kernels_avx512_bf16;
    if (plm_processor_splits_vectors()) kernels = &plm_attention_kernels_narrow;
    if (level >= PLM_PROCESSOR_AMX && (cpu->bf16 || cpu->rounds_attention))
      kernels = &plm_attention_kernels_avx512_amx;
  }
#endif
  cpu->attention = plm_attention_open(kernels, cpu->pool, cpu->bf16, cpu->rounds_attention);
  cpu->ops.attention_forward = attention_forward;
  cpu->ops.attention_backward = attention_backward;
  cpu->ops.narrow_mask = narrow_mask;
}

void plm_cpu_attention_unregister(struct plm_cpu *cpu)
{
  plm_attention_close(cpu->attention);
  cpu->attention = NULL;
}
