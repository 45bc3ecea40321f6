/* The CUDA backend: fills struct plm_ops for one device. Built as build/lib/libplm_cuda.so, which
 * programs load at run time where a device is (common/ops/open.h); and for the CPU under the
 * emulation, for tests. */
#ifndef PLM_KERNELS_CUDA_CUDA_H
#define PLM_KERNELS_CUDA_CUDA_H

#include <stdbool.h>

#include "common/ops/ops.h"

/* precision: PLM_PRECISION_FP32 (TF32 off) or PLM_PRECISION_BF16. device: its ordinal.
 * PLM_NOT_FOUND: no such device; PLM_UNSUPPORTED: it is older than sm_80, or its driver too old.
 * On a device of 9.0, the kernels for sm_90a (attention; the MLP's products with relu2 in them) are
 * compared with what every device runs, once a process; where they disagree one line on stderr says
 * so, and the others are used. Where the products agree, tuning measures which way is faster for a
 * shape; untuned shapes go by the library. The environment's PLM_CUDA_ATTENTION, mma or sm90, and
 * PLM_CUDA_RELU2, library or fused, force the one or the other, unchecked. PLM_TIMEOUT: those
 * kernels did not end, and the device cannot be used by this process any more. */
plm_status plm_ops_cuda_open(int precision, int device, struct plm_ops **ops,
                             struct plm_error *error);

/* Under the emulation alone: in which order threads and blocks run in launches from now on, and
 * when streams do their work (emulation/runtime.h): seeds 0 and 1 make copies as late as may be,
 * others draw. */
void plm_cuda_emulation_order(uint64_t seed);
/* Under the emulation alone: which algorithms tuning finds from now on. The environment variable
 * PLM_EMULATED_TUNING, where it is set, says it at each opening. */
void plm_cuda_emulation_tuning(uint64_t seed);
/* Likewise: bytes of scratch of backends that are opened from now on, so that operators work in
 * slabs on small shapes; 0: as before. */
void plm_cuda_emulation_scratch(size_t bytes);
/* Likewise: the compute capability, 80 at first, 90 for 9.0, whose products of warpgroups may be
 * wrong. */
void plm_cuda_emulation_capability(int capability, bool wrong_products);

#endif
