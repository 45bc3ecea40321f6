/* bf16, loads and stores of 16 bytes of activations, and sums over a warp or a block in a fixed
 * order. */
#ifndef PLM_KERNELS_CUDA_DEVICE_NUMBERS_CUH
#define PLM_KERNELS_CUDA_DEVICE_NUMBERS_CUH

#include "kernels/cuda/device/platform.cuh"

enum { PLM_WARP = 32 };
static constexpr unsigned PLM_ALL_LANES = 0xffffffffu;

struct plm_bf16 {
  uint16_t bits;
};

static __device__ __forceinline__ float to_float(float x)
{
  return x;
}
static __device__ __forceinline__ float to_float(plm_bf16 x)
{
  return __uint_as_float((unsigned)x.bits << 16);
}

/* Rounds to nearest, ties to even. */
static __device__ __forceinline__ plm_bf16 to_bf16(float x)
{
  const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
  plm_bf16 result;
  result.bits = __bfloat16_as_ushort(rounded);
  return result;
}

template <class T> static __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
  return x;
}
template <> __device__ __forceinline__ plm_bf16 from_float<plm_bf16>(float x)
{
  return to_bf16(x);
}

/* `low` comes first in memory, as fragments of mma and packed stores expect. */
static __device__ __forceinline__ unsigned pack_bf16(float low, float high)
{
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned *>(&pair);
}

/* As many elements as 16 bytes hold, which one load or store moves. */
template <class T> struct plm_vector {
  static constexpr int N = 16 / (int)sizeof(T);
  union {
    uint4 words;
    T elements[N];
  };
  __device__ plm_vector() : words()
  {
  }
};

/* p is aligned to 16 bytes. */
template <class T> static __device__ __forceinline__ void load_vector(float *out, const T *p)
{
  plm_vector<T> v;
  v.words = *reinterpret_cast<const uint4 *>(p);
#pragma unroll
  for (int i = 0; i < plm_vector<T>::N; i++) out[i] = to_float(v.elements[i]);
}
template <class T> static __device__ __forceinline__ void store_vector(T *p, const float *in)
{
  plm_vector<T> v;
#pragma unroll
  for (int i = 0; i < plm_vector<T>::N; i++) v.elements[i] = from_float<T>(in[i]);
  *reinterpret_cast<uint4 *>(p) = v.words;
}

/* Every lane gets the sum. It is a butterfly, so the order is always the same. */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
  for (int mask = PLM_WARP / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(PLM_ALL_LANES, x, mask);
  return x;
}
static __device__ __forceinline__ double warp_sum(double x)
{
#pragma unroll
  for (int mask = PLM_WARP / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(PLM_ALL_LANES, x, mask);
  return x;
}
static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
  for (int mask = PLM_WARP / 2; mask > 0; mask /= 2)
    x = fmaxf(x, __shfl_xor_sync(PLM_ALL_LANES, x, mask));
  return x;
}

/* Every thread of the block (a multiple of 32 threads, at most 1,024) gets the sum. scratch: 33
 * values of shared memory, which may be reused after the block's next barrier. */
template <class T> static __device__ __forceinline__ T block_sum(T x, T *scratch)
{
  const int lane = (int)threadIdx.x % PLM_WARP, warp = (int)threadIdx.x / PLM_WARP;
  const int warps = (int)blockDim.x / PLM_WARP;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  if (warp == 0) {
    const T sum = warp_sum(lane < warps ? scratch[lane] : T(0));
    if (lane == 0) scratch[PLM_WARP] = sum;
  }
  __syncthreads();
  return scratch[PLM_WARP];
}

#endif
