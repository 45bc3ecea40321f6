/* The head after its dense product: GELU, logits over a small vocabulary, soft cap, cross-entropy
 * and the gradients. V is 33 or 261, so the products are small: 3 V multiply-adds for each element
 * that is read and written. They run on plain fp32 multiply-adds in both precisions.
 *
 * In training a block takes tiles of rows. First each warp computes the logits of two rows at a
 * time, with its lanes along the columns, then their loss and gradients, which stay in shared
 * memory. After that each thread owns columns: from what the block has just read it computes GELU
 * and its slope again, then ddense, and what the tile adds to its columns of dw. Each block has its
 * own sums for dw in scratch, which stay in the device's cache. */
#include "kernels/cuda/rows/gelu.cuh"
#include "kernels/cuda/rows/rows.cuh"

namespace
{

enum {
  WARPS = 6,
  THREADS = WARPS * PLM_WARP,
  PAIR = 2,        /* rows whose logits a warp computes at a time */
  VOCABULARY = 36, /* tokens at a time: sums in a lane's registers for each row */
  COLUMNS = 4,     /* of a thread */
  WIDTH = THREADS * COLUMNS,
  GROUP = 6,   /* rows of ddense at a time */
  TOKENS = 12, /* rows of dw at a time */
  ROWS_STEP = PAIR * WARPS,
  MOST_ROWS = 48,          /* in a tile: a multiple of ROWS_STEP and of GROUP */
  SHARED_BYTES = 98 << 10, /* every device allows it; with V = 33 in bf16, two blocks fit on most */
  LOSS_WARPS = 8,
  MOST_SLABS = plm_most_parts(264) /* two blocks on each multiprocessor of an H200 */
};
static_assert(ROWS_STEP % GROUP == 0 && MOST_ROWS % ROWS_STEP == 0, "whole groups in a tile");

__device__ __forceinline__ int lane_of_warp()
{
  return (int)threadIdx.x % PLM_WARP;
}

/* Lane i gets in values[0] the sum over the warp of value i. It is a butterfly, so the order is
 * always the same. */
template <int HALF> __device__ __forceinline__ void share_sums(float *values)
{
  const bool upper = (lane_of_warp() & HALF) != 0;
#pragma unroll
  for (int i = 0; i < HALF; i++) {
    const float given = upper ? values[i] : values[i + HALF];
    const float kept = upper ? values[i + HALF] : values[i];
    values[i] = kept + __shfl_xor_sync(PLM_ALL_LANES, given, HALF);
  }
  if constexpr (HALF > 1) share_sums<HALF / 2>(values);
}

template <class T, bool VECTOR, bool GELU>
__device__ __forceinline__ void load_hidden(float *out, const T *x)
{
  Columns<T, VECTOR>::load(out, x);
  if constexpr (GELU) {
#pragma unroll
    for (int i = 0; i < Columns<T, VECTOR>::N; i++)
      out[i] = to_float(from_float<T>(Gelu::value(out[i])));
  }
}

/* A warp computes logits (count, V) from h or GELU(h); count is 1 or 2, rows are `stride` apart. */
template <class T, bool VECTOR, bool GELU>
__device__ __forceinline__ void make_logits(float *logits, int stride, const T *h, int count,
                                            const T *w, const float *bias, int64_t D, int V)
{
  typedef Columns<T, VECTOR> C;
  const int lane = lane_of_warp();
  for (int begin = 0; begin < V; begin += VOCABULARY) {
    float sums[PAIR][VOCABULARY] = {};
    EACH_COLUMN(C, D)
    {
      float x[PAIR][C::N] = {};
      load_hidden<T, VECTOR, GELU>(x[0], h + j);
      if (count == PAIR) load_hidden<T, VECTOR, GELU>(x[1], h + D + j);
#pragma unroll
      for (int v = 0; v < VOCABULARY; v++) {
        if (begin + v >= V) break;
        float weight[C::N];
        C::load(weight, w + (int64_t)(begin + v) * D + j);
#pragma unroll
        for (int i = 0; i < C::N; i++) {
          sums[0][v] += x[0][i] * weight[i];
          sums[1][v] += x[1][i] * weight[i];
        }
      }
    }
#pragma unroll
    for (int row = 0; row < PAIR; row++) {
      float *to = logits + row * stride + begin;
      share_sums<PLM_WARP / 2>(sums[row]);
      if (row < count && begin + lane < V) to[lane] = sums[row][0] + bias[begin + lane];
#pragma unroll
      for (int v = PLM_WARP; v < VOCABULARY; v++) {
        if (begin + v >= V) break;
        const float last = warp_sum(sums[row][v]);
        if (row < count && lane == 0) to[v] = last + bias[begin + v];
      }
    }
  }
}

template <class T, bool VECTOR>
__global__ void __launch_bounds__(THREADS, 2)
    logits_kernel(float *logits, const T *h, const T *w, const float *bias, int64_t N, int64_t D,
                  int V)
{
  const int64_t n = ((int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP) * PAIR;
  if (n >= N) return; /* the whole warp */
  make_logits<T, VECTOR, false>(logits + n * V, V, h + n * D, N - n < PAIR ? (int)(N - n) : PAIR, w,
                                bias, D, V);
}

void logits_forward(struct plm_ops *ops, float *logits, const act *h, const act *w,
                    const float *bias, int64_t N, int64_t D, int64_t V)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    auto kernel = D % plm_vector<T>::N == 0 ? logits_kernel<T, true> : logits_kernel<T, false>;
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, ROWS_STEP)), dim3(THREADS), 0, logits,
               static_cast<const T *>(h), static_cast<const T *>(w), bias, N, D, (int)V);
  });
}

__device__ __forceinline__ float capped(float x, float cap)
{
  return cap * tanhf(x / cap);
}

__global__ void soft_cap_kernel(float *x, int64_t n, float cap)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = capped(x[i], cap);
}

void soft_cap_forward(struct plm_ops *ops, float *logits, int64_t n, float cap)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (!(cap > 0) || n <= 0) return; /* a cap of 0 is none */
  plm_launch(cuda->stream, soft_cap_kernel, dim3(plm_blocks(n, THREADS)), dim3(THREADS), 0, logits,
             n, cap);
}

/* Returns the loss of a row of capped logits in lane 0, and in all lanes lse and whether no logit
 * is larger than the label's. With the target t = (1 - e) onehot + e / V, the loss is
 * lse - t.l + z lse^2. */
__device__ __forceinline__ float loss_of_row(float *lse, bool *hit, const float *logits, int V,
                                             int label, float weight,
                                             const struct plm_loss_options &options)
{
  const int lane = lane_of_warp();
  const float at_label = logits[label];
  float most = -INFINITY, total = 0, exps = 0;
  for (int v = lane; v < V; v += PLM_WARP) {
    most = fmaxf(most, logits[v]);
    total += logits[v];
  }
  most = warp_max(most);
  *hit = at_label >= most;
  total = warp_sum(total);
  for (int v = lane; v < V; v += PLM_WARP) exps += expf(logits[v] - most);
  *lse = most + logf(warp_sum(exps));
  const float smoothing = options.label_smoothing;
  return weight * (*lse - (1 - smoothing) * at_label - smoothing / (float)V * total +
                   options.z_loss * *lse * *lse);
}

__global__ void cross_entropy_kernel(float *row_loss, const float *logits, const int32_t *labels,
                                     const float *weights, struct plm_loss_options options,
                                     int64_t N, int V)
{
  const int64_t n = (int64_t)blockIdx.x * LOSS_WARPS + threadIdx.x / PLM_WARP;
  if (n >= N) return; /* the whole warp */
  float loss = 0, lse;
  bool hit;
  if (weights[n] != 0)
    loss = loss_of_row(&lse, &hit, logits + n * V, V, labels[n], weights[n], options);
  if (lane_of_warp() == 0) row_loss[n] = loss;
}

void cross_entropy(struct plm_ops *ops, float *row_loss, const float *logits, const int32_t *labels,
                   const float *weights, const struct plm_loss_options *options, int64_t N,
                   int64_t V)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_launch(cuda->stream, cross_entropy_kernel, dim3(plm_blocks(N, LOSS_WARPS)),
             dim3(LOSS_WARPS * PLM_WARP), 0, row_loss, logits, labels, weights, *options, N,
             (int)V);
}

/* ---- training ---- */

template <class T> struct Training {
  float *row_loss, *hits; /* hits may be NULL */
  T *ddense;
  float *dw, *dbias; /* for each block (V, D) and (V) */
  const T *dense, *w;
  const float *bias;
  const int32_t *labels;
  const float *weights;
  float scale;
  struct plm_loss_options options;
  int64_t N, D;
  int V, stride, rows; /* stride: elements between rows of dlogits; rows: of a tile */
};

/* Replaces a row of logits by its gradient, followed by zeros, and returns in lane 0 the loss and
 * whether the label was predicted. The gradient by the capped logit l is (1 + 2 z lse) softmax - t;
 * by the uncapped one, it is this times 1 - (l / c)^2. */
template <class T>
__device__ __forceinline__ float differentiate_row(float *logits, bool *hit, const Training<T> &t,
                                                   int64_t n)
{
  const int lane = lane_of_warp();
  const float weight = n < t.N ? t.weights[n] : 0;
  __syncwarp(); /* other lanes wrote the logits */
  *hit = false;
  if (weight == 0) {
    for (int v = lane; v < t.stride; v += PLM_WARP) logits[v] = 0;
    return 0;
  }
  const float cap = t.options.soft_cap, inverse = cap > 0 ? 1 / cap : 0;
  for (int v = lane; v < t.stride; v += PLM_WARP)
    if (v >= t.V)
      logits[v] = 0;
    else if (cap > 0)
      logits[v] = capped(logits[v], cap);
  __syncwarp();
  const int label = t.labels[n];
  float lse;
  const float loss = loss_of_row(&lse, hit, logits, t.V, label, weight, t.options);
  const float smoothing = t.options.label_smoothing, uniform = smoothing / (float)t.V;
  const float scale = weight * t.scale, slope = 1 + 2 * t.options.z_loss * lse;
  __syncwarp(); /* all lanes have read the logit of the label */
  for (int v = lane; v < t.V; v += PLM_WARP) {
    const float value = logits[v], ratio = value * inverse;
    const float gradient = slope * expf(value - lse) - uniform - (v == label ? 1 - smoothing : 0);
    logits[v] = scale * (1 - ratio * ratio) * gradient;
  }
  return loss;
}

/* COLUMNS elements, of which `count` exist. If WHOLE, all exist and are aligned to their size. */
template <class T> struct alignas(COLUMNS * sizeof(T)) Four {
  T elements[COLUMNS];
};
template <bool WHOLE, class T>
__device__ __forceinline__ void load_four(float *out, const T *p, int64_t count)
{
  Four<T> four;
  if constexpr (WHOLE) four = *reinterpret_cast<const Four<T> *>(p);
#pragma unroll
  for (int i = 0; i < COLUMNS; i++)
    if constexpr (WHOLE)
      out[i] = to_float(four.elements[i]);
    else
      out[i] = i < count ? to_float(p[i]) : 0;
}
template <bool WHOLE, class T>
__device__ __forceinline__ void store_four(T *p, const float *in, int64_t count)
{
  Four<T> four;
#pragma unroll
  for (int i = 0; i < COLUMNS; i++) {
    four.elements[i] = from_float<T>(in[i]);
    if (!WHOLE && i < count) p[i] = four.elements[i];
  }
  if constexpr (WHOLE) *reinterpret_cast<Four<T> *>(p) = four;
}

/* Computes ddense for a tile that begins at row `first`, in the columns from j on, and leaves the
 * decoder's input, GELU of dense or dense itself, in the thread's own places of the tile. */
template <class T, bool VECTOR, bool GELU>
__device__ __forceinline__ void go_back(const Training<T> &t, T *gelu, const float *dlogits,
                                        int64_t first, int64_t j)
{
  const int64_t left = t.D - j;
  for (int group = 0; group < t.rows; group += GROUP) {
    float sums[GROUP][COLUMNS] = {};
    for (int v = 0; v < t.V; v += 4) {
      float w[4][COLUMNS] = {};
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (v + i < t.V) load_four<VECTOR>(w[i], t.w + (int64_t)(v + i) * t.D + j, left);
#pragma unroll
      for (int r = 0; r < GROUP; r++) {
        const float4 d = *reinterpret_cast<const float4 *>(dlogits + (group + r) * t.stride + v);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
          sums[r][c] += d.x * w[0][c] + d.y * w[1][c] + d.z * w[2][c] + d.w * w[3][c];
      }
    }
#pragma unroll
    for (int r = 0; r < GROUP; r++) {
      const int64_t n = first + group + r;
      float x[COLUMNS] = {}, value[COLUMNS];
      if (n < t.N) load_four<VECTOR>(x, t.dense + n * t.D + j, left);
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) {
        value[c] = GELU ? Gelu::value(x[c]) : x[c];
        if constexpr (GELU) sums[r][c] *= Gelu::slope(x[c]);
      }
      store_four<true>(gelu + (group + r) * WIDTH + (int)threadIdx.x * COLUMNS, value, COLUMNS);
      if (n < t.N) store_four<VECTOR>(t.ddense + n * t.D + j, sums[r], left);
    }
  }
}

/* Adds a tile's part to the block's dw in the columns from j on. The block's first tile sets it. */
template <class T, bool VECTOR>
__device__ __forceinline__ void add_dw(const Training<T> &t, const T *gelu, const float *dlogits,
                                       int64_t j, bool is_first)
{
  float *dw = t.dw + (int64_t)blockIdx.x * t.V * t.D + j;
  for (int v = 0; v < t.V; v += TOKENS) {
    float sums[TOKENS][COLUMNS] = {};
    for (int row = 0; row < t.rows; row++) {
      float h[COLUMNS];
      load_four<true>(h, gelu + row * WIDTH + (int)threadIdx.x * COLUMNS, COLUMNS);
#pragma unroll
      for (int i = 0; i < TOKENS; i += 4) {
        const float4 d = *reinterpret_cast<const float4 *>(dlogits + row * t.stride + v + i);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          sums[i][c] += d.x * h[c];
          sums[i + 1][c] += d.y * h[c];
          sums[i + 2][c] += d.z * h[c];
          sums[i + 3][c] += d.w * h[c];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
      if (v + i >= t.V) break;
      float before[COLUMNS] = {};
      if (!is_first) load_four<VECTOR>(before, dw + (v + i) * t.D, t.D - j);
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) sums[i][c] += before[c];
      store_four<VECTOR>(dw + (v + i) * t.D, sums[i], t.D - j);
    }
  }
}

__device__ __forceinline__ void add_dbias(float *dbias, const float *dlogits, int rows, int stride,
                                          int V, bool is_first)
{
  for (int v = (int)threadIdx.x; v < V; v += (int)blockDim.x) {
    float sum = is_first ? 0 : dbias[v];
    for (int row = 0; row < rows; row++) sum += dlogits[row * stride + v];
    dbias[v] = sum;
  }
}

template <class T, bool VECTOR, bool GELU>
__global__ void __launch_bounds__(THREADS, 2) train_kernel(Training<T> t)
{
  float *dlogits = plm_shared<float>();                         /* (rows, stride); logits before */
  T *gelu = reinterpret_cast<T *>(dlogits + t.rows * t.stride); /* (rows, WIDTH) */
  const int warp = (int)threadIdx.x / PLM_WARP;
  for (int64_t tile = blockIdx.x; tile * t.rows < t.N; tile += gridDim.x) {
    const int64_t first = tile * t.rows;
    const bool is_first = tile == blockIdx.x;
    for (int row = warp * PAIR; row < t.rows; row += ROWS_STEP) {
      const int64_t n = first + row;
      const int count = t.N - n < PAIR ? (int)(t.N - n) : PAIR;
      float *logits = dlogits + row * t.stride;
      if (count > 0)
        make_logits<T, VECTOR, GELU>(logits, t.stride, t.dense + n * t.D, count, t.w, t.bias, t.D,
                                     t.V);
      for (int i = 0; i < PAIR; i++) {
        bool hit;
        const float loss = differentiate_row(logits + i * t.stride, &hit, t, n + i);
        if (lane_of_warp() != 0 || i >= count) continue;
        t.row_loss[n + i] = loss;
        if (t.hits != NULL) t.hits[n + i] = hit;
      }
    }
    __syncthreads(); /* the tile's dlogits are complete */
    for (int64_t j = (int64_t)threadIdx.x * COLUMNS; j < t.D; j += WIDTH) {
      go_back<T, VECTOR, GELU>(t, gelu, dlogits, first, j);
      add_dw<T, VECTOR>(t, gelu, dlogits, j, is_first);
    }
    add_dbias(t.dbias + (int64_t)blockIdx.x * t.V, dlogits, t.rows, t.stride, t.V, is_first);
    __syncthreads(); /* the next tile overwrites dlogits */
  }
}

/* The rows of a tile for which shared memory has room. */
template <class T> int rows_of_tile(int stride)
{
  const size_t row_bytes = WIDTH * sizeof(T) + (size_t)stride * sizeof(float);
  const int rows = (int)(SHARED_BYTES / row_bytes) / ROWS_STEP * ROWS_STEP;
  PLM_ASSERT(rows > 0);
  return rows < MOST_ROWS ? rows : (int)MOST_ROWS;
}

void head_train(struct plm_ops *ops, float *row_loss, act *ddense, float *dw, float *dbias,
                const struct plm_head_rows *rows, float loss_scale,
                const struct plm_loss_options *options)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const int64_t N = rows->N, D = rows->D, V = rows->V, count = V * (D + 1);
  if (N <= 0) return;
  const int64_t room = plm_cuda_scratch_room<float>(cuda) / count;
  PLM_ASSERT(room >= 1);
  const int stride = (int)((V + TOKENS - 1) / TOKENS * TOKENS);
  unsigned slabs = (unsigned)(room < MOST_SLABS ? room : (int64_t)MOST_SLABS);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    const int tile_rows = rows_of_tile<T>(stride);
    slabs = min(slabs, plm_blocks(N, tile_rows));
    float *partial = plm_cuda_scratch<float>(cuda, (size_t)(slabs * count));
    const Training<T> t = {row_loss,
                           rows->hits,
                           static_cast<T *>(ddense),
                           partial,
                           partial + slabs * V * D,
                           static_cast<const T *>(rows->dense),
                           static_cast<const T *>(rows->w),
                           rows->bias,
                           rows->labels,
                           rows->weights,
                           loss_scale,
                           *options,
                           N,
                           D,
                           (int)V,
                           stride,
                           tile_rows};
    const bool vector = D % plm_vector<T>::N == 0;
    auto kernel = vector ? train_kernel<T, true, true> : train_kernel<T, false, true>;
    if (rows->activated)
      kernel = vector ? train_kernel<T, true, false> : train_kernel<T, false, false>;
    const size_t shared = (size_t)tile_rows * (WIDTH * sizeof(T) + (size_t)stride * sizeof(float));
    plm_launch(cuda->stream, kernel, dim3(slabs), dim3(THREADS), shared, t);
    plm_cuda_add_partials(cuda, dw, t.dw, slabs, V * D);
    plm_cuda_add_partials(cuda, dbias, t.dbias, slabs, V);
  });
}

} // namespace

void plm_cuda_head_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->logits_forward = logits_forward;
  ops->soft_cap_forward = soft_cap_forward;
  ops->cross_entropy = cross_entropy;
  ops->head_train = head_train;
}
