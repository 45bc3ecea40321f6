/* Products by oneDNN (product_cblas.c replaces this file if oneDNN is missing). Only this file
 * knows its C API, which version 3 changed: memory descriptors became opaque, and operation
 * descriptors were removed. */
#include "kernels/cpu/product.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>

#include "common/base/alloc.h"

enum { BUCKETS = 1024 };

struct plm_product {
  struct plm_product_shape shape;
  struct plm_product *next; /* in its bucket */
  struct plm_products *owner;
  dnnl_primitive_t primitive;   /* NULL for fp32, which dnnl_sgemm computes */
  dnnl_memory_t (*memories)[4]; /* for each thread: A, B, C and scratch */
};

struct plm_products {
  uint32_t threads;
  dnnl_engine_t engine;
  dnnl_stream_t *streams; /* one for each thread */
  void **scratch;         /* one for each thread, of the size that the largest product needs */
  size_t scratch_bytes;
  struct plm_product *buckets[BUCKETS];
  struct plm_error error;
};

/* ---- what differs between oneDNN 2 and 3 ---- */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t matrix_desc;
typedef const_dnnl_memory_desc_t const_matrix_desc;

static dnnl_status_t product_dnnl_describe(matrix_desc *desc, const dnnl_dims_t dims,
                                           const dnnl_dims_t strides, bool is_bf16)
{
  return dnnl_memory_desc_create_with_strides(desc, 2, dims, is_bf16 ? dnnl_bf16 : dnnl_f32,
                                              strides);
}

static void product_dnnl_forget(matrix_desc *desc)
{
  dnnl_memory_desc_destroy(*desc);
}

static const_matrix_desc product_dnnl_view(const matrix_desc *desc)
{
  return *desc;
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations)
{
  return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                     const matrix_desc d[3], dnnl_primitive_attr_t attributes)
{
  return dnnl_matmul_primitive_desc_create(description, engine, d[0], d[1], NULL, d[2], attributes);
}
#else
typedef dnnl_memory_desc_t matrix_desc;
typedef const dnnl_memory_desc_t *const_matrix_desc;

static dnnl_status_t product_dnnl_describe(matrix_desc *desc, const dnnl_dims_t dims,
                                           const dnnl_dims_t strides, bool is_bf16)
{
  return dnnl_memory_desc_init_by_strides(desc, 2, dims, is_bf16 ? dnnl_bf16 : dnnl_f32, strides);
}

static void product_dnnl_forget(matrix_desc *desc)
{
  (void)desc;
}

static const_matrix_desc product_dnnl_view(const matrix_desc *desc)
{
  return desc;
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations)
{
  return dnnl_post_ops_append_sum(operations, 1.0f);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                     const matrix_desc d[3], dnnl_primitive_attr_t attributes)
{
  dnnl_matmul_desc_t operation;
  const dnnl_status_t status = dnnl_matmul_desc_init(&operation, &d[0], &d[1], NULL, &d[2]);
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(description, &operation, attributes, engine, NULL);
}
#endif

/* oneDNN asks OpenMP how many threads it may use. The answer is set for each calling thread, so
 * each of our threads sets it to one at its first product. */
static void keep_to_one_thread(void)
{
  static __thread bool said;
  if (said) return;
  omp_set_num_threads(1);
  said = true;
}

static dnnl_status_t describe_all(matrix_desc d[3], const struct plm_product_shape *s)
{
  const dnnl_dims_t a = {s->M, s->K}, b = {s->K, s->N}, c = {s->M, s->N};
  const dnnl_dims_t a_strides = {s->transpose_a ? 1 : s->lda, s->transpose_a ? s->lda : 1};
  const dnnl_dims_t b_strides = {s->transpose_b ? 1 : s->ldb, s->transpose_b ? s->ldb : 1};
  const dnnl_dims_t c_strides = {s->ldc, 1};
  dnnl_status_t status = product_dnnl_describe(&d[0], a, a_strides, s->is_bf16);
  if (status == dnnl_success) status = product_dnnl_describe(&d[1], b, b_strides, s->is_bf16);
  if (status == dnnl_success) status = product_dnnl_describe(&d[2], c, c_strides, s->bf16_output);
  return status;
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *description, dnnl_engine_t engine,
                                      const matrix_desc d[3], bool accumulate)
{
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_post_ops_t operations = NULL;
  dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
  if (status == dnnl_success)
    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
  if (status == dnnl_success && accumulate) {
    status = dnnl_post_ops_create(&operations);
    if (status == dnnl_success) status = append_sum(operations);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attributes, operations);
  }
  if (status == dnnl_success) status = describe_matmul(description, engine, d, attributes);
  if (operations != NULL) dnnl_post_ops_destroy(operations);
  if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
  return status;
}

/* Grows the scratch of every thread to at least `bytes`. */
static dnnl_status_t grow_scratch(struct plm_products *products, size_t bytes)
{
  if (bytes <= products->scratch_bytes) return dnnl_success;
  bytes = (bytes + 4095) / 4096 * 4096;
  for (uint32_t i = 0; i < products->threads; i++) {
    void *fresh = aligned_alloc(64, bytes);
    if (fresh == NULL) return dnnl_out_of_memory;
    free(products->scratch[i]);
    products->scratch[i] = fresh;
  }
  products->scratch_bytes = bytes;
  return dnnl_success;
}

static dnnl_status_t make_memories(struct plm_product *product, const matrix_desc d[3],
                                   const_matrix_desc scratch)
{
  struct plm_products *products = product->owner;
  product->memories = plm_alloc_zeroed(products->threads, sizeof *product->memories);
  dnnl_status_t status = dnnl_success;
  for (uint32_t i = 0; i < products->threads; i++) {
    dnnl_memory_t *m = product->memories[i];
    for (int j = 0; j < 4 && status == dnnl_success; j++)
      status = dnnl_memory_create(&m[j], j < 3 ? product_dnnl_view(&d[j]) : scratch,
                                  products->engine, DNNL_MEMORY_NONE);
  }
  return status;
}

static dnnl_status_t make_primitive(struct plm_product *product)
{
  struct plm_products *products = product->owner;
  matrix_desc d[3];
  dnnl_primitive_desc_t description = NULL;
  memset(d, 0, sizeof d);
  dnnl_status_t status = describe_all(d, &product->shape);
  if (status == dnnl_success)
    status = describe_product(&description, products->engine, d, product->shape.accumulate);
  if (status == dnnl_success) {
    const_matrix_desc scratch =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    status = grow_scratch(products, dnnl_memory_desc_get_size(scratch));
    if (status == dnnl_success) status = make_memories(product, d, scratch);
    if (status == dnnl_success) status = dnnl_primitive_create(&product->primitive, description);
  }
  if (description != NULL) dnnl_primitive_desc_destroy(description);
  for (int i = 0; i < 3; i++) product_dnnl_forget(&d[i]);
  return status;
}

static void free_product(struct plm_product *product)
{
  if (product->primitive != NULL) dnnl_primitive_destroy(product->primitive);
  for (uint32_t i = 0; product->memories != NULL && i < product->owner->threads; i++)
    for (int j = 0; j < 4; j++)
      if (product->memories[i][j] != NULL) dnnl_memory_destroy(product->memories[i][j]);
  free(product->memories);
  free(product);
}

static uint32_t bucket_of(const struct plm_product_shape *s)
{
  const uint64_t flags = s->transpose_a | (uint64_t)s->transpose_b << 1 |
                         (uint64_t)s->is_bf16 << 2 | (uint64_t)s->bf16_output << 3 |
                         (uint64_t)s->accumulate << 4;
  const uint64_t fields[] = {(uint64_t)s->M,   (uint64_t)s->N,   (uint64_t)s->K, (uint64_t)s->lda,
                             (uint64_t)s->ldb, (uint64_t)s->ldc, flags};
  uint64_t h = 1469598103934665603u; /* FNV-1a over whole fields instead of bytes */
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) h = (h ^ fields[i]) * 1099511628211u;
  return (uint32_t)(h >> 32) % BUCKETS;
}

const struct plm_product *plm_products_get(struct plm_products *products,
                                           const struct plm_product_shape *shape)
{
  struct plm_product **bucket = &products->buckets[bucket_of(shape)];
  for (struct plm_product *p = *bucket; p != NULL; p = p->next)
    if (plm_product_shape_equal(&p->shape, shape)) return p;
  keep_to_one_thread();
  struct plm_product *product = plm_alloc_zeroed(1, sizeof *product);
  product->shape = *shape;
  product->owner = products;
  const dnnl_status_t status = shape->is_bf16 ? make_primitive(product) : dnnl_success;
  if (status != dnnl_success) {
    plm_error_set(&products->error, status == dnnl_out_of_memory ? PLM_NO_MEMORY : PLM_FAILURE,
                  "oneDNN cannot prepare a %s product of %lld x %lld x %lld (its status %d)",
                  shape->is_bf16 ? "bf16" : "fp32", (long long)shape->M, (long long)shape->N,
                  (long long)shape->K, (int)status);
    free_product(product);
    return NULL;
  }
  product->next = *bucket;
  *bucket = product;
  return product;
}

void plm_product_run_float(const struct plm_product_shape *s, float *C, const float *A,
                           const float *B)
{
  keep_to_one_thread();
  dnnl_sgemm(s->transpose_a ? 'T' : 'N', s->transpose_b ? 'T' : 'N', s->M, s->N, s->K, 1.0f, A,
             s->lda, B, s->ldb, s->accumulate ? 1.0f : 0.0f, C, s->ldc);
}

void plm_product_run(const struct plm_product *product, uint32_t thread, void *C, const void *A,
                     const void *B)
{
  if (product == NULL) return;
  keep_to_one_thread();
  if (product->primitive == NULL) {
    plm_product_run_float(&product->shape, C, A, B);
    return;
  }
  dnnl_memory_t *m = product->memories[thread];
  /* oneDNN's handles are not const; it only reads A and B */
  dnnl_memory_set_data_handle(m[0], (void *)(uintptr_t)A);
  dnnl_memory_set_data_handle(m[1], (void *)(uintptr_t)B);
  dnnl_memory_set_data_handle(m[2], C);
  dnnl_memory_set_data_handle(m[3], product->owner->scratch[thread]);
  const dnnl_exec_arg_t arguments[4] = {{DNNL_ARG_SRC, m[0]},
                                        {DNNL_ARG_WEIGHTS, m[1]},
                                        {DNNL_ARG_DST, m[2]},
                                        {DNNL_ARG_SCRATCHPAD, m[3]}};
  dnnl_primitive_execute(product->primitive, product->owner->streams[thread], 4, arguments);
}

#if defined(__x86_64__)
/* What oneDNN calls the instructions of a level. Each includes the bits of those before it. */
static const dnnl_cpu_isa_t ISAS[PLM_PROCESSOR_LEVELS] = {
    [PLM_PROCESSOR_PORTABLE] = dnnl_cpu_isa_sse41,
    [PLM_PROCESSOR_AVX2] = dnnl_cpu_isa_avx2,
    [PLM_PROCESSOR_AVX512] = dnnl_cpu_isa_avx512_core,
    [PLM_PROCESSOR_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
    [PLM_PROCESSOR_AMX] = dnnl_cpu_isa_avx512_core_amx,
};

/* oneDNN's own name for the instructions that it uses; NULL if this source does not know them. */
static const char *isa_name(dnnl_cpu_isa_t isa)
{
  switch (isa) {
  case dnnl_cpu_isa_sse41: return "sse41";
  case dnnl_cpu_isa_avx: return "avx";
  case dnnl_cpu_isa_avx2: return "avx2";
  case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
  case dnnl_cpu_isa_avx512_core: return "avx512_core";
  case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
  case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
  case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
  default: return NULL;
  }
}

static bool includes(dnnl_cpu_isa_t isa, dnnl_cpu_isa_t part)
{
  return ((unsigned)isa & (unsigned)part) == (unsigned)part;
}

static enum plm_processor_level library_level(void)
{
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  for (int i = PLM_PROCESSOR_LEVELS - 1; i > 0; i--)
    if (includes(isa, ISAS[i])) return (enum plm_processor_level)i;
  return PLM_PROCESSOR_PORTABLE;
}

/* Tells apart what ONEDNN_MAX_CPU_ISA and ONEDNN_CPU_ISA_HINTS may change. */
static void print_isa(char *text, size_t size)
{
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  const char *name = isa_name(isa);
  char number[16];
  snprintf(number, sizeof number, "ISA 0x%x", (unsigned)isa);
  snprintf(text, size, ", %s%s", name != NULL ? name : number,
           dnnl_get_cpu_isa_hints() == dnnl_cpu_isa_prefer_ymm ? ", prefer_ymm" : "");
}
#else
static enum plm_processor_level library_level(void)
{
  return PLM_PROCESSOR_PORTABLE;
}

static void print_isa(char *text, size_t size)
{
  (void)size;
  text[0] = '\0';
}
#endif

const char *plm_products_library(void)
{
  static char name[64];
  char isa[40];
  const dnnl_version_t *version = dnnl_version();
  print_isa(isa, sizeof isa);
  snprintf(name, sizeof name, "oneDNN %d.%d.%d%s", version->major, version->minor, version->patch,
           isa);
  return name;
}

struct plm_products_kind plm_products_kind(void)
{
  const dnnl_version_t *version = dnnl_version();
  return (struct plm_products_kind){.version = (uint32_t)(version->major * 100 + version->minor),
                                    .level = library_level()};
}

void plm_products_limit(enum plm_processor_level level)
{
#if defined(__x86_64__)
  dnnl_set_max_cpu_isa(ISAS[level]);
#else
  (void)level;
#endif
}

plm_status plm_products_open(uint32_t threads, struct plm_products **out, struct plm_error *error)
{
  *out = NULL;
  struct plm_products *products = plm_alloc_zeroed(1, sizeof *products);
  products->threads = threads;
  products->streams = plm_alloc_zeroed(threads, sizeof(dnnl_stream_t));
  products->scratch = plm_alloc_zeroed(threads, sizeof *products->scratch);
  bool good = dnnl_engine_create(&products->engine, dnnl_cpu, 0) == dnnl_success;
  for (uint32_t i = 0; good && i < threads; i++)
    good = dnnl_stream_create(&products->streams[i], products->engine, dnnl_stream_default_flags) ==
           dnnl_success;
  if (!good) {
    plm_products_close(products);
    return plm_error_set(error, PLM_FAILURE, "oneDNN cannot be started on this processor");
  }
  *out = products;
  return PLM_OK;
}

void plm_products_close(struct plm_products *products)
{
  if (products == NULL) return;
  for (int i = 0; i < BUCKETS; i++)
    for (struct plm_product *p = products->buckets[i], *next; p != NULL; p = next) {
      next = p->next;
      free_product(p);
    }
  for (uint32_t i = 0; i < products->threads; i++) {
    if (products->streams != NULL && products->streams[i] != NULL)
      dnnl_stream_destroy(products->streams[i]);
    if (products->scratch != NULL) free(products->scratch[i]);
  }
  if (products->engine != NULL) dnnl_engine_destroy(products->engine);
  free(products->streams);
  free(products->scratch);
  free(products);
}

plm_status plm_products_error(const struct plm_products *products, struct plm_error *error)
{
  if (products->error.status != PLM_OK && error != NULL) *error = products->error;
  return products->error.status;
}
