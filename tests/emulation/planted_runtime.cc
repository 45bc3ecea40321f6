/* A caller of the runtime with planted faults: see planted_runtime.h. */
extern "C" {
#include "tests/emulation/planted_runtime.h"
}

#include "kernels/cuda/device/instructions.cuh"

namespace
{

enum {
  VALUES = PLM_RUNTIME_VALUES,
  BYTES = VALUES * sizeof(float),
  LARGE_SHARED = 99 << 10,
  TOO_LARGE_SHARED = 100 << 10
};

__global__ void double_kernel(float *values)
{
  values[threadIdx.x] *= 2;
}

struct Caller {
  plm_planted_runtime fault;
  cudaError_t first = cudaSuccess;
  cudaStream_t stream = nullptr;
  void *buffer = nullptr;
  /* Keeps the first error. Returns whether to go on. */
  bool good(cudaError_t code)
  {
    if (first == cudaSuccess) first = code;
    return first == cudaSuccess || fault == PLM_RUNTIME_UNCHECKED || fault == PLM_RUNTIME_RESET;
  }
};

bool upload(Caller &to)
{
  float values[VALUES];
  for (int i = 0; i < VALUES; i++) values[i] = (float)(i + 1);
  bool good = to.good(cudaMemcpyAsync(to.buffer, values, BYTES, cudaMemcpyHostToDevice, to.stream));
  if (to.fault != PLM_RUNTIME_REUSED) good = good && to.good(cudaStreamSynchronize(to.stream));
  for (float &value : values) value = -1;
  return to.good(cudaStreamSynchronize(to.stream)) && good;
}

bool double_all(Caller &at, size_t shared_bytes)
{
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (!at.good(cudaStreamBeginCapture(at.stream, cudaStreamCaptureModeThreadLocal))) return false;
  for (int i = 0; i < 3; i++)
    plm_platform_launch(at.stream, double_kernel, dim3(1), dim3(VALUES), shared_bytes,
                        static_cast<float *>(at.buffer));
  if (!at.good(cudaStreamEndCapture(at.stream, &graph))) return false;
  const bool made = at.good(cudaGraphInstantiate(&executable, graph, 0));
  if (graph != nullptr) cudaGraphDestroy(graph);
  const bool good = made && at.good(cudaGraphLaunch(executable, at.stream));
  if (good) at.good(cudaStreamSynchronize(at.stream));
  if (executable != nullptr) cudaGraphExecDestroy(executable);
  return good;
}

/* What is used again, though the device was reset. */
bool after_reset(Caller &at)
{
  const cudaStream_t stream = at.stream;
  void *const buffer = at.buffer;
  if (!at.good(cudaDeviceReset())) return false;
  if (at.fault == PLM_RUNTIME_OLD_BUFFER) return at.good(cudaFree(buffer));
  if (!at.good(cudaStreamCreateWithFlags(&at.stream, 0)) || !at.good(cudaMalloc(&at.buffer, BYTES)))
    return false;
  if (at.fault == PLM_RUNTIME_OLD_STREAM) at.stream = stream;
  return upload(at);
}

} // namespace

extern "C" int plm_cuda_planted_runtime_run(enum plm_planted_runtime fault, float *out)
{
  Caller caller = {fault};
  const void *kernel = reinterpret_cast<const void *>(double_kernel);
  const bool late = fault == PLM_RUNTIME_NO_PERMISSION;
  const int shared = fault == PLM_RUNTIME_TOO_LARGE                ? TOO_LARGE_SHARED
                     : fault == PLM_RUNTIME_OLD_PERMISSION || late ? LARGE_SHARED
                                                                   : 0;
  if (shared > 0 && !late)
    caller.good(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  bool good = caller.good(cudaStreamCreateWithFlags(&caller.stream, 0)) &&
              caller.good(cudaMalloc(&caller.buffer, BYTES)) && upload(caller);
  if (late) {
    plm_platform_launch(caller.stream, double_kernel, dim3(1), dim3(VALUES), LARGE_SHARED,
                        static_cast<float *>(caller.buffer));
    good = false;
  }
  if (good && fault >= PLM_RUNTIME_RESET) good = after_reset(caller);
  good = good && double_all(caller, (size_t)shared);
  if (good)
    good = caller.good(
        cudaMemcpyAsync(out, caller.buffer, BYTES, cudaMemcpyDeviceToHost, caller.stream));
  if (caller.buffer != nullptr) cudaFree(caller.buffer);
  if (caller.stream != nullptr) cudaStreamDestroy(caller.stream);
  return caller.first;
}

extern "C" int plm_cuda_planted_reset(void)
{
  return cudaDeviceReset();
}
