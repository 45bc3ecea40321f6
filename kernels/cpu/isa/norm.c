/* RMSNorm, x / sqrt(mean x^2 + eps) without a weight (Zhang and Sennrich 2019), and the mix before
 * it. */
#include "kernels/cpu/cpu_vector.h"

#define PLM_NORM_EPSILON 1e-6f

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/norm_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/norm_act.h"

static void norm_rows_forward(float *out, const float *x, int64_t N, int64_t D)
{
  norm_forward_float(out, x, N, D);
}

static void norm_rows_backward(float *dx, const float *dh, const float *x, int64_t N, int64_t D)
{
  norm_backward_float(dx, dh, x, N, D);
}

void SIMD_NAME(plm_cpu_fill_norm)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_norm_bf16(vector);
  else
    fill_norm_float(vector);
  vector->norm_rows_forward = norm_rows_forward;
  vector->norm_rows_backward = norm_rows_backward;
}
