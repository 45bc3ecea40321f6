/* Elementwise vector kernels: conversions, the activation functions of the MLP and the head, and
 * the residual stream. */
#include "kernels/cpu/cpu_vector.h"
#include "kernels/cpu/isa/simd.h"

/* The derivative of GELU: Phi(x) + x phi(x). */
static inline vfloat gelu_slope(vfloat x)
{
  vfloat bell;
  const vfloat phi = vnormal(x, &bell);
  return phi + x * bell * 0.3989422804f; /* 1 / sqrt(2 pi) */
}

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/elementwise_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/elementwise_act.h"

static void round_to_bf16(float *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += SIMD_WIDTH)
    vstore_float(x + i, vfrom_bf16(vto_bf16(vload_float(x + i, n - i))), n - i);
}

void SIMD_NAME(plm_cpu_fill_elementwise)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_elementwise_bf16(vector);
  else
    fill_elementwise_float(vector);
  vector->bf16_from_float = from_float_bf16;
  vector->bf16_to_float = to_float_bf16;
  vector->round_to_bf16 = round_to_bf16;
}
