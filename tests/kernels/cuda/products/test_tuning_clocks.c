/* What tuning chooses does not depend on a card's clocks, which are low at first: work that is
 * measured before they rise takes ten times as long. The emulated card's clock is moved only by
 * its work. Only cuBLASLt's side measures; in place of it, plain loops draw what they choose,
 * whatever the clock says. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/operators/device_case.h"

enum { N = 40, I = 72, O = 136, TEXT_BYTES = 512 };
enum { COLD_MS = 18, WARM_UP_MS = 9 }; /* less than tuning spins; the first run of both ways */

static const char hundred_us[] = "capability=90 multiprocessors=3 work_us=100 cold_ms=0";

static void *zeros(struct plm_ops *ops, int64_t count)
{
  uint16_t *host = calloc((size_t)count, sizeof *host);
  assert_non_null(host);
  void *buffer = device_case_upload(ops, host, (size_t)count * sizeof *host);
  free(host);
  return buffer;
}

static struct plm_ops *open_ops(void)
{
  struct plm_ops *ops;
  plm_emulation_card(hundred_us);
  plm_emulation_tuning(1);
  assert_int_equal(setenv("PLM_CUDA_ATTENTION", "mma", 1), 0);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  return ops;
}

/* Whether the library is linked; then the algorithms begin with its name and its version. */
static bool measures(void)
{
  struct plm_ops *ops = open_ops();
  char *text;
  const bool is_cublaslt = strstr(program_invocation_short_name, "_cublaslt") != NULL;
  assert_int_equal(ops->export_algorithms(ops, &text, NULL), PLM_OK);
  assert_int_equal(strncmp(text, "cublasLt ", 9) == 0 && strtol(text + 9, NULL, 10) > 0,
                   is_cublaslt);
  free(text);
  ops->close(ops);
  return is_cublaslt;
}

/* The line of the exported text that begins with `begin`, or "". */
static void line_of(struct plm_ops *ops, const char *begin, char line[TEXT_BYTES])
{
  char *text;
  assert_int_equal(ops->export_algorithms(ops, &text, NULL), PLM_OK);
  const char *at = text;
  while (*at != '\0' && strncmp(at, begin, strlen(begin)) != 0) at = strchr(at, '\n') + 1;
  snprintf(line, TEXT_BYTES, "%.*s", (int)strcspn(at, "\n"), at);
  free(text);
}

/* Tunes a product, and then the choice between two ways for its shape, of which the library's takes
 * two work items and the kernel one, with many multiply-adds: 0.2 ms and 0.5 ms. */
static void tune(int cold_product_ms, int cold_choice_ms, char product[TEXT_BYTES],
                 char choice[TEXT_BYTES])
{
  char card[TEXT_BYTES];
  struct plm_ops *ops = open_ops();
  void *x = zeros(ops, N * I), *w = zeros(ops, O * I), *y = zeros(ops, N * O);
  ops->tune(ops, true, NULL);
  snprintf(card, sizeof card, "cold_ms=%d", cold_product_ms);
  plm_emulation_card(card);
  ops->linear_forward(ops, y, x, w, NULL, N, I, O);
  line_of(ops, "40 136 72 ", product);
  snprintf(card, sizeof card, "cold_ms=%d", cold_choice_ms);
  plm_emulation_card(card);
  ops->linear_relu2_forward(ops, y, x, w, N, I, O);
  line_of(ops, "relu2_forward ", choice);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  void *const buffers[] = {x, w, y};
  for (int i = 0; i < 3; i++) ops->release(ops, buffers[i]);
  ops->close(ops);
}

static void a_cold_card_chooses_as_a_warm_one(void **state)
{
  (void)state;
  char warm[2][TEXT_BYTES], cold[2][TEXT_BYTES];
  tune(0, 0, warm[0], warm[1]);
  assert_true(strlen(warm[0]) > 0);
  if (measures()) assert_string_equal(warm[1], "relu2_forward 40 72 136 library");
  for (int ms = 2; ms <= COLD_MS; ms += 4) {
    tune(ms, ms + WARM_UP_MS, cold[0], cold[1]);
    assert_string_equal(cold[0], warm[0]);
    assert_string_equal(cold[1], warm[1]);
  }
}

/* A product that adds to what is there is measured elsewhere: in scratch, or in memory of its own.
 */
static void a_sum_is_not_measured_in_its_place(void **state)
{
  (void)state;
  enum { SIDE = 16, ROUNDS = 3, ONE = 0x3f80 };
  static const size_t scratches[] = {0, 64};
  for (int i = 0; i < 2; i++) {
    uint16_t ones[SIDE * SIDE];
    float sums[SIDE * SIDE] = {0};
    for (int k = 0; k < SIDE * SIDE; k++) ones[k] = ONE;
    plm_emulation_scratch(scratches[i]);
    struct plm_ops *ops = open_ops();
    void *x = device_case_upload(ops, ones, sizeof ones),
         *w = device_case_upload(ops, sums, sizeof sums);
    for (int round = 1; round <= ROUNDS; round++) {
      ops->tune(ops, true, NULL);
      ops->linear_backward_weight(ops, w, x, x, SIDE, SIDE, SIDE);
      device_case_download(ops, sums, w, sizeof sums);
      for (int k = 0; k < SIDE * SIDE; k++) assert_true(sums[k] == (float)(round * SIDE));
    }
    ops->release(ops, x);
    ops->release(ops, w);
    ops->close(ops);
  }
  plm_emulation_scratch(0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cold_card_chooses_as_a_warm_one),
      cmocka_unit_test(a_sum_is_not_measured_in_its_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
