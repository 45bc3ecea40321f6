/* Preparation of q, k and v: the norm of q and k over the head width or over the whole width, their
 * rotary embedding (Su et al. 2021), which pairs element i with element i + K/2, and the mix of v
 * with value embeddings. */
#include "kernels/cpu/cpu_vector.h"

#define PLM_NORM_EPSILON 1e-6f

#define QKV_INLINE static inline __attribute__((always_inline))

/* Runs statement(K); K is a compile-time constant if it is one of the usual widths. */
#define FOR_HEAD_WIDTH(width, statement) \
  switch (width) {                       \
  case 32: statement(32); break;         \
  case 48: statement(48); break;         \
  case 64: statement(64); break;         \
  case 96: statement(96); break;         \
  case 128: statement(128); break;       \
  default: statement(width); break;      \
  }

/* LayerNorm of a row: (x - mean) r weight; weight NULL: none. */
struct row_norm {
  const float *weight;
  float mean, r;
};

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/qkv_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/qkv_act.h"

void SIMD_NAME(plm_cpu_fill_qkv)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_qkv_bf16(vector);
  else
    fill_qkv_float(vector);
}
