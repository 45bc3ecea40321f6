/* Matrix products of the CUDA backend, all row-major: cuBLASLt with an algorithm for each shape, or
 * plain loops under the emulation. */
#ifndef PLM_KERNELS_CUDA_PRODUCTS_PRODUCTS_CUH
#define PLM_KERNELS_CUDA_PRODUCTS_PRODUCTS_CUH

#include "kernels/cuda/device/cuda_ops.cuh"

/* C (M, N) = alpha op(A) op(B) + beta addend, where op(A) is (M, K) and op(B) is (K, N). A
 * transposed operand is stored as (K, M) or (N, K). ld: elements between stored rows. The products
 * of a batch are stride elements apart. */
struct plm_cuda_shape {
  int64_t M, N, K;
  int64_t lda, ldb, ldc;
  bool transpose_a, transpose_b;
  bool float_c;  /* C and the addend are fp32, else activations */
  bool add;      /* there is an addend, which may be C itself */
  int32_t batch; /* number of products */
  bool alike;    /* a product has the same bits in a batch of any size, also alone */
  int64_t stride_a, stride_b, stride_c;
  float alpha = 1, beta = 1;
};

/* The workspace of cuBLASLt on the device. */
enum { PLM_CUDA_PRODUCTS_BYTES = 64 << 20 };
plm_status plm_cuda_products_open(struct plm_cuda *cuda, struct plm_error *error);
void plm_cuda_products_close(struct plm_cuda *cuda);
/* A and B are activations: bf16 with fp32 accumulation, or fp32 without TF32. A failure is sticky
 * in cuda->error. */
void plm_cuda_multiply(struct plm_cuda *cuda, const struct plm_cuda_shape *shape, void *c,
                       const void *a, const void *b, const void *addend);

#endif
