/* The real header of cuBLASLt beside the emulation: the headers that it includes would declare the
 * types of the real runtime, so their include guards are set, and the few types that the header
 * needs besides the emulation's are declared here. The Makefile includes this file before every
 * other one in the sources that call cuBLASLt. */
#ifndef PLM_TESTS_EMULATION_CUBLASLT_HEADER_H
#define PLM_TESTS_EMULATION_CUBLASLT_HEADER_H

#include "kernels/cuda/device/platform.cuh"

#define __DRIVER_TYPES_H__
#define __VECTOR_TYPES_H__
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
#define CU_COMPLEX_H_
typedef float2 cuComplex;
struct cuDoubleComplex {
  double x, y;
};
struct __half {
  uint16_t bits;
};

#include <cublasLt.h>

#endif
