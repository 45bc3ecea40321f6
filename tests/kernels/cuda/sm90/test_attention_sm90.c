/* Attention for sm_90a (wgmma, TMA), emulated or on a GPU of compute capability 9.0, compared with
 * the dense masked reference in double precision. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/fewer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/operators/attention_sm90_case.h"
#include "tests/support/operators/device_case.h"

static struct attention_batch sample;

static void every_mask_kind(void **state)
{
  (void)state;
  attention_batch_mixed(&sample);
  attention_check_masks(&sample, fewer_of(2, 6), 23, 50, 1, 64, true);
  attention_check_masks(&sample, 6, 70, 90, 1, 128, true);
}

/* Heads of 64 and 128 fill their tiles, as in the other tests. For the others the copies bring
 * columns of zeros. */
static void head_widths(void **state)
{
  (void)state;
  static const int32_t widths[] = {40, 72, 64, 96, 128};
  attention_batch_of(&sample, 1, 80, {0, 0, 50}, {0, 52, 26});
  attention_check_widths(&sample, 2, widths, fewer_of(sizeof widths / sizeof *widths, 2), true);
}

static void lengths(void **state)
{
  (void)state;
  static const uint32_t all[] = {1, 64, 65, 129, 2, 63, 127, 128, 193};
  attention_check_lengths(all, fewer_of(sizeof all / sizeof *all, 4), 64, true);
}

/* Ranges of over 512 keys are walked 128 at a time, with the two warpgroups in turns. With causal
 * and local masks the two have different ranges. The chunk has ranges of both kinds. */
static void long_ranges(void **state)
{
  (void)state;
  static const unsigned kinds[] = {PLM_ATTENTION_DOCUMENT, PLM_ATTENTION_CAUSAL,
                                   PLM_ATTENTION_LOCAL};
  attention_batch_of(&sample, 1, 900, {0, 3, 650}, {0, 660, 210});
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const int32_t widest = (int32_t)fewer_of(128, 64);
    for (int32_t K = 64; K <= widest; K += 64)
      attention_check(&sample, PLM_ATTENTION_DOCUMENT | kinds[i], 300, 0, 1, K, 0, true);
  }
}

static void many_documents(void **state)
{
  (void)state;
  attention_batch_begin(&sample, 2, 200);
  for (uint32_t i = 0; i < 200; i++) attention_batch_add(&sample, 0, i, 1);
  for (uint32_t i = 0; i < 33; i++) attention_batch_add(&sample, 1, 6 * i, 2 + i % 5);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 3, 64, 0, true);
}

static void the_soft_cap_and_its_gradient(void **state)
{
  (void)state;
  attention_batch_mixed(&sample);
  attention_check(&sample, PLM_ATTENTION_CAUSAL, 0, 0, 1, 64, 0.7f, true);
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 128, 30, true);
  attention_batch_of(&sample, 1, 600, {0, 0, 600});
  attention_check(&sample, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 128, 2, true);
}

static void padding_is_exactly_zero_and_never_used(void **state)
{
  (void)state;
  attention_batch_mixed(&sample);
  assert_int_equal(attention_check_padding(&sample, 1, 64, 1e4f, true), 9 + 150 + 3);
}

static void any_order_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  attention_batch_of(&sample, 2, 260, {0, 0, 190}, {1, 0, 30}, {1, 30, 170});
  attention_check_orders(&sample, 140, 2, 64, fewer_of(5, 3), true);
  attention_check_orders(&sample, 140, 2, 128, fewer_of(5, 2), true);
}

/* The forced kernels really ran: their roundings differ from those of mma.sync. */
static void the_choice_is_the_environments(void **state)
{
  (void)state;
  struct attention_case forced, other;
  attention_batch_mixed(&sample);
  attention_case_init(&forced, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 64, true);
  attention_case_init(&other, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 2, 64, true);
  const size_t bytes = forced.rows * forced.width * 2;
  attention_case_run_on_cuda(&forced, 1);
  setenv("PLM_CUDA_ATTENTION", "mma", 1);
  attention_case_run_on_cuda(&other, 1);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  assert_memory_not_equal(forced.data[DQ], other.data[DQ], 3 * bytes);
  attention_case_deinit(&forced);
  attention_case_deinit(&other);
}

/* A device of 9.0 uses these kernels if they agree with the others, which takes a check of seconds
 * and is also in test_attention_onepass, and the others if its products are wrong. */
static void a_device_is_checked(void **state)
{
  (void)state;
  struct attention_case forced, p;
  if (device_case_is_real()) skip("it tests the emulation");
  attention_batch_mixed(&sample);
  attention_case_init(&forced, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, true);
  const size_t bytes = forced.rows * forced.width * 2;
  for (int wrong = (int)fewer_of(0, 1); wrong < 2; wrong++) {
    setenv("PLM_CUDA_ATTENTION", wrong ? "mma" : "sm90", 1);
    attention_case_run_on_cuda(&forced, 1);
    unsetenv("PLM_CUDA_ATTENTION");
    plm_emulation_capability(90, wrong);
    attention_case_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, true);
    attention_case_run_on_cuda(&p, 1);
    plm_emulation_capability(90, false);
    assert_memory_equal(p.data[DQ], forced.data[DQ], 3 * bytes);
    attention_case_deinit(&p);
  }
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  attention_case_deinit(&forced);
}

/* A fault is final for a process. It stays in that of the check, and this one goes on without. */
static void a_fault_in_the_check_leaves_the_others(void **state)
{
  (void)state;
  struct attention_case forced, p;
  if (device_case_is_real()) skip("it tests the emulation");
  attention_batch_mixed(&sample);
  attention_case_init(&forced, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, true);
  attention_case_init(&p, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 64, true);
  setenv("PLM_CUDA_ATTENTION", "mma", 1);
  attention_case_run_on_cuda(&forced, 1);
  unsetenv("PLM_CUDA_ATTENTION");
  plm_emulation_capability(90, false);
  plm_emulation_faulty_products(true);
  attention_case_run_on_cuda(&p, 1);
  plm_emulation_faulty_products(false);
  assert_memory_equal(p.data[DQ], forced.data[DQ], 3 * forced.rows * forced.width * 2);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  attention_case_deinit(&forced);
  attention_case_deinit(&p);
}

/* Without a process of its own, a fault of the check is final. The error names the variable that
 * leaves the check out. In a child, since the fault stays. */
static void a_fault_where_cuda_is_in_use_is_an_error(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  int status;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct plm_ops *ops;
    struct plm_error error = {0};
    plm_emulation_capability(90, false);
    plm_emulation_faulty_products(true);
    if (plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, &error) != PLM_OK) _exit(1);
    ops->close(ops);
    unsetenv("PLM_CUDA_ATTENTION");
    if (plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, &error) != PLM_FAILURE) _exit(2);
    if (strstr(error.what, "device 0: the attention kernels for sm_90a: ") == NULL) _exit(3);
    if (strcmp(error.hint, "set PLM_CUDA_ATTENTION=mma in the environment") != 0) _exit(4);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void an_unknown_choice_is_refused(void **state)
{
  (void)state;
  struct plm_ops *ops;
  struct plm_error error = {0};
  setenv("PLM_CUDA_ATTENTION", "fast", 1);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "PLM_CUDA_ATTENTION=fast"));
  assert_non_null(strstr(error.hint, "mma"));
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
}

int main(void)
{
  plm_emulation_capability(90, false);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  setenv("PLM_CUDA_RELU2", "library", 1); /* a forced choice is not checked */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mask_kind),
      cmocka_unit_test(head_widths),
      cmocka_unit_test(lengths),
      cmocka_unit_test(long_ranges),
      cmocka_unit_test(many_documents),
      cmocka_unit_test(the_soft_cap_and_its_gradient),
      cmocka_unit_test(padding_is_exactly_zero_and_never_used),
      cmocka_unit_test(any_order_of_threads_gives_the_same_bits),
      cmocka_unit_test(the_choice_is_the_environments),
      cmocka_unit_test(a_device_is_checked),
      cmocka_unit_test(a_fault_in_the_check_leaves_the_others),
      cmocka_unit_test(a_fault_where_cuda_is_in_use_is_an_error),
      cmocka_unit_test(an_unknown_choice_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
