/* The emulation's side of kernels/cuda/device/platform.cuh. */
#ifndef PLM_TESTS_EMULATION_EMULATED_PLATFORM_H
#define PLM_TESTS_EMULATION_EMULATED_PLATFORM_H

#include "tests/emulation/emulation.h"
#include "tests/emulation/runtime.h"

static constexpr bool PLM_EMULATED = true;

/* Test programs are linked with the emulated backend, so they call this function, which other
 * programs reach only through the library's entry (kernels/backend_library.h). */
extern "C" {
#include "kernels/cuda/cuda.h"
__attribute__((visibility("default"))) plm_status
plm_ops_cuda_open(int precision, int device, struct plm_ops **ops, struct plm_error *error);
}

static inline void *plm_platform_shared()
{
  return plm::emulation::launch.shared;
}

/* Launches and products pass through here. `work` is a closure that holds its arguments by value.
 * It runs at once if the stream is NULL, else now, later, or whenever a recording of it is replayed
 * (runtime.h). */
template <class Work> static inline void plm_enqueue(cudaStream_t stream, Work work)
{
  if (stream == nullptr)
    work();
  else
    stream->add(work);
}

template <class... Parameters, class... Arguments>
static inline void plm_platform_launch(cudaStream_t stream, void (*kernel)(Parameters...),
                                       dim3 grid, dim3 block, size_t shared_bytes,
                                       Arguments... arguments)
{
  plm::emulation::require_shared((const void *)kernel, shared_bytes);
  plm_enqueue(stream, [=] {
    auto body = [&] { kernel(static_cast<Parameters>(arguments)...); };
    const plm::emulation::Body each = {
        [](void *context) { (*static_cast<decltype(body) *>(context))(); }, &body};
    plm::emulation::count_launch((const void *)kernel);
    plm::emulation::run(grid, block, shared_bytes, each);
  });
}

static inline size_t plm_platform_scratch_bytes(size_t bytes)
{
  return min(bytes, plm::emulation::scratch_bytes());
}

static inline void *plm_platform_scratch(cudaStream_t stream, void *scratch, size_t room_bytes,
                                         size_t bytes)
{
  char *begin = static_cast<char *>(scratch) + (room_bytes - bytes) / 16 * 16;
  plm_enqueue(stream, [=] {
    const plm::emulation::Reach reach;
    memset(begin, 0xff, bytes);
  });
  return begin;
}

static inline void plm_platform_require_pinned(const void *host, size_t bytes)
{
  plm::emulation::require_pinned(host, bytes);
}

#endif
