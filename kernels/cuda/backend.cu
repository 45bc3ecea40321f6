/* Opening and closing the CUDA backend. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/product_plans.cuh"
#ifdef PLM_EMULATE
#include "kernels/cuda/emulation/hopper.h"
#endif

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
int emulated_capability = 80;

plm_status find_device(struct plm_cuda *cuda, struct plm_error *error)
{
  if (cuda->device != 0)
    return plm_error_set(error, PLM_NOT_FOUND, "no CUDA device %d: there are fewer", cuda->device);
  cuda->ops.isa = "emulated";
  cuda->capability = emulated_capability;
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

enum { HOPPER = 90, MAX_DEVICES = 64 };
enum verdict { UNKNOWN, AGREES, DISAGREES };
enum verdict verdicts[MAX_DEVICES]; /* on the sm_90a kernels of each device, once a process */

/* Whether attention/sm90 may be used. PLM_AGAIN: the device was left in an error, and the backend
 * is to be opened anew; then the verdict is known. */
plm_status check_attention(struct plm_cuda *cuda, struct plm_error *error)
{
  struct plm_error found = {};
  enum verdict *verdict = &verdicts[cuda->device % MAX_DEVICES];
  if (*verdict == UNKNOWN) {
    const plm_status status = plm_cuda_attention_sm90_check(cuda, &found);
    *verdict = status == PLM_OK ? AGREES : DISAGREES;
    if (status == PLM_TIMEOUT) {
      plm_error_set(error, status, "device %d: the attention kernels for sm_90a: %s", cuda->device,
                    found.what);
      return plm_error_hint(error, "set PLM_CUDA_ATTENTION=mma in the environment");
    }
    if (status != PLM_OK)
      fprintf(stderr,
              "cuda: device %d: attention runs on mma.sync; of the sm_90a kernels: %s (%s)\n",
              cuda->device, found.what, found.where);
    if (status != PLM_OK && status != PLM_CORRUPT) return PLM_AGAIN;
  }
  cuda->attention_sm90 = *verdict == AGREES;
  return PLM_OK;
}

/* PLM_CUDA_ATTENTION: mma or sm90 forces the one or the other; else sm90 where it was written for,
 * and computes what mma.sync does. */
plm_status choose_attention(struct plm_cuda *cuda, struct plm_error *error)
{
  const char *forced = getenv("PLM_CUDA_ATTENTION");
  const bool sm90 = forced != nullptr && strcmp(forced, "sm90") == 0;
  if (forced != nullptr && forced[0] != 0 && !sm90 && strcmp(forced, "mma") != 0) {
    plm_error_set(error, PLM_CONFIG, "PLM_CUDA_ATTENTION=%s", forced);
    return plm_error_hint(error, "it is mma, sm90, or not set");
  }
#ifndef PLM_EMULATE
  if (sm90 && cuda->capability != HOPPER) {
    plm_error_set(error, PLM_UNSUPPORTED, "PLM_CUDA_ATTENTION=sm90: device %d is not of 9.0",
                  cuda->device);
    return plm_error_hint(error, "unset it: the device's own kernels are found");
  }
#endif
  if (sm90)
    cuda->attention_sm90 = true;
  else if (cuda->capability == HOPPER && cuda->narrow && (forced == nullptr || forced[0] == 0))
    PLM_TRY(check_attention(cuda, error));
#ifndef PLM_EMULATE
  if (cuda->attention_sm90) cuda->ops.isa = "sm_90a";
#endif
  return PLM_OK;
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
  PLM_TRY(plm_cuda_streams_open(cuda, error));
  PLM_TRY(plm_cuda_products_open(cuda, error));
  cuda->scratch_bytes = scratch_bytes;
  PLM_TRY(cuda->ops.allocate(&cuda->ops, cuda->scratch_bytes, &cuda->scratch, error));
  return choose_attention(cuda, error);
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
extern "C" void plm_cuda_emulation_capability(int capability, bool wrong_products)
{
  emulated_capability = capability;
  plm::emulation::wrong_products = wrong_products;
  for (enum verdict &verdict : verdicts) verdict = UNKNOWN;
}

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
  if (status == PLM_TIMEOUT) return status; /* kernels that do not end: nor would the closing */
  if (status != PLM_OK) close_backend(&cuda->ops);
  if (status == PLM_AGAIN) {
#ifndef PLM_EMULATE
    cudaDeviceReset(); /* an error stays with the context */
#endif
    return plm_ops_cuda_open(precision, device, ops, error);
  }
  if (status != PLM_OK) return status;
  *ops = &cuda->ops;
  return PLM_OK;
}
