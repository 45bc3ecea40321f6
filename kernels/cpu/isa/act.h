/* Lets both precisions of activations share one source. A file defines ACT_BF16 as 0 (float) or 1
 * (bf16), includes this header and then its kernels. ACT(f) is the name of f in that precision. */
#include "kernels/cpu/isa/simd.h"

#undef ACT
#undef ACT_TYPE
#undef act_load
#undef act_store
#undef act_rounded
#if ACT_BF16
#define ACT(name) name##_bf16
#define ACT_TYPE uint16_t
#define act_load vload_bf16
#define act_store vstore_bf16
#define act_rounded(x) vfrom_bf16(vto_bf16(x))
#else
#define ACT(name) name##_float
#define ACT_TYPE float
#define act_load vload_float
#define act_store vstore_float
#define act_rounded(x) (x)
#endif
