/* Products by a CBLAS, only in fp32, for machines without oneDNN. `make PRODUCTS=cblas` builds it;
 * so does plain `make` if the headers of oneDNN are missing. */
#include <cblas.h>
#include <stdlib.h>

#include "kernels/cpu/product.h"

#include "common/base/alloc.h"

enum { BUCKETS = 1024 };

struct plm_product {
  struct plm_product_shape shape;
  struct plm_product *next; /* in its bucket */
};

struct plm_products {
  struct plm_product *buckets[BUCKETS];
  struct plm_error error;
};

/* OpenBLAS starts its own threads unless told otherwise. Other libraries lack this function; their
 * users must limit them to one thread. */
void openblas_set_num_threads(int count) __attribute__((weak));
char *openblas_get_config(void) __attribute__((weak));

const char *plm_products_library(void)
{
  return openblas_get_config != NULL ? openblas_get_config() : "CBLAS";
}

/* Has no effect: OpenBLAS has chosen its kernels when the program starts. The environment variable
 * OPENBLAS_CORETYPE overrides that choice. */
void plm_products_limit(enum plm_processor_level level)
{
  (void)level;
}

plm_status plm_products_open(uint32_t threads, struct plm_products **products,
                             struct plm_error *error)
{
  (void)threads;
  if (openblas_set_num_threads != NULL) openblas_set_num_threads(1);
  *products = plm_alloc_zeroed(1, sizeof **products);
  return PLM_OK;
}

void plm_products_close(struct plm_products *products)
{
  if (products == NULL) return;
  for (int i = 0; i < BUCKETS; i++)
    for (struct plm_product *p = products->buckets[i], *next; p != NULL; p = next) {
      next = p->next;
      free(p);
    }
  free(products);
}

struct plm_products_kind plm_products_kind(void)
{
  return (struct plm_products_kind){.version = 0};
}

plm_status plm_products_error(const struct plm_products *products, struct plm_error *error)
{
  if (products->error.status != PLM_OK && error != NULL) *error = products->error;
  return products->error.status;
}

const struct plm_product *plm_products_get(struct plm_products *products,
                                           const struct plm_product_shape *shape)
{
  PLM_ASSERT(!shape->is_bf16);
  const uint64_t mixed = (uint64_t)shape->M * 31 + (uint64_t)shape->N * 1009 +
                         (uint64_t)shape->K * 65537 + (uint64_t)shape->lda;
  struct plm_product **bucket = &products->buckets[mixed % BUCKETS];
  for (struct plm_product *p = *bucket; p != NULL; p = p->next)
    if (plm_product_shape_equal(&p->shape, shape)) return p;
  struct plm_product *product = plm_alloc_zeroed(1, sizeof *product);
  product->shape = *shape;
  product->next = *bucket;
  *bucket = product;
  return product;
}

void plm_product_run_float(const struct plm_product_shape *s, float *C, const float *A,
                           const float *B)
{
  cblas_sgemm(CblasRowMajor, s->transpose_a ? CblasTrans : CblasNoTrans,
              s->transpose_b ? CblasTrans : CblasNoTrans, (int)s->M, (int)s->N, (int)s->K, 1.0f, A,
              (int)s->lda, B, (int)s->ldb, s->accumulate ? 1.0f : 0.0f, C, (int)s->ldc);
}

void plm_product_run(const struct plm_product *product, uint32_t thread, void *C, const void *A,
                     const void *B)
{
  (void)thread;
  if (product != NULL) plm_product_run_float(&product->shape, C, A, B);
}
