/* Instructions for which CUDA C++ has no expression, each as a function: inline PTX on the device
 * (instructions_ptx.cuh), plain C++ under the emulation. Layouts of fragments: PTX ISA, "Matrix
 * fragments for mma.m16n8k16". */
#ifndef PLM_KERNELS_CUDA_DEVICE_INSTRUCTIONS_CUH
#define PLM_KERNELS_CUDA_DEVICE_INSTRUCTIONS_CUH

#include "kernels/cuda/device/numbers.cuh"

/* clang-format off */
/* d (16, 8) += a (16, 16) b (16, 8), bf16 with fp32 accumulation, by a warp. With group = lane / 4
 * and pair = lane % 4, a lane holds
 *   a[0] row group,     columns 2 pair, +1     a[1] row group + 8, the same columns
 *   a[2] row group,     columns 2 pair + 8, +1 a[3] row group + 8, the same columns
 *   b[0] rows 2 pair, +1 of column group       b[1] rows 2 pair + 8, +1 of column group
 *   d[0], d[1] row group, columns 2 pair, +1   d[2], d[3] row group + 8, the same columns */
/* clang-format on */
static __device__ __forceinline__ void mma_bf16(float d[4], const unsigned a[4],
                                                const unsigned b[2]);

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane i passes the address
 * (aligned to 16 bytes) of row i % 8 of matrix i / 8, and gets in r[m] columns 2 (lane % 4), +1 of
 * row lane / 4 of matrix m, or of its transpose. What other lanes wrote must be visible already
 * (__syncwarp). */
static __device__ __forceinline__ void load_matrices(unsigned r[4], const void *row);
static __device__ __forceinline__ void load_matrices_transposed(unsigned r[4], const void *row);

/* Begins to copy 16 bytes from global to shared memory, both aligned to 16 bytes. If not valid, the
 * address is not read and zeros are written. The copying thread waits for groups of copies in the
 * order in which it committed them; other threads see the bytes after a barrier that follows this
 * wait. */
static __device__ __forceinline__ void copy_async(void *shared, const void *global, bool valid);
static __device__ __forceinline__ void copy_async_commit();
/* Waits until at most LEFT of this thread's groups are under way. */
template <int LEFT> static __device__ __forceinline__ void copy_async_wait();

/* Loads 16 bytes from global memory here and not later: the compiler may not move the load to the
 * first use of its result. */
static __device__ __forceinline__ uint4 load_now(const void *global);

/* 2^x, with the device's approximation. */
static __device__ __forceinline__ float exp2_fast(float x);

#ifdef PLM_EMULATE
#include "emulation/emulated_instructions.h"
#else
#include "kernels/cuda/device/instructions_ptx.cuh"
#endif

#endif
