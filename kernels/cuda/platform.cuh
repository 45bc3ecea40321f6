/* Where the CUDA sources meet their compiler: nvcc, or the emulation that runs them on the CPU. The
 * launch, shared memory, and what a kernel file needs before anything else. */
#ifndef PLM_KERNELS_CUDA_PLATFORM_CUH
#define PLM_KERNELS_CUDA_PLATFORM_CUH

#ifdef PLM_EMULATE
#include "emulation/emulation.h"
#include "emulation/runtime.h"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#endif
typedef cudaStream_t plm_stream;

/* The block's dynamic shared memory, as T. A kernel that keeps several arrays there divides it. */
template <class T> static __device__ __forceinline__ T *plm_shared()
{
#ifdef PLM_EMULATE
  return static_cast<T *>(plm::emulation::self->shared);
#else
  extern __shared__ __align__(128) unsigned char plm_shared_bytes[];
  return reinterpret_cast<T *>(plm_shared_bytes);
#endif
}

#ifdef PLM_EMULATE
/* Launches and products come through here: work is a closure with its arguments by value. It runs
 * now, later, or when a recording of it is replayed; at once where the stream is NULL. */
template <class Work> static inline void plm_enqueue(plm_stream stream, Work work)
{
  if (stream == nullptr)
    work();
  else
    stream->add(work);
}
#endif
/* launch.cu: a kernel that takes more shared memory than any may. Asks once for each kernel. */
void plm_cuda_allow_shared(const void *kernel, size_t bytes);
/* Around each launch: for the name of the first kernel whose launch reported a failure. */
void plm_cuda_launching(const void *kernel);
void plm_cuda_launched(const void *kernel);

/* kernel<<<grid, block, shared_bytes, stream>>>(arguments…). Errors are sticky and found by
 * ops->synchronize. */
template <class... Parameters, class... Arguments>
static inline void plm_launch(plm_stream stream, void (*kernel)(Parameters...), dim3 grid,
                              dim3 block, size_t shared_bytes, Arguments... arguments)
{
  enum { WITHOUT_ASKING = 48 << 10 };
  if (shared_bytes > WITHOUT_ASKING) plm_cuda_allow_shared((const void *)kernel, shared_bytes);
  plm_cuda_launching((const void *)kernel);
#ifdef PLM_EMULATE
  plm::emulation::require_shared((const void *)kernel, shared_bytes);
  plm_enqueue(stream, [=] {
    auto body = [&] { kernel(static_cast<Parameters>(arguments)...); };
    const plm::emulation::Body each = {
        [](void *context) { (*static_cast<decltype(body) *>(context))(); }, &body};
    plm::emulation::run(grid, block, shared_bytes, each);
  });
#else
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
#endif
  plm_cuda_launched((const void *)kernel);
}

#endif
