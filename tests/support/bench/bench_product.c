/* Runs the product to whose rate benchmarks relate other rates. */
#include "tests/support/bench/bench_product.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log/log.h"
#include "tests/support/harness/must.h"

enum { SIDE = BENCH_PRODUCT_SIDE, AREA = SIDE * SIDE };

typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k,
                            float alpha, const float *a, int lda, const float *b, int ldb,
                            float beta, float *c, int ldc);

void bench_product_open(struct bench_product *product, struct plm_ops *ops)
{
  struct plm_error error = {0};
  void *wide;
  char threads[16];
  *product = (struct bench_product){.ops = ops, .host = must(malloc(3 * sizeof(float) * AREA))};
  for (size_t i = 0; i < 2 * AREA; i++) /* a Weyl sequence is random enough here */
    product->host[i] = (float)((uint32_t)i * 2654435769u) * 0x1p-32f - 0.5f;
  must_work(ops->allocate(ops, sizeof(float) * AREA, &wide, &error), &error);
  for (int i = 0; i < 3; i++)
    must_work(ops->allocate(ops, ops->act_bytes * AREA, &product->device[i], &error), &error);
  for (int i = 0; i < 2; i++) {
    ops->upload(ops, wide, product->host + (size_t)i * AREA, sizeof(float) * AREA);
    ops->round_weights(ops, product->device[i], wide, AREA);
  }
  ops->release(ops, wide);
  (void)snprintf(threads, sizeof threads, "%u", ops->threads);
  (void)setenv("OPENBLAS_NUM_THREADS", threads, 1);
  /* never closed, since its threads keep running */
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) product->sgemm = dlsym(library, "cblas_sgemm");
}

void bench_product_close(struct bench_product *product)
{
  for (int i = 0; i < 3; i++) product->ops->release(product->ops, product->device[i]);
  free(product->host);
  *product = (struct bench_product){0};
}

void bench_product_run(struct bench_product *product)
{
  struct plm_error error = {0};
  struct plm_ops *ops = product->ops;
  ops->linear_forward(ops, product->device[2], product->device[0], product->device[1], NULL, SIDE,
                      SIDE, SIDE);
  must_work(ops->synchronize(ops, &error), &error);
}

bool bench_product_has_blas(const struct bench_product *product)
{
  return product->sgemm != NULL;
}

void bench_product_run_blas(struct bench_product *product)
{
  enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };
  float *a = product->host, *b = a + AREA, *c = b + AREA;
  sgemm_function *sgemm;
  *(void **)&sgemm = product->sgemm;
  sgemm(ROW_MAJOR, AS_IT_IS, TRANSPOSED, SIDE, SIDE, SIDE, 1.0f, a, SIDE, b, SIDE, 0.0f, c, SIDE);
}
