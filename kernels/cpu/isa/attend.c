/* Attention of one query over the keys and values of a cache, for incremental decoding: scores,
 * softmax, weighted sum. */
#include "kernels/cpu/cpu_vector.h"

enum { KEYS_AT_ONCE = 4, VECTORS_AT_ONCE = 4 };

#define ACT_HALF 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/attend_act.h"
#undef ACT_HALF
#define ACT_HALF 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/attend_act.h"

void SIMD_NAME(plm_cpu_fill_attend)(struct plm_cpu_vector *vector, bool half)
{
  if (half)
    fill_attend_half(vector);
  else
    fill_attend_float(vector);
}
