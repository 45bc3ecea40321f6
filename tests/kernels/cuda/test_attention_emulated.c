/* Attention of the CUDA backend, emulated or on a GPU (device_case.h), against a dense masked
 * reference in double precision: mask kinds, head widths and lengths on both sides of the tiles'
 * edges; padding; the same bits in any order of threads. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/config/config.h"
#include "tests/support/attention_case.h"
#include "tests/support/device_case.h"

static struct attention_batch sample;

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

static void run(struct attention_case *p, uint64_t order)
{
  struct plm_ops *ops = device_case_open(p->bf16 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, order);
  attention_case_run_on(p, ops);
  ops->close(ops);
}

static void check(unsigned kinds, uint32_t window, uint32_t block, int32_t heads, int32_t K,
                  float cap, bool is_bf16)
{
  struct attention_case p;
  attention_case_init(&p, &sample.batch, kinds, window, block, heads, K, cap, is_bf16);
  attention_case_reference(&p);
  run(&p, 1);
  attention_case_compare(&p);
  attention_case_deinit(&p);
}

static void every_mask_kind(void **state)
{
  (void)state;
  mixed_batch();
  for (unsigned kinds = 1; kinds < 16; kinds += 2)
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) check(kinds, 23, 50, 1, 16, 0, is_bf16);
}

static void head_widths(void **state)
{
  (void)state;
  static const int32_t widths[] = {16, 24, 40, 48, 64, 72, 96, 112, 128};
  attention_batch_begin(&sample, 1, 80);
  attention_batch_add(&sample, 0, 0, 50);
  attention_batch_add(&sample, 0, 52, 26);
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
      check(PLM_ATTENTION_DOCUMENT, 0, 0, 2, widths[i], 0, is_bf16);
}

static void lengths(void **state)
{
  (void)state;
  static const uint32_t all[] = {1, 2, 15, 63, 64, 65, 129};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    attention_batch_begin(&sample, 1, all[i]);
    attention_batch_add(&sample, 0, 0, all[i]);
    check(i % 2 ? PLM_ATTENTION_CAUSAL : PLM_ATTENTION_DOCUMENT, 0, 0, 1, 24, 0, true);
  }
}

static void a_hundred_documents(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 100);
  for (uint32_t i = 0; i < 100; i++) attention_batch_add(&sample, 0, i, 1);
  for (uint32_t i = 0; i < 33; i++) attention_batch_add(&sample, 1, 3 * i, 2 + i % 2);
  check(PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, true);
}

static void the_soft_cap_and_its_gradient(void **state)
{
  (void)state;
  mixed_batch();
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
    check(PLM_ATTENTION_CAUSAL, 0, 0, 1, 32, 0.7f, is_bf16);
}

/* Rows of padding: no output, no gradient, and what lies there is not used. */
static void padding_is_exactly_zero_and_never_used(void **state)
{
  (void)state;
  mixed_batch();
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
    struct attention_case p;
    attention_case_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 24, 0, is_bf16);
    size_t empty = 0;
    for (size_t r = 0; r < p.rows; r++) {
      if (p.mask.key_begin[r] != p.mask.key_end[r]) continue;
      empty++;
      for (size_t c = 0; c < p.width; c++)
        for (int t = Q; t <= DOUT; t++)
          attention_case_set(&p, (enum attention_tensor)t, r, c, 1e4f);
    }
    assert_true(empty > 150);
    attention_case_reference(&p);
    run(&p, 2);
    attention_case_compare(&p);
    for (size_t r = 0; r < p.rows; r++)
      for (size_t c = 0; c < p.width && p.mask.key_begin[r] == p.mask.key_end[r]; c++)
        for (int t = OUT; t < ATTENTION_TENSORS; t++)
          assert_true(attention_case_get(&p, (enum attention_tensor)t, r, c) == 0);
    attention_case_deinit(&p);
  }
}

static void any_order_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 100);
  attention_batch_add(&sample, 0, 0, 90);
  attention_batch_add(&sample, 1, 0, 30);
  attention_batch_add(&sample, 1, 30, 70);
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
    struct attention_case one, other;
    attention_case_init(&one, &sample.batch, PLM_ATTENTION_LOCAL, 40, 0, 1, 48, 0, is_bf16);
    attention_case_init(&other, &sample.batch, PLM_ATTENTION_LOCAL, 40, 0, 1, 48, 0, is_bf16);
    const size_t bytes = one.rows * one.width * (is_bf16 ? 2 : 4);
    run(&one, 1);
    for (uint64_t order = 2; order <= 4; order++) {
      run(&other, order);
      assert_memory_equal(one.data[OUT], other.data[OUT], bytes);
      assert_memory_equal(one.data[DQ], other.data[DQ], 3 * bytes);
      assert_memory_equal(one.lse, other.lse, one.rows * sizeof(float));
    }
    attention_case_deinit(&one);
    attention_case_deinit(&other);
  }
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
  print_message("ThreadSanitizer does not know fibers\n");
  return 77;
#endif
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mask_kind),
      cmocka_unit_test(head_widths),
      cmocka_unit_test(lengths),
      cmocka_unit_test(a_hundred_documents),
      cmocka_unit_test(the_soft_cap_and_its_gradient),
      cmocka_unit_test(padding_is_exactly_zero_and_never_used),
      cmocka_unit_test(any_order_of_threads_gives_the_same_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
