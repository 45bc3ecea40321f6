/* Opening and closing the CUDA backend. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/checks/kernel_checks.cuh"
#include "kernels/cuda/nccl/nccl_transport.cuh"
#include "kernels/cuda/products/product_algorithms.cuh"

extern "C" {
#include "common/ops/device.h"
}

namespace
{

void close_backend(struct plm_ops *ops)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (cuda->recording) { /* nobody will end it */
    struct plm_recording *recording = nullptr;
    ops->record_end(ops, &recording, nullptr);
    ops->release_recording(ops, recording);
  }
  plm_cuda_products_close(cuda);
  plm_cuda_marks_close(cuda);
  if (cuda->scratch != nullptr) ops->release(ops, cuda->scratch);
  plm_cuda_streams_close(cuda);
  free(cuda);
}

enum { OLDEST = 80 }; /* compute capability 8.0, for bf16 and cp.async */

/* Without a driver, or with one that is too old, CUDA returns the same error. */
plm_status old_driver(struct plm_error *error)
{
  enum { MAJOR = CUDART_VERSION / 1000, MINOR = CUDART_VERSION % 1000 / 10 };
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) version = 0;
  cudaGetLastError();
  if (version == 0) {
    plm_error_set(error, PLM_UNSUPPORTED, "NVIDIA's driver is not installed, or not loaded");
    return plm_error_hint(error,
                          "nvidia-smi must work: install a driver for CUDA %d.%d or later; a "
                          "container gets that of its host (docker run --gpus all); device: cpu "
                          "needs none",
                          MAJOR, MINOR);
  }
  plm_error_set(error, PLM_UNSUPPORTED,
                "NVIDIA's driver is too old: it supports CUDA %d.%d, and %d.%d is needed",
                version / 1000, version % 1000 / 10, MAJOR, MINOR);
  return plm_error_hint(error,
                        "update the driver (nvidia-smi shows its version), or build with the CUDA "
                        "Toolkit that it supports; device: cpu needs none");
}

/* An answer of the driver that says little. Only different versions surely do not pass. */
plm_status other_answer(int device, cudaError_t code, struct plm_error *error)
{
  const bool mismatch = code == cudaErrorSystemDriverMismatch;
  plm_error_set(error, mismatch ? PLM_UNSUPPORTED : PLM_FAILURE,
                "CUDA device %d cannot be used, because NVIDIA's driver reports: %s", device,
                cudaGetErrorString(code));
  if (mismatch)
    return plm_error_hint(error,
                          "the driver's libraries and its kernel module have different versions, "
                          "as after an update: restart the machine; in a container, use the "
                          "libraries of its host; or set device: cpu");
  if (code == cudaErrorSystemNotReady)
    return plm_error_hint(error,
                          "a machine with NVSwitch needs NVIDIA's Fabric Manager, of the driver's "
                          "version (`systemctl status nvidia-fabricmanager`); or set device: cpu");
  return plm_error_hint(error,
                        "see `nvidia-smi`, and the kernel's log for the driver's messages "
                        "(`dmesg | grep NVRM`); the module nvidia-uvm must be loaded (`modprobe "
                        "nvidia-uvm`, as root); a device that was lost needs a reset or a restart "
                        "of the machine; device: cpu needs none");
}

/* Why a device cannot be used. */
plm_status no_device(const struct plm_cuda *cuda, cudaError_t code, struct plm_error *error)
{
  cudaGetLastError();
  if (code == cudaErrorInsufficientDriver) return old_driver(error);
  if (code == cudaSuccess || code == cudaErrorNoDevice) {
    plm_error_set(error, PLM_NOT_FOUND, "no CUDA device %d: %s", cuda->device,
                  code != cudaSuccess ? cudaGetErrorString(code) : "there are not that many");
    return plm_error_hint(error,
                          "`nvidia-smi -L` lists the devices, and the slices of one in MIG mode; "
                          "CUDA_VISIBLE_DEVICES may hide some; or set device: cpu");
  }
  if (code == cudaErrorDevicesUnavailable) {
    plm_error_set(error, PLM_BUSY,
                  "another process uses CUDA device %d, which is in exclusive mode: %s",
                  cuda->device, cudaGetErrorString(code));
    return plm_error_hint(error,
                          "`nvidia-smi` shows its processes and its compute mode; end the other "
                          "process, or let several share the device (nvidia-smi -c DEFAULT, as "
                          "root)");
  }
  return other_answer(cuda->device, code, error);
}

/* Finds out what the device is. It is not opened yet. */
plm_status find_device(struct plm_cuda *cuda, struct plm_error *error)
{
  int count = 0;
  struct cudaDeviceProp properties;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || cuda->device >= count) return no_device(cuda, code, error);
  code = cudaGetDeviceProperties(&properties, cuda->device);
  if (code != cudaSuccess) return no_device(cuda, code, error);
  cuda->capability = 10 * properties.major + properties.minor;
  cuda->multiprocessors = properties.multiProcessorCount;
  cuda->shared_bytes = properties.sharedMemPerBlockOptin;
  if (cuda->capability < OLDEST)
    return plm_error_set(error, PLM_UNSUPPORTED, "%s has compute capability %d.%d, 8.0 is needed",
                         properties.name, properties.major, properties.minor);
  snprintf(cuda->processor, sizeof cuda->processor, "%.127s", properties.name);
  cuda->ops.processor = cuda->processor;
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) cudaGetLastError();
  snprintf(cuda->driver, sizeof cuda->driver, "for CUDA %d, with runtime %d", driver,
           CUDART_VERSION);
  cuda->ops.driver = cuda->driver;
  if (cudaDeviceGetPCIBusId(cuda->location, sizeof cuda->location, cuda->device) == cudaSuccess)
    cuda->ops.location = cuda->location;
  else
    cudaGetLastError();
  cuda->ops.isa = cuda->capability >= 90 ? "sm_90" : "sm_80";
  return PLM_OK;
}

/* Opens all but the choice of kernels. */
plm_status prepare_backend(struct plm_cuda *cuda, struct plm_error *error)
{
  PLM_TRY(find_device(cuda, error));
  const cudaError_t code = cudaSetDevice(cuda->device);
  if (code != cudaSuccess) return no_device(cuda, code, error);
  plm_cuda_memory_register(cuda);
  plm_cuda_streams_register(cuda);
  plm_cuda_marks_register(cuda);
  plm_cuda_elementwise_register(cuda);
  plm_cuda_norm_register(cuda);
  plm_cuda_layer_norm_register(cuda);
  plm_cuda_activations_register(cuda);
  plm_cuda_mix_register(cuda);
  plm_cuda_tokens_register(cuda);
  plm_cuda_qkv_register(cuda);
  plm_cuda_attention_register(cuda);
  plm_cuda_attention_cached_register(cuda);
  plm_cuda_head_register(cuda);
  plm_cuda_labels_register(cuda);
  plm_cuda_linear_register(cuda);
  plm_cuda_sums_register(cuda);
  plm_cuda_optimizer_register(cuda);
  plm_cuda_muon_register(cuda);
  plm_cuda_algorithms_register(cuda);
  plm_cuda_targets_register(cuda);
  plm_cuda_nccl_register(cuda);
  PLM_TRY(plm_cuda_streams_open(cuda, error));
  PLM_TRY(plm_cuda_products_open(cuda, error));
  cuda->scratch_bytes = plm_platform_scratch_bytes(PLM_CUDA_SCRATCH_BYTES);
  return cuda->ops.allocate(&cuda->ops, cuda->scratch_bytes, &cuda->scratch, error);
}

struct plm_cuda *new_backend(int precision, int device)
{
  struct plm_cuda *cuda = static_cast<struct plm_cuda *>(calloc(1, sizeof *cuda));
  if (cuda == nullptr) return nullptr;
  cuda->bf16 = precision == PLM_PRECISION_BF16;
  cuda->device = device;
  cuda->ops.name = "cuda";
  cuda->ops.act_bytes = cuda->bf16 ? 2 : 4;
  cuda->ops.threads = 1;
  cuda->ops.close = close_backend;
  return cuda;
}

/* A plm_cuda_opener. What it opens is never closed: the process that checks ends. */
plm_status open_for_check(int device, bool whole, struct plm_cuda **cuda, struct plm_error *error)
{
  *cuda = new_backend(PLM_PRECISION_BF16, device);
  if (*cuda == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  return whole ? prepare_backend(*cuda, error) : find_device(*cuda, error);
}

} // namespace

plm_status plm_cuda_no_memory(struct plm_error *error, size_t bytes, const char *why)
{
  size_t free_bytes, total_bytes;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
    cudaGetLastError();
    free_bytes = total_bytes = 0;
  }
  plm_error_set(error, PLM_NO_MEMORY,
                "no device memory for a buffer of %zu bytes: %s; %.2f of %.2f GB are free", bytes,
                why, 1e-9 * (double)free_bytes, 1e-9 * (double)total_bytes);
  return plm_error_hint(error, "use a smaller batch (--batch-tokens, or for training "
                               "trainer.micro_batch_tokens) or trainer.recompute: block; "
                               "`plm-pipeline up --dry-run` shows the memory that is needed, and "
                               "nvidia-smi which processes use the device");
}

plm_status plm_ops_cuda_open(int precision, int device, struct plm_ops **ops,
                             struct plm_error *error)
{
  if (precision == PLM_PRECISION_BF16) plm_cuda_check_kernels(device, open_for_check);
  plm_cuda_touched();
  plm_cuda_forget_shared();
  struct plm_cuda *cuda = new_backend(precision, device);
  if (cuda == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  plm_status status = prepare_backend(cuda, error);
  if (status == PLM_OK) status = plm_cuda_choose_kernels(cuda, error);
  if (status == PLM_TIMEOUT) return status; /* closing would wait for the kernels forever */
  if (status != PLM_OK) {
    close_backend(&cuda->ops);
    return status;
  }
  *ops = &cuda->ops;
  return PLM_OK;
}
