/* Plans of products: how the library multiplies one shape, found by hash, made when the shape is
 * met first and kept. The table, the measuring's rules and the text that plans travel in are one
 * for cuBLASLt and for the emulation; what a plan is made of is the library's (the second half).
 *
 * A plan is either proposed (the library's first choice that gives the same bits each time: a
 * function of the shape, the library and the card alone) or tuned (the fastest of several,
 * measured; another run may find another). Only tuned plans are exported; proposed ones are dropped
 * when there are too many shapes. */
#ifndef PLM_KERNELS_CUDA_PRODUCT_PLANS_CUH
#define PLM_KERNELS_CUDA_PRODUCT_PLANS_CUH

#include "kernels/cuda/products.cuh"

/* The library's own description of an algorithm; cublasLtMatmulAlgo_t has this size. */
struct plm_cuda_algorithm {
  uint64_t words[8];
};

struct plm_cuda_plan {
  struct plm_cuda_shape shape; /* alpha and beta are each product's own */
  int64_t alignment;           /* of all operands, bytes: 16, or less where one has less */
  bool tuned;
  struct plm_cuda_algorithm algorithm;
  void *made; /* the library's */
};

struct plm_cuda_operands {
  void *c;
  const void *a, *b, *addend;
  float alpha, beta; /* 0 where nothing is added */
};

plm_status plm_cuda_plans_open(struct plm_cuda *cuda, struct plm_error *error);
void plm_cuda_plans_close(struct plm_cuda *cuda);
void plm_cuda_plans_register(struct plm_cuda *cuda);
/* The shape's plan, made now where it is new, measured where tuning is on; NULL after a failure,
 * which is sticky in cuda->error. Valid until the next call. */
const struct plm_cuda_plan *plm_cuda_plan_find(struct plm_cuda *cuda,
                                               const struct plm_cuda_shape *shape,
                                               const struct plm_cuda_operands *operands);

/* For what is measured beside the plans: may it be now (tuning is on, nothing is recorded), seconds
 * of a clock, and what was. */
bool plm_cuda_plans_measure(const struct plm_cuda *cuda);
double plm_cuda_plans_clock(void);
void plm_cuda_plans_measured(struct plm_cuda *cuda, double seconds);

/* ---- the library's side: products_cublaslt.cu, tests/emulation/products_plain.cc ---- */
/* What an algorithm's words are valid for: library, version, card. */
void plm_cuda_library_name(const struct plm_cuda *cuda, char name[128]);
/* Fills plan->made from its shape. */
plm_status plm_cuda_plan_make(struct plm_cuda *cuda, struct plm_cuda_plan *plan,
                              struct plm_error *error);
void plm_cuda_plan_release(struct plm_cuda_plan *plan);
/* plan->algorithm = the library's first choice. Launches nothing. */
plm_status plm_cuda_plan_propose(struct plm_cuda *cuda, struct plm_cuda_plan *plan,
                                 struct plm_error *error);
/* plan->algorithm = the fastest of the library's choices on these operands, which keep their values
 * but for c where nothing reads it. False: it could not be measured now. */
bool plm_cuda_plan_measure(struct plm_cuda *cuda, struct plm_cuda_plan *plan,
                           const struct plm_cuda_operands *operands);
/* Does the library take plan->algorithm for this shape? */
bool plm_cuda_plan_accepts(struct plm_cuda *cuda, const struct plm_cuda_plan *plan);

#endif
