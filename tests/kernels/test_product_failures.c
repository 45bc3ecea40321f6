/* A product that oneDNN cannot prepare, at one call after another, is an error that names it, and
 * the next attempt prepares it. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/product.h"
#include "tests/support/harness/cmocka_all.h"

enum { OUT_OF_MEMORY = 1, UNIMPLEMENTED = 3 }; /* statuses of oneDNN */

static long left = -1; /* calls that succeed before one fails; -1: all do */
static int how;        /* it fails */

/* Only calls of this program: the library makes some of them itself. */
static bool fails(const char *caller)
{
  extern const char __executable_start, etext;
  return caller >= &__executable_start && caller < &etext && left >= 0 && left-- == 0;
}

/* These take the place of oneDNN's functions in this program. Arguments are pointers or smaller,
 * so all are passed on as words; those of the other major version are never called. */
#define WORDS1 uintptr_t a
#define WORDS2 WORDS1, uintptr_t b
#define WORDS3 WORDS2, uintptr_t c
#define WORDS4 WORDS3, uintptr_t d
#define WORDS5 WORDS4, uintptr_t e
#define WORDS7 WORDS5, uintptr_t f, uintptr_t g
#define PASS1 a
#define PASS2 PASS1, b
#define PASS3 PASS2, c
#define PASS4 PASS3, d
#define PASS5 PASS4, e
#define PASS7 PASS5, f, g
#define REPLACE(name, words)                                             \
  int name(WORDS##words);                                                \
  int name(WORDS##words)                                                 \
  {                                                                      \
    int (*real)(WORDS##words);                                           \
    *(void **)&real = dlsym(RTLD_NEXT, #name);                           \
    return fails(__builtin_return_address(0)) ? how : real(PASS##words); \
  }

REPLACE(dnnl_engine_create, 3)
REPLACE(dnnl_stream_create, 3)
REPLACE(dnnl_primitive_attr_create, 1)
REPLACE(dnnl_primitive_attr_set_scratchpad_mode, 2)
REPLACE(dnnl_post_ops_create, 1)
REPLACE(dnnl_primitive_attr_set_post_ops, 2)
REPLACE(dnnl_memory_create, 4)
REPLACE(dnnl_primitive_create, 2)
REPLACE(dnnl_memory_desc_init_by_strides, 5)
REPLACE(dnnl_memory_desc_create_with_strides, 5)
REPLACE(dnnl_matmul_desc_init, 5)
REPLACE(dnnl_primitive_desc_create, 5)
REPLACE(dnnl_matmul_primitive_desc_create, 7)

int dnnl_post_ops_append_sum(void *operations, float scale, int32_t zero, int type);
int dnnl_post_ops_append_sum(void *operations, float scale, int32_t zero, int type)
{
  int (*real)(void *, float, int32_t, int); /* the older one has no more than a scale */
  *(void **)&real = dlsym(RTLD_NEXT, "dnnl_post_ops_append_sum");
  return fails(__builtin_return_address(0)) ? how : real(operations, scale, zero, type);
}

/* Prepares a product of bf16 that is added. */
static const struct plm_product *prepare(struct plm_products *products)
{
  const struct plm_product_shape shape = {.M = 48,
                                          .N = 32,
                                          .K = 16,
                                          .lda = 16,
                                          .ldb = 32,
                                          .ldc = 32,
                                          .is_bf16 = true,
                                          .accumulate = true};
  return plm_products_get(products, &shape);
}

static void a_product_that_fails_is_named(void **state)
{
  (void)state;
  static const int ways[] = {OUT_OF_MEMORY, UNIMPLEMENTED};
  static const plm_status statuses[] = {PLM_NO_MEMORY, PLM_FAILURE};
  for (int way = 0; way < 2; way++)
    for (int at = 0;; at++) {
      struct plm_products *products;
      struct plm_error error = {0};
      char text[100];
      assert_int_equal(plm_products_open(2, &products, NULL), PLM_OK);
      how = ways[way];
      left = at;
      const struct plm_product *product = prepare(products);
      const bool failed = left < 0;
      left = -1;
      if (!failed && product == NULL) skip("this processor has no such product");
      snprintf(text, sizeof text,
               "oneDNN cannot prepare a bf16 product of 48 x 32 x 16 (its status %d)", how);
      assert_true((product == NULL) == failed);
      assert_int_equal(plm_products_error(products, &error), failed ? statuses[way] : PLM_OK);
      if (failed) assert_string_equal(error.what, text);
      assert_non_null(prepare(products));
      plm_products_close(products);
      if (failed) continue;
      assert_true(at >= 18); /* eight of them for the memories of two threads */
      break;
    }
}

static void a_library_that_does_not_start_is_an_error(void **state)
{
  (void)state;
  how = UNIMPLEMENTED;
  for (int at = 0; at < 3; at++) { /* an engine, and a stream for each thread */
    struct plm_products *products;
    struct plm_error error = {0};
    left = at;
    assert_int_equal(plm_products_open(2, &products, &error), PLM_FAILURE);
    left = -1;
    assert_null(products);
    assert_string_equal(error.what, "oneDNN cannot be started on this processor");
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_product_that_fails_is_named),
      cmocka_unit_test(a_library_that_does_not_start_is_an_error),
  };
  if (plm_products_kind().version == 0) return 0; /* the library is a CBLAS */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
