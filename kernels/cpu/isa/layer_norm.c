/* LayerNorm, (x - mean) / sqrt(variance + eps) weight + bias (Ba, Kiros and Hinton 2016), and the
 * sums of columns, from which the gradients of biases come. */
#include "kernels/cpu/cpu_vector.h"

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/layer_norm_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/layer_norm_act.h"

void SIMD_NAME(plm_cpu_fill_layer_norm)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_layer_norm_bf16(vector);
  else
    fill_layer_norm_float(vector);
}
