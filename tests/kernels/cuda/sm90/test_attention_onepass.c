/* Attention's backward pass for sm_90a in one kernel, emulated or on a GPU of compute capability
 * 9.0: results beside the dense masked reference in double precision, the same bits in any order of
 * threads and blocks, planted faults, and the choice between one kernel and two. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/fewer.h"
#include "tests/support/harness/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/model/model_config.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/emulation/planted_hopper.h"
#include "tests/support/operators/attention_sm90_case.h"
#include "tests/support/operators/device_case.h"

static struct attention_batch sample;

static void every_mask_kind(void **state)
{
  (void)state;
  attention_batch_mixed(&sample);
  for (unsigned kinds = 1; kinds < 16; kinds += fewer_of(2, 6))
    attention_check(&sample, kinds, 23, 50, 1, kinds == 5 ? 128 : 64, 0, true);
}

static void head_widths(void **state)
{
  (void)state;
  static const int32_t widths[] = {40, 72, 96, 128};
  attention_batch_of(&sample, 1, 80, {0, 0, 50}, {0, 52, 26});
  attention_check_widths(&sample, 2, widths, fewer_of(sizeof widths / sizeof *widths, 2), true);
}

static void lengths(void **state)
{
  (void)state;
  static const uint32_t all[] = {1, 64, 65, 193, 63, 129};
  attention_check_lengths(all, fewer_of(sizeof all / sizeof *all, 4), 64, true);
}

/* Tiles of queries that see three and more turns of 128 keys, so that sums are begun, continued and
 * ended, and that see only one. With a window the keys of the two workers see different tiles. */
static void sums_over_several_turns(void **state)
{
  (void)state;
  attention_batch_of(&sample, 1, 520, {0, 3, 400}, {0, 410, 60});
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, 0, true);
  attention_check(&sample, PLM_ATTENTION_LOCAL, 30, 0, 1, 64, 0, true);
  attention_check(&sample, PLM_ATTENTION_CAUSAL, 0, 0, 1, 128, 0, true);
}

/* More chunks than are ranked by their work under the emulation, and so many heads that each block
 * takes several. */
static void many_chunks_and_heads(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 5, 70);
  for (uint32_t chunk = 0; chunk < 5; chunk++)
    attention_batch_add(&sample, chunk, 0, 20 + 9 * chunk);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, 0, true);
  attention_batch_of(&sample, 2, 70, {0, 0, 10}, {1, 0, 70});
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 4, 64, 0, true);
}

static void the_soft_cap_and_its_gradient(void **state)
{
  (void)state;
  attention_batch_of(&sample, 1, 150, {0, 0, 140});
  attention_check(&sample, PLM_ATTENTION_CAUSAL, 0, 0, 1, 64, 0.7f, true);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 128, 2, true);
}

static void padding_is_exactly_zero_and_never_used(void **state)
{
  (void)state;
  attention_batch_mixed(&sample);
  assert_int_equal(attention_check_padding(&sample, 1, 64, 1e4f, true), 9 + 150 + 3);
}

/* ---- bits ---- */

static size_t bytes_of(const struct attention_case *p)
{
  return 3 * p->rows * p->width * 2;
}

static bool same(const struct attention_case *a, const struct attention_case *b)
{
  return memcmp(a->data[DQ], b->data[DQ], bytes_of(a)) == 0;
}

static void compute_with(struct attention_case *p, int32_t K, const char *card, uint64_t order)
{
  attention_sm90_two_chunks(p, K);
  plm_emulation_card(card);
  attention_case_run_on_cuda(p, order);
  plm_emulation_card("multiprocessors=3");
}

/* The emulation takes blocks and threads in the order that the seed gives. */
static void the_same_bits_in_any_order_and_number_of_blocks(void **state)
{
  (void)state;
  static const char *const cards[] = {"multiprocessors=1", "multiprocessors=2",
                                      "multiprocessors=200"};
  const int32_t widest = (int32_t)fewer_of(128, 64);
  for (int32_t K = 64; K <= widest; K += 64) {
    struct attention_case one, other, split;
    compute_with(&one, K, "multiprocessors=2", 1);
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
      compute_with(&other, K, cards[i], 2 + i);
      assert_true(same(&one, &other));
      attention_case_deinit(&other);
    }
    setenv("PLM_CUDA_ATTENTION_BACKWARD", "split", 1);
    compute_with(&split, K, "multiprocessors=2", 1);
    setenv("PLM_CUDA_ATTENTION_BACKWARD", "onepass", 1);
    assert_false(same(&one, &split)); /* dQ is added up in another order */
    attention_case_deinit(&split);
    attention_case_deinit(&one);
  }
}

/* Without room for delta, a float for each of the two chunks' 260 rows, and behind it the sums of
 * dQ of two blocks, 320 x 64 floats each, the backward pass is two kernels. */
static void little_scratch_leaves_two_kernels(void **state)
{
  (void)state;
  enum { DELTA = 2 * 260, SUMS = 2 * 320 * 64 };
  static const size_t rooms[] = {64 << 8, SUMS, DELTA + SUMS - 1, DELTA + SUMS};
  if (device_case_is_real()) skip("it tests the emulation");
  struct attention_case split, little;
  setenv("PLM_CUDA_ATTENTION_BACKWARD", "split", 1);
  compute_with(&split, 64, "multiprocessors=2", 1);
  setenv("PLM_CUDA_ATTENTION_BACKWARD", "onepass", 1);
  for (size_t i = fewer_of(0, 2); i < sizeof rooms / sizeof *rooms; i++) {
    plm_emulation_scratch(rooms[i] * sizeof(float));
    compute_with(&little, 64, "multiprocessors=2", 1);
    plm_emulation_scratch(0);
    assert_int_equal(same(&split, &little), rooms[i] < DELTA + SUMS);
    attention_case_deinit(&little);
  }
  attention_case_deinit(&split);
}

/* ---- planted faults ---- */

static void each_fault_shows(void **state)
{
  (void)state;
  enum { ORDERS = 4 };
  if (device_case_is_real()) skip("it tests the emulation");
  struct attention_case sound;
  compute_with(&sound, 64, "multiprocessors=2", 1);
  assert_false(attention_sm90_fault_shows(&sound, ATTENTION_BACKWARD, PLM_EVERYWHERE_SOUND, 1));
  const int step = (int)fewer_of(1, 3);
  for (int fault = PLM_EVERYWHERE_FULL_WAIT; fault < PLM_EVERYWHERE_FAULTS; fault += step) {
    bool seen = false;
    /* the first is that of kernels whose workers own tiles of their own, and a head of 64 columns
     * is one tile, so that the distance to the next one is not used */
    if (fault == PLM_EVERYWHERE_TURN_FULL || fault == PLM_EVERYWHERE_LEADING) continue;
    for (uint64_t order = 1; order <= ORDERS && !seen; order++)
      seen = attention_sm90_fault_shows(&sound, ATTENTION_BACKWARD,
                                        (enum plm_planted_everywhere)fault, order);
    if (!seen) fail_msg("fault %d is not seen", fault);
  }
  attention_case_deinit(&sound);
}

/* ---- choices ---- */

static struct plm_ops *open_tuning(uint64_t tuning)
{
  unsetenv("PLM_CUDA_ATTENTION");
  unsetenv("PLM_CUDA_ATTENTION_BACKWARD");
  plm_emulation_tuning(tuning);
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  setenv("PLM_CUDA_ATTENTION_BACKWARD", "onepass", 1);
  return ops;
}

/* Runs on the backend and closes it. Returns what it exports, which the caller frees. */
static char *run_and_close(struct attention_case *p, struct plm_ops *ops)
{
  char *algorithms;
  attention_case_run_on(p, ops);
  assert_int_equal(ops->export_algorithms(ops, &algorithms, NULL), PLM_OK);
  ops->close(ops);
  return algorithms;
}

/* The backward pass is two kernels until tuning finds one kernel faster. A backend that imports
 * these algorithms does the same. */
static void tuning_chooses_and_algorithms_keep_it(void **state)
{
  (void)state;
  static const char line[] = "attention_backward 2 260 64 onepass\n";
  if (device_case_is_real()) skip("it tests the emulation");
  struct attention_case split, onepass, p;
  struct plm_error error = {0};
  uint64_t seed = 0;
  compute_with(&onepass, 64, "multiprocessors=3", 1);
  setenv("PLM_CUDA_ATTENTION_BACKWARD", "split", 1);
  compute_with(&split, 64, "multiprocessors=3", 1);
  plm_emulation_capability(90, false);
  attention_sm90_two_chunks(&p, 64);
  struct plm_ops *ops = open_tuning(0);
  assert_string_equal(ops->kernels, "attention sm90, backward tuned, relu2 library");
  char *algorithms = run_and_close(&p, ops), *again;
  assert_true(same(&p, &split)); /* it is not tuned yet */
  for (bool found = false; !found; seed++) {
    assert_true(seed < 64);
    free(algorithms);
    ops = open_tuning(seed);
    ops->tune(ops, true, NULL);
    algorithms = run_and_close(&p, ops);
    found = strstr(algorithms, line) != NULL;
    assert_true(same(&p, found ? &onepass : &split));
    if (!found) assert_non_null(strstr(algorithms, "attention_backward 2 260 64 split\n"));
  }
  ops = open_tuning(99);
  assert_int_equal(ops->import_algorithms(ops, algorithms, NULL), PLM_OK);
  again = run_and_close(&p, ops);
  assert_true(same(&p, &onepass));
  assert_string_equal(algorithms, again);
  free(again);
  setenv("PLM_CUDA_ATTENTION_BACKWARD", "split", 1); /* forced to the other way */
  ops = device_case_open(PLM_PRECISION_BF16, 1);
  assert_int_equal(ops->import_algorithms(ops, algorithms, &error), PLM_UNSUPPORTED);
  assert_non_null(
      strstr(error.what, "the saved algorithms want \"onepass\" for attention_backward"));
  assert_non_null(strstr(error.what, "PLM_CUDA_ATTENTION_BACKWARD"));
  ops->close(ops);
  setenv("PLM_CUDA_ATTENTION_BACKWARD", "onepass", 1);
  free(algorithms);
  attention_case_deinit(&split);
  attention_case_deinit(&onepass);
  attention_case_deinit(&p);
}

/* A choice that is forced while a run tunes is kept for its resume. Damaged lines are named. */
static void a_forced_choice_is_kept(void **state)
{
  (void)state;
  static const char *const damaged[] = {
      "attention_sideways 1 8 8 split\n", "attention_backward 1 8 onepass\n",
      "attention_backward 1 8 8 fused\n", "attention_backward 0 8 8 onepass\n"};
  if (device_case_is_real()) skip("it tests the emulation");
  struct attention_case p;
  attention_sm90_two_chunks(&p, 64);
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  ops->tune(ops, true, NULL);
  char *algorithms = run_and_close(&p, ops), text[512];
  assert_non_null(strstr(algorithms, "attention_backward 2 260 64 onepass\n"));
  ops = device_case_open(PLM_PRECISION_BF16, 1);
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    struct plm_error error = {0};
    snprintf(text, sizeof text, "%s%s", algorithms, damaged[i]);
    assert_int_equal(ops->import_algorithms(ops, text, &error), PLM_FORMAT);
    assert_non_null(strstr(error.what, "attention_"));
  }
  ops->close(ops);
  free(algorithms);
  attention_case_deinit(&p);
}

/* A fault that only one kernel has: it is not used, and the two kernels are. Those have passed
 * their check, which takes seconds, in the test of tuning. */
static void a_device_is_checked(void **state)
{
  (void)state;
  static const char instead[] = "attention's backward pass is two kernels: a gradient differs";
  if (device_case_is_real()) skip("it tests the emulation");
  plm_emulation_capability(90, false); /* forgets earlier checks */
  unlink(scratch_path("checked-emulation-3-attention-backward"));
  plm_cuda_planted_everywhere(PLM_EVERYWHERE_MATRICES);
  struct plm_ops *ops = open_tuning(1);
  plm_cuda_planted_everywhere(PLM_EVERYWHERE_SOUND);
  assert_string_equal(ops->kernels, "attention sm90, relu2 library");
  assert_non_null(ops->fallback);
  assert_int_equal(strncmp(ops->fallback, instead, strlen(instead)), 0);
  ops->close(ops);
  plm_emulation_capability(90, false);
}

int main(void)
{
  plm_emulation_capability(90, false);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  setenv("PLM_CUDA_ATTENTION_BACKWARD", "onepass", 1);
  setenv("PLM_CUDA_RELU2", "library", 1); /* a forced choice is not checked */
  setenv("PLM_ALGORITHM_CACHE", scratch_directory(), 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mask_kind),
      cmocka_unit_test(head_widths),
      cmocka_unit_test(lengths),
      cmocka_unit_test(sums_over_several_turns),
      cmocka_unit_test(many_chunks_and_heads),
      cmocka_unit_test(the_soft_cap_and_its_gradient),
      cmocka_unit_test(padding_is_exactly_zero_and_never_used),
      cmocka_unit_test(the_same_bits_in_any_order_and_number_of_blocks),
      cmocka_unit_test(little_scratch_leaves_two_kernels),
      cmocka_unit_test(each_fault_shows),
      cmocka_unit_test(tuning_chooses_and_algorithms_keep_it),
      cmocka_unit_test(a_forced_choice_is_kept),
      cmocka_unit_test(a_device_is_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
