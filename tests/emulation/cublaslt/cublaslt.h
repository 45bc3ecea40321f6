/* An emulated cuBLASLt (cublaslt.cc). The functions of the library are those of its own header. */
#ifndef PLM_TESTS_EMULATION_CUBLASLT_CUBLASLT_H
#define PLM_TESTS_EMULATION_CUBLASLT_CUBLASLT_H

#ifdef __cplusplus
#include "kernels/cuda/device/numbers.cuh"
extern "C" {
#endif

/* How many handles and descriptions exist. */
int plm_emulated_cublaslt_live(void);

#ifdef __cplusplus
}
#endif

#endif
