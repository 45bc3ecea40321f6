/* The persistent loops of the kernels for sm_90a, emulated: with two multiprocessors and two
 * chunks a block takes several work items, also of the second chunk. Results do not depend on
 * the number of blocks, and faults that show only there are found, in each pass by comparing bits,
 * and by the backend's own check when it opens. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/fewer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/emulation/planted_hopper.h"
#include "tests/support/operators/attention_sm90_case.h"
#include "tests/support/operators/device_case.h"

static const enum plm_planted_everywhere faults[] = {
    PLM_EVERYWHERE_TURN_FULL, PLM_EVERYWHERE_TURN_EMPTY, PLM_EVERYWHERE_RING_FULL,
    PLM_EVERYWHERE_RING_EMPTY, PLM_EVERYWHERE_CHUNK};
static const char *const names[] = {"the parity of owned tiles", "the release of owned tiles",
                                    "the parity of stages", "the release of stages", "the chunk"};
enum { FAULTS = sizeof faults / sizeof *faults };

static void compute_with(struct attention_case *p, const char *card)
{
  plm_emulation_card(card);
  attention_case_run_on_cuda(p, 1);
  plm_emulation_card("multiprocessors=3");
}

static size_t bytes_of(const struct attention_case *p)
{
  return p->rows * p->width * 2;
}

static void the_number_of_blocks_changes_nothing(void **state)
{
  (void)state;
  static const char *const cards[] = {"multiprocessors=1", "multiprocessors=2",
                                      "multiprocessors=200"};
  for (int32_t K = 64; K <= 128; K += 64) {
    struct attention_case one, other;
    attention_sm90_two_chunks(&one, K);
    compute_with(&one, "multiprocessors=3");
    attention_case_reference(&one);
    attention_case_compare(&one);
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
      attention_sm90_two_chunks(&other, K);
      compute_with(&other, cards[i]);
      assert_memory_equal(one.data[OUT], other.data[OUT], bytes_of(&one));
      assert_memory_equal(one.data[DQ], other.data[DQ], 3 * bytes_of(&one));
      attention_case_deinit(&other);
    }
    attention_case_deinit(&one);
  }
}

/* ---- planted faults ---- */

static void each_fault_shows_in_each_pass(void **state)
{
  (void)state;
  const int32_t widest = (int32_t)fewer_of(128, 64);
  for (int32_t K = 64; K <= widest; K += 64) {
    struct attention_case sound;
    attention_sm90_two_chunks(&sound, K);
    compute_with(&sound, "multiprocessors=2");
    for (int pass = ATTENTION_FORWARD; pass <= ATTENTION_BACKWARD; pass++)
      assert_false(
          attention_sm90_fault_shows(&sound, (enum attention_pass)pass, PLM_EVERYWHERE_SOUND, 1));
    for (int i = 0; i < FAULTS; i++) {
      const enum plm_planted_everywhere fault = faults[i];
      /* the code of rings of several stages is the same for all widths */
      if (K > 64 && (fault == PLM_EVERYWHERE_RING_FULL || fault == PLM_EVERYWHERE_RING_EMPTY))
        continue;
      for (int pass = ATTENTION_FORWARD; pass <= ATTENTION_BACKWARD; pass++)
        if (!attention_sm90_fault_shows(&sound, (enum attention_pass)pass, fault, 1))
          fail_msg("%s: not seen in the %s pass, heads of %d", names[i],
                   pass == ATTENTION_FORWARD ? "forward" : "backward", K);
    }
    attention_case_deinit(&sound);
  }
}

/* Which kernels a backend uses that checks them itself. */
static void open_checked(enum plm_planted_everywhere fault, char kernels[64], char fallback[256])
{
  struct plm_ops *ops;
  plm_emulation_card("capability=90 multiprocessors=132"); /* and forgets earlier checks */
  plm_cuda_planted_everywhere(fault);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  plm_cuda_planted_everywhere(PLM_EVERYWHERE_SOUND);
  assert_non_null(ops->kernels);
  snprintf(kernels, 64, "%s", ops->kernels);
  snprintf(fallback, 256, "%s", ops->fallback != NULL ? ops->fallback : "");
  ops->close(ops);
  plm_emulation_card("multiprocessors=3");
}

/* Also on a device with so many multiprocessors that no block would take a second panel. */
static void the_check_of_a_backend_finds_them(void **state)
{
  (void)state;
  char kernels[64], fallback[256];
  const int step = (int)fewer_of(1, 2);
  unsetenv("PLM_CUDA_ATTENTION");
  if (step == 1) { /* this check takes seconds, and test_kernel_checks has it too */
    open_checked(PLM_EVERYWHERE_SOUND, kernels, fallback);
    assert_string_equal(kernels, "attention sm90, backward tuned, relu2 library");
    assert_string_equal(fallback, "");
  }
  for (int i = 0; i < FAULTS; i += step) {
    open_checked(faults[i], kernels, fallback);
    if (strcmp(kernels, "attention mma, relu2 library") != 0) fail_msg("%s: %s", names[i], kernels);
    if (strstr(fallback, "attention runs on mma.sync: ") != fallback)
      fail_msg("%s: %s", names[i], fallback);
  }
  setenv("PLM_CUDA_ATTENTION", "mma", 1);
  unsetenv("PLM_CUDA_RELU2");
  open_checked(PLM_EVERYWHERE_SOUND, kernels, fallback);
  assert_string_equal(kernels, "attention mma, relu2 tuned");
  static const enum plm_planted_everywhere of_products[] = {
      PLM_EVERYWHERE_CARRIED, PLM_EVERYWHERE_RING_FULL, PLM_EVERYWHERE_RING_EMPTY};
  for (size_t i = 0; i < sizeof of_products / sizeof *of_products; i++) {
    open_checked(of_products[i], kernels, fallback);
    assert_string_equal(kernels, "attention mma, relu2 library");
    assert_non_null(strstr(fallback, "products and relu2 run one after the other: "));
  }
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  setenv("PLM_CUDA_RELU2", "library", 1);
}

int main(void)
{
  plm_emulation_capability(90, false);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  setenv("PLM_CUDA_RELU2", "library", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_number_of_blocks_changes_nothing),
      cmocka_unit_test(each_fault_shows_in_each_pass),
      cmocka_unit_test(the_check_of_a_backend_finds_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
