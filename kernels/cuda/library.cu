/* The only symbol that the shared object exports. */
#include <cstdlib>

#include "kernels/cuda/checks/check_process.cuh"
#include "kernels/cuda/products/products.cuh"

extern "C" {
#include "common/ops/device.h"
#include "kernels/backend_library.h"

__attribute__((visibility("default"))) const struct plm_backend_library *plm_backend_entry(void);
}

static plm_status open_library(size_t act_bytes, int ordinal, struct plm_ops **ops,
                               struct plm_error *error)
{
  return plm_ops_cuda_open(act_bytes == 2 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, ordinal, ops,
                           error);
}

/* In a child: the number as text. */
static plm_status count_in_child(void *, struct plm_error *error)
{
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return PLM_FAILURE;
  plm_error_set(error, PLM_OK, "%d", count);
  return PLM_OK;
}

/* 0 also if there is no driver; opening a device then says what is wrong. A child counts, because
 * the checks of the kernels also need a process that has not called CUDA before. */
static int count_devices()
{
  int count = 0;
  struct plm_error found = {};
  if (!plm_cuda_is_touched() && plm_cuda_check_apart(count_in_child, nullptr, &found) == PLM_OK)
    return atoi(found.what);
  plm_cuda_touched();
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

static void unknown_size(struct plm_ops *, uint64_t *free_bytes, uint64_t *total_bytes)
{
  *free_bytes = *total_bytes = 0;
}

static void close_bare(struct plm_ops *ops)
{
  free(plm_cuda_of(ops));
}

static plm_status open_bare(size_t act_bytes, struct plm_ops **ops, struct plm_error *error)
{
  struct plm_cuda *cuda = static_cast<struct plm_cuda *>(calloc(1, sizeof *cuda));
  if (cuda == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  plm_cuda_muon_register(cuda);
  cuda->bf16 = act_bytes == 2;
  cuda->ops.name = "cuda";
  cuda->ops.act_bytes = act_bytes;
  cuda->ops.threads = 1;
  cuda->ops.memory_size = unknown_size;
  cuda->ops.close = close_bare;
  *ops = &cuda->ops;
  return PLM_OK;
}

const struct plm_backend_library *plm_backend_entry(void)
{
  static const struct plm_backend_library library = {
      sizeof(struct plm_backend_library),
      sizeof(struct plm_ops),
      PLM_VERSION,
      PLM_BACKEND_INTERFACE,
      (uint64_t)PLM_CUDA_SCRATCH_BYTES + PLM_CUDA_PRODUCTS_BYTES,
      open_library,
      count_devices,
      open_bare,
  };
  return &library;
}
