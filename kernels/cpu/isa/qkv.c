/* QKV prepare: value mix, norm of q and k over the head width, rotary with halves paired (Su et al.
 * 2021). */
#include "kernels/cpu/cpu_vector.h"

#define PLM_NORM_EPSILON 1e-6f

#define ACT_HALF 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/qkv_act.h"
#undef ACT_HALF
#define ACT_HALF 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/qkv_act.h"

void SIMD_NAME(plm_cpu_fill_qkv)(struct plm_cpu_vector *vector, bool half)
{
  if (half)
    fill_qkv_half(vector);
  else
    fill_qkv_float(vector);
}
