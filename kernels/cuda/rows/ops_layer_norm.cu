/* LayerNorm (Ba, Kiros and Hinton 2016): y weight + bias with y = (x - mean) r and
 * r = 1 / sqrt(variance + eps). A warp works on a row. With g = dh weight its gradient is
 * r (g - mean(g) - y mean(g y)). Statistics are fp32, and the variance is that of the differences
 * from the mean. The gradients of the weight and the bias are sums of columns
 * (column_sums.cuh), for which the backward kernel leaves mean and r of each row in scratch. */
#include "kernels/cuda/rows/column_sums.cuh"
#include "kernels/cuda/rows/norm.cuh"

namespace
{

struct Norm {
  const float *weight, *bias; /* bias may be NULL */
  float eps;
};

/* y weight + bias of N elements from column j on */
template <int N>
__device__ __forceinline__ void scaled(float *out, const float *x, float2 moments, const Norm &norm,
                                       int64_t j)
{
  float weight[N], bias[N] = {};
  load_floats<N>(weight, norm.weight + j);
  if (norm.bias != nullptr) load_floats<N>(bias, norm.bias + j);
#pragma unroll
  for (int i = 0; i < N; i++) out[i] = (x[i] - moments.x) * moments.y * weight[i] + bias[i];
}

template <class T, bool VECTOR>
__global__ void layer_norm_forward_kernel(T *out, const T *x, Norm norm, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float2 moments = loaded_moments<C>(x + n * D, D, norm.eps);
    EACH_COLUMN(C, D)
    {
      float v[C::N];
      C::load(v, x + n * D + j);
      scaled<C::N>(v, v, moments, norm, j);
      C::store(out + n * D + j, v);
    }
  }
}

/* The same with rows in registers. */
template <class T, int HELD>
__global__ void held_layer_norm_forward_kernel(T *out, const T *x, Norm norm, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R row;
    row.load(x + n * D, D);
    const float mean = warp_sum(R::sum([&](int i, int k) { return row.at(i, k); })) / (float)D;
    const float squares = R::sum([&](int i, int k) {
      const float difference = row.at(i, k) - mean;
      return R::column(i) < D ? difference * difference : 0;
    });
    const float2 moments = make_float2(mean, rsqrtf(warp_sum(squares) / (float)D + norm.eps));
#pragma unroll
    for (int i = 0; i < HELD; i++) {
      if (R::column(i) >= D) continue;
      float v[R::N];
#pragma unroll
      for (int k = 0; k < R::N; k++) v[k] = row.at(i, k);
      scaled<R::N>(v, v, moments, norm, R::column(i));
      store_vector(out + n * D + R::column(i), v);
    }
  }
}

/* moments_N: mean and r of each row, for the sums of columns */
template <class T, bool VECTOR>
__global__ void layer_norm_backward_kernel(T *dx, float2 *moments_N, const T *dh, const T *x,
                                           Norm norm, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float2 moments = loaded_moments<C>(x + n * D, D, norm.eps);
    float sum = 0, product = 0;
    EACH_COLUMN(C, D)
    {
      float v[C::N], d[C::N], weight[C::N];
      C::load(v, x + n * D + j);
      C::load(d, dh + n * D + j);
      load_floats<C::N>(weight, norm.weight + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) {
        const float g = d[i] * weight[i];
        sum += g;
        product += g * (v[i] - moments.x) * moments.y;
      }
    }
    const float average = warp_sum(sum) / (float)D, along = warp_sum(product) / (float)D;
    EACH_COLUMN(C, D)
    {
      float v[C::N], d[C::N], to[C::N], weight[C::N];
      C::load(v, x + n * D + j);
      C::load(d, dh + n * D + j);
      C::load(to, dx + n * D + j);
      load_floats<C::N>(weight, norm.weight + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) {
        const float y = (v[i] - moments.x) * moments.y;
        to[i] += moments.y * (d[i] * weight[i] - average - y * along);
      }
      C::store(dx + n * D + j, to);
    }
    if (threadIdx.x % PLM_WARP == 0) moments_N[n] = moments;
  }
}

bool floats_are_aligned(const float *p)
{
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

void layer_norm_forward(struct plm_ops *ops, act *out, const act *x,
                        const struct plm_layer_norm *norm, int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const Norm given = {norm->weight, norm->bias, norm->eps};
  const bool aligned = floats_are_aligned(norm->weight) && floats_are_aligned(norm->bias);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_with_held<T, PLM_NORM_MOST_HELD>(D, [&](auto held) {
      auto kernel = aligned && plm_whole_vectors<T>(D) ? layer_norm_forward_kernel<T, true>
                                                       : layer_norm_forward_kernel<T, false>;
      if constexpr (held.value > 0)
        if (aligned) kernel = held_layer_norm_forward_kernel<T, held.value>;
      plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, PLM_NORM_WARPS)),
                 dim3(PLM_NORM_WARPS * PLM_WARP), 0, static_cast<T *>(out),
                 static_cast<const T *>(x), given, N, D);
    });
  });
}

/* What the backward pass reads and writes. */
template <class T> struct Backward {
  T *dx;
  struct plm_layer_norm_gradients to; /* dbias is NULL without a bias */
  const T *dh, *x;
};

/* The backward pass of `rows` rows, whose moments have room in scratch before the sums. */
template <class T>
void run_backward(struct plm_cuda *cuda, const Backward<T> &b, const Norm &norm, int64_t rows,
                  int64_t D)
{
  const bool vector = plm_whole_vectors<T>(D) && floats_are_aligned(norm.weight);
  const int64_t parts = plm_column_parts(rows);
  float *partial = plm_cuda_scratch<float>(cuda, (size_t)(2 * (parts * D + rows)));
  float2 *moments = reinterpret_cast<float2 *>(partial);
  partial += 2 * rows;
  float *biases = b.to.dbias != nullptr ? partial + parts * D : nullptr;
  plm_launch(cuda->stream,
             vector ? layer_norm_backward_kernel<T, true> : layer_norm_backward_kernel<T, false>,
             dim3(plm_blocks(rows, PLM_NORM_WARPS)), dim3(PLM_NORM_WARPS * PLM_WARP), 0, b.dx,
             moments, b.dh, b.x, norm, rows, D);
  plm_run_column_sums(cuda, RowsOfNorm<T>{partial, biases, b.dh, b.x, moments, rows, D});
  plm_cuda_add_partials(cuda, b.to.dweight, partial, parts, D);
  if (biases != nullptr) plm_cuda_add_partials(cuda, b.to.dbias, biases, parts, D);
}

void layer_norm_backward(struct plm_ops *ops, act *dx, const struct plm_layer_norm_gradients *to,
                         const act *dh, const act *x, const struct plm_layer_norm *norm, int64_t N,
                         int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const Norm given = {norm->weight, norm->bias, norm->eps};
  const int64_t slab = plm_column_slab(cuda, N, D);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    for (int64_t n = 0; n < N; n += slab) {
      const Backward<T> b = {static_cast<T *>(dx) + n * D,
                             {to->dweight, norm->bias != nullptr ? to->dbias : nullptr},
                             static_cast<const T *>(dh) + n * D,
                             static_cast<const T *>(x) + n * D};
      run_backward(cuda, b, given, N - n < slab ? N - n : slab, D);
    }
  });
}

} // namespace

void plm_cuda_add_columns(struct plm_cuda *cuda, float *sums, const act *x, int64_t N, int64_t D)
{
  if (N <= 0) return;
  const int64_t parts = plm_column_parts(N);
  float *partial = plm_cuda_scratch<float>(cuda, (size_t)(parts * D));
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_run_column_sums(
        cuda, RowsOfNorm<T>{nullptr, partial, static_cast<const T *>(x), nullptr, nullptr, N, D});
  });
  plm_cuda_add_partials(cuda, sums, partial, parts, D);
}

void plm_cuda_layer_norm_register(struct plm_cuda *cuda)
{
  cuda->ops.layer_norm_forward = layer_norm_forward;
  cuda->ops.layer_norm_backward = layer_norm_backward;
}
