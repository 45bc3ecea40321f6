/* Between the QKV product and attention: q and k are normalised over the head width and rotated,
 * and the value embedding is mixed into v. A few lanes take a head of a row. Each lane holds a
 * vector of the head's first half and the vector that it is paired with (x_i, x_{i + K/2});
 * everything is loaded before anything is computed. If half a head is not a multiple of a vector, a
 * warp takes the head and a lane holds two neighbouring pairs (K is a multiple of 4). */
#include "kernels/cuda/attention/qkv.cuh"

extern "C" {
#include "common/ops/value_table.h"
}

namespace
{

enum { WARPS = PLM_QKV_THREADS / PLM_WARP, MIX_BLOCKS = plm_most_parts(1024), PAIRS = 2 };

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
      const float inverse = rsqrtf(warp_sum(dot(x, x)) / (float)p.K + PLM_QKV_EPS);
      store_quad(p.out + row + which * D, i, half, rotated(combined(inverse, x, 0, x), c, s, 1));
    }
    Quad v = load_quad(p.qkv + row + 2 * D, i, half);
    if (p.valued()) v = combined(p.a[0], v, p.a[1], load_value(p, n, head, i, half));
    store_quad(p.out + row + 2 * D, i, half, v);
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
      const float inverse = rsqrtf(warp_sum(dot(x, x)) / (float)p.K + PLM_QKV_EPS);
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

template <class T, int LANES> __global__ void wide_forward_kernel(Prepare<T> p)
{
  constexpr int N = Halves<T>::N, EACH = PLM_QKV_THREADS / LANES;
  const int64_t D = p.H * p.K, rows = p.B * p.L, tasks = rows * p.H;
  const int lane = (int)threadIdx.x % LANES;
  /* whole warps stay in the loop, since all lanes take part in shuffles */
  for (int64_t first = (int64_t)blockIdx.x * EACH; first < tasks;
       first += (int64_t)gridDim.x * EACH) {
    const int64_t task = first + threadIdx.x / LANES;
    const Place<T> at(p, task / p.H, task % p.H, lane, rows);
    Halves<T> x[3], vi;
#pragma unroll
    for (int which = 0; which < 3; which++)
      x[which].load(p.qkv + at.row + which * D, at.half, at.inside);
    if (p.valued()) load_wide_value(&vi, p, at);
#pragma unroll
    for (int which = 0; which < 2; which++) { /* q, k */
      const float inverse =
          rsqrtf(lanes_sum<LANES>(dot(x[which], x[which])) / (float)p.K + PLM_QKV_EPS);
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

template <class T, int LANES> __global__ void wide_backward_kernel(Prepare<T> p)
{
  constexpr int EACH = PLM_QKV_THREADS / LANES;
  const int64_t rows = p.B * p.L, tasks = rows * p.H;
  const int lane = (int)threadIdx.x % LANES;
  float sum_v = 0, sum_vi = 0;
  for (int64_t first = (int64_t)blockIdx.x * EACH; first < tasks;
       first += (int64_t)gridDim.x * EACH) {
    const int64_t task = first + threadIdx.x / LANES;
    const Place<T> at(p, task / p.H, task % p.H, lane, rows);
    HeadBackward<T, LANES> head;
    head.load(p, at);
    head.compute(p, at, &sum_v, &sum_vi);
    if (p.dvi != nullptr) head.vi.store(p.dvi + at.value, at.half, at.inside);
    head.store(p, at);
  }
  leave_sums(p, sum_v, sum_vi);
}

int64_t heads_of_block(int lanes)
{
  return lanes > 0 ? PLM_QKV_THREADS / lanes : WARPS;
}

void run_forward(struct plm_cuda *cuda, const struct plm_qkv_arguments &arguments)
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
                 dim3(PLM_QKV_THREADS), 0, prepared<T>(arguments));
    });
  });
}

void run_backward(struct plm_cuda *cuda, const struct plm_qkv_arguments &arguments, float *da)
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
      plm_launch(cuda->stream, kernel, dim3(blocks), dim3(PLM_QKV_THREADS), 33 * sizeof(float), p);
    });
  });
  if (in.vi != nullptr || arguments.table != nullptr)
    plm_cuda_add_partials(cuda, da, partial, blocks, 2);
}

void qkv_prepare_forward(struct plm_ops *ops, act *out, const struct plm_qkv *in)
{
  struct plm_qkv_arguments arguments = {};
  arguments.in = *in;
  arguments.out = out;
  if (in->norm != PLM_QK_NORM_HEAD) return plm_cuda_qkv_width_forward(plm_cuda_of(ops), arguments);
  run_forward(plm_cuda_of(ops), arguments);
}

void qkv_prepare_backward(struct plm_ops *ops, act *dqkv_raw, act *dvi, float *da, const act *dqkv,
                          const struct plm_qkv *in)
{
  struct plm_qkv_arguments arguments = {};
  arguments.in = *in;
  arguments.out = dqkv_raw;
  arguments.dvi = dvi;
  arguments.dqkv = dqkv;
  if (in->norm != PLM_QK_NORM_HEAD)
    return plm_cuda_qkv_width_backward(plm_cuda_of(ops), arguments, da);
  run_backward(plm_cuda_of(ops), arguments, da);
}

struct plm_qkv_arguments with_table(const struct plm_qkv *in, const struct plm_value_table *value,
                                    act *out)
{
  struct plm_qkv_arguments arguments = {};
  arguments.in = *in;
  arguments.in.vi = nullptr;
  arguments.out = out;
  arguments.table = value->table;
  arguments.tokens = value->tokens;
  return arguments;
}

/* At level 0 a value embedding is a row of the table and is read from there. Its gradient is summed
 * in the same kernel, or before, from the gradient of v. */
void qkv_value_forward(struct plm_ops *ops, act *out, const struct plm_qkv *in,
                       const struct plm_value_table *value)
{
  if (value->level > 0 || in->norm != PLM_QK_NORM_HEAD)
    return plm_value_forward_in_parts(ops, out, in, value);
  run_forward(plm_cuda_of(ops), with_table(in, value, out));
}

void qkv_value_backward(struct plm_ops *ops, act *dqkv_raw, float *dtable, float *da,
                        const act *dqkv, const struct plm_qkv *in,
                        const struct plm_value_table *value)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (value->level > 0 || in->norm != PLM_QK_NORM_HEAD)
    return plm_value_backward_in_parts(ops, dqkv_raw, dtable, da, dqkv, in, value);
  struct plm_qkv_arguments arguments = with_table(in, value, dqkv_raw);
  arguments.dqkv = dqkv;
  if (plm_cuda_qkv_value_backward(cuda, dtable, da, value->V, arguments)) return;
  const int64_t D = in->H * in->K;
  const act *dv = static_cast<const char *>(dqkv) + 2 * D * (int64_t)cuda->ops.act_bytes;
  const struct plm_cuda_token_rows rows = {
      dv, in->a + 1, value->tokens, 3 * D, in->B * in->L, D, value->V, 0};
  plm_cuda_token_backward(cuda, dtable, &rows);
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
