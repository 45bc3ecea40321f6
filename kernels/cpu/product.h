/* Matrix products on one thread: fp32 and bf16 by oneDNN, or fp32 alone by a CBLAS. The operators
 * cut a product into tiles and run the tiles on the pool; the library's own threads are kept out of
 * it, so that a tile's bits do not depend on how many there are.
 *
 * A product is planned once for a shape (_get, by the pool's caller) and then runs on any thread
 * without allocating.
 */
#ifndef PLM_KERNELS_CPU_PRODUCT_H
#define PLM_KERNELS_CPU_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/cpu/processor.h"

struct plm_products;
struct plm_product;

/* C_MN = A_MK B_KN, row-major; ld: elements between rows as stored. */
struct plm_product_shape {
  int64_t M, N, K;
  int64_t lda, ldb, ldc;
  uint8_t transpose_a; /* A is stored as (K, M) */
  uint8_t transpose_b; /* B is stored as (N, K) */
  uint8_t half;        /* A and B are bf16, else float */
  uint8_t half_output; /* C is bf16, else float; only with half */
  uint8_t accumulate;  /* C += */
};

static inline bool plm_product_shape_equal(const struct plm_product_shape *a,
                                           const struct plm_product_shape *b)
{
  return a->M == b->M && a->N == b->N && a->K == b->K && a->lda == b->lda && a->ldb == b->ldb &&
         a->ldc == b->ldc && a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
         a->half == b->half && a->half_output == b->half_output && a->accumulate == b->accumulate;
}

/* The library's name and version: the bits of its products may change with it. */
const char *plm_products_library(void);

plm_status plm_products_open(uint32_t threads, struct plm_products **products,
                             struct plm_error *error);
void plm_products_close(struct plm_products *products); /* NULL is fine */

/* Keeps the library to a level's instructions, as far as it can be told; before the first _open of
 * the process, without effect later. */
void plm_products_limit(enum plm_processor_level level);

/* Whether this processor runs bf16 products (not: whether they are faster). */
bool plm_products_have_half(void);

/* Errors of planning are kept: the product is then skipped. PLM_OK when there was none. */
plm_status plm_products_error(const struct plm_products *products, struct plm_error *error);

/* The plan of a shape, made at its first use. NULL after an error. Not thread-safe, except that any
 * number of threads may ask together for shapes that were planned before. */
const struct plm_product *plm_products_get(struct plm_products *products,
                                           const struct plm_product_shape *shape);

/* On the pool's thread `thread`. NULL product: nothing happens. */
void plm_product_run(const struct plm_product *product, uint32_t thread, void *C, const void *A,
                     const void *B);

/* A plain fp32 product that needs no plan: for shapes that change from call to call. */
void plm_product_run_float(const struct plm_product_shape *shape, float *C, const float *A,
                           const float *B);

#endif
