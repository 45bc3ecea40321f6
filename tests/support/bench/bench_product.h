/* The product of 2048 x 2048 matrices to whose rate benchmarks relate other rates, by the backend,
 * and by OpenBLAS if it is installed. */
#ifndef PLM_TESTS_SUPPORT_BENCH_BENCH_PRODUCT_H
#define PLM_TESTS_SUPPORT_BENCH_BENCH_PRODUCT_H

#include <stdbool.h>

#include "common/ops/ops.h"

enum { BENCH_PRODUCT_SIDE = 2048 };
#define BENCH_PRODUCT_FLOPS (2.0 * BENCH_PRODUCT_SIDE * BENCH_PRODUCT_SIDE * BENCH_PRODUCT_SIDE)

struct bench_product {
  struct plm_ops *ops;
  float *host;     /* operands, and the result of OpenBLAS */
  void *device[3]; /* operands and result in the backend's precision */
  void *sgemm;     /* cblas_sgemm of OpenBLAS; NULL if it is not installed */
};

/* Ends the program if there is no memory. OpenBLAS gets as many threads as ops has. */
void bench_product_open(struct bench_product *product, struct plm_ops *ops);
void bench_product_close(struct bench_product *product);

void bench_product_run(struct bench_product *product);
bool bench_product_has_blas(const struct bench_product *product);
void bench_product_run_blas(struct bench_product *product); /* fp32 */

#endif
