/* Between the QKV product and attention: q and k normalised over the head width and rotated, the
 * value embedding mixed into v. A warp takes a head of a row; a lane two neighbouring pairs
 * (x_i, x_{i + K/2}), so loads are of two elements (K is a multiple of 4). */
#include "kernels/cuda/cuda_ops.cuh"

namespace
{

enum { WARPS = 8, MIX_BLOCKS = 1024, PAIRS = 2 };
static constexpr float EPS = 1e-6f;

/* Two neighbouring elements, aligned to their size. */
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

/* What a lane holds of one head of one row: elements i, i + 1 and i + K/2, i + K/2 + 1. */
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
/* (a cos + b sin, b cos - a sin); sign -1 turns back */
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
  T *out;            /* forward: (N, 3 H K) prepared; backward: gradients of the raw products */
  T *dvi;            /* backward */
  float *partial;    /* backward: (blocks, 2) of da */
  const T *qkv, *vi; /* vi may be NULL */
  const T *dqkv;     /* backward: gradients of the prepared */
  const float *a, *cosine, *sine;
  int64_t B, L, H, K;
};

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
    if (p.vi != nullptr) v = combined(p.a[0], v, p.a[1], load_quad(p.vi + n * D + head, i, half));
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
      const float inverse = rsqrtf(warp_sum(dot(x, x)) / (float)p.K + EPS);
      const float along = warp_sum(dot(x, d)) / (float)p.K * inverse * inverse * inverse;
      store_quad(p.out + row + which * D, i, half, combined(inverse, d, -along, x));
    }
    Quad d = load_quad(p.dqkv + row + 2 * D, i, half);
    if (p.vi != nullptr) {
      sum_v += dot(d, load_quad(p.qkv + row + 2 * D, i, half));
      sum_vi += dot(d, load_quad(p.vi + n * D + head, i, half));
      store_quad(p.dvi + n * D + head, i, half, combined(p.a[1], d, 0, d));
      d = combined(p.a[0], d, 0, d);
    }
    store_quad(p.out + row + 2 * D, i, half, d);
  }
  if (p.vi == nullptr) return;
  float *scratch = plm_shared<float>();
  sum_v = block_sum(sum_v, scratch);
  __syncthreads();
  sum_vi = block_sum(sum_vi, scratch);
  if (threadIdx.x == 0) {
    p.partial[2 * blockIdx.x] = sum_v;
    p.partial[2 * blockIdx.x + 1] = sum_vi;
  }
}

void qkv_prepare_forward(struct plm_ops *ops, act *out, const act *qkv, const act *vi,
                         const float *a, const float *cosine, const float *sine, int64_t B,
                         int64_t L, int64_t H, int64_t K)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_ASSERT(K % (2 * PAIRS) == 0 && K <= 2 * PAIRS * PLM_WARP);
  if (B * L <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    Prepare<T> p = {};
    p.out = static_cast<T *>(out);
    p.qkv = static_cast<const T *>(qkv);
    p.vi = static_cast<const T *>(vi);
    p.a = a, p.cosine = cosine, p.sine = sine;
    p.B = B, p.L = L, p.H = H, p.K = K;
    plm_launch(cuda->stream, forward_kernel<T>, dim3(plm_blocks(B * L * H, WARPS)),
               dim3(WARPS * PLM_WARP), 0, p);
  });
}

void qkv_prepare_backward(struct plm_ops *ops, act *dqkv_raw, act *dvi, float *da, const act *dqkv,
                          const act *qkv, const act *vi, const float *a, const float *cosine,
                          const float *sine, int64_t B, int64_t L, int64_t H, int64_t K)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_ASSERT(K % (2 * PAIRS) == 0 && K <= 2 * PAIRS * PLM_WARP);
  if (B * L <= 0) return;
  const unsigned blocks = min(plm_blocks(B * L * H, WARPS), (unsigned)MIX_BLOCKS);
  float *partial = plm_cuda_scratch<float>(cuda, 2 * MIX_BLOCKS);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    Prepare<T> p = {};
    p.out = static_cast<T *>(dqkv_raw);
    p.dvi = static_cast<T *>(dvi);
    p.partial = partial;
    p.qkv = static_cast<const T *>(qkv);
    p.vi = static_cast<const T *>(vi);
    p.dqkv = static_cast<const T *>(dqkv);
    p.a = a, p.cosine = cosine, p.sine = sine;
    p.B = B, p.L = L, p.H = H, p.K = K;
    plm_launch(cuda->stream, backward_kernel<T>, dim3(blocks), dim3(WARPS * PLM_WARP),
               33 * sizeof(float), p);
  });
  if (vi != nullptr) plm_cuda_add_partials(cuda, da, partial, blocks, 2);
}

} // namespace

void plm_cuda_qkv_register(struct plm_cuda *cuda)
{
  cuda->ops.qkv_prepare_forward = qkv_prepare_forward;
  cuda->ops.qkv_prepare_backward = qkv_prepare_backward;
}
