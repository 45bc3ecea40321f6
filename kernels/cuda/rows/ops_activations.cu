/* What follows the products of the MLP and of other layers with a bias: the bias, GELU, SwiGLU; and
 * rows that are scaled, with the factors of ESM-2's token dropout. A warp works on a row. */
#include "kernels/cuda/rows/column_sums.cuh"
#include "kernels/cuda/rows/gelu.cuh"
#include "kernels/cuda/rows/norm.cuh"

namespace
{

/* y += bias; with GELU also hidden = gelu(y), which may be y itself. */
template <class T, bool VECTOR, bool GELU>
__global__ void bias_kernel(T *hidden, T *y, const float *bias, int64_t N, int64_t O)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) EACH_COLUMN(C, O)
    {
      float x[C::N], b[C::N];
      C::load(x, y + n * O + j);
      load_floats<C::N>(b, bias + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) x[i] += b[i];
      C::store(y + n * O + j, x);
      if constexpr (GELU) {
#pragma unroll
        for (int i = 0; i < C::N; i++) x[i] = Gelu::value(to_float(from_float<T>(x[i])));
        C::store(hidden + n * O + j, x); /* after y, which it may be */
      }
    }
}

__device__ __forceinline__ float sigmoid(float x)
{
  return 1 / (1 + expf(-x));
}

/* hidden = silu(gate) up; the gates are the first F elements of a row of 2 F */
template <class T, bool VECTOR>
__global__ void swiglu_forward_kernel(T *hidden, const T *gate_up, int64_t N, int64_t F)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) EACH_COLUMN(C, F)
    {
      float gate[C::N], up[C::N];
      C::load(gate, gate_up + n * 2 * F + j);
      C::load(up, gate_up + n * 2 * F + F + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) up[i] *= gate[i] * sigmoid(gate[i]);
      C::store(hidden + n * F + j, up);
    }
}

/* silu'(g) = s (1 + g (1 - s)) with the sigmoid s of g */
template <class T, bool VECTOR>
__global__ void swiglu_backward_kernel(T *dgate_up, const T *dhidden, const T *gate_up, int64_t N,
                                       int64_t F)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) EACH_COLUMN(C, F)
    {
      const int64_t at = n * 2 * F + j;
      float gate[C::N], up[C::N], d[C::N];
      C::load(gate, gate_up + at);
      C::load(up, gate_up + at + F);
      C::load(d, dhidden + n * F + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) {
        const float s = sigmoid(gate[i]), slope = s * (1 + gate[i] * (1 - s));
        const float upper = d[i];
        d[i] = upper * up[i] * slope;
        up[i] = upper * (gate[i] * s);
      }
      C::store(dgate_up + at, d);
      C::store(dgate_up + at + F, up);
    }
}

template <class T, bool VECTOR>
__global__ void scale_rows_kernel(T *x, const float *factors, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float factor = factors[n];
    EACH_COLUMN(C, D)
    {
      float v[C::N];
      C::load(v, x + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] = factor != 0 ? v[i] * factor : 0;
      C::store(x + n * D + j, v);
    }
  }
}

/* A warp counts the masks of the document of its row. */
__global__ void token_dropout_kernel(float *factors, struct plm_token_dropout of)
{
  const int64_t rows = of.B * of.L;
  for (int64_t n = first_row(); n < rows; n += row_stride()) {
    const int32_t *tokens = of.tokens + n / of.L * of.L;
    const int32_t begin = of.begin[n], length = of.end[n] - begin;
    float masks = 0; /* whole numbers below 2^24, so the sum is exact */
    for (int32_t i = (int32_t)(threadIdx.x % PLM_WARP); i < length; i += PLM_WARP)
      masks += tokens[begin + i] == of.mask_token ? 1 : 0;
    masks = warp_sum(masks);
    if (threadIdx.x % PLM_WARP != 0) continue;
    const bool kept = length > 0 && of.tokens[n] != of.mask_token;
    factors[n] = kept ? PLM_TOKEN_DROPOUT_KEPT / (((float)length - masks) / (float)length) : 0;
  }
}

/* Launches a kernel with a warp for each of N rows. */
template <class... Parameters, class... Arguments>
void run_rows(struct plm_cuda *cuda, void (*kernel)(Parameters...), int64_t N,
              Arguments... arguments)
{
  if (N > 0)
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, PLM_NORM_WARPS)),
               dim3(PLM_NORM_WARPS * PLM_WARP), 0, arguments...);
}

void swiglu_forward(struct plm_ops *ops, act *hidden, const act *gate_up, int64_t N, int64_t F)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_rows(cuda,
             plm_whole_vectors<T>(F) ? swiglu_forward_kernel<T, true>
                                     : swiglu_forward_kernel<T, false>,
             N, static_cast<T *>(hidden), static_cast<const T *>(gate_up), N, F);
  });
}

void swiglu_backward(struct plm_ops *ops, act *dgate_up, const act *dhidden, const act *gate_up,
                     int64_t N, int64_t F)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_rows(cuda,
             plm_whole_vectors<T>(F) ? swiglu_backward_kernel<T, true>
                                     : swiglu_backward_kernel<T, false>,
             N, static_cast<T *>(dgate_up), static_cast<const T *>(dhidden),
             static_cast<const T *>(gate_up), N, F);
  });
}

void scale_rows(struct plm_ops *ops, act *x, const float *factors, int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_rows(cuda,
             plm_whole_vectors<T>(D) ? scale_rows_kernel<T, true> : scale_rows_kernel<T, false>, N,
             static_cast<T *>(x), factors, N, D);
  });
}

void token_dropout(struct plm_ops *ops, float *factors, const struct plm_token_dropout *of)
{
  run_rows(plm_cuda_of(ops), token_dropout_kernel, of->B * of->L, factors, *of);
}

template <bool GELU>
void add_bias(struct plm_cuda *cuda, act *hidden, act *y, const float *bias, int64_t N, int64_t O)
{
  const bool aligned = reinterpret_cast<uintptr_t>(bias) % 16 == 0;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_rows(cuda,
             aligned && plm_whole_vectors<T>(O) ? bias_kernel<T, true, GELU>
                                                : bias_kernel<T, false, GELU>,
             N, static_cast<T *>(hidden), static_cast<T *>(y), bias, N, O);
  });
}

} // namespace

void plm_cuda_bias(struct plm_cuda *cuda, act *y, const float *bias, int64_t N, int64_t O)
{
  add_bias<false>(cuda, y, y, bias, N, O);
}

void plm_cuda_bias_gelu(struct plm_cuda *cuda, act *hidden, act *before, const float *bias,
                        int64_t N, int64_t O)
{
  add_bias<true>(cuda, hidden, before, bias, N, O);
}

void plm_cuda_activations_register(struct plm_cuda *cuda)
{
  cuda->ops.swiglu_forward = swiglu_forward;
  cuda->ops.swiglu_backward = swiglu_backward;
  cuda->ops.scale_rows = scale_rows;
  cuda->ops.token_dropout = token_dropout;
}
