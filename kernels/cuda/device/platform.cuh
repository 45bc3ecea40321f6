/* Where the CUDA sources meet their compiler: nvcc, or the host's compiler and the emulation that
 * runs them on the CPU (tests/emulation). The two differ only in what this header, instructions.cuh
 * and sm90/hopper.cuh declare, and in which files are compiled (the Makefile's DEVICE_ONLY). */
#ifndef PLM_KERNELS_CUDA_DEVICE_PLATFORM_CUH
#define PLM_KERNELS_CUDA_DEVICE_PLATFORM_CUH

#ifdef PLM_EMULATE

#include "emulation/emulated_platform.h"

#else

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

/* True under the emulation, where sizes are chosen so that small shapes take every path. */
static constexpr bool PLM_EMULATED = false;

/* The block's dynamic shared memory. */
static __device__ __forceinline__ void *plm_platform_shared()
{
  extern __shared__ __align__(128) unsigned char plm_shared_bytes[];
  return plm_shared_bytes;
}

template <class... Parameters, class... Arguments>
static inline void plm_platform_launch(cudaStream_t stream, void (*kernel)(Parameters...),
                                       dim3 grid, dim3 block, size_t shared_bytes,
                                       Arguments... arguments)
{
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
}

/* Bytes of a backend's scratch: `bytes`, or fewer under the emulation. */
static inline size_t plm_platform_scratch_bytes(size_t bytes)
{
  return bytes;
}

/* Where `bytes` of a scratch of room_bytes begin. The emulation takes the end of the scratch, fills
 * it with NaN, and so finds accesses beyond it and reads of what an earlier operator left. */
static inline void *plm_platform_scratch(cudaStream_t stream, void *scratch, size_t room_bytes,
                                         size_t bytes)
{
  (void)stream, (void)room_bytes, (void)bytes;
  return scratch;
}

/* The emulation ends the process if these bytes of the host are not pinned: a device would make the
 * caller wait for the copy. */
static inline void plm_platform_require_pinned(const void *host, size_t bytes)
{
  (void)host, (void)bytes;
}

#endif

typedef cudaStream_t plm_stream;

/* The block's dynamic shared memory, as T. A kernel that keeps several arrays in it divides it. */
template <class T> static __device__ __forceinline__ T *plm_shared()
{
  return static_cast<T *>(plm_platform_shared());
}

/* Allows a kernel more than 48 KiB of shared memory, as the runtime demands; once for each kernel
 * and device (launch.cu). */
void plm_cuda_allow_shared(const void *kernel, size_t bytes);
/* Before and after each launch: they keep the name of the first kernel whose launch failed. */
void plm_cuda_launching(const void *kernel);
void plm_cuda_launched(const void *kernel);

/* kernel<<<grid, block, shared_bytes, stream>>>(arguments…). Errors are sticky and reported by
 * ops->synchronize. */
template <class... Parameters, class... Arguments>
static inline void plm_launch(plm_stream stream, void (*kernel)(Parameters...), dim3 grid,
                              dim3 block, size_t shared_bytes, Arguments... arguments)
{
  enum { WITHOUT_ASKING = 48 << 10 };
  if (shared_bytes > WITHOUT_ASKING) plm_cuda_allow_shared((const void *)kernel, shared_bytes);
  plm_cuda_launching((const void *)kernel);
  plm_platform_launch(stream, kernel, grid, block, shared_bytes, arguments...);
  plm_cuda_launched((const void *)kernel);
}

#endif
