/* The table's attention: which kernels run for a precision, and delta for the way back. */
#include "kernels/cuda/attention.cuh"

namespace
{

enum { WARPS = 8 };

/* delta (B, H, L) = sum over a head of dout out, both (B, L, H, K): a warp a (row, head) */
template <class T>
__global__ void delta_kernel(float *delta, const T *dout, const T *out, int64_t rows, int L, int H,
                             int K)
{
  const int64_t task = (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP;
  if (task >= rows) return; /* the whole warp */
  float sum = 0;
  for (int i = (int)threadIdx.x % PLM_WARP; i < K; i += PLM_WARP)
    sum += to_float(dout[task * K + i]) * to_float(out[task * K + i]);
  sum = warp_sum(sum);
  const int64_t row = task / H, head = task % H;
  if (threadIdx.x % PLM_WARP == 0) delta[(row / L * H + head) * L + row % L] = sum;
}

void attention_forward(struct plm_ops *ops, act *out, float *lse, const act *q, const act *k,
                       const act *v, const struct plm_interval_mask *mask,
                       const struct plm_attention_shape *shape)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (shape->B <= 0 || shape->L <= 0) return;
  if (!cuda->narrow) {
    plm_cuda_attention_plain_forward(cuda, static_cast<float *>(out), lse,
                                     static_cast<const float *>(q), static_cast<const float *>(k),
                                     static_cast<const float *>(v), mask, shape);
    return;
  }
  struct plm_attention p = {};
  p.q = static_cast<const plm_bf16 *>(q);
  p.k = static_cast<const plm_bf16 *>(k);
  p.v = static_cast<const plm_bf16 *>(v);
  p.out = static_cast<plm_bf16 *>(out);
  p.lse = lse;
  p.mask = *mask, p.shape = *shape;
  if (cuda->attention_sm90 && plm_cuda_attention_sm90_forward(cuda, &p)) return;
  plm_cuda_attention_forward(cuda, &p);
}

void attention_backward(struct plm_ops *ops, act *dq, act *dk, act *dv, const act *dout,
                        const act *out, const float *lse, const act *q, const act *k, const act *v,
                        const struct plm_interval_mask *mask,
                        const struct plm_attention_shape *shape)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const int64_t rows = (int64_t)shape->B * shape->L * shape->H;
  if (rows <= 0) return;
  float *delta = plm_cuda_scratch<float>(cuda, (size_t)rows);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, delta_kernel<T>, dim3(plm_blocks(rows, WARPS)), dim3(WARPS * PLM_WARP),
               0, delta, static_cast<const T *>(dout), static_cast<const T *>(out), rows, shape->L,
               shape->H, shape->K);
  });
  if (!cuda->narrow) {
    plm_cuda_attention_plain_backward(
        cuda, static_cast<float *>(dq), static_cast<float *>(dk), static_cast<float *>(dv),
        static_cast<const float *>(dout), delta, lse, static_cast<const float *>(q),
        static_cast<const float *>(k), static_cast<const float *>(v), mask, shape);
    return;
  }
  struct plm_attention p = {};
  p.q = static_cast<const plm_bf16 *>(q);
  p.k = static_cast<const plm_bf16 *>(k);
  p.v = static_cast<const plm_bf16 *>(v);
  p.dout = static_cast<const plm_bf16 *>(dout);
  p.dq = static_cast<plm_bf16 *>(dq);
  p.dk = static_cast<plm_bf16 *>(dk);
  p.dv = static_cast<plm_bf16 *>(dv);
  p.lse = const_cast<float *>(lse);
  p.delta = delta;
  p.mask = *mask, p.shape = *shape;
  plm_cuda_attention_backward(cuda, &p);
}

} // namespace

void plm_cuda_attention_register(struct plm_cuda *cuda)
{
  cuda->ops.attention_forward = attention_forward;
  cuda->ops.attention_backward = attention_backward;
}
