/* Attention of the CUDA backend, emulated or on a GPU (device_case.h), compared with a dense masked
 * reference in double precision: kinds of masks, head widths, lengths around the edges of tiles,
 * padding, and the same bits in any order of threads. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/model/model_config.h"
#include "tests/support/attention_case.h"

static struct attention_batch sample;

static void check(unsigned kinds, uint32_t window, uint32_t block, int32_t heads, int32_t K,
                  float cap, bool in_bf16)
{
  attention_case_check_cuda(
      &(struct attention_request){&sample.batch, kinds, window, block, heads, K, cap, in_bf16});
}

/* A smaller batch for fp32, whose kernels have no tiles and use a warp for each query. */
static void small_batch(void)
{
  attention_batch_begin(&sample, 3, 41);
  attention_batch_add(&sample, 0, 0, 18);
  attention_batch_add(&sample, 0, 18, 1);
  attention_batch_add(&sample, 0, 21, 17);
  attention_batch_add(&sample, 2, 3, 38);
}

static void every_mask_kind(void **state)
{
  (void)state;
  for (unsigned kinds = 1; kinds < 16; kinds += 2) {
    attention_batch_mixed(&sample);
    check(kinds, 23, 50, 1, 16, 0, true);
    small_batch();
    check(kinds, 7, 13, 2, 16, 0, false);
  }
}

static void head_widths(void **state)
{
  (void)state;
  for (int32_t K = 16; K <= 128; K += 8) {
    attention_batch_begin(&sample, 1, 70);
    attention_batch_add(&sample, 0, 0, 40);
    attention_batch_add(&sample, 0, 42, 26);
    check(PLM_ATTENTION_DOCUMENT, 0, 0, 1, K, 0, true);
    attention_batch_begin(&sample, 2, 9);
    attention_batch_add(&sample, 0, 0, 9);
    attention_batch_add(&sample, 1, 1, 5);
    check(PLM_ATTENTION_DOCUMENT, 0, 0, 3, K, 0, true);
    check(PLM_ATTENTION_DOCUMENT, 0, 0, 3, K, 0, false);
  }
}

static void lengths(void **state)
{
  (void)state;
  static const uint32_t all[] = {1, 2, 15, 63, 64, 65, 127, 128, 129};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    attention_batch_begin(&sample, 1, all[i]);
    attention_batch_add(&sample, 0, 0, all[i]);
    check(i % 2 ? PLM_ATTENTION_CAUSAL : PLM_ATTENTION_DOCUMENT, 0, 0, 1, 24, 0, true);
    if (all[i] < 20) check(PLM_ATTENTION_CAUSAL, 0, 0, 1, 24, 0, false);
  }
}

/* Documents that begin and end at the edges of tiles, and a chunk that ends there. */
static void documents_at_the_tiles_borders(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 192);
  attention_batch_add(&sample, 0, 0, 64);
  attention_batch_add(&sample, 0, 64, 1);
  attention_batch_add(&sample, 0, 65, 63);
  attention_batch_add(&sample, 0, 128, 64);
  attention_batch_add(&sample, 1, 0, 128);
  attention_batch_add(&sample, 1, 129, 63);
  check(PLM_ATTENTION_DOCUMENT, 0, 0, 1, 24, 0, true);
  check(PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL, 0, 0, 1, 32, 0, true);
  check(PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, 64, 0, 1, 16, 0, true);
  check(PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_BLOCK, 0, 64, 1, 16, 0, true);
}

/* Tiles of keys that every query but one sees completely. */
static void tiles_that_are_nearly_full(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 1, 130);
  attention_batch_add(&sample, 0, 0, 130);
  check(PLM_ATTENTION_CAUSAL | PLM_ATTENTION_LOCAL, 70, 0, 1, 16, 0, true);
  attention_batch_begin(&sample, 1, 192);
  attention_batch_add(&sample, 0, 0, 127);
  attention_batch_add(&sample, 0, 127, 65);
  check(PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, true);
}

static void hundreds_of_documents(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 300);
  for (uint32_t i = 0; i < 300; i++) attention_batch_add(&sample, 0, i, 1);
  for (uint32_t i = 0; i < 99; i++) attention_batch_add(&sample, 1, 3 * i, 2 + i % 2);
  check(PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, true);
  attention_batch_begin(&sample, 1, 130);
  for (uint32_t i = 0; i < 130; i++) attention_batch_add(&sample, 0, i, 1);
  check(PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, false);
}

static void padding_alone(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 70);
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++)
    check(PLM_ATTENTION_DOCUMENT, 0, 0, 2, 16, 0, in_bf16);
}

static void set_all(struct attention_case *p, enum attention_tensor t, float factor, float offset)
{
  for (size_t r = 0; r < p->rows; r++)
    for (size_t c = 0; c < p->width; c++) {
      const float x = (float)attention_case_get(p, t, r, c) * factor + offset;
      attention_case_set(p, t, r, c, x);
      p->exact[t][r * p->width + c] = attention_case_get(p, t, r, c);
    }
}

/* Logits of several hundred: of both signs, and all far below 0, where all weights would vanish
 * without subtracting the maximum. */
static void large_logits(void **state)
{
  (void)state;
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++) {
    for (int below = 0; below < 2; below++) {
      struct attention_case p;
      if (in_bf16)
        attention_batch_mixed(&sample);
      else
        small_batch();
      attention_case_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, in_bf16);
      if (below) {
        set_all(&p, Q, 0.0625f, 12);
        set_all(&p, K_, 0.0625f, -12);
      } else {
        set_all(&p, Q, 64, 0);
      }
      attention_case_reference(&p);
      attention_case_run_on_cuda(&p, 1);
      /* the rounding of a logit is the relative error of a weight; similar keys cancel in the
       * gradients, but errors of weights do not */
      for (int t = OUT; t < ATTENTION_TENSORS; t++) {
        const double e = attention_case_worst(&p, (enum attention_tensor)t);
        if (!(e <= (in_bf16 ? 0.1 : 3e-4))) fail_msg("tensor %d, below %d: %g", t, below, e);
      }
      attention_case_deinit(&p);
    }
  }
}

static void the_soft_cap_and_its_gradient(void **state)
{
  (void)state;
  small_batch();
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++)
    check(PLM_ATTENTION_CAUSAL, 0, 0, 1, 32, 0.7f, in_bf16);
  attention_batch_mixed(&sample);
  check(PLM_ATTENTION_DOCUMENT, 0, 0, 1, 32, 0.7f, true);
}

/* Rows of padding have no output and no gradient, and their values are not used. */
static void padding_is_exactly_zero_and_never_used(void **state)
{
  (void)state;
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++) {
    const struct attention_request request = {.batch = &sample.batch,
                                              .kinds = PLM_ATTENTION_DOCUMENT,
                                              .heads = 1,
                                              .K = 24,
                                              .bf16 = in_bf16};
    if (in_bf16)
      attention_batch_mixed(&sample);
    else
      small_batch();
    const size_t rows = (size_t)sample.batch.chunks * sample.batch.max_length;
    assert_true(attention_case_check_padding(&request) > rows / 3);
  }
}

static void any_order_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++) {
    if (in_bf16) {
      attention_batch_begin(&sample, 2, 100);
      attention_batch_add(&sample, 0, 0, 90);
      attention_batch_add(&sample, 1, 0, 30);
      attention_batch_add(&sample, 1, 30, 70);
    } else {
      small_batch();
    }
    const struct attention_request request = {.batch = &sample.batch,
                                              .kinds = PLM_ATTENTION_LOCAL,
                                              .window = 40,
                                              .heads = 1,
                                              .K = 48,
                                              .bf16 = in_bf16};
    attention_case_check_orders(&request, 4);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mask_kind),
      cmocka_unit_test(head_widths),
      cmocka_unit_test(lengths),
      cmocka_unit_test(documents_at_the_tiles_borders),
      cmocka_unit_test(tiles_that_are_nearly_full),
      cmocka_unit_test(hundreds_of_documents),
      cmocka_unit_test(padding_alone),
      cmocka_unit_test(large_logits),
      cmocka_unit_test(the_soft_cap_and_its_gradient),
      cmocka_unit_test(padding_is_exactly_zero_and_never_used),
      cmocka_unit_test(any_order_of_threads_gives_the_same_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
