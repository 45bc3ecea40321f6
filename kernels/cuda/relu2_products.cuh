/* The two products of the MLP that have relu2 after them or before them: by the library and a pass
 * over its result, or on sm_90a by one kernel. The choice is made for the backend (plm_cuda.relu2)
 * or for each shape: tuning measures it, and it is kept with the product algorithms. */
#ifndef PLM_KERNELS_CUDA_RELU2_PRODUCTS_CUH
#define PLM_KERNELS_CUDA_RELU2_PRODUCTS_CUH

#include "kernels/cuda/cuda_ops.cuh"

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

/* ---- choices: lines such as "relu2_forward N I O fused" in the text of algorithms ---- */
enum { PLM_CHOICE_BYTES = 128 }; /* the most that a line takes */
plm_status plm_cuda_choices_open(struct plm_cuda *cuda, struct plm_error *error);
void plm_cuda_choices_close(struct plm_cuda *cuda);
int plm_cuda_choices_count(const struct plm_cuda *cuda);
/* Prints the lines and returns their bytes. */
size_t plm_cuda_choices_print(const struct plm_cuda *cuda, char *out, size_t room);
/* Whether a line is a choice. */
bool plm_cuda_choice_is(const char *line);
/* Takes a choice. PLM_FORMAT: the line is damaged. PLM_UNSUPPORTED: the choice is not possible
 * here. */
plm_status plm_cuda_choice_import(struct plm_cuda *cuda, const char *line, struct plm_error *error);

/* ---- the library's side: products_cublaslt.cu, tests/emulation/products_plain.cc ---- */
/* Runs and measures both ways; *fused becomes whether the kernel is faster by more than the noise
 * of measuring. Returns false if it could not be measured now. */
bool plm_cuda_choice_measure(struct plm_cuda *cuda, const struct plm_relu2_product *p,
                             plm_relu2_library library, bool *fused);

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
