/* The head behind its last product: logits over a narrow vocabulary, soft cap, cross-entropy, and
 * the way back. V is 33 or 261, so the products are small and run in fp32 on plain multiply-adds.
 */
#include "kernels/cuda/cuda_ops.cuh"

namespace
{

enum {
  THREADS = 256,
  WARPS = 8,
  ROWS = 32,
  DEPTH = 32,
  SLAB_ROWS = 256,
  MAX_SLABS = plm_most_parts(256)
};

/* logits (ROWS of them, V) of a block: h and w come through shared memory in slices of DEPTH. */
template <class T>
__global__ void logits_kernel(float *logits, const T *h, const T *w, const float *bias, int64_t N,
                              int64_t D, int V)
{
  float *h_tile = plm_shared<float>();            /* (ROWS, DEPTH + 1) */
  float *w_tile = h_tile + ROWS * (DEPTH + 1);    /* (V, DEPTH + 1) */
  float *sums = w_tile + (size_t)V * (DEPTH + 1); /* (ROWS, V), each element its thread's own */
  const int64_t first = (int64_t)blockIdx.x * ROWS;
  const int t = (int)threadIdx.x, threads = (int)blockDim.x;
  for (int i = t; i < ROWS * V; i += threads) sums[i] = bias[i % V];
  for (int64_t begin = 0; begin < D; begin += DEPTH) {
    const int depth = D - begin < DEPTH ? (int)(D - begin) : (int)DEPTH;
    __syncthreads();
    for (int i = t; i < ROWS * DEPTH; i += threads) {
      const int64_t row = first + i / DEPTH;
      const bool inside = row < N && i % DEPTH < depth;
      h_tile[i / DEPTH * (DEPTH + 1) + i % DEPTH] =
          inside ? to_float(h[row * D + begin + i % DEPTH]) : 0.0f;
    }
    for (int i = t; i < V * DEPTH; i += threads)
      w_tile[i / DEPTH * (DEPTH + 1) + i % DEPTH] =
          i % DEPTH < depth ? to_float(w[(int64_t)(i / DEPTH) * D + begin + i % DEPTH]) : 0.0f;
    __syncthreads();
    for (int i = t; i < ROWS * V; i += threads) {
      const float *x = h_tile + i / V * (DEPTH + 1), *y = w_tile + i % V * (DEPTH + 1);
      float sum = 0;
#pragma unroll
      for (int d = 0; d < DEPTH; d++) sum += x[d] * y[d];
      sums[i] += sum;
    }
  }
  for (int i = t; i < ROWS * V; i += threads)
    if (first + i / V < N) logits[first * V + i] = sums[i];
}

void logits_forward(struct plm_ops *ops, float *logits, const act *h, const act *w,
                    const float *bias, int64_t N, int64_t D, int64_t V)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  const size_t shared = ((ROWS + (size_t)V) * (DEPTH + 1) + ROWS * (size_t)V) * sizeof(float);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, logits_kernel<T>, dim3(plm_blocks(N, ROWS)), dim3(THREADS), shared,
               logits, static_cast<const T *>(h), static_cast<const T *>(w), bias, N, D, (int)V);
  });
}

__global__ void soft_cap_kernel(float *x, int64_t n, float cap)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = cap * tanhf(x[i] / cap);
}

void soft_cap_forward(struct plm_ops *ops, float *logits, int64_t n, float cap)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (!(cap > 0) || n <= 0) return; /* 0: no cap */
  plm_launch(cuda->stream, soft_cap_kernel, dim3(plm_blocks(n, THREADS)), dim3(THREADS), 0, logits,
             n, cap);
}

struct Loss {
  float *row_loss, *dlogits; /* dlogits NULL: not wanted */
  const float *logits;
  const int32_t *labels;
  const float *weights;
  float scale;
  struct plm_loss_options options;
  int64_t N;
  int V;
};

/* A warp a row. With target t = (1 - e) onehot + e / V: loss = lse - t.l + z lse^2; by the capped
 * logit (1 + 2 z lse) softmax - t; by the uncapped one times 1 - (l / c)^2. */
__global__ void cross_entropy_kernel(Loss p)
{
  const int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP;
  const int lane = (int)threadIdx.x % PLM_WARP;
  if (n >= p.N) return; /* the whole warp */
  const float *logits = p.logits + n * p.V;
  const float weight = p.weights[n];
  if (weight == 0) {
    if (lane == 0) p.row_loss[n] = 0;
    if (p.dlogits != nullptr)
      for (int v = lane; v < p.V; v += PLM_WARP) p.dlogits[n * p.V + v] = 0;
    return;
  }
  const int label = p.labels[n];
  const float at_label = logits[label];
  float most = -INFINITY, total = 0, exps = 0;
  for (int v = lane; v < p.V; v += PLM_WARP) {
    most = fmaxf(most, logits[v]);
    total += logits[v];
  }
  most = warp_max(most);
  total = warp_sum(total);
  for (int v = lane; v < p.V; v += PLM_WARP) exps += expf(logits[v] - most);
  const float lse = most + logf(warp_sum(exps));
  const float smoothing = p.options.label_smoothing, z = p.options.z_loss;
  const float uniform = smoothing / (float)p.V;
  if (lane == 0)
    p.row_loss[n] = weight * (lse - (1 - smoothing) * at_label - uniform * total + z * lse * lse);
  if (p.dlogits == nullptr) return;
  const float scale = weight * p.scale, slope = 1 + 2 * z * lse;
  const float inverse = p.options.soft_cap > 0 ? 1 / p.options.soft_cap : 0;
  for (int v = lane; v < p.V;
       v += PLM_WARP) { /* dlogits may be logits: a lane reads, then writes */
    const float value = logits[v], ratio = value * inverse;
    const float gradient = slope * expf(value - lse) - uniform - (v == label ? 1 - smoothing : 0);
    p.dlogits[n * p.V + v] = scale * (1 - ratio * ratio) * gradient;
  }
}

void cross_entropy(struct plm_ops *ops, float *row_loss, float *dlogits, const float *logits,
                   const int32_t *labels, const float *weights, float loss_scale,
                   const struct plm_loss_options *options, int64_t N, int64_t V)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  const Loss loss = {row_loss, dlogits, logits, labels, weights, loss_scale, *options, N, (int)V};
  plm_launch(cuda->stream, cross_entropy_kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP),
             0, loss);
}

/* dh = dlogits w: a block a row, the row's dlogits in shared memory. */
template <class T>
__global__ void dh_kernel(T *dh, const float *dlogits, const T *w, int64_t D, int V)
{
  float *row = plm_shared<float>();
  const int64_t n = blockIdx.x;
  for (int v = (int)threadIdx.x; v < V; v += (int)blockDim.x) row[v] = dlogits[n * V + v];
  __syncthreads();
  for (int64_t j = threadIdx.x; j < D; j += blockDim.x) {
    float sum = 0;
    for (int v = 0; v < V; v++) sum += row[v] * to_float(w[(int64_t)v * D + j]);
    dh[n * D + j] = from_float<T>(sum);
  }
}

/* partial (slabs, V, D + 1): dlogits^T h of a slab of rows; its last column sums dlogits. A thread
 * owns columns. */
template <class T>
__global__ void dw_kernel(float *partial, const float *dlogits, const T *h, int64_t N, int64_t D,
                          int V, int64_t slab_rows)
{
  const int64_t first = blockIdx.x * slab_rows;
  const int64_t last = first + slab_rows < N ? first + slab_rows : N;
  const int64_t j = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
  if (j > D) return;
  for (int v = 0; v < V; v++) {
    float sum = 0;
    for (int64_t n = first; n < last; n++)
      sum += dlogits[n * V + v] * (j < D ? to_float(h[n * D + j]) : 1.0f);
    partial[((int64_t)blockIdx.x * V + v) * (D + 1) + j] = sum;
  }
}

__global__ void add_dw_kernel(float *dw, float *dbias, const float *partial, int64_t slabs,
                              int64_t D, int V)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t count = V * (D + 1), v = i / (D + 1), j = i % (D + 1);
  if (i >= count) return;
  double sum = 0;
  for (int64_t slab = 0; slab < slabs; slab++) sum += (double)partial[slab * count + i];
  float *to = j < D ? dw + v * D + j : dbias + v;
  *to = (float)((double)*to + sum);
}

void logits_backward(struct plm_ops *ops, act *dh, float *dw, float *dbias, const float *dlogits,
                     const act *h, const act *w, int64_t N, int64_t D, int64_t V)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  const int64_t count = V * (D + 1);
  const int64_t room = plm_cuda_scratch_room<float>(cuda) / count;
  const int64_t most = room < MAX_SLABS ? room : (int64_t)MAX_SLABS;
  PLM_ASSERT(most >= 1);
  int64_t slab_rows = (N + most - 1) / most;
  if (slab_rows < SLAB_ROWS) slab_rows = SLAB_ROWS;
  const unsigned slabs = plm_blocks(N, slab_rows);
  float *partial = plm_cuda_scratch<float>(cuda, (size_t)(slabs * count));
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, dh_kernel<T>, dim3((unsigned)N), dim3(THREADS),
               (size_t)V * sizeof(float), static_cast<T *>(dh), dlogits, static_cast<const T *>(w),
               D, (int)V);
    plm_launch(cuda->stream, dw_kernel<T>, dim3(slabs, plm_blocks(D + 1, THREADS)), dim3(THREADS),
               0, partial, dlogits, static_cast<const T *>(h), N, D, (int)V, slab_rows);
  });
  plm_launch(cuda->stream, add_dw_kernel, dim3(plm_blocks(count, THREADS)), dim3(THREADS), 0, dw,
             dbias, partial, (int64_t)slabs, D, (int)V);
}

} // namespace

void plm_cuda_head_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->logits_forward = logits_forward;
  ops->soft_cap_forward = soft_cap_forward;
  ops->cross_entropy = cross_entropy;
  ops->logits_backward = logits_backward;
}
