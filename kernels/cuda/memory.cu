/* Memory of the device, its stream, and errors. */
#include "kernels/cuda/cuda_ops.cuh"

namespace
{

#ifndef PLM_EMULATE
/* Keeps the first failure: what follows it is its echo. */
void remember(struct plm_cuda *cuda, cudaError_t code, const char *what)
{
  if (code == cudaSuccess || cuda->error.status != PLM_OK) return;
  plm_error_set(&cuda->error, code == cudaErrorMemoryAllocation ? PLM_NO_MEMORY : PLM_FAILURE,
                "device %d: %s: %s", cuda->device, what, cudaGetErrorString(code));
}
#endif

plm_status allocate(struct plm_ops *ops, size_t bytes, void **buffer, struct plm_error *error)
{
#ifdef PLM_EMULATE
  (void)ops;
  *buffer = plm::emulation::device_allocate(bytes);
  if (*buffer != nullptr) return PLM_OK;
  const char *why = "no memory";
#else
  struct plm_cuda *cuda = plm_cuda_of(ops);
  cudaSetDevice(cuda->device);
  const cudaError_t code = cudaMalloc(buffer, bytes > 0 ? bytes : 1);
  if (code == cudaSuccess) return PLM_OK;
  cudaGetLastError();
  const char *why = cudaGetErrorString(code);
#endif
  plm_error_set(error, PLM_NO_MEMORY, "device memory for a buffer of %zu bytes: %s", bytes, why);
  return plm_error_hint(error, "lower trainer.micro_batch_tokens, set trainer.recompute: block, or "
                               "see `plm-pipeline up --dry-run`");
}

void release(struct plm_ops *ops, void *buffer)
{
  (void)ops;
#ifdef PLM_EMULATE
  plm::emulation::device_release(buffer);
#else
  cudaFree(buffer);
#endif
}

void upload(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
#ifdef PLM_EMULATE
  (void)ops;
  const plm::emulation::Reach reach;
  memcpy(device, host, bytes);
#else
  struct plm_cuda *cuda = plm_cuda_of(ops);
  remember(cuda, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda->stream),
           "a copy to the device");
#endif
}

void download(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
#ifdef PLM_EMULATE
  (void)ops;
  const plm::emulation::Reach reach;
  memcpy(host, device, bytes);
#else
  struct plm_cuda *cuda = plm_cuda_of(ops);
  remember(cuda, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda->stream),
           "a copy from the device");
  remember(cuda, cudaStreamSynchronize(cuda->stream), "a copy from the device");
#endif
}

void zero(struct plm_ops *ops, void *buffer, size_t bytes)
{
#ifdef PLM_EMULATE
  (void)ops;
  const plm::emulation::Reach reach;
  memset(buffer, 0, bytes);
#else
  struct plm_cuda *cuda = plm_cuda_of(ops);
  remember(cuda, cudaMemsetAsync(buffer, 0, bytes, cuda->stream), "clearing memory");
#endif
}

void copy(struct plm_ops *ops, void *to, const void *from, size_t bytes)
{
#ifdef PLM_EMULATE
  (void)ops;
  const plm::emulation::Reach reach;
  memcpy(to, from, bytes);
#else
  struct plm_cuda *cuda = plm_cuda_of(ops);
  remember(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream),
           "a copy on the device");
#endif
}

plm_status synchronize(struct plm_ops *ops, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
#ifndef PLM_EMULATE
  remember(cuda, cudaGetLastError(), "a launch");
  remember(cuda, cudaStreamSynchronize(cuda->stream), "a kernel");
#endif
  if (cuda->error.status != PLM_OK && error != nullptr) *error = cuda->error;
  return cuda->error.status;
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
}
