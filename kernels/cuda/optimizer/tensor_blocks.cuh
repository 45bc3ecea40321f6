/* Many tensors in one launch: blocks [first_block[i], first_block[i + 1]) work on tensor i. */
#ifndef PLM_KERNELS_CUDA_OPTIMIZER_TENSOR_BLOCKS_CUH
#define PLM_KERNELS_CUDA_OPTIMIZER_TENSOR_BLOCKS_CUH

#include "kernels/cuda/device/platform.cuh"

/* The tensor that this block works on: the last of `count` that begins at or before it. Tensors
 * without blocks are passed over. */
static __device__ __forceinline__ int plm_tensor_of_block(const unsigned *first_block, int count)
{
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first_block[middle] <= blockIdx.x)
      low = middle;
    else
      high = middle;
  }
  return low;
}

#endif
