/* What a launch needs beside <<<>>>: permission for large shared memory, and the name of the kernel
 * that failed. State is a thread's own: a backend is used by one thread at a time. */
#include "kernels/cuda/cuda_ops.cuh"

#include <cstdio>
#include <cstdlib>

#include <cxxabi.h>

namespace
{

enum { MOST = 64 }; /* kernels that are known to have asked; the others ask each time */

struct Asked {
  const void *kernel;
  int device;
  size_t bytes;
};
thread_local Asked asked[MOST];
thread_local int asked_count;
thread_local const void *failed;
thread_local const char *running; /* the runtime's string */
thread_local char failed_name[256];

const char *name_of(const void *kernel)
{
  const char *name;
  return cudaFuncGetName(&name, kernel) == cudaSuccess ? name : "a kernel without a name";
}

} // namespace

/* CUDA_LAUNCH_BLOCKING=1: a launch returns when its kernel has ended, so that a failure is this
 * kernel's and no earlier one's. */
bool plm_cuda_launches_block(void)
{
  static const char *const value = getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && value[0] == '1';
}

void plm_cuda_allow_shared(const void *kernel, size_t bytes)
{
  int device = 0, i = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return; /* the launch will fail, too */
  while (i < asked_count && (asked[i].kernel != kernel || asked[i].device != device)) i++;
  if (i < asked_count && asked[i].bytes >= bytes) return;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) !=
      cudaSuccess)
    return; /* kept as the last error, which the launch's check finds */
  if (i == MOST) return;
  asked[i] = {kernel, device, bytes};
  if (i == asked_count) asked_count++;
}

/* Asked before it fails: afterwards the runtime answers nothing but the failure. */
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
