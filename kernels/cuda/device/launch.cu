/* What a launch needs besides <<<>>>: permission for large shared memory, and the name of a kernel
 * that failed. The state is per thread, since one thread at a time uses a backend. */
#include "kernels/cuda/device/cuda_ops.cuh"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <cxxabi.h>

namespace
{

enum { MOST = 64 }; /* kernels whose permission is remembered; others ask each time */

std::atomic<unsigned> openings; /* of backends; a permission does not outlive a reset between two */

struct Asked {
  const void *kernel;
  int device;
  size_t bytes;
};
thread_local Asked asked[MOST];
thread_local int asked_count;
thread_local unsigned asked_since; /* of which opening */
thread_local const void *failed;
thread_local const char *running; /* owned by the runtime */
thread_local char failed_name[256];

const char *name_of(const void *kernel)
{
  const char *name;
  return cudaFuncGetName(&name, kernel) == cudaSuccess ? name : "a kernel without a name";
}

} // namespace

/* With CUDA_LAUNCH_BLOCKING=1 a launch returns when its kernel has ended, so a failure belongs to
 * this kernel and not to an earlier one. */
bool plm_cuda_launches_block(void)
{
  static const char *const value = getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && value[0] == '1';
}

void plm_cuda_allow_shared(const void *kernel, size_t bytes)
{
  int device = 0, i = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return; /* the launch will report the error */
  if (asked_since != openings) asked_count = 0;
  asked_since = openings;
  while (i < asked_count && (asked[i].kernel != kernel || asked[i].device != device)) i++;
  if (i < asked_count && asked[i].bytes >= bytes) return;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) !=
      cudaSuccess)
    return; /* stays the last error, which plm_cuda_launched finds */
  if (i == MOST) return;
  asked[i] = {kernel, device, bytes};
  if (i == asked_count) asked_count++;
}

void plm_cuda_forget_shared(void)
{
  openings++;
}

/* The name must be asked for before the launch: after a failure the runtime only reports it. */
void plm_cuda_launching(const void *kernel)
{
  if (plm_cuda_launches_block() && failed == nullptr) running = name_of(kernel);
}

void plm_cuda_launched(const void *kernel)
{
  if (failed == nullptr && cudaPeekAtLastError() != cudaSuccess) failed = kernel;
}

const char *plm_cuda_failed_kernel(void)
{
  failed_name[0] = 0;
  if (failed == nullptr) return failed_name;
  const char *name = running != nullptr ? running : name_of(failed);
  int status = 0;
  char *readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  snprintf(failed_name, sizeof failed_name, "%s", readable != nullptr ? readable : name);
  free(readable);
  failed = nullptr;
  return failed_name;
}
