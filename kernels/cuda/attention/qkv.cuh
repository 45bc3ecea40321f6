/* Between the QKV product and attention, with vectors: LANES lanes take a head of a row. Each holds
 * a vector of the head's first half and the vector that it is paired with (x_i, x_{i + K/2}). */
#ifndef PLM_KERNELS_CUDA_ATTENTION_QKV_CUH
#define PLM_KERNELS_CUDA_ATTENTION_QKV_CUH

#include "kernels/cuda/device/cuda_ops.cuh"

enum { PLM_QKV_THREADS = 256 }; /* of a block */
static constexpr float PLM_QKV_EPS = 1e-6f;

/* What the kernels get. */
template <class T> struct Prepare {
  T *out;         /* forward: prepared (N, 3 H K); backward: gradients of the raw products */
  T *dvi;         /* backward */
  float *partial; /* backward: (blocks, 2) of da */
  const T *qkv, *vi;
  const float *table;    /* if vi is NULL: the rows of this table are rounded and used … */
  const int32_t *tokens; /* … for these tokens; NULL if there is no value embedding */
  const T *dqkv;         /* backward: gradients of the prepared values */
  const float *a, *cosine, *sine;
  int64_t B, L, H, K;

  __device__ __forceinline__ bool valued() const
  {
    return vi != nullptr || table != nullptr;
  }
};

/* Leaves this block's part of da in p.partial. All threads of the block call it. */
template <class T>
__device__ __forceinline__ void leave_sums(const Prepare<T> &p, float sum_v, float sum_vi)
{
  if (!p.valued()) return;
  float *scratch = plm_shared<float>();
  sum_v = block_sum(sum_v, scratch);
  __syncthreads();
  sum_vi = block_sum(sum_vi, scratch);
  if (threadIdx.x == 0) {
    float *partial = p.partial + 2 * ((int64_t)blockIdx.y * gridDim.x + blockIdx.x);
    partial[0] = sum_v;
    partial[1] = sum_vi;
  }
}

/* A lane's elements [i, i + N) and [i + K/2, i + K/2 + N) of a head, in the layout of memory. */
template <class T> struct Halves {
  static constexpr int N = plm_vector<T>::N;
  plm_vector<T> low, high;

  __device__ __forceinline__ void load(const T *head, int half, bool inside)
  {
    if (!inside) return; /* stays 0 */
    low.words = *reinterpret_cast<const uint4 *>(head);
    high.words = *reinterpret_cast<const uint4 *>(head + half);
  }
  __device__ __forceinline__ void store(T *head, int half, bool inside) const
  {
    if (!inside) return;
    *reinterpret_cast<uint4 *>(head) = low.words;
    *reinterpret_cast<uint4 *>(head + half) = high.words;
  }
  /* Pair k: (x_{i+k}, x_{i+k+K/2}). */
  __device__ __forceinline__ float2 at(int k) const
  {
    return make_float2(to_float(low.elements[k]), to_float(high.elements[k]));
  }
  __device__ __forceinline__ void set(int k, float2 x)
  {
    low.elements[k] = from_float<T>(x.x);
    high.elements[k] = from_float<T>(x.y);
  }
};

template <class T> __device__ __forceinline__ float dot(const Halves<T> &x, const Halves<T> &y)
{
  float sum = 0;
#pragma unroll
  for (int k = 0; k < Halves<T>::N; k++) {
    const float2 a = x.at(k), b = y.at(k);
    sum += a.x * b.x + a.y * b.y;
  }
  return sum;
}

/* Each of LANES neighbouring lanes gets their sum. */
template <int LANES> __device__ __forceinline__ float lanes_sum(float x)
{
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(PLM_ALL_LANES, x, mask);
  return x;
}

/* Where a lane works, and the rotation there. */
template <class T> struct Place {
  int64_t row, value; /* index of the lane's first element in (N, 3 H K) and (N, H K) */
  int64_t n, column;  /* the same as a row of N and a column of H K */
  int half;
  bool inside;
  float c[Halves<T>::N], s[Halves<T>::N];
  /* In a head of row `of`; rows from `end` on are outside. */
  __device__ __forceinline__ Place(const Prepare<T> &p, int64_t of, int64_t head, int lane,
                                   int64_t end)
  {
    constexpr int N = Halves<T>::N;
    const int64_t D = p.H * p.K;
    n = of, column = head * p.K + lane * N;
    half = (int)p.K / 2;
    inside = n < end && lane * N < half;
    row = n * 3 * D + column;
    value = n * D + column;
    if (!inside) return;
#pragma unroll
    for (int k = 0; k < N; k += plm_vector<float>::N) {
      load_vector(c + k, p.cosine + n % p.L * half + lane * N + k);
      load_vector(s + k, p.sine + n % p.L * half + lane * N + k);
    }
  }
};

/* Loads the lane's part of the value embedding. */
template <class T>
__device__ __forceinline__ void load_wide_value(Halves<T> *vi, const Prepare<T> &p,
                                                const Place<T> &at)
{
  constexpr int N = Halves<T>::N, PART = plm_vector<float>::N;
  if (p.vi != nullptr) return vi->load(p.vi + at.value, at.half, at.inside);
  if (!at.inside) return;
  const float *row = p.table + p.tokens[at.n] * p.H * p.K + at.column;
#pragma unroll
  for (int k = 0; k < N; k += PART) {
    float low[PART], high[PART];
    load_vector(low, row + k);
    load_vector(high, row + at.half + k);
#pragma unroll
    for (int j = 0; j < PART; j++) vi->set(k + j, make_float2(low[j], high[j]));
  }
}

/* Turns a lane's gradient of q or k back, then takes it through the norm. */
template <class T, int LANES>
__device__ __forceinline__ void normed_backward(Halves<T> *d, const Halves<T> &x,
                                                const Place<T> &at, float K)
{
  constexpr int N = Halves<T>::N;
  float2 turned[N];
  float along = 0;
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float2 g = d->at(k), y = x.at(k);
    turned[k] = make_float2(g.x * at.c[k] - g.y * at.s[k], g.y * at.c[k] + g.x * at.s[k]);
    if (!at.inside) turned[k] = make_float2(0, 0);
    along += y.x * turned[k].x + y.y * turned[k].y;
  }
  const float inverse = rsqrtf(lanes_sum<LANES>(dot(x, x)) / K + PLM_QKV_EPS);
  along = lanes_sum<LANES>(along) / K * inverse * inverse * inverse;
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float2 y = x.at(k);
    d->set(k,
           make_float2(inverse * turned[k].x - along * y.x, inverse * turned[k].y - along * y.y));
  }
}

/* A lane's part of the backward pass of a head of a row. */
template <class T, int LANES> struct HeadBackward {
  Halves<T> x[3], d[3]; /* the raw products; gradients of the prepared and then of the raw ones */
  Halves<T> vi;         /* the value embedding, and then its gradient */

  __device__ __forceinline__ void load(const Prepare<T> &p, const Place<T> &at)
  {
    const int64_t D = p.H * p.K;
#pragma unroll
    for (int which = 0; which < 3; which++) {
      d[which].load(p.dqkv + at.row + which * D, at.half, at.inside);
      if (which < 2 || p.valued()) x[which].load(p.qkv + at.row + which * D, at.half, at.inside);
    }
    if (p.valued()) load_wide_value(&vi, p, at);
  }
  /* Adds to the sums of da. */
  __device__ __forceinline__ void compute(const Prepare<T> &p, const Place<T> &at, float *sum_v,
                                          float *sum_vi)
  {
    normed_backward<T, LANES>(&d[0], x[0], at, (float)p.K);
    normed_backward<T, LANES>(&d[1], x[1], at, (float)p.K);
    if (!p.valued()) return;
    const float a0 = p.a[0], a1 = p.a[1];
    *sum_v += dot(d[2], x[2]);
    *sum_vi += dot(d[2], vi);
#pragma unroll
    for (int k = 0; k < Halves<T>::N; k++) {
      const float2 g = d[2].at(k);
      vi.set(k, make_float2(a1 * g.x, a1 * g.y));
      d[2].set(k, make_float2(a0 * g.x, a0 * g.y));
    }
  }
  __device__ __forceinline__ void store(const Prepare<T> &p, const Place<T> &at) const
  {
#pragma unroll
    for (int which = 0; which < 3; which++)
      d[which].store(p.out + at.row + which * p.H * p.K, at.half, at.inside);
  }
};

/* Calls f with the number of lanes for a head as a compile-time constant; 0 if half a head is not a
 * multiple of a vector. */
template <class T, class F> void with_lanes(int64_t K, F f)
{
  const int64_t half = K / 2, vectors = half / plm_vector<T>::N;
  if (half % plm_vector<T>::N != 0) return f(std::integral_constant<int, 0>());
  if (vectors <= 1) return f(std::integral_constant<int, 1>());
  if (vectors <= 2) return f(std::integral_constant<int, 2>());
  if (vectors <= 4) return f(std::integral_constant<int, 4>());
  if (vectors <= 8) return f(std::integral_constant<int, 8>());
  return f(std::integral_constant<int, 16>());
}

/* What the operators get. The gradients are those of the backward pass. */
struct plm_qkv_arguments {
  struct plm_qkv in;
  act *out, *dvi;
  const act *dqkv;
  const float *table;    /* NULL: the value embeddings are in.vi, if there are any */
  const int32_t *tokens; /* of the table */
};

template <class T> Prepare<T> prepared(const struct plm_qkv_arguments &arguments)
{
  const struct plm_qkv &in = arguments.in;
  Prepare<T> p = {};
  p.out = static_cast<T *>(arguments.out);
  p.dvi = static_cast<T *>(arguments.dvi);
  p.qkv = static_cast<const T *>(in.qkv);
  p.vi = static_cast<const T *>(in.vi);
  p.dqkv = static_cast<const T *>(arguments.dqkv);
  p.table = arguments.table, p.tokens = arguments.tokens;
  p.a = in.a, p.cosine = in.cosine, p.sine = in.sine;
  p.B = in.B, p.L = in.L, p.H = in.H, p.K = in.K;
  return p;
}

/* The backward pass with a table of value embeddings whose level is 0: as qkv_value_backward of
 * ops.h. False if it has no kernel for the shape; then nothing was done. */
bool plm_cuda_qkv_value_backward(struct plm_cuda *cuda, float *dtable, float *da, int64_t V,
                                 const struct plm_qkv_arguments &arguments);

/* qkv_prepare_forward and _backward if q and k are not normalised over the width of a head; without
 * a table of value embeddings. */
void plm_cuda_qkv_width_forward(struct plm_cuda *cuda, const struct plm_qkv_arguments &arguments);
void plm_cuda_qkv_width_backward(struct plm_cuda *cuda, const struct plm_qkv_arguments &arguments,
                                 float *da);

#endif
