/* Attention in fp32 on plain multiply-adds, for checks, evaluation and embedding. A warp takes a
 * query, or a key for dK and dV. The lanes hold the elements of a head, so loads are coalesced and
 * a sum over a head is a butterfly. */
#include "kernels/cuda/attention/attention.cuh"

namespace
{

enum { WARPS = 4, EACH = 4 /* elements of a head in a lane, K <= 128 */ };

typedef plm_attention_of<float> Plain;

__device__ __forceinline__ void load_head(float x[EACH], const float *head, int K)
{
  const int lane = (int)threadIdx.x % PLM_WARP;
#pragma unroll
  for (int i = 0; i < EACH; i++) x[i] = i * PLM_WARP + lane < K ? head[i * PLM_WARP + lane] : 0;
}
__device__ __forceinline__ void store_head(float *head, const float x[EACH], int K, float factor)
{
  const int lane = (int)threadIdx.x % PLM_WARP;
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (i * PLM_WARP + lane < K) head[i * PLM_WARP + lane] = x[i] * factor;
}
__device__ __forceinline__ float head_dot(const float x[EACH], const float y[EACH])
{
  float sum = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) sum += x[i] * y[i];
  return warp_sum(sum);
}

/* The row of this warp. Returns false if it has none. */
__device__ __forceinline__ bool find_row(const struct plm_attention_shape &shape, int *b, int *head,
                                         int *row)
{
  *row = (int)blockIdx.x * WARPS + (int)threadIdx.x / PLM_WARP;
  *head = (int)blockIdx.y;
  *b = (int)blockIdx.z;
  return *row < shape.L;
}

__global__ void plain_forward_kernel(Plain p)
{
  int b, head, row;
  if (!find_row(p.shape, &b, &head, &row)) return;
  const int L = p.shape.L, H = p.shape.H, K = p.shape.K;
  const int64_t base = (int64_t)b * L * p.shape.row_stride + (int64_t)head * K;
  const int begin = p.mask.key_begin[(int64_t)b * L + row];
  const int end = p.mask.key_end[(int64_t)b * L + row];
  float q[EACH], o[EACH] = {}, x[EACH], most = -INFINITY, sum = 0;
  load_head(q, p.q + base + (int64_t)row * p.shape.row_stride, K);
  for (int key = begin; key < end; key++) {
    load_head(x, p.k + base + (int64_t)key * p.shape.row_stride, K);
    const float logit = plm_logit(head_dot(q, x), p.shape.scale, p.shape.soft_cap);
    const float higher = fmaxf(most, logit);
    const float factor = expf(most - higher), weight = expf(logit - higher);
    load_head(x, p.v + base + (int64_t)key * p.shape.row_stride, K);
#pragma unroll
    for (int i = 0; i < EACH; i++) o[i] = o[i] * factor + weight * x[i];
    sum = sum * factor + weight;
    most = higher;
  }
  store_head(p.out + (((int64_t)b * L + row) * H + head) * K, o, K, sum > 0 ? 1 / sum : 0);
  if (threadIdx.x % PLM_WARP == 0)
    p.lse[((int64_t)b * H + head) * L + row] = sum > 0 ? most + logf(sum) : INFINITY;
}

/* Returns dS of one pair from the product q.k, and its weight. */
__device__ __forceinline__ float plain_gradient(float product, float dp, float lse, float delta,
                                                const struct plm_attention_shape &shape,
                                                float *weight)
{
  const float logit = plm_logit(product, shape.scale, shape.soft_cap);
  const float ratio = shape.soft_cap > 0 ? logit / shape.soft_cap : 0;
  *weight = expf(logit - lse);
  return *weight * (dp - delta) * (1 - ratio * ratio) * shape.scale;
}

__global__ void plain_dq_kernel(Plain p)
{
  int b, head, row;
  if (!find_row(p.shape, &b, &head, &row)) return;
  const int L = p.shape.L, H = p.shape.H, K = p.shape.K;
  const int64_t base = (int64_t)b * L * p.shape.row_stride + (int64_t)head * K;
  const int64_t of_head = ((int64_t)b * H + head) * L + row;
  const int begin = p.mask.key_begin[(int64_t)b * L + row];
  const int end = p.mask.key_end[(int64_t)b * L + row];
  float q[EACH], dout[EACH], k[EACH], v[EACH], dq[EACH] = {};
  load_head(q, p.q + base + (int64_t)row * p.shape.row_stride, K);
  load_head(dout, p.dout + (((int64_t)b * L + row) * H + head) * K, K);
  for (int key = begin; key < end; key++) {
    float weight;
    load_head(k, p.k + base + (int64_t)key * p.shape.row_stride, K);
    load_head(v, p.v + base + (int64_t)key * p.shape.row_stride, K);
    const float ds = plain_gradient(head_dot(q, k), head_dot(dout, v), p.lse[of_head],
                                    p.delta[of_head], p.shape, &weight);
#pragma unroll
    for (int i = 0; i < EACH; i++) dq[i] += ds * k[i];
  }
  store_head(p.dq + base + (int64_t)row * p.shape.row_stride, dq, K, 1);
}

__global__ void plain_dkv_kernel(Plain p)
{
  int b, head, row;
  if (!find_row(p.shape, &b, &head, &row)) return;
  const int L = p.shape.L, H = p.shape.H, K = p.shape.K;
  const int64_t base = (int64_t)b * L * p.shape.row_stride + (int64_t)head * K;
  const int begin = p.mask.query_begin[(int64_t)b * L + row];
  const int end = p.mask.query_end[(int64_t)b * L + row];
  float q[EACH], dout[EACH], k[EACH], v[EACH], dk[EACH] = {}, dv[EACH] = {};
  load_head(k, p.k + base + (int64_t)row * p.shape.row_stride, K);
  load_head(v, p.v + base + (int64_t)row * p.shape.row_stride, K);
  for (int query = begin; query < end; query++) {
    const int64_t at = (int64_t)b * L + query, of_head = ((int64_t)b * H + head) * L + query;
    if (row < p.mask.key_begin[at] || row >= p.mask.key_end[at])
      continue; /* [begin, end) may hold queries that do not see this key */
    float weight;
    load_head(q, p.q + base + (int64_t)query * p.shape.row_stride, K);
    load_head(dout, p.dout + (at * H + head) * K, K);
    const float ds = plain_gradient(head_dot(q, k), head_dot(dout, v), p.lse[of_head],
                                    p.delta[of_head], p.shape, &weight);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      dk[i] += ds * q[i];
      dv[i] += weight * dout[i];
    }
  }
  store_head(p.dk + base + (int64_t)row * p.shape.row_stride, dk, K, 1);
  store_head(p.dv + base + (int64_t)row * p.shape.row_stride, dv, K, 1);
}

void run(struct plm_cuda *cuda, void (*kernel)(Plain), const Plain &p)
{
  const dim3 grid(plm_blocks(p.shape.L, WARPS), (unsigned)p.heads, (unsigned)p.shape.B);
  PLM_ASSERT(p.shape.K <= EACH * PLM_WARP);
  plm_launch(cuda->stream, kernel, grid, dim3(WARPS * PLM_WARP), 0, p);
}

} // namespace

void plm_cuda_attention_plain_forward(struct plm_cuda *cuda,
                                      const plm_attention_of<float> *attention)
{
  run(cuda, plain_forward_kernel, *attention);
}

void plm_cuda_attention_plain_backward(struct plm_cuda *cuda,
                                       const plm_attention_of<float> *attention)
{
  run(cuda, plain_dq_kernel, *attention);
  run(cuda, plain_dkv_kernel, *attention);
}
