/* Attention for sm_90a, under emulation, against the dense masked reference in double precision. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/config.h"
#include "kernels/cuda/cuda.h"
#include "tests/support/attention_case.h"

static struct attention_batch sample;

static void run(struct attention_case *p, uint64_t order)
{
  struct plm_ops *ops;
  plm_cuda_emulation_order(order);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  ops->attention_forward(ops, p->data[OUT], p->lse, attention_case_part(p, Q),
                         attention_case_part(p, K_), attention_case_part(p, V), &p->mask,
                         &p->shape);
  ops->attention_backward(ops, attention_case_part_mutable(p, DQ),
                          attention_case_part_mutable(p, DK), attention_case_part_mutable(p, DV),
                          p->data[DOUT], p->data[OUT], p->lse, attention_case_part(p, Q),
                          attention_case_part(p, K_), attention_case_part(p, V), &p->mask,
                          &p->shape);
  ops->close(ops);
}

static void check(unsigned kinds, uint32_t window, uint32_t block, int32_t heads, int32_t K,
                  float cap)
{
  struct attention_case p;
  attention_case_init(&p, &sample.batch, kinds, window, block, heads, K, cap, true);
  attention_case_reference(&p);
  run(&p, 1);
  attention_case_compare(&p);
  attention_case_deinit(&p);
}

/* Documents that cross tiles of 64, a hole, padding at the end, a chunk of padding alone. */
static void mixed_batch(void)
{
  attention_batch_begin(&sample, 3, 150);
  attention_batch_add(&sample, 0, 0, 70);
  attention_batch_add(&sample, 0, 70, 1);
  attention_batch_add(&sample, 0, 71, 50);
  attention_batch_add(&sample, 0, 124, 20);
  attention_batch_add(&sample, 2, 3, 147);
}

static void every_mask_kind(void **state)
{
  (void)state;
  mixed_batch();
  for (unsigned kinds = 1; kinds < 16; kinds += 2) check(kinds, 23, 50, 1, 64, 0);
}

static void head_widths(void **state)
{
  (void)state;
  static const int32_t widths[] = {40, 64, 72, 96, 128};
  attention_batch_begin(&sample, 1, 80);
  attention_batch_add(&sample, 0, 0, 50);
  attention_batch_add(&sample, 0, 52, 26);
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    check(PLM_ATTENTION_DOCUMENT, 0, 0, 2, widths[i], 0);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
  print_message("ThreadSanitizer does not know fibers\n");
  return 77;
#endif
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mask_kind),
      cmocka_unit_test(head_widths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
