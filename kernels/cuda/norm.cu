/* RMSNorm and the block's input mix: a warp a row, statistics in fp32 (Zhang and Sennrich 2019). */
#include "kernels/cuda/rows.cuh"

namespace
{

enum { WARPS = 8, MIX_BLOCKS = plm_most_parts(1024), MOST_HELD = 8, MOST_HELD_OF_SIX = 4 };
static constexpr float EPS = 1e-6f;

/* Row of this warp, and the stride to its next. */
__device__ __forceinline__ int64_t first_row()
{
  return (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP;
}
__device__ __forceinline__ int64_t row_stride()
{
  return (int64_t)gridDim.x * WARPS;
}

template <class C, class T> __device__ __forceinline__ float inverse_rms(const T *row, int64_t D)
{
  float sum = 0;
  EACH_COLUMN(C, D)
  {
    float x[C::N];
    C::load(x, row + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) sum += x[i] * x[i];
  }
  return rsqrtf(warp_sum(sum) / (float)D + EPS);
}

template <class T, bool VECTOR>
__global__ void norm_forward_kernel(T *out, const T *x, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float inverse = inverse_rms<C>(x + n * D, D);
    EACH_COLUMN(C, D)
    {
      float v[C::N];
      C::load(v, x + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] *= inverse;
      C::store(out + n * D + j, v);
    }
  }
}

/* With r = 1 / rms: d norm(x) dh = r dh - x r^3 (dh . x) / D. Returns r and r^3 (dh . x) / D. */
template <class C, class T>
__device__ __forceinline__ float2 backward_factors(const T *dh, const T *x, int64_t D)
{
  float squares = 0, product = 0;
  EACH_COLUMN(C, D)
  {
    float v[C::N], d[C::N];
    C::load(v, x + j);
    C::load(d, dh + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) {
      squares += v[i] * v[i];
      product += v[i] * d[i];
    }
  }
  const float inverse = rsqrtf(warp_sum(squares) / (float)D + EPS);
  const float along = warp_sum(product) / (float)D * inverse * inverse * inverse;
  return make_float2(inverse, along);
}

template <class T, bool VECTOR>
__global__ void norm_backward_kernel(T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float2 factors = backward_factors<C>(dh + n * D, x + n * D, D);
    EACH_COLUMN(C, D)
    {
      float v[C::N], d[C::N], g[C::N];
      C::load(v, x + n * D + j);
      C::load(d, dh + n * D + j);
      C::load(g, dx + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) g[i] += factors.x * d[i] - factors.y * v[i];
      C::store(dx + n * D + j, g);
    }
  }
}

template <class T, bool VECTOR>
__global__ void mix_forward_kernel(T *mixed, T *h, const T *x, const T *p, const float *b,
                                   int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  const float b0 = b[0], b1 = b[1];
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    float squares = 0;
    EACH_COLUMN(C, D)
    {
      float v[C::N], w[C::N];
      C::load(v, x + n * D + j);
      C::load(w, p + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] = to_float(from_float<T>(b0 * v[i] + b1 * w[i]));
#pragma unroll
      for (int i = 0; i < C::N; i++) squares += v[i] * v[i];
      C::store(mixed + n * D + j, v);
    }
    const float inverse = rsqrtf(warp_sum(squares) / (float)D + EPS);
    EACH_COLUMN(C, D) /* the same lane reads what it has written */
    {
      float v[C::N];
      C::load(v, mixed + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] *= inverse;
      C::store(h + n * D + j, v);
    }
  }
}

template <class T> struct MixBackward {
  T *dx, *dp;
  float *partial; /* (blocks, 2) */
  const T *dmixed, *dh, *mixed, *x, *p;
  const float *b;
  int64_t N, D;
};

__device__ __forceinline__ void leave_sums(float *partial, float sum_x, float sum_p)
{
  float *scratch = plm_shared<float>();
  sum_x = block_sum(sum_x, scratch);
  __syncthreads();
  sum_p = block_sum(sum_p, scratch);
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = sum_x;
    partial[2 * blockIdx.x + 1] = sum_p;
  }
}

template <class T, bool VECTOR> __global__ void mix_backward_kernel(MixBackward<T> m)
{
  typedef Columns<T, VECTOR> C;
  const float b0 = m.b[0], b1 = m.b[1];
  float sum_x = 0, sum_p = 0;
  for (int64_t n = first_row(); n < m.N; n += row_stride()) {
    const int64_t row = n * m.D;
    const float2 factors = backward_factors<C>(m.dh + row, m.mixed + row, m.D);
    EACH_COLUMN(C, m.D)
    {
      float v[C::N], d[C::N], g[C::N], w[C::N];
      C::load(v, m.mixed + row + j);
      C::load(d, m.dh + row + j);
      C::load(g, m.dmixed + row + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) g[i] += factors.x * d[i] - factors.y * v[i];
      C::load(v, m.x + row + j);
      C::load(w, m.p + row + j);
      C::load(d, m.dp + row + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) {
        sum_x += g[i] * v[i];
        sum_p += g[i] * w[i];
        d[i] += b1 * g[i];
        g[i] *= b0;
      }
      C::store(m.dp + row + j, d);
      C::store(m.dx + row + j, g);
    }
  }
  leave_sums(m.partial, sum_x, sum_p);
}

/* ---- the same with the rows in registers ---- */

__device__ __forceinline__ float inverse_of(float squares, int64_t D)
{
  return rsqrtf(warp_sum(squares) / (float)D + EPS);
}

template <class T, int HELD>
__global__ void held_norm_forward_kernel(T *out, const T *x, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R row;
    row.load(x + n * D, D);
    const float inverse =
        inverse_of(R::sum([&](int i, int k) { return row.at(i, k) * row.at(i, k); }), D);
    row.fill([&](int i, int k) { return row.at(i, k) * inverse; });
    row.store(out + n * D, D);
  }
}

/* r and r^3 (dh . x) / D, as backward_factors */
template <class R> __device__ __forceinline__ float2 held_factors(const R &d, const R &x, int64_t D)
{
  const float squares = R::sum([&](int i, int k) { return x.at(i, k) * x.at(i, k); });
  const float product = R::sum([&](int i, int k) { return x.at(i, k) * d.at(i, k); });
  const float inverse = inverse_of(squares, D);
  return make_float2(inverse, warp_sum(product) / (float)D * inverse * inverse * inverse);
}

template <class T, int HELD>
__global__ void held_norm_backward_kernel(T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R v, d, g;
    v.load(x + n * D, D);
    d.load(dh + n * D, D);
    g.load(dx + n * D, D);
    const float2 f = held_factors(d, v, D);
    g.fill([&](int i, int k) { return g.at(i, k) + (f.x * d.at(i, k) - f.y * v.at(i, k)); });
    g.store(dx + n * D, D);
  }
}

template <class T, int HELD>
__global__ void held_mix_forward_kernel(T *mixed, T *h, const T *x, const T *p, const float *b,
                                        int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  const float b0 = b[0], b1 = b[1];
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R v, w;
    v.load(x + n * D, D);
    w.load(p + n * D, D);
    v.fill([&](int i, int k) { return b0 * v.at(i, k) + b1 * w.at(i, k); });
    v.store(mixed + n * D, D);
    const float inverse =
        inverse_of(R::sum([&](int i, int k) { return v.at(i, k) * v.at(i, k); }), D);
    v.fill([&](int i, int k) { return v.at(i, k) * inverse; });
    v.store(h + n * D, D);
  }
}

template <class T, int HELD> __global__ void held_mix_backward_kernel(MixBackward<T> m)
{
  typedef Row<T, HELD> R;
  constexpr int N = R::N;
  const float b0 = m.b[0], b1 = m.b[1];
  float sum_x = 0, sum_p = 0;
  for (int64_t n = first_row(); n < m.N; n += row_stride()) {
    const int64_t row = n * m.D;
    R v, d, g, x, p, dp;
    v.load(m.mixed + row, m.D);
    d.load(m.dh + row, m.D);
    g.load(m.dmixed + row, m.D);
    x.load(m.x + row, m.D);
    p.load(m.p + row, m.D);
    dp.load(m.dp + row, m.D);
    const float2 f = held_factors(d, v, m.D);
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float gradient = g.at(i, k) + (f.x * d.at(i, k) - f.y * v.at(i, k));
        sum_x += gradient * x.at(i, k);
        sum_p += gradient * p.at(i, k);
        dp.vectors[i].elements[k] = from_float<T>(dp.at(i, k) + b1 * gradient);
        g.vectors[i].elements[k] = from_float<T>(gradient * b0);
      }
    dp.store(m.dp + row, m.D);
    g.store(m.dx + row, m.D);
  }
  leave_sums(m.partial, sum_x, sum_p);
}

/* ---- the table's functions ---- */
template <class T> bool whole_vectors(int64_t D)
{
  return D % plm_vector<T>::N == 0;
}

template <class T>
void run_norm_forward(struct plm_cuda *cuda, T *out, const T *x, int64_t N, int64_t D)
{
  if (N <= 0) return;
  plm_with_held<T, MOST_HELD>(D, [&](auto held) {
    auto kernel =
        whole_vectors<T>(D) ? norm_forward_kernel<T, true> : norm_forward_kernel<T, false>;
    if constexpr (held.value > 0) kernel = held_norm_forward_kernel<T, held.value>;
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP), 0, out, x,
               N, D);
  });
}

template <class T>
void run_norm_backward(struct plm_cuda *cuda, T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  if (N <= 0) return;
  plm_with_held<T, MOST_HELD>(D, [&](auto held) {
    auto kernel =
        whole_vectors<T>(D) ? norm_backward_kernel<T, true> : norm_backward_kernel<T, false>;
    if constexpr (held.value > 0) kernel = held_norm_backward_kernel<T, held.value>;
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP), 0, dx, dh,
               x, N, D);
  });
}

void norm_forward(struct plm_ops *ops, act *out, const act *x, int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_norm_forward(cuda, static_cast<T *>(out), static_cast<const T *>(x), N, D);
  });
}

void norm_backward(struct plm_ops *ops, act *dx, const act *dh, const act *x, int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_norm_backward(cuda, static_cast<T *>(dx), static_cast<const T *>(dh),
                      static_cast<const T *>(x), N, D);
  });
}

void norm_rows_forward(struct plm_ops *ops, float *out, const float *x, int64_t N, int64_t D)
{
  run_norm_forward(plm_cuda_of(ops), out, x, N, D);
}

void norm_rows_backward(struct plm_ops *ops, float *dx, const float *dh, const float *x, int64_t N,
                        int64_t D)
{
  run_norm_backward(plm_cuda_of(ops), dx, dh, x, N, D);
}

void mix_norm_forward(struct plm_ops *ops, act *mixed, act *h, const act *x, const act *p,
                      const float *b, int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_with_held<T, MOST_HELD>(D, [&](auto held) {
      auto kernel =
          whole_vectors<T>(D) ? mix_forward_kernel<T, true> : mix_forward_kernel<T, false>;
      if constexpr (held.value > 0) kernel = held_mix_forward_kernel<T, held.value>;
      plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP), 0,
                 static_cast<T *>(mixed), static_cast<T *>(h), static_cast<const T *>(x),
                 static_cast<const T *>(p), b, N, D);
    });
  });
}

void mix_norm_backward(struct plm_ops *ops, act *dx, act *dp, float *db, act *dmixed, const act *dh,
                       const act *mixed, const act *x, const act *p, const float *b, int64_t N,
                       int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  const unsigned blocks = min(plm_blocks(N, WARPS), (unsigned)MIX_BLOCKS);
  float *partial = plm_cuda_scratch<float>(cuda, 2 * MIX_BLOCKS);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    const MixBackward<T> m = {static_cast<T *>(dx),
                              static_cast<T *>(dp),
                              partial,
                              static_cast<const T *>(dmixed),
                              static_cast<const T *>(dh),
                              static_cast<const T *>(mixed),
                              static_cast<const T *>(x),
                              static_cast<const T *>(p),
                              b,
                              N,
                              D};
    plm_with_held<T, MOST_HELD_OF_SIX>(D, [&](auto held) {
      auto kernel =
          whole_vectors<T>(D) ? mix_backward_kernel<T, true> : mix_backward_kernel<T, false>;
      if constexpr (held.value > 0) kernel = held_mix_backward_kernel<T, held.value>;
      plm_launch(cuda->stream, kernel, dim3(blocks), dim3(WARPS * PLM_WARP), 33 * sizeof(float), m);
    });
  });
  plm_cuda_add_partials(cuda, db, partial, blocks, 2);
}

} // namespace

void plm_cuda_norm_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->norm_forward = norm_forward;
  ops->norm_backward = norm_backward;
  ops->norm_rows_forward = norm_rows_forward;
  ops->norm_rows_backward = norm_rows_backward;
  ops->mix_norm_forward = mix_norm_forward;
  ops->mix_norm_backward = mix_norm_backward;
}
