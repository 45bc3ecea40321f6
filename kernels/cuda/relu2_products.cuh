/* The two products of the MLP that have relu2 around them: by the library with a pass over its
 * result, or on sm_90a by one kernel. Which one is a choice of the backend (plm_cuda.relu2) or of
 * each shape: measured where tuning is on, kept among the algorithms of products. */
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
/* Computes it one way or the other; library: the one that is always there. */
void plm_cuda_relu2_product(struct plm_cuda *cuda, const struct plm_relu2_product *p,
                            plm_relu2_library library);

/* ---- choices, a line each in the text of algorithms: "relu2_forward N I O fused" ---- */
enum { PLM_CHOICE_BYTES = 128 }; /* of a line at most */
plm_status plm_cuda_choices_open(struct plm_cuda *cuda, struct plm_error *error);
void plm_cuda_choices_close(struct plm_cuda *cuda);
int plm_cuda_choices_count(const struct plm_cuda *cuda);
/* Appends the lines; returns their bytes. */
size_t plm_cuda_choices_print(const struct plm_cuda *cuda, char *out, size_t room);
/* Is a line one of these? */
bool plm_cuda_choice_is(const char *line);
/* Takes one. PLM_FORMAT: it is not as it was written; PLM_UNSUPPORTED: it is not possible here. */
plm_status plm_cuda_choice_import(struct plm_cuda *cuda, const char *line, struct plm_error *error);

/* ---- the library's side: products_cublaslt.cu, tests/emulation/products_plain.cc ---- */
/* Is the kernel faster than the library and its pass on these operands, by more than times may
 * differ? Both run. False: it could not be measured now. */
bool plm_cuda_choice_measure(struct plm_cuda *cuda, const struct plm_relu2_product *p,
                             plm_relu2_library library, bool *fused);

/* ---- sm90/product_sm90.cu ---- */
/* Whether the kernel takes it: bf16, I and O multiples of 8, buffers aligned to 16 bytes. */
bool plm_cuda_product_sm90_takes(const struct plm_cuda *cuda, const struct plm_relu2_product *p);
/* Begins it; it must be taken. fp32 sums, rounded once; the same bits each time. False: the driver
 * has no maps of tiles. */
bool plm_cuda_product_sm90(struct plm_cuda *cuda, const struct plm_relu2_product *p);
/* sm90/product_sm90_check.cu: whether it computes on this device what the library and the pass do.
 * PLM_CORRUPT: it does not; PLM_TIMEOUT: it does not end; else the device reports an error. */
plm_status plm_cuda_product_sm90_check(struct plm_cuda *cuda, struct plm_error *error);

#endif
