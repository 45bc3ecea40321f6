/* Between the QKV product and attention: q and k are normalised over the head width and rotated,
 * and the value embedding is mixed into v. A few lanes take a head of a row. Each lane holds a
 * vector of the head's first half and the vector that it is paired with (x_i, x_{i + K/2});
 * everything is loaded before anything is computed. If half a head is not a multiple of a vector, a
 * warp takes the head and a lane holds two neighbouring pairs (K is a multiple of 4). */
#include "kernels/cuda/cuda_ops.cuh"

extern "C" {
#include "common/ops/value_table.h"
}

namespace
{

enum { WARPS = 8, MIX_BLOCKS = plm_most_parts(1024), PAIRS = 2 };
static constexpr float EPS = 1e-6f;

/* Loads and stores two neighbouring elements, aligned to their size. */
template <class T> struct Pair;
template <> struct Pair<float> {
  static __device__ __forceinline__ float2 load(const float *p)
  {
    return *reinterpret_cast<const float2 *>(p);
  }
  static __device__ __forceinline__ void store(float *p, float2 x)
  {
    *reinterpret_cast<float2 *>(p) = x;
  }
};
template <> struct Pair<plm_bf16> {
  static __device__ __forceinline__ float2 load(const plm_bf16 *p)
  {
    const unsigned bits = *reinterpret_cast<const unsigned *>(p);
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
  }
  static __device__ __forceinline__ void store(plm_bf16 *p, float2 x)
  {
    *reinterpret_cast<unsigned *>(p) = pack_bf16(x.x, x.y);
  }
};

/* A lane's part of a head of a row: elements i, i + 1 and i + K/2, i + K/2 + 1. */
struct Quad {
  float2 low, high;
};

template <class T> __device__ __forceinline__ Quad load_quad(const T *head, int i, int half)
{
  if (i >= half) return {make_float2(0, 0), make_float2(0, 0)};
  return {Pair<T>::load(head + i), Pair<T>::load(head + i + half)};
}
template <class T>
__device__ __forceinline__ void store_quad(T *head, int i, int half, const Quad &x)
{
  if (i >= half) return;
  Pair<T>::store(head + i, x.low);
  Pair<T>::store(head + i + half, x.high);
}
__device__ __forceinline__ float dot(const Quad &x, const Quad &y)
{
  return x.low.x * y.low.x + x.low.y * y.low.y + x.high.x * y.high.x + x.high.y * y.high.y;
}
/* (a cos + b sin, b cos - a sin); with sign -1 the inverse rotation. */
__device__ __forceinline__ Quad rotated(const Quad &x, float2 c, float2 s, float sign)
{
  const float2 t = make_float2(s.x * sign, s.y * sign);
  return {make_float2(x.low.x * c.x + x.high.x * t.x, x.low.y * c.y + x.high.y * t.y),
          make_float2(x.high.x * c.x - x.low.x * t.x, x.high.y * c.y - x.low.y * t.y)};
}
__device__ __forceinline__ Quad combined(float a, const Quad &x, float b, const Quad &y)
{
  return {make_float2(a * x.low.x + b * y.low.x, a * x.low.y + b * y.low.y),
          make_float2(a * x.high.x + b * y.high.x, a * x.high.y + b * y.high.y)};
}

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

/* A lane's quad of the value embedding of row n; `head` is the head's first column. */
template <class T>
__device__ __forceinline__ Quad load_value(const Prepare<T> &p, int64_t n, int64_t head, int i,
                                           int half)
{
  const int64_t D = p.H * p.K;
  if (p.vi != nullptr) return load_quad(p.vi + n * D + head, i, half);
  const Quad x = load_quad(p.table + p.tokens[n] * D + head, i, half);
  return {make_float2(to_float(from_float<T>(x.low.x)), to_float(from_float<T>(x.low.y))),
          make_float2(to_float(from_float<T>(x.high.x)), to_float(from_float<T>(x.high.y)))};
}

template <class T> __global__ void forward_kernel(Prepare<T> p)
{
  const int64_t D = p.H * p.K, tasks = p.B * p.L * p.H;
  const int half = (int)p.K / 2, i = (int)(threadIdx.x % PLM_WARP) * PAIRS;
  const int64_t step = (int64_t)gridDim.x * WARPS;
  for (int64_t task = (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP; task < tasks;
       task += step) {
    const int64_t n = task / p.H, head = task % p.H * p.K, row = n * 3 * D + head;
    float2 c = make_float2(1, 1), s = make_float2(0, 0);
    if (i < half) {
      c = Pair<float>::load(p.cosine + n % p.L * half + i);
      s = Pair<float>::load(p.sine + n % p.L * half + i);
    }
    for (int which = 0; which < 2; which++) { /* q, k */
      const Quad x = load_quad(p.qkv + row + which * D, i, half);
      const float inverse = rsqrtf(warp_sum(dot(x, x)) / (float)p.K + EPS);
      store_quad(p.out + row + which * D, i, half, rotated(combined(inverse, x, 0, x), c, s, 1));
    }
    Quad v = load_quad(p.qkv + row + 2 * D, i, half);
    if (p.valued()) v = combined(p.a[0], v, p.a[1], load_value(p, n, head, i, half));
    store_quad(p.out + row + 2 * D, i, half, v);
  }
}

/* Leaves a block's part of da in p.partial. */
template <class T>
__device__ __forceinline__ void leave_sums(const Prepare<T> &p, float sum_v, float sum_vi)
{
  if (!p.valued()) return;
  float *scratch = plm_shared<float>();
  sum_v = block_sum(sum_v, scratch);
  __syncthreads();
  sum_vi = block_sum(sum_vi, scratch);
  if (threadIdx.x == 0) {
    p.partial[2 * blockIdx.x] = sum_v;
    p.partial[2 * blockIdx.x + 1] = sum_vi;
  }
}

template <class T> __global__ void backward_kernel(Prepare<T> p)
{
  const int64_t D = p.H * p.K, tasks = p.B * p.L * p.H;
  const int half = (int)p.K / 2, i = (int)(threadIdx.x % PLM_WARP) * PAIRS;
  const int64_t step = (int64_t)gridDim.x * WARPS;
  float sum_v = 0, sum_vi = 0;
  for (int64_t task = (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP; task < tasks;
       task += step) {
    const int64_t n = task / p.H, head = task % p.H * p.K, row = n * 3 * D + head;
    float2 c = make_float2(1, 1), s = make_float2(0, 0);
    if (i < half) {
      c = Pair<float>::load(p.cosine + n % p.L * half + i);
      s = Pair<float>::load(p.sine + n % p.L * half + i);
    }
    for (int which = 0; which < 2; which++) {
      const Quad x = load_quad(p.qkv + row + which * D, i, half);
      const Quad d = rotated(load_quad(p.dqkv + row + which * D, i, half), c, s, -1);
      const float inverse = rsqrtf(warp_sum(dot(x, x)) / (float)p.K + EPS);
      const float along = warp_sum(dot(x, d)) / (float)p.K * inverse * inverse * inverse;
      store_quad(p.out + row + which * D, i, half, combined(inverse, d, -along, x));
    }
    Quad d = load_quad(p.dqkv + row + 2 * D, i, half);
    if (p.valued()) {
      sum_v += dot(d, load_quad(p.qkv + row + 2 * D, i, half));
      sum_vi += dot(d, load_value(p, n, head, i, half));
      if (p.dvi != nullptr) store_quad(p.dvi + n * D + head, i, half, combined(p.a[1], d, 0, d));
      d = combined(p.a[0], d, 0, d);
    }
    store_quad(p.out + row + 2 * D, i, half, d);
  }
  leave_sums(p, sum_v, sum_vi);
}

/* ---- vectors: LANES lanes for a head ---- */

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
  __device__ __forceinline__ Place(const Prepare<T> &p, int64_t task, int lane)
  {
    constexpr int N = Halves<T>::N;
    const int64_t D = p.H * p.K;
    n = task / p.H, column = task % p.H * p.K + lane * N;
    half = (int)p.K / 2;
    inside = task < p.B * p.L * p.H && lane * N < half;
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
  constexpr int N = Halves<T>::N, PIECE = plm_vector<float>::N;
  if (p.vi != nullptr) return vi->load(p.vi + at.value, at.half, at.inside);
  if (!at.inside) return;
  const float *row = p.table + p.tokens[at.n] * p.H * p.K + at.column;
#pragma unroll
  for (int k = 0; k < N; k += PIECE) {
    float low[PIECE], high[PIECE];
    load_vector(low, row + k);
    load_vector(high, row + at.half + k);
#pragma unroll
    for (int j = 0; j < PIECE; j++) vi->set(k + j, make_float2(low[j], high[j]));
  }
}

template <class T, int LANES> __global__ void wide_forward_kernel(Prepare<T> p)
{
  constexpr int N = Halves<T>::N, EACH = WARPS * PLM_WARP / LANES;
  const int64_t D = p.H * p.K, tasks = p.B * p.L * p.H;
  const int lane = (int)threadIdx.x % LANES;
  /* whole warps stay in the loop, since all lanes take part in shuffles */
  for (int64_t first = (int64_t)blockIdx.x * EACH; first < tasks;
       first += (int64_t)gridDim.x * EACH) {
    const Place<T> at(p, first + threadIdx.x / LANES, lane);
    Halves<T> x[3], vi;
#pragma unroll
    for (int which = 0; which < 3; which++)
      x[which].load(p.qkv + at.row + which * D, at.half, at.inside);
    if (p.valued()) load_wide_value(&vi, p, at);
#pragma unroll
    for (int which = 0; which < 2; which++) { /* q, k */
      const float inverse = rsqrtf(lanes_sum<LANES>(dot(x[which], x[which])) / (float)p.K + EPS);
      if (!at.inside) continue;
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float2 y = x[which].at(k);
        const float low = y.x * inverse, high = y.y * inverse;
        x[which].set(k,
                     make_float2(low * at.c[k] + high * at.s[k], high * at.c[k] - low * at.s[k]));
      }
    }
    if (p.valued() && at.inside) {
      const float a0 = p.a[0], a1 = p.a[1];
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float2 v = x[2].at(k), e = vi.at(k);
        x[2].set(k, make_float2(a0 * v.x + a1 * e.x, a0 * v.y + a1 * e.y));
      }
    }
#pragma unroll
    for (int which = 0; which < 3; which++)
      x[which].store(p.out + at.row + which * D, at.half, at.inside);
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
  const float inverse = rsqrtf(lanes_sum<LANES>(dot(x, x)) / K + EPS);
  along = lanes_sum<LANES>(along) / K * inverse * inverse * inverse;
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float2 y = x.at(k);
    d->set(k,
           make_float2(inverse * turned[k].x - along * y.x, inverse * turned[k].y - along * y.y));
  }
}

template <class T, int LANES> __global__ void wide_backward_kernel(Prepare<T> p)
{
  constexpr int N = Halves<T>::N, EACH = WARPS * PLM_WARP / LANES;
  const int64_t D = p.H * p.K, tasks = p.B * p.L * p.H;
  const int lane = (int)threadIdx.x % LANES;
  float sum_v = 0, sum_vi = 0;
  for (int64_t first = (int64_t)blockIdx.x * EACH; first < tasks;
       first += (int64_t)gridDim.x * EACH) {
    const Place<T> at(p, first + threadIdx.x / LANES, lane);
    Halves<T> x[3], d[3], vi;
#pragma unroll
    for (int which = 0; which < 3; which++) {
      d[which].load(p.dqkv + at.row + which * D, at.half, at.inside);
      if (which < 2 || p.valued()) x[which].load(p.qkv + at.row + which * D, at.half, at.inside);
    }
    if (p.valued()) load_wide_value(&vi, p, at);
    normed_backward<T, LANES>(&d[0], x[0], at, (float)p.K);
    normed_backward<T, LANES>(&d[1], x[1], at, (float)p.K);
    if (p.valued()) {
      const float a0 = p.a[0], a1 = p.a[1];
      sum_v += dot(d[2], x[2]);
      sum_vi += dot(d[2], vi);
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float2 g = d[2].at(k);
        vi.set(k, make_float2(a1 * g.x, a1 * g.y));
        d[2].set(k, make_float2(a0 * g.x, a0 * g.y));
      }
      if (p.dvi != nullptr) vi.store(p.dvi + at.value, at.half, at.inside);
    }
#pragma unroll
    for (int which = 0; which < 3; which++)
      d[which].store(p.out + at.row + which * D, at.half, at.inside);
  }
  leave_sums(p, sum_v, sum_vi);
}

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

int64_t heads_of_block(int lanes)
{
  return lanes > 0 ? WARPS * PLM_WARP / lanes : WARPS;
}

/* What the operators get. The gradients are those of the backward pass. */
struct Arguments {
  struct plm_qkv in;
  act *out, *dvi;
  const act *dqkv;
  const float *table;    /* NULL: the value embeddings are in.vi, if there are any */
  const int32_t *tokens; /* of the table */
};

template <class T> Prepare<T> prepared(const Arguments &arguments)
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

void run_forward(struct plm_cuda *cuda, const Arguments &arguments)
{
  const struct plm_qkv &in = arguments.in;
  PLM_ASSERT(in.K % (2 * PAIRS) == 0 && in.K <= 2 * PAIRS * PLM_WARP);
  if (in.B * in.L <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    with_lanes<T>(in.K, [&](auto lanes) {
      auto kernel = forward_kernel<T>;
      if constexpr (lanes.value > 0) kernel = wide_forward_kernel<T, lanes.value>;
      plm_launch(cuda->stream, kernel,
                 dim3(plm_blocks(in.B * in.L * in.H, heads_of_block(lanes.value))),
                 dim3(WARPS * PLM_WARP), 0, prepared<T>(arguments));
    });
  });
}

void run_backward(struct plm_cuda *cuda, const Arguments &arguments, float *da)
{
  const struct plm_qkv &in = arguments.in;
  PLM_ASSERT(in.K % (2 * PAIRS) == 0 && in.K <= 2 * PAIRS * PLM_WARP);
  if (in.B * in.L <= 0) return;
  unsigned blocks = 0;
  float *partial = plm_cuda_scratch<float>(cuda, 2 * MIX_BLOCKS);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    Prepare<T> p = prepared<T>(arguments);
    p.partial = partial;
    with_lanes<T>(in.K, [&](auto lanes) {
      auto kernel = backward_kernel<T>;
      if constexpr (lanes.value > 0) kernel = wide_backward_kernel<T, lanes.value>;
      blocks =
          min(plm_blocks(in.B * in.L * in.H, heads_of_block(lanes.value)), (unsigned)MIX_BLOCKS);
      plm_launch(cuda->stream, kernel, dim3(blocks), dim3(WARPS * PLM_WARP), 33 * sizeof(float), p);
    });
  });
  if (in.vi != nullptr || arguments.table != nullptr)
    plm_cuda_add_partials(cuda, da, partial, blocks, 2);
}

void qkv_prepare_forward(struct plm_ops *ops, act *out, const struct plm_qkv *in)
{
  Arguments arguments = {};
  arguments.in = *in;
  arguments.out = out;
  run_forward(plm_cuda_of(ops), arguments);
}

void qkv_prepare_backward(struct plm_ops *ops, act *dqkv_raw, act *dvi, float *da, const act *dqkv,
                          const struct plm_qkv *in)
{
  Arguments arguments = {};
  arguments.in = *in;
  arguments.out = dqkv_raw;
  arguments.dvi = dvi;
  arguments.dqkv = dqkv;
  run_backward(plm_cuda_of(ops), arguments, da);
}

Arguments with_table(const struct plm_qkv *in, const struct plm_value_table *value, act *out)
{
  Arguments arguments = {};
  arguments.in = *in;
  arguments.in.vi = nullptr;
  arguments.out = out;
  arguments.table = value->table;
  arguments.tokens = value->tokens;
  return arguments;
}

/* At level 0 a value embedding is a row of the table and is read from there. Its gradient is summed
 * from the gradient of v, before that is turned into the gradient of the raw product. */
void qkv_value_forward(struct plm_ops *ops, act *out, const struct plm_qkv *in,
                       const struct plm_value_table *value)
{
  if (value->level > 0) return plm_value_forward_in_parts(ops, out, in, value);
  run_forward(plm_cuda_of(ops), with_table(in, value, out));
}

void qkv_value_backward(struct plm_ops *ops, act *dqkv_raw, float *dtable, float *da,
                        const act *dqkv, const struct plm_qkv *in,
                        const struct plm_value_table *value)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (value->level > 0)
    return plm_value_backward_in_parts(ops, dqkv_raw, dtable, da, dqkv, in, value);
  const int64_t D = in->H * in->K;
  const act *dv = static_cast<const char *>(dqkv) + 2 * D * (int64_t)cuda->ops.act_bytes;
  const struct plm_cuda_token_rows rows = {
      dv, in->a + 1, value->tokens, 3 * D, in->B * in->L, D, value->V, 0};
  plm_cuda_token_backward(cuda, dtable, &rows);
  Arguments arguments = with_table(in, value, dqkv_raw);
  arguments.dqkv = dqkv;
  run_backward(cuda, arguments, da);
}

} // namespace

void plm_cuda_qkv_register(struct plm_cuda *cuda)
{
  cuda->ops.qkv_prepare_forward = qkv_prepare_forward;
  cuda->ops.qkv_prepare_backward = qkv_prepare_backward;
  cuda->ops.qkv_value_forward = qkv_value_forward;
  cuda->ops.qkv_value_backward = qkv_value_backward;
}
