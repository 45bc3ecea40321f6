/* Attention of growing sequences to their caches of keys and values. One kernel stores the rows'
 * keys and values, then a warp takes each head of a row. */
#include "kernels/cuda/attention/attention.cuh"

namespace
{

enum { WARPS = 4, EACH = 4 /* elements of a head in a lane, K <= 128 */ };

template <class T> struct Cached {
  T *out, *key_cache, *value_cache; /* out (rows, H, K); caches (slots, H, capacity, K) */
  const T *q, *k, *v;
  struct plm_cached_rows rows;
};

/* The index of position 0 of a head in a row's slot. */
template <class T>
__device__ __forceinline__ int64_t slot_head(const Cached<T> &p, int64_t row, int64_t head)
{
  return (p.rows.slots[row] * p.rows.H + head) * p.rows.capacity * p.rows.K;
}

template <class T> __global__ void store_kernel(Cached<T> p)
{
  const int64_t row = blockIdx.x, width = p.rows.H * p.rows.K;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const int64_t head = i / p.rows.K;
    const int64_t to = slot_head(p, row, head) + p.rows.positions[row] * p.rows.K + i % p.rows.K;
    p.key_cache[to] = p.k[row * p.rows.row_stride + i];
    p.value_cache[to] = p.v[row * p.rows.row_stride + i];
  }
}

template <class T> __global__ void cached_kernel(Cached<T> p)
{
  const int64_t task = (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP;
  if (task >= p.rows.rows * p.rows.H) return; /* the whole warp */
  const int64_t row = task / p.rows.H, head = task % p.rows.H, K = p.rows.K;
  const int lane = (int)threadIdx.x % PLM_WARP;
  const T *q = p.q + row * p.rows.row_stride + head * K;
  const T *keys = p.key_cache + slot_head(p, row, head);
  const T *values = p.value_cache + slot_head(p, row, head);
  float x[EACH], o[EACH] = {}, most = -INFINITY, sum = 0;
  for (int i = 0; i < EACH; i++)
    x[i] = i * PLM_WARP + lane < K ? to_float(q[i * PLM_WARP + lane]) : 0;
  for (int64_t key = p.rows.key_begin[row]; key <= p.rows.positions[row]; key++) {
    float product = 0;
    for (int i = 0; i < EACH; i++)
      if (i * PLM_WARP + lane < K) product += x[i] * to_float(keys[key * K + i * PLM_WARP + lane]);
    const float logit = warp_sum(product) * p.rows.scale, higher = fmaxf(most, logit);
    const float factor = expf(most - higher), weight = expf(logit - higher);
    for (int i = 0; i < EACH; i++)
      if (i * PLM_WARP + lane < K)
        o[i] = o[i] * factor + weight * to_float(values[key * K + i * PLM_WARP + lane]);
    sum = sum * factor + weight;
    most = higher;
  }
  for (int i = 0; i < EACH; i++)
    if (i * PLM_WARP + lane < K)
      p.out[task * K + i * PLM_WARP + lane] = from_float<T>(sum > 0 ? o[i] / sum : 0);
}

void attention_cached(struct plm_ops *ops, act *out, act *key_cache, act *value_cache, const act *q,
                      const act *k, const act *v, const struct plm_cached_rows *rows)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_ASSERT(rows->K <= EACH * PLM_WARP);
  if (rows->rows <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    const Cached<T> p = {static_cast<T *>(out),
                         static_cast<T *>(key_cache),
                         static_cast<T *>(value_cache),
                         static_cast<const T *>(q),
                         static_cast<const T *>(k),
                         static_cast<const T *>(v),
                         *rows};
    plm_launch(cuda->stream, store_kernel<T>, dim3((unsigned)rows->rows), dim3(128), 0, p);
    plm_launch(cuda->stream, cached_kernel<T>, dim3(plm_blocks(rows->rows * rows->H, WARPS)),
               dim3(WARPS * PLM_WARP), 0, p);
  });
}

} // namespace

void plm_cuda_attention_cached_register(struct plm_cuda *cuda)
{
  cuda->ops.attention_cached = attention_cached;
}
