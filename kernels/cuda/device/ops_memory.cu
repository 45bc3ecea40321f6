/* Memory of the device, copies that wait, and errors. */
#include "kernels/cuda/device/cuda_ops.cuh"

void plm_cuda_remember(struct plm_cuda *cuda, cudaError_t code, const char *what)
{
  if (code == cudaSuccess) return;
  cudaGetLastError(); /* cleared, so that no later launch is blamed for it */
  struct plm_error *error = cuda->recording ? &cuda->recording_error : &cuda->error;
  if (error->status != PLM_OK) return;
  const char *kernel = plm_cuda_failed_kernel();
  const bool launch = kernel[0] != 0;
  plm_error_set(error, code == cudaErrorMemoryAllocation ? PLM_NO_MEMORY : PLM_FAILURE,
                "device %d: %s%s failed: %s", cuda->device, launch ? kernel : what,
                launch && !plm_cuda_launches_block() ? ", or a kernel before it," : "",
                cudaGetErrorString(code));
  if (!plm_cuda_launches_block() && error->status == PLM_FAILURE)
    plm_error_hint(error,
                   "set CUDA_LAUNCH_BLOCKING=1 in the environment and run again: the message "
                   "then names the kernel that failed; if `dmesg | grep Xid` shows that the device "
                   "itself failed, it needs a reset or a restart of the machine");
}

bool plm_cuda_forbids(struct plm_cuda *cuda, const char *what)
{
  if (cuda->recording && cuda->recording_error.status == PLM_OK)
    plm_error_set(&cuda->recording_error, PLM_FAILURE,
                  "device %d: %s is not allowed while operators are recorded", cuda->device, what);
  return cuda->recording;
}

plm_status plm_cuda_permits(struct plm_cuda *cuda, const char *what, struct plm_error *error)
{
  if (!plm_cuda_forbids(cuda, what)) return PLM_OK;
  if (error != nullptr) *error = cuda->recording_error;
  return PLM_FAILURE;
}

namespace
{

plm_status allocate(struct plm_ops *ops, size_t bytes, void **buffer, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  *buffer = nullptr;
  PLM_TRY(plm_cuda_permits(cuda, "an allocation", error));
  cudaSetDevice(cuda->device);
  const cudaError_t code = cudaMalloc(buffer, bytes > 0 ? bytes : 1);
  if (code == cudaSuccess) return PLM_OK;
  cudaGetLastError();
  return plm_cuda_no_memory(error, bytes, cudaGetErrorString(code));
}

void release(struct plm_ops *ops, void *buffer)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (plm_cuda_forbids(cuda, "a release")) return;
  plm_cuda_remember(cuda, cudaFree(buffer), "freeing memory");
}

/* The copy may read the host's memory after the call: pinned memory always, and pageable memory
 * where the device can address it. The wait makes it the caller's again. */
void upload(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (plm_cuda_forbids(cuda, "an upload")) return;
  plm_cuda_remember(cuda,
                    cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda->stream),
                    "a copy to the device");
  plm_cuda_remember(cuda, cudaStreamSynchronize(cuda->stream), "a copy to the device");
}

void download(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (plm_cuda_forbids(cuda, "a download")) return;
  plm_cuda_remember(cuda,
                    cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda->stream),
                    "a copy from the device");
  plm_cuda_remember(cuda, cudaStreamSynchronize(cuda->stream), "a copy from the device");
}

void zero(struct plm_ops *ops, void *buffer, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (bytes > 0)
    plm_cuda_remember(cuda, cudaMemsetAsync(buffer, 0, bytes, cuda->stream), "clearing memory");
}

void copy(struct plm_ops *ops, void *to, const void *from, size_t bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (bytes > 0)
    plm_cuda_remember(cuda,
                      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream),
                      "a copy on the device");
}

plm_status synchronize(struct plm_ops *ops, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  PLM_TRY(plm_cuda_permits(cuda, "a synchronize", error));
  plm_cuda_remember(cuda, cudaGetLastError(), "a launch");
  plm_cuda_remember(cuda, cudaStreamSynchronize(cuda->stream), "a kernel");
  if (cuda->error.status != PLM_OK && error != nullptr) *error = cuda->error;
  return cuda->error.status;
}

void memory_size(struct plm_ops *ops, uint64_t *free_bytes, uint64_t *total_bytes)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  size_t free_now, total;
  cudaSetDevice(cuda->device);
  if (cudaMemGetInfo(&free_now, &total) != cudaSuccess) {
    cudaGetLastError();
    free_now = total = 0;
  }
  *free_bytes = free_now;
  *total_bytes = total;
}

} // namespace

void plm_cuda_memory_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->allocate = allocate;
  ops->release = release;
  ops->upload = upload;
  ops->download = download;
  ops->zero = zero;
  ops->copy = copy;
  ops->synchronize = synchronize;
  ops->memory_size = memory_size;
}
