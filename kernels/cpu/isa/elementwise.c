/* Elementwise vector kernels: conversions, the activation functions of the MLP and the head, and
 * the residual stream. */
#include "kernels/cpu/cpu_vector.h"

#define ACT_HALF 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/elementwise_act.h"
#undef ACT_HALF
#define ACT_HALF 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/elementwise_act.h"

void SIMD_NAME(plm_cpu_fill_elementwise)(struct plm_cpu_vector *vector, bool half)
{
  if (half)
    fill_elementwise_half(vector);
  else
    fill_elementwise_float(vector);
}
