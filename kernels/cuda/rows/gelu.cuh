/* The exact GELU, x Phi(x) (Hendrycks and Gimpel 2016), and its slope. */
#ifndef PLM_KERNELS_CUDA_ROWS_GELU_CUH
#define PLM_KERNELS_CUDA_ROWS_GELU_CUH

#include "kernels/cuda/device/numbers.cuh"

struct Gelu {
  static __device__ __forceinline__ float value(float x)
  {
    return 0.5f * x * erfcf(-0.70710678118654752f * x);
  }
  static __device__ __forceinline__ float slope(float x)
  {
    const float density = 0.39894228040143268f * expf(-0.5f * x * x);
    return 0.5f * erfcf(-0.70710678118654752f * x) + x * density;
  }
};

#endif
