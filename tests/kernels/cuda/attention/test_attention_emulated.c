/* Attention of the CUDA backend, emulated or on a GPU (device_case.h), compared with a dense masked
 * reference in double precision: kinds of masks, head widths, lengths around the edges of tiles,
 * padding, and the same bits in any order of threads. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/model/model_config.h"
#include "tests/support/operators/attention_case.h"

static struct attention_batch sample;

/* A smaller batch for fp32, whose kernels have no tiles and use a warp for each query. */
static void small_batch(void)
{
  attention_batch_of(&sample, 3, 41, {0, 0, 18}, {0, 18, 1}, {0, 21, 17}, {2, 3, 38});
}

static void every_mask_kind(void **state)
{
  (void)state;
  attention_batch_mixed(&sample);
  attention_check_masks(&sample, 2, 23, 50, 1, 16, true);
  small_batch();
  attention_check_masks(&sample, 2, 7, 13, 2, 16, false);
}

static void head_widths(void **state)
{
  (void)state;
  static const int32_t all[] = {16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128};
  const size_t count = sizeof all / sizeof *all;
  attention_batch_of(&sample, 1, 70, {0, 0, 40}, {0, 42, 26});
  attention_check_widths(&sample, 1, all, count, true);
  attention_batch_of(&sample, 2, 9, {0, 0, 9}, {1, 1, 5});
  attention_check_widths(&sample, 3, all, count, true);
  attention_check_widths(&sample, 3, all, count, false);
}

static void lengths(void **state)
{
  (void)state;
  static const uint32_t all[] = {1, 2, 15, 63, 64, 65, 127, 128, 129};
  attention_check_lengths(all, sizeof all / sizeof *all, 24, true);
  attention_check_lengths(all, 3, 24, false);
}

/* Documents that begin and end at the edges of tiles, and a chunk that ends there. */
static void documents_at_the_tiles_borders(void **state)
{
  (void)state;
  attention_batch_of(&sample, 2, 192, {0, 0, 64}, {0, 64, 1}, {0, 65, 63}, {0, 128, 64},
                     {1, 0, 128}, {1, 129, 63});
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 24, 0, true);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL, 0, 0, 1, 32, 0, true);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, 64, 0, 1, 16, 0, true);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_BLOCK, 0, 64, 1, 16, 0, true);
}

/* Tiles of keys that every query but one sees completely. */
static void tiles_that_are_nearly_full(void **state)
{
  (void)state;
  attention_batch_of(&sample, 1, 130, {0, 0, 130});
  attention_check(&sample, PLM_ATTENTION_CAUSAL | PLM_ATTENTION_LOCAL, 70, 0, 1, 16, 0, true);
  attention_batch_of(&sample, 1, 192, {0, 0, 127}, {0, 127, 65});
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, true);
}

static void hundreds_of_documents(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 300);
  for (uint32_t i = 0; i < 300; i++) attention_batch_add(&sample, 0, i, 1);
  for (uint32_t i = 0; i < 99; i++) attention_batch_add(&sample, 1, 3 * i, 2 + i % 2);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, true);
  attention_batch_begin(&sample, 1, 130);
  for (uint32_t i = 0; i < 130; i++) attention_batch_add(&sample, 0, i, 1);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 16, 0, false);
}

static void padding_alone(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 70);
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++)
    attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 16, 0, in_bf16);
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
    attention_check(&sample, PLM_ATTENTION_CAUSAL, 0, 0, 1, 32, 0.7f, in_bf16);
  attention_batch_mixed(&sample);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 32, 0.7f, true);
}

/* Rows of padding have no output and no gradient, and their values are not used. */
static void padding_is_exactly_zero_and_never_used(void **state)
{
  (void)state;
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++) {
    if (in_bf16)
      attention_batch_mixed(&sample);
    else
      small_batch();
    const size_t empty = in_bf16 ? 9 + 150 + 3 : 5 + 41 + 3;
    assert_int_equal(attention_check_padding(&sample, 1, 24, 1e4f, in_bf16), empty);
  }
}

static void any_order_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  attention_batch_of(&sample, 2, 100, {0, 0, 90}, {1, 0, 30}, {1, 30, 70});
  attention_check_orders(&sample, 40, 1, 48, 4, true);
  small_batch();
  attention_check_orders(&sample, 40, 1, 48, 4, false);
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
