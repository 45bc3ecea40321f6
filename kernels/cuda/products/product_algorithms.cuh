/* How the library multiplies each shape of a product. An algorithm is found by a hash of the shape,
 * made when a product first has that shape, and kept. The table, the rules of tuning and the text
 * in which algorithms are exported are the same for cuBLASLt and for the emulation; only the
 * library (second half of this header) knows what an algorithm's words mean.
 *
 * An algorithm is either proposed or tuned. The proposed one is the library's first choice among
 * those that give the same bits each time: it depends only on the shape, the library and the card.
 * The tuned one is the fastest of several that were measured; another run may find another. Only
 * tuned algorithms are exported. Proposed ones are dropped when the table is full.
 *
 * A batch whose products must have the bits that they have alone (shape.alike) takes the algorithm
 * of a single product, which then must not divide K among blocks. If the library refuses it for
 * the batch, the products are made one by one. */
#ifndef PLM_KERNELS_CUDA_PRODUCTS_PRODUCT_ALGORITHMS_CUH
#define PLM_KERNELS_CUDA_PRODUCTS_PRODUCT_ALGORITHMS_CUH

#include "kernels/cuda/products/products.cuh"

struct plm_cuda_algorithm {
  struct plm_cuda_shape shape; /* without alpha and beta, which each product brings */
  int64_t alignment;           /* of all operands, in bytes: at most 16 */
  bool tuned;
  bool refused;      /* the library does not take the single product's algorithm for this batch */
  uint64_t words[8]; /* the library's description; for cuBLASLt a cublasLtMatmulAlgo_t */
  void *made;        /* the library's descriptors of the shape */
};

struct plm_cuda_operands {
  void *c;
  const void *a, *b, *addend;
  float alpha, beta; /* beta is 0 if nothing is added */
};

plm_status plm_cuda_algorithms_open(struct plm_cuda *cuda, struct plm_error *error);
void plm_cuda_algorithms_close(struct plm_cuda *cuda);
void plm_cuda_algorithms_register(struct plm_cuda *cuda);

/* For other measurements of the first step (kernel_choices.cu): whether measuring is allowed now
 * (tuning is on and nothing is being recorded), a clock in seconds, and the count of what was
 * measured, which ops->tune reports. */
bool plm_cuda_tuning_allowed(const struct plm_cuda *cuda);
double plm_cuda_tuning_clock(void);
void plm_cuda_tuning_count(struct plm_cuda *cuda, double seconds);

/* ---- the library's side: products_cublaslt.cu, tests/emulation/products_plain.cc ---- */
/* What an algorithm's words are valid for: library, version, card. */
void plm_cuda_library_name(const struct plm_cuda *cuda, char name[128]);
/* Fills algorithm->made from its shape. */
plm_status plm_cuda_algorithm_make(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
                                   struct plm_error *error);
void plm_cuda_algorithm_release(struct plm_cuda_algorithm *algorithm);
/* algorithm->words = the library's first choice. Launches nothing. */
plm_status plm_cuda_algorithm_propose(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
                                      struct plm_error *error);
/* algorithm->words = the fastest of the library's choices on these operands, which keep their
 * values, except c if it is not also an input. Returns false if it could not be measured now. */
bool plm_cuda_algorithm_measure(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
                                const struct plm_cuda_operands *operands);
/* Whether the library accepts algorithm->words for this shape. */
bool plm_cuda_algorithm_accepts(struct plm_cuda *cuda, const struct plm_cuda_algorithm *algorithm);
/* Launches the product. The algorithm need not exist after the call. */
plm_status plm_cuda_algorithm_run(struct plm_cuda *cuda, const struct plm_cuda_algorithm *algorithm,
                                  const struct plm_cuda_operands *operands,
                                  struct plm_error *error);

#endif
