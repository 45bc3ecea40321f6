/* Activations in a template: a file names ACT_HALF (0 or 1), includes this and then its kernels;
 * both precisions are the same source. ACT(f) is f's name for this precision. */
#include "kernels/cpu/isa/simd.h"

#undef ACT
#undef ACT_TYPE
#undef act_load
#undef act_store
#if ACT_HALF
#define ACT(name) name##_half
#define ACT_TYPE uint16_t
#define act_load vload_half
#define act_store vstore_half
#else
#define ACT(name) name##_float
#define ACT_TYPE float
#define act_load vload_float
#define act_store vstore_float
#endif
