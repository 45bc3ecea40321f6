/* Matrix products on one thread: fp32 and bf16 by oneDNN, or only fp32 by a CBLAS. The operators
 * cut a product into tiles and run the tiles on the pool. The library may not use threads of its
 * own, so the bits of a tile do not depend on the number of threads.
 *
 * The pool's caller prepares a product once for each shape (_get). Then it runs on any thread
 * without allocating memory.
 */
#ifndef PLM_KERNELS_CPU_PRODUCT_H
#define PLM_KERNELS_CPU_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/cpu/processor.h"

struct plm_products;
struct plm_product;

/* C_MN = A_MK B_KN, row-major. lda, ldb and ldc: elements between the starts of stored rows. */
struct plm_product_shape {
  int64_t M, N, K;
  int64_t lda, ldb, ldc;
  uint8_t transpose_a; /* A is stored as (K, M) */
  uint8_t transpose_b; /* B is stored as (N, K) */
  uint8_t is_bf16;     /* A and B are bf16, else float */
  uint8_t bf16_output; /* C is bf16, else float; only with is_bf16 */
  uint8_t accumulate;  /* C += */
};

/* Bytes of an element of A and B. */
static inline int64_t plm_product_in_bytes(const struct plm_product_shape *shape)
{
  return shape->is_bf16 ? 2 : 4;
}

/* Bytes of an element of C. */
static inline int64_t plm_product_out_bytes(const struct plm_product_shape *shape)
{
  return shape->bf16_output ? 2 : 4;
}

static inline bool plm_product_shape_equal(const struct plm_product_shape *a,
                                           const struct plm_product_shape *b)
{
  return a->M == b->M && a->N == b->N && a->K == b->K && a->lda == b->lda && a->ldb == b->ldb &&
         a->ldc == b->ldc && a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
         a->is_bf16 == b->is_bf16 && a->bf16_output == b->bf16_output &&
         a->accumulate == b->accumulate;
}

/* Name and version of the library, and the instructions that it uses: the bits of its products
 * depend on them. After this call, plm_products_limit has no effect. */
const char *plm_products_library(void);

plm_status plm_products_open(uint32_t threads, struct plm_products **products,
                             struct plm_error *error);
void plm_products_close(struct plm_products *products); /* NULL is fine */

/* Restricts the library to the instructions of a level, if the library supports that. Must be
 * called before the first plm_products_open and plm_products_library of the process; later calls
 * have no effect. */
void plm_products_limit(enum plm_processor_level level);

/* The library's version as 100 major + minor (206: 2.6), and the level whose instructions it uses.
 * Version 0 for a library without bf16 products. After this call, plm_products_limit has no effect.
 */
struct plm_products_kind {
  uint32_t version;
  enum plm_processor_level level;
};
struct plm_products_kind plm_products_kind(void);

/* Returns the latest error of preparing a product, or PLM_OK. Running a product that could not be
 * prepared does nothing. */
plm_status plm_products_error(const struct plm_products *products, struct plm_error *error);

/* Returns the product of a shape, which it prepares at the first call. NULL after an error.
 * `products` owns it. Any number of threads may ask at once for shapes that were already prepared;
 * otherwise it is not thread-safe. */
const struct plm_product *plm_products_get(struct plm_products *products,
                                           const struct plm_product_shape *shape);

/* Runs a product on the pool's thread `thread`. Does nothing if `product` is NULL. */
void plm_product_run(const struct plm_product *product, uint32_t thread, void *C, const void *A,
                     const void *B);

/* Runs an fp32 product without preparing it, for shapes that change from call to call. */
void plm_product_run_float(const struct plm_product_shape *shape, float *C, const float *A,
                           const float *B);

#endif
