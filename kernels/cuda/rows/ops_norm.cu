/* RMSNorm of rows. A warp works on a row. */
#include "kernels/cuda/rows/norm.cuh"

namespace
{

template <class C, class T> __device__ __forceinline__ float loaded_rms(const T *row, int64_t D)
{
  float sum = 0;
  EACH_COLUMN(C, D)
  {
    float x[C::N];
    C::load(x, row + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) sum += x[i] * x[i];
  }
  return inverse_rms(sum, D);
}

template <class T, bool VECTOR>
__global__ void norm_forward_kernel(T *out, const T *x, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float inverse = loaded_rms<C>(x + n * D, D);
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

template <class T, bool VECTOR>
__global__ void norm_backward_kernel(T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float2 factors =
        loaded_factors<C>(dh + n * D, D, [&](float *v, int64_t j) { C::load(v, x + n * D + j); });
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

/* ---- the same kernels with rows in registers ---- */

template <class T, int HELD>
__global__ void held_norm_forward_kernel(T *out, const T *x, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R row;
    row.load(x + n * D, D);
    const float inverse =
        inverse_rms(R::sum([&](int i, int k) { return row.at(i, k) * row.at(i, k); }), D);
    row.fill([&](int i, int k) { return row.at(i, k) * inverse; });
    row.store(out + n * D, D);
  }
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
    const float2 f = held_factors(d, D, [&](int i, int k) { return v.at(i, k); });
    g.fill([&](int i, int k) { return g.at(i, k) + (f.x * d.at(i, k) - f.y * v.at(i, k)); });
    g.store(dx + n * D, D);
  }
}

/* ---- the table's functions ---- */
template <class T>
void run_norm_forward(struct plm_cuda *cuda, T *out, const T *x, int64_t N, int64_t D)
{
  if (N <= 0) return;
  plm_with_held<T, PLM_NORM_MOST_HELD>(D, [&](auto held) {
    auto kernel =
        plm_whole_vectors<T>(D) ? norm_forward_kernel<T, true> : norm_forward_kernel<T, false>;
    if constexpr (held.value > 0) kernel = held_norm_forward_kernel<T, held.value>;
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, PLM_NORM_WARPS)),
               dim3(PLM_NORM_WARPS * PLM_WARP), 0, out, x, N, D);
  });
}

template <class T>
void run_norm_backward(struct plm_cuda *cuda, T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  if (N <= 0) return;
  plm_with_held<T, PLM_NORM_MOST_HELD>(D, [&](auto held) {
    auto kernel =
        plm_whole_vectors<T>(D) ? norm_backward_kernel<T, true> : norm_backward_kernel<T, false>;
    if constexpr (held.value > 0) kernel = held_norm_backward_kernel<T, held.value>;
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, PLM_NORM_WARPS)),
               dim3(PLM_NORM_WARPS * PLM_WARP), 0, dx, dh, x, N, D);
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

} // namespace

void plm_cuda_norm_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->norm_forward = norm_forward;
  ops->norm_backward = norm_backward;
  ops->norm_rows_forward = norm_rows_forward;
  ops->norm_rows_backward = norm_rows_backward;
}
