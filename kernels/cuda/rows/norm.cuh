/* RMSNorm (Zhang and Sennrich 2019), r x with r = 1 / sqrt(mean x^2 + eps), in kernels of which a
 * warp works on a row. Its gradient is r dh - x r^3 (dh . x) / D. Statistics are fp32. */
#ifndef PLM_KERNELS_CUDA_ROWS_NORM_CUH
#define PLM_KERNELS_CUDA_ROWS_NORM_CUH

#include "kernels/cuda/rows/rows.cuh"

enum {
  PLM_NORM_WARPS = 8,    /* of a block */
  PLM_NORM_MOST_HELD = 8 /* vectors of a row for each lane, if a kernel holds a few rows */
};
static constexpr float PLM_NORM_EPS = 1e-6f;

/* The first row of this warp, and the distance to its next one. */
template <int WARPS = PLM_NORM_WARPS> __device__ __forceinline__ int64_t first_row()
{
  return (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP;
}
template <int WARPS = PLM_NORM_WARPS> __device__ __forceinline__ int64_t row_stride()
{
  return (int64_t)gridDim.x * WARPS;
}

/* r, from the lanes' parts of the sum of squares. */
static __device__ __forceinline__ float inverse_rms(float squares, int64_t D)
{
  return rsqrtf(warp_sum(squares) / (float)D + PLM_NORM_EPS);
}

/* r and r^3 (dh . x) / D, from the lanes' parts of the sums of x^2 and x dh. */
static __device__ __forceinline__ float2 norm_factors(float squares, float product, int64_t D)
{
  const float inverse = inverse_rms(squares, D);
  return make_float2(inverse, warp_sum(product) / (float)D * inverse * inverse * inverse);
}

/* The same from rows in memory; load(v, j) loads x from column j on. */
template <class C, class T, class Load>
__device__ __forceinline__ float2 loaded_factors(const T *dh, int64_t D, Load load)
{
  float squares = 0, product = 0;
  EACH_COLUMN(C, D)
  {
    float v[C::N], d[C::N];
    load(v, j);
    C::load(d, dh + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) {
      squares += v[i] * v[i];
      product += v[i] * d[i];
    }
  }
  return norm_factors(squares, product, D);
}

/* The same from rows in registers; x(i, k) is element k of vector i. */
template <class R, class X>
__device__ __forceinline__ float2 held_factors(const R &d, int64_t D, X x)
{
  const float squares = R::sum([&](int i, int k) { return x(i, k) * x(i, k); });
  const float product = R::sum([&](int i, int k) { return x(i, k) * d.at(i, k); });
  return norm_factors(squares, product, D);
}

#endif
