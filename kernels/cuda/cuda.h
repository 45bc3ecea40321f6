/* The CUDA backend: fills struct plm_ops for one device. It is built as libplm_cuda.so, which
 * programs load at run time if there is a device (common/ops/open.h), and, for tests, for the CPU
 * under the emulation. See doc/cuda.md. */
#ifndef PLM_KERNELS_CUDA_CUDA_H
#define PLM_KERNELS_CUDA_CUDA_H

#include "common/ops/ops.h"

/* precision: PLM_PRECISION_FP32 (TF32 off) or PLM_PRECISION_BF16. device: its ordinal.
 * PLM_NOT_FOUND: no such device. PLM_UNSUPPORTED: it is older than compute capability 8.0, or its
 * driver is too old.
 *
 * On a device of compute capability 9.0, the kernels for sm_90a (attention, and the MLP's products
 * with relu2 in them) are compared with the kernels for every device, once in a process. If they
 * disagree, a line on stderr says so and the others are used. If they agree, tuning
 * measures for each shape which way is faster, for these products and for attention's backward pass
 * (in two kernels or in one); shapes that were not tuned use the library and two kernels. The
 * environment variables PLM_CUDA_ATTENTION (mma or sm90), PLM_CUDA_ATTENTION_BACKWARD (split or
 * onepass) and PLM_CUDA_RELU2 (library or fused) force a choice without a check; PLM_CONFIG:
 * another value.
 *
 * The comparison runs in a child, so that a fault of the device does not reach the caller. Only if
 * this process has used CUDA before does it run here; PLM_TIMEOUT or PLM_FAILURE: the checked
 * kernels did not end or failed, and this process cannot use the device any more. */
plm_status plm_ops_cuda_open(int precision, int device, struct plm_ops **ops,
                             struct plm_error *error);

#endif
