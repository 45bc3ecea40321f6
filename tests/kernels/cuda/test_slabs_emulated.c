/* Operators of the CUDA backend that work in slabs, since their scratch or grid would be too large,
 * or with fewer columns a block, since the device has little shared memory, give the same results
 * as at once. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/operators/attention_case.h"
#include "tests/support/operators/head_case.h"
#include "tests/support/operators/layer_norm_case.h"

static struct plm_ops *open_with(int precision, size_t scratch)
{
  struct plm_ops *ops;
  plm_emulation_scratch(scratch);
  assert_int_equal(plm_ops_cuda_open(precision, 0, &ops, NULL), PLM_OK);
  plm_emulation_scratch(0);
  return ops;
}

/* ---- attention: delta, and chunks beyond a grid's z ---- */
enum { CHUNKS = 3, LENGTH = 66, HEADS = 2 };

static void run_attention(struct attention_case *p, struct attention_batch *sample, bool in_bf16,
                          size_t scratch)
{
  attention_case_init(p, &sample->batch, PLM_ATTENTION_DOCUMENT, 0, 0, HEADS, 16, in_bf16);
  struct plm_ops *ops = open_with(in_bf16 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, scratch);
  attention_case_run_on(p, ops);
  ops->close(ops);
}

static void attention_in_slabs_gives_the_same_bits(void **state)
{
  (void)state;
  static struct attention_batch sample;
  static const size_t rows[] = {0, 2 * HEADS, 1}; /* all; two chunks; one head */
  attention_batch_of(&sample, CHUNKS, LENGTH, {0, 0, 12}, {1, 50, 16}, {2, 0, 9}, {2, 60, 6});
  for (int in_bf16 = 0; in_bf16 < 2; in_bf16++) {
    struct attention_case at_once, slabs;
    run_attention(&at_once, &sample, in_bf16, 0);
    attention_case_reference(&at_once);
    attention_case_compare(&at_once);
    for (size_t i = 1; i < sizeof rows / sizeof *rows; i++) {
      run_attention(&slabs, &sample, in_bf16, rows[i] * LENGTH * sizeof(float));
      const size_t width = (size_t)HEADS * 16 * (in_bf16 ? 2 : 4);
      assert_memory_equal(slabs.lse, at_once.lse, sizeof(float) * CHUNKS * LENGTH * HEADS);
      assert_memory_equal(slabs.data[OUT], at_once.data[OUT], CHUNKS * LENGTH * width);
      for (size_t row = 0; row < (size_t)CHUNKS * LENGTH; row++) /* the three gradients */
        for (size_t column = 0; column < (size_t)HEADS * 16; column++)
          for (int t = DQ; t <= DV; t++)
            assert_true(attention_case_get(&slabs, (enum attention_tensor)t, row, column) ==
                        attention_case_get(&at_once, (enum attention_tensor)t, row, column));
      attention_case_deinit(&slabs);
    }
    attention_case_deinit(&at_once);
  }
}

/* Each chunk is one token, which sees only itself, so the output is its value. */
static void more_chunks_than_a_grid_has_layers(void **state)
{
  (void)state;
  enum { B = 65535 + 65, K = 16 };
  struct plm_ops *ops = open_with(PLM_PRECISION_FP32, 0);
  float *host = calloc((size_t)B * K, sizeof *host);
  int32_t *ones = malloc(sizeof *ones * B);
  void *qkv, *out, *lse, *zeros, *ends;
  assert_true(host != NULL && ones != NULL);
  for (int64_t i = 0; i < (int64_t)B * K; i++) host[i] = (float)(i % 1000003);
  for (int i = 0; i < B; i++) ones[i] = 1;
  assert_int_equal(ops->allocate(ops, sizeof(float) * B * K, &qkv, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, sizeof(float) * B * K, &out, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, sizeof(float) * B, &lse, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, sizeof *ones * B, &zeros, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, sizeof *ones * B, &ends, NULL), PLM_OK);
  ops->upload(ops, qkv, host, sizeof(float) * B * K);
  ops->upload(ops, ends, ones, sizeof *ones * B);
  ops->zero(ops, zeros, sizeof *ones * B);
  const struct plm_interval_mask mask = {B,     1,    zeros, ends,  zeros, ends,
                                         zeros, ends, zeros, zeros, zeros, ends};
  const struct plm_attention_shape shape = {B, 1, 1, K, K, 0.25f, 0};
  const struct plm_attention_inputs in = {qkv, qkv, qkv};
  ops->attention_forward(ops, out, lse, &in, &mask, &shape);
  memset(host, 0, sizeof(float) * B * K);
  ops->download(ops, host, out, sizeof(float) * B * K);
  for (int64_t i = 0; i < (int64_t)B * K; i++) assert_true(host[i] == (float)(i % 1000003));
  void *const buffers[] = {qkv, out, lse, zeros, ends};
  for (int i = 0; i < 5; i++) ops->release(ops, buffers[i]);
  free(host);
  free(ones);
  ops->close(ops);
}

/* ---- sums over rows of integers, which no order of sums changes ---- */
enum { N = 1300, TOKENS = 5, D = 8 };

static int whole(int i)
{
  return (i * 7 + i / 13) % 9 - 4;
}

static void *to_device(struct plm_ops *ops, const void *values, size_t bytes)
{
  void *buffer;
  assert_int_equal(ops->allocate(ops, bytes, &buffer, NULL), PLM_OK);
  ops->upload(ops, buffer, values, bytes);
  return buffer;
}

static const size_t slabs[] = {1, 2, 100}; /* for which the scratch has room */
enum { SLAB_BYTES = TOKENS * (D + 1) * sizeof(float) };

static void token_sums_need_no_more_than_one_slab(void **state)
{
  (void)state;
  static float rows[N * D], dtable[TOKENS * D];
  static int32_t tokens[N];
  for (int i = 0; i < N * D; i++) rows[i] = (float)whole(i);
  for (int i = 0; i < N; i++) tokens[i] = i * i % TOKENS;
  for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++) {
    struct plm_ops *ops = open_with(PLM_PRECISION_FP32, slabs[i] * SLAB_BYTES);
    memset(dtable, 0, sizeof dtable);
    void *x = to_device(ops, rows, sizeof rows), *t = to_device(ops, tokens, sizeof tokens);
    void *sums = to_device(ops, dtable, sizeof dtable);
    ops->token_mean_backward(ops, sums, x, t, N, D, TOKENS, 0);
    ops->download(ops, dtable, sums, sizeof dtable);
    assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
    for (int v = 0; v < TOKENS; v++) {
      for (int d = 0; d < D; d++) {
        int row = 0;
        for (int n = 0; n < N; n++) row += n * n % TOKENS == v ? whole(n * D + d) : 0;
        assert_true(dtable[v * D + d] == (float)row);
      }
    }
    void *const buffers[] = {x, t, sums};
    for (int j = 0; j < 3; j++) ops->release(ops, buffers[j]);
    ops->close(ops);
  }
}

/* The sums of 261 tokens for 128 columns are 133,632 bytes, and for 64 columns half as many. */
static void token_sums_fit_into_the_shared_memory_of_any_card(void **state)
{
  (void)state;
  enum { ROWS = 300, VOCABULARY = 261, WIDTH = 130 };
  static const char *const cards[] = {"shared=232448", "shared=133632", "shared=133631",
                                      "shared=101376", "shared=66816"};
  static float rows[ROWS * WIDTH], sums[VOCABULARY * WIDTH], exact[VOCABULARY * WIDTH];
  static int32_t tokens[ROWS];
  for (int i = 0; i < ROWS * WIDTH; i++) rows[i] = (float)whole(i);
  for (int n = 0; n < ROWS; n++) tokens[n] = n % VOCABULARY;
  for (int i = 0; i < ROWS * WIDTH; i++) exact[tokens[i / WIDTH] * WIDTH + i % WIDTH] += rows[i];
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    plm_emulation_card(cards[i]);
    struct plm_ops *ops = open_with(PLM_PRECISION_FP32, 0);
    memset(sums, 0, sizeof sums);
    void *x = to_device(ops, rows, sizeof rows), *t = to_device(ops, tokens, sizeof tokens);
    void *got = to_device(ops, sums, sizeof sums);
    ops->token_mean_backward(ops, got, x, t, ROWS, WIDTH, VOCABULARY, 0);
    ops->download(ops, sums, got, sizeof sums);
    assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
    assert_memory_equal(sums, exact, sizeof sums);
    void *const buffers[] = {x, t, got};
    for (int j = 0; j < 3; j++) ops->release(ops, buffers[j]);
    ops->close(ops);
  }
  plm_emulation_card("shared=0");
}

static void head_sums_need_no_more_than_one_slab(void **state)
{
  (void)state;
  const struct head_case head = {200, D, TOKENS, 1, {15, 0.1f, 1e-3f}, false};
  for (int precision = PLM_PRECISION_FP32; precision <= PLM_PRECISION_BF16; precision++) {
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++) {
      struct ops_case c = {.ops = open_with(precision, slabs[i] * SLAB_BYTES), .seed = 5};
      head_case_train(&c, &head);
      assert_int_equal(c.ops->synchronize(c.ops, NULL), PLM_OK);
      ops_case_release(&c);
      c.ops->close(c.ops);
    }
  }
}

/* The sums of a part for each of three parts, and the mean and the inverse deviation of 20 rows. */
static void layer_norms_in_slabs_match(void **state)
{
  (void)state;
  enum { WIDTH = 40, ROWS = 20, PARTS = 3, DA = 2 * PARTS };
  const size_t norm = 2 * (PARTS * WIDTH + ROWS), qkv = PARTS * WIDTH + DA + 4 * ROWS;
  for (int precision = PLM_PRECISION_FP32; precision <= PLM_PRECISION_BF16; precision++) {
    struct ops_case c = {.ops = open_with(precision, norm * sizeof(float)), .seed = 6};
    layer_norm_case_run(&c, &(struct layer_norm_case){70, WIDTH, 0, true});
    assert_int_equal(c.ops->synchronize(c.ops, NULL), PLM_OK);
    ops_case_release(&c);
    c.ops->close(c.ops);
    for (int kind = PLM_QK_NORM_NONE; kind <= PLM_QK_NORM_WIDTH; kind++) {
      struct ops_case q = {.ops = open_with(precision, qkv * sizeof(float)), .seed = 7};
      layer_norm_case_qkv(&q,
                          &(struct layer_norm_qkv){3, 17, 1, WIDTH, (enum plm_qk_norm)kind, true});
      assert_int_equal(q.ops->synchronize(q.ops, NULL), PLM_OK);
      ops_case_release(&q);
      q.ops->close(q.ops);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_in_slabs_gives_the_same_bits),
      cmocka_unit_test(more_chunks_than_a_grid_has_layers),
      cmocka_unit_test(token_sums_need_no_more_than_one_slab),
      cmocka_unit_test(token_sums_fit_into_the_shared_memory_of_any_card),
      cmocka_unit_test(head_sums_need_no_more_than_one_slab),
      cmocka_unit_test(layer_norms_in_slabs_match),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
