/* Attention on the CPU: runs the segments of a call on the thread pool. ops_attention.c registers
 * it in struct plm_ops; tests and benchmarks may also call it directly, for any instruction set.
 */
#ifndef PLM_KERNELS_CPU_ATTENTION_H
#define PLM_KERNELS_CPU_ATTENTION_H

#include "common/base/process/pool.h"
#include "common/ops/ops.h"
#include "kernels/cpu/attention_tile.h"

struct plm_attention;

/* Opens the attention operator of one backend. `kernels` and `pool` must outlive it. If activations
 * are floats, `rounds` lets the forward pass round them, and its probabilities, to bf16 where the
 * kernels multiply bf16 faster; sums stay fp32. It allocates scratch when a call's shape is larger
 * than any before, and keeps it until it is closed. */
struct plm_attention *plm_attention_open(const struct plm_attention_kernels *kernels,
                                         struct plm_pool *pool, bool is_bf16, bool rounds);
void plm_attention_close(struct plm_attention *attention);

/* Same contracts as attention_forward and attention_backward of struct plm_ops. */
void plm_attention_forward(struct plm_attention *attention, act *out, float *lse,
                           const struct plm_attention_inputs *in,
                           const struct plm_interval_mask *mask,
                           const struct plm_attention_shape *shape);
void plm_attention_backward(struct plm_attention *attention,
                            const struct plm_attention_gradients *to, const act *dout,
                            const act *out, const float *lse, const struct plm_attention_inputs *in,
                            const struct plm_interval_mask *mask,
                            const struct plm_attention_shape *shape);

/* Returns PLM_OK, or the first error if a call could not allocate its scratch. Such a call computes
 * nothing. The error is kept. */
plm_status plm_attention_error(const struct plm_attention *attention, struct plm_error *error);

/* Counts query-key pairs over all calls so far, all heads, and forward and backward calls:
 * `executed` were computed, including the rounding up to tiles; `allowed` are those that the masks
 * allow. */
struct plm_attention_area {
  uint64_t executed, allowed;
};
struct plm_attention_area plm_attention_area(const struct plm_attention *attention);

#endif
