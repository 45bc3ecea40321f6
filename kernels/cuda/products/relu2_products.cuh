/* The two products of the MLP that have relu2 after them or before them: by the library and a pass
 * over its result, or on sm_90a by one kernel. The choice is made for the backend (plm_cuda.relu2)
 * or for each shape (kernel_choices.cuh). */
#ifndef PLM_KERNELS_CUDA_PRODUCTS_RELU2_PRODUCTS_CUH
#define PLM_KERNELS_CUDA_PRODUCTS_RELU2_PRODUCTS_CUH

#include "kernels/cuda/device/cuda_ops.cuh"

/* Forward: out (N, O) = relu(a (N, I) w (O, I)^T)^2; hidden is NULL. Backward, through the weight
 * and the relu2 before it: out (N, I) = (a (N, O) w (O, I)) * 2 sqrt(hidden (N, I)). */
struct plm_relu2_product {
  act *out;
  const act *a, *w, *hidden;
  int64_t N, I, O;
};
static inline bool plm_relu2_is_backward(const struct plm_relu2_product *p)
{
  return p->hidden != nullptr;
}

typedef void (*plm_relu2_library)(struct plm_cuda *cuda, const struct plm_relu2_product *p);
/* Computes the product in one of the two ways. `library` is the way that always works. */
void plm_cuda_relu2_product(struct plm_cuda *cuda, const struct plm_relu2_product *p,
                            plm_relu2_library library);

/* ---- sm90/product_sm90.cu ---- */
/* Whether the kernel can compute it: bf16, I and O multiples of 8, buffers aligned to 16 bytes. */
bool plm_cuda_product_sm90_takes(const struct plm_cuda *cuda, const struct plm_relu2_product *p);
/* Launches the kernel, which must take the product. Sums are fp32 and rounded once; the bits are
 * the same each time. Returns false if the driver cannot make maps of tiles. */
bool plm_cuda_product_sm90(struct plm_cuda *cuda, const struct plm_relu2_product *p);
/* sm90/product_sm90_check.cu: compares the kernel on this device with the library and the pass.
 * PLM_CORRUPT: they differ. PLM_TIMEOUT: the kernel did not end. Other errors are the device's. */
plm_status plm_cuda_product_sm90_check(struct plm_cuda *cuda, struct plm_error *error);

#endif
