/* Opening and closing the CUDA backend. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/check_process.cuh"
#include "kernels/cuda/nccl_transport.cuh"
#include "kernels/cuda/product_algorithms.cuh"
#include "kernels/cuda/relu2_products.cuh"

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

plm_status find_device(struct plm_cuda *cuda, struct plm_error *error)
{
  int count = 0;
  struct cudaDeviceProp properties;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || cuda->device >= count) return no_device(cuda, code, error);
  code = cudaGetDeviceProperties(&properties, cuda->device);
  if (code == cudaSuccess) code = cudaSetDevice(cuda->device);
  if (code != cudaSuccess) return no_device(cuda, code, error);
  cuda->capability = 10 * properties.major + properties.minor;
  cuda->multiprocessors = properties.multiProcessorCount;
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

enum { HOPPER = 90, MAX_DEVICES = 64 };
enum verdict { UNKNOWN, AGREES, DISAGREES };

/* Kernels for sm_90a that replace those that run on every device. */
struct sm90_kernels {
  const char *variable;     /* environment variable that forces a choice */
  const char *others, *own; /* its values: the kernels for every device, and these */
  const char *what;         /* for messages: what they compute … */
  const char *instead;      /* … and what happens without them */
  plm_status (*check)(struct plm_cuda *cuda, struct plm_error *error);
  enum verdict verdicts[MAX_DEVICES]; /* for each device; checked once in a process */
  struct plm_error why;               /* of the last check that failed */
};
struct sm90_kernels attention = {
    "PLM_CUDA_ATTENTION",          "mma", "sm90", "attention", "attention runs on mma.sync",
    plm_cuda_attention_sm90_check, {},    {}};
struct sm90_kernels onepass = {"PLM_CUDA_ATTENTION_BACKWARD",
                               "split",
                               "onepass",
                               "attention backward",
                               "attention's backward pass is two kernels",
                               plm_cuda_attention_onepass_check,
                               {},
                               {}};
struct sm90_kernels products = {"PLM_CUDA_RELU2",
                                "library",
                                "fused",
                                "product",
                                "products and relu2 run one after the other",
                                plm_cuda_product_sm90_check,
                                {},
                                {}};

struct sm90_kernels *const all_kernels[] = {&attention, &onepass, &products};

/* What the environment says, or NULL. */
const char *said_of(const struct sm90_kernels *kernels)
{
  const char *said = getenv(kernels->variable);
  return said != nullptr && said[0] != 0 ? said : nullptr;
}

/* Whether the kernels may be used without being forced. Attention's backward pass in one kernel
 * belongs to attention on sm90; where that is forced, nothing is checked. */
bool in_question(const struct sm90_kernels *kernels, int device)
{
  return kernels != &onepass ||
         (said_of(&attention) == nullptr && attention.verdicts[device % MAX_DEVICES] != DISAGREES);
}

/* Whether this process has called CUDA. If so, a child of it could not. */
bool touched;

void say(struct sm90_kernels *kernels, int device, const struct plm_error *found)
{
  kernels->why = *found;
  fprintf(stderr, "cuda: device %d: %s, because the check of the sm_90a kernels failed: %s%s%s%s\n",
          device, kernels->instead, found->what, found->where[0] != 0 ? " (" : "", found->where,
          found->where[0] != 0 ? ")" : "");
}

/* Whether the kernels agree with the others on this device. If that is not known yet, because CUDA
 * was in use before the first backend opened, they are checked here; a fault is then final. */
plm_status check(struct plm_cuda *cuda, struct sm90_kernels *kernels, bool *agree,
                 struct plm_error *error)
{
  struct plm_error found = {};
  enum verdict *verdict = &kernels->verdicts[cuda->device % MAX_DEVICES];
  if (*verdict == UNKNOWN) {
    const plm_status status = kernels->check(cuda, &found);
    if (status != PLM_OK && status != PLM_CORRUPT) {
      plm_error_set(error, status, "device %d: the %s kernels for sm_90a: %s", cuda->device,
                    kernels->what, found.what);
      return plm_error_hint(error, "set %s=%s in the environment", kernels->variable,
                            kernels->others);
    }
    *verdict = status == PLM_OK ? AGREES : DISAGREES;
    if (status != PLM_OK) say(kernels, cuda->device, &found);
  }
  *agree = *verdict == AGREES;
  return PLM_OK;
}

/* The environment may force a choice. Otherwise the kernels are used on a device of compute
 * capability 9.0 if they compute there what the others do. */
plm_status choose(struct plm_cuda *cuda, struct sm90_kernels *kernels, bool *use, bool *forced,
                  struct plm_error *error)
{
  const char *said = said_of(kernels);
  *forced = said != nullptr;
  *use = *forced && strcmp(said, kernels->own) == 0;
  if (*forced && !*use && strcmp(said, kernels->others) != 0) {
    plm_error_set(error, PLM_CONFIG, "%s=%s: no such choice", kernels->variable, said);
    return plm_error_hint(error, "set it to %s or %s, or unset it", kernels->others, kernels->own);
  }
  if (*use && cuda->capability != HOPPER) {
    plm_error_set(error, PLM_UNSUPPORTED,
                  "%s=%s: device %d has compute capability %d.%d, and these kernels need 9.0",
                  kernels->variable, said, cuda->device, cuda->capability / 10,
                  cuda->capability % 10);
    return plm_error_hint(error, "unset it: the backend chooses kernels for the device");
  }
  if (!*forced && cuda->capability == HOPPER && cuda->bf16 && in_question(kernels, cuda->device))
    return check(cuda, kernels, use, error);
  return PLM_OK;
}

/* For the record: which kernels are in use, and why others are not. */
void describe_kernels(struct plm_cuda *cuda)
{
  static const char *const ways[] = {"library", "tuned", "fused"};
  static const char *const backward[] = {"", ", backward tuned", ", backward onepass"};
  snprintf(cuda->kernels, sizeof cuda->kernels, "attention %s%s, relu2 %s",
           cuda->attention_sm90 ? "sm90" : "mma",
           cuda->attention_sm90 ? backward[cuda->attention_backward] : "", ways[cuda->relu2]);
  cuda->ops.kernels = cuda->kernels;
  size_t used = 0;
  for (const struct sm90_kernels *kernels : all_kernels) {
    if (kernels->verdicts[cuda->device % MAX_DEVICES] != DISAGREES) continue;
    if (said_of(kernels) != nullptr || !in_question(kernels, cuda->device)) continue;
    snprintf(cuda->fallback + used, sizeof cuda->fallback - used, "%s%s: %.100s",
             used > 0 ? "; " : "", kernels->instead, kernels->why.what);
    used = strlen(cuda->fallback);
    cuda->ops.fallback = cuda->fallback;
  }
}

plm_status choose_kernels(struct plm_cuda *cuda, struct plm_error *error)
{
  bool use, forced;
  PLM_TRY(choose(cuda, &attention, &cuda->attention_sm90, &forced, error));
  PLM_TRY(choose(cuda, &onepass, &use, &forced, error));
  if (use) cuda->attention_backward = forced ? PLM_WAYS_SECOND : PLM_WAYS_TUNED;
  PLM_TRY(choose(cuda, &products, &use, &forced, error));
  if (use) cuda->relu2 = forced ? PLM_WAYS_SECOND : PLM_WAYS_TUNED;
  if (cuda->attention_sm90 || use) cuda->ops.isa = "sm_90a";
  if (cuda->capability == HOPPER && cuda->bf16) describe_kernels(cuda);
  return PLM_OK;
}

/* Opens all but the choice of kernels. */
plm_status prepare_backend(struct plm_cuda *cuda, struct plm_error *error)
{
  plm_cuda_memory_register(cuda);
  plm_cuda_streams_register(cuda);
  plm_cuda_elementwise_register(cuda);
  plm_cuda_norm_register(cuda);
  plm_cuda_mix_register(cuda);
  plm_cuda_tokens_register(cuda);
  plm_cuda_qkv_register(cuda);
  plm_cuda_attention_register(cuda);
  plm_cuda_attention_cached_register(cuda);
  plm_cuda_head_register(cuda);
  plm_cuda_linear_register(cuda);
  plm_cuda_sums_register(cuda);
  plm_cuda_optimizer_register(cuda);
  plm_cuda_muon_register(cuda);
  plm_cuda_algorithms_register(cuda);
  plm_cuda_targets_register(cuda);
  plm_cuda_nccl_register(cuda);
  PLM_TRY(find_device(cuda, error));
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

struct apart {
  int device;
  const struct sm90_kernels *kernels;
};

/* In a child: PLM_AGAIN if there is nothing to check. Closes nothing, since the child ends. */
plm_status check_apart(void *context, struct plm_error *error)
{
  const struct apart *asked = static_cast<const struct apart *>(context);
  struct plm_cuda *cuda = new_backend(PLM_PRECISION_BF16, asked->device);
  if (cuda == nullptr || prepare_backend(cuda, error) != PLM_OK) return PLM_AGAIN;
  return cuda->capability == HOPPER ? asked->kernels->check(cuda, error) : PLM_AGAIN;
}

/* Checks the kernels for sm_90a that nobody has forced, each in a process of its own, before this
 * process uses CUDA. */
void check_kernels_apart(int device)
{
  for (struct sm90_kernels *kernels : all_kernels) {
    enum verdict *verdict = &kernels->verdicts[device % MAX_DEVICES];
    if (*verdict != UNKNOWN || touched || said_of(kernels) != nullptr) continue;
    if (!in_question(kernels, device)) continue;
    struct plm_error found = {};
    struct apart asked = {device, kernels};
    const plm_status status = plm_cuda_check_apart(check_apart, &asked, &found);
    if (status == PLM_AGAIN) break;
    *verdict = status == PLM_OK ? AGREES : DISAGREES;
    if (status != PLM_OK) say(kernels, device, &found);
  }
  touched = true;
}

} // namespace

plm_status plm_cuda_no_memory(struct plm_error *error, size_t bytes, const char *why)
{
  size_t free_bytes = 0, total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) cudaGetLastError();
  plm_error_set(error, PLM_NO_MEMORY,
                "no device memory for a buffer of %zu bytes: %s; %.2f of %.2f GB are free", bytes,
                why, 1e-9 * (double)free_bytes, 1e-9 * (double)total_bytes);
  return plm_error_hint(error, "use a smaller batch (--batch-tokens, or for training "
                               "trainer.micro_batch_tokens) or trainer.recompute: block; "
                               "`plm-pipeline up --dry-run` shows the memory that is needed, and "
                               "nvidia-smi which processes use the device");
}

void plm_cuda_forget_checks(void)
{
  for (struct sm90_kernels *kernels : all_kernels)
    for (enum verdict &verdict : kernels->verdicts) verdict = UNKNOWN;
  touched = false;
}

plm_status plm_ops_cuda_open(int precision, int device, struct plm_ops **ops,
                             struct plm_error *error)
{
  if (precision == PLM_PRECISION_BF16) check_kernels_apart(device);
  touched = true;
  plm_cuda_forget_shared();
  struct plm_cuda *cuda = new_backend(precision, device);
  if (cuda == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  plm_status status = prepare_backend(cuda, error);
  if (status == PLM_OK) status = choose_kernels(cuda, error);
  if (status == PLM_TIMEOUT) return status; /* closing would wait for the kernels forever */
  if (status != PLM_OK) {
    close_backend(&cuda->ops);
    return status;
  }
  *ops = &cuda->ops;
  return PLM_OK;
}

void plm_cuda_touched(void)
{
  touched = true;
}

bool plm_cuda_is_touched(void)
{
  return touched;
}
