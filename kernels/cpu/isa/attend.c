/* Attention of one query over the keys and values of a cache, for incremental decoding: scores,
 * softmax, weighted sum. */
#include "kernels/cpu/cpu_vector.h"

enum { KEYS_AT_ONCE = 4, VECTORS_AT_ONCE = 4 };

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/attend_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/attend_act.h"

void SIMD_NAME(plm_cpu_fill_attend)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_attend_bf16(vector);
  else
    fill_attend_float(vector);
}
