/* Which kernels have passed their check in an earlier process. Each has a small file in the folder
 * of product algorithms (common/ops/measured_folder.h), for one card and one of the checks. It
 * names the driver and this build of the backend; another one makes it void. Only successes are
 * kept, so kernels that fail are checked again by each process. A file that cannot be read or
 * written only means that the check is made again. */
#ifndef PLM_KERNELS_CUDA_CHECKS_CHECK_MEMORY_CUH
#define PLM_KERNELS_CUDA_CHECKS_CHECK_MEMORY_CUH

#include "kernels/cuda/device/cuda_ops.cuh"

/* what: the name of the check. The fields of cuda that describe the device must be set. */
bool plm_cuda_check_known(const struct plm_cuda *cuda, const char *what);
void plm_cuda_check_keep(const struct plm_cuda *cuda, const char *what);

#endif
