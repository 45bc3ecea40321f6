/* Opening and closing the CUDA backend. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/product_plans.cuh"

extern "C" {
#include "common/config/config.h"
}

namespace
{

void close_backend(struct plm_ops *ops)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (cuda->recording) { /* what was recorded is not wanted any more */
    struct plm_recording *recording = nullptr;
    ops->record_end(ops, &recording, nullptr);
    ops->release_recording(ops, recording);
  }
  plm_cuda_products_close(cuda);
  if (cuda->scratch != nullptr) ops->release(ops, cuda->scratch);
  plm_cuda_streams_close(cuda);
  free(cuda);
}

#ifdef PLM_EMULATE
constexpr size_t EMULATED_SCRATCH_BYTES = 1 << 20; /* enough for the shapes of tests */
size_t scratch_bytes = EMULATED_SCRATCH_BYTES;

plm_status find_device(struct plm_cuda *cuda, struct plm_error *error)
{
  if (cuda->device != 0)
    return plm_error_set(error, PLM_NOT_FOUND, "no CUDA device %d: there are fewer", cuda->device);
  cuda->ops.isa = "emulated";
  cuda->capability = 80;
  cuda->multiprocessors = 3; /* blocks that take more than one piece of work */
  return PLM_OK;
}
#else
constexpr size_t scratch_bytes = PLM_CUDA_SCRATCH_BYTES;

enum { OLDEST = 80 }; /* compute capability: bf16, cp.async */

plm_status find_device(struct plm_cuda *cuda, struct plm_error *error)
{
  int count = 0;
  struct cudaDeviceProp properties;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    plm_error_set(error, PLM_UNSUPPORTED, "NVIDIA's driver is missing or too old: %s",
                  cudaGetErrorString(code));
    return plm_error_hint(error, "see nvidia-smi; CUDA %d.%d is needed", CUDART_VERSION / 1000,
                          CUDART_VERSION % 1000 / 10);
  }
  if (code != cudaSuccess || cuda->device >= count) {
    plm_error_set(error, PLM_NOT_FOUND, "no CUDA device %d: %s", cuda->device,
                  code != cudaSuccess ? cudaGetErrorString(code) : "there are fewer");
    return plm_error_hint(error, "see nvidia-smi; or set trainer.device: cpu");
  }
  code = cudaGetDeviceProperties(&properties, cuda->device);
  if (code == cudaSuccess) code = cudaSetDevice(cuda->device);
  if (code != cudaSuccess)
    return plm_error_set(error, PLM_FAILURE, "CUDA device %d: %s", cuda->device,
                         cudaGetErrorString(code));
  cuda->capability = 10 * properties.major + properties.minor;
  cuda->multiprocessors = properties.multiProcessorCount;
  if (cuda->capability < OLDEST)
    return plm_error_set(error, PLM_UNSUPPORTED, "%s has compute capability %d.%d, 8.0 is needed",
                         properties.name, properties.major, properties.minor);
  snprintf(cuda->processor, sizeof cuda->processor, "%.127s", properties.name);
  cuda->ops.processor = cuda->processor;
  cuda->ops.isa = cuda->capability >= 90 ? "sm_90" : "sm_80";
  return PLM_OK;
}
#endif

/* PLM_CUDA_ATTENTION: mma or sm90 forces the one or the other. */
void choose_attention(struct plm_cuda *cuda)
{
  const char *forced = getenv("PLM_CUDA_ATTENTION");
  cuda->attention_sm90 = forced != nullptr && strcmp(forced, "sm90") == 0;
}

plm_status open_backend(struct plm_cuda *cuda, struct plm_error *error)
{
  plm_cuda_memory_register(cuda);
  plm_cuda_streams_register(cuda);
  plm_cuda_elementwise_register(cuda);
  plm_cuda_norm_register(cuda);
  plm_cuda_tokens_register(cuda);
  plm_cuda_qkv_register(cuda);
  plm_cuda_attention_register(cuda);
  plm_cuda_attention_cached_register(cuda);
  plm_cuda_head_register(cuda);
  plm_cuda_linear_register(cuda);
  plm_cuda_optimizer_register(cuda);
  plm_cuda_muon_register(cuda);
  plm_cuda_plans_register(cuda);
  plm_cuda_targets_register(cuda);
  PLM_TRY(find_device(cuda, error));
  choose_attention(cuda);
  PLM_TRY(plm_cuda_streams_open(cuda, error));
  PLM_TRY(plm_cuda_products_open(cuda, error));
  cuda->scratch_bytes = scratch_bytes;
  return cuda->ops.allocate(&cuda->ops, cuda->scratch_bytes, &cuda->scratch, error);
}

} // namespace

plm_status plm_cuda_no_memory(struct plm_error *error, size_t bytes, const char *why)
{
  plm_error_set(error, PLM_NO_MEMORY, "device memory for a buffer of %zu bytes: %s", bytes, why);
  return plm_error_hint(error, "a smaller batch needs less: --batch-tokens, or in training "
                               "trainer.micro_batch_tokens; so does trainer.recompute: block. "
                               "`plm-pipeline up --dry-run` adds it up");
}

#ifdef PLM_EMULATE
extern "C" void plm_cuda_emulation_scratch(size_t bytes)
{
  scratch_bytes = bytes > 0 ? bytes : EMULATED_SCRATCH_BYTES;
}
#endif

plm_status plm_ops_cuda_open(int precision, int device, struct plm_ops **ops,
                             struct plm_error *error)
{
  struct plm_cuda *cuda = static_cast<struct plm_cuda *>(calloc(1, sizeof *cuda));
  if (cuda == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  cuda->narrow = precision == PLM_PRECISION_BF16;
  cuda->device = device;
  cuda->ops.name = "cuda";
  cuda->ops.act_bytes = cuda->narrow ? 2 : 4;
  cuda->ops.threads = 1;
  cuda->ops.close = close_backend;
  const plm_status status = open_backend(cuda, error);
  if (status != PLM_OK) {
    close_backend(&cuda->ops);
    return status;
  }
  *ops = &cuda->ops;
  return PLM_OK;
}
