/* Attention on the CPU: a call's segments on the thread pool. ops_attention.c puts it into struct
 * plm_ops; tests and benchmarks may drive it by themselves, for any instruction set.
 */
#ifndef PLM_KERNELS_CPU_ATTENTION_H
#define PLM_KERNELS_CPU_ATTENTION_H

#include "common/ops/ops.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/pool.h"

struct plm_attention;

/* The operator of one backend. It allocates scratch when it meets a larger shape than before, and
 * keeps it. */
plm_status plm_attention_open(const struct plm_attention_kernels *kernels, struct plm_pool *pool,
                              bool is_bf16, struct plm_attention **attention,
                              struct plm_error *error);
void plm_attention_close(struct plm_attention *attention);

/* As attention_forward and attention_backward of struct plm_ops. */
void plm_attention_forward(struct plm_attention *attention, act *out, float *lse,
                           const struct plm_attention_inputs *in,
                           const struct plm_interval_mask *mask,
                           const struct plm_attention_shape *shape);
void plm_attention_backward(struct plm_attention *attention,
                            const struct plm_attention_gradients *to, const act *dout,
                            const act *out, const float *lse, const struct plm_attention_inputs *in,
                            const struct plm_interval_mask *mask,
                            const struct plm_attention_shape *shape);

/* PLM_OK unless a call found no memory; that call did nothing. */
plm_status plm_attention_error(const struct plm_attention *attention, struct plm_error *error);

/* Query-key pairs of all calls so far, over heads and both directions: computed (rounding to tiles
 * included) and allowed by the masks. */
struct plm_attention_area {
  uint64_t executed, allowed;
};
struct plm_attention_area plm_attention_area(const struct plm_attention *attention);

#endif
