/* The one symbol of the shared object. */
#include "kernels/cuda/cuda_ops.cuh"

extern "C" {
#include "common/config/config.h"
#include "kernels/backend_library.h"

__attribute__((visibility("default"))) const struct plm_backend_library *plm_backend_entry(void);
}

static plm_status open_library(size_t act_bytes, int ordinal, struct plm_ops **ops,
                               struct plm_error *error)
{
  return plm_ops_cuda_open(act_bytes == 2 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, ordinal, ops,
                           error);
}

const struct plm_backend_library *plm_backend_entry(void)
{
  static const struct plm_backend_library library = {
      sizeof(struct plm_backend_library),
      sizeof(struct plm_ops),
      PLM_VERSION,
      PLM_BACKEND_INTERFACE,
      open_library,
  };
  return &library;
}
