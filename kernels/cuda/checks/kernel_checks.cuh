/* The choice between the kernels for sm_90a and those for every device. On a device of compute
 * capability 9.0, the former are used in bf16 if a check finds that they compute what the others
 * do, or if the environment forces them (doc/cuda.md, "Self-checks"). */
#ifndef PLM_KERNELS_CUDA_CHECKS_KERNEL_CHECKS_CUH
#define PLM_KERNELS_CUDA_CHECKS_KERNEL_CHECKS_CUH

#include "kernels/cuda/device/cuda_ops.cuh"

/* Opens a backend in bf16 with all but the choice of kernels; without `whole` it only finds out
 * what device it is, which does not need memory of the device. */
typedef plm_status (*plm_cuda_opener)(int device, bool whole, struct plm_cuda **cuda,
                                      struct plm_error *error);

/* Checks the kernels that nobody has forced in a child of this process, unless this process has
 * called CUDA already or they are known. A line on stderr names those that fail. */
void plm_cuda_check_kernels(int device, plm_cuda_opener open);

/* Sets which kernels the backend uses, and the texts that describe them. Kernels that are not known
 * by then are checked in this process. */
plm_status plm_cuda_choose_kernels(struct plm_cuda *cuda, struct plm_error *error);

#endif
