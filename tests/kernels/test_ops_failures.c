/* What the CUDA backend, emulated, does after a failure: recordings that fail can be called
 * instead, a lost device is an error that stays, and a reset between two backends does no harm. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/emulation/planted_runtime.h"
#include "tests/support/operators/attention_case.h"
#include "tests/support/operators/device_case.h"

enum { N = 64 };

static void skip_real(void)
{
  if (device_case_is_real()) skip("it tests the emulation");
}

/* Doubles x four times. */
static void operators(struct plm_ops *ops, float *x, float *y)
{
  for (int i = 0; i < 2; i++) {
    ops->copy(ops, y, x, N * sizeof *x);
    ops->add(ops, y, y, N);
    ops->copy(ops, x, y, N * sizeof *x);
    ops->add(ops, x, x, N);
  }
}

static void a_failed_recording_is_called_instead(void **state)
{
  (void)state;
  skip_real();
  static const char *const cards[] = {"capture=begin", "capture=call", "capture=end",
                                      "capture=instantiate"};
  static const char *const said[] = {"the beginning of a recording", "during capture",
                                     "the end of a recording", "making a recording"};
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    struct plm_ops *ops = device_case_open(PLM_PRECISION_FP32, 1);
    struct plm_recording *recording = NULL;
    struct plm_error error = {0};
    float values[N];
    void *x, *y;
    for (int j = 0; j < N; j++) values[j] = (float)j;
    assert_int_equal(ops->allocate(ops, sizeof values, &x, NULL), PLM_OK);
    assert_int_equal(ops->allocate(ops, sizeof values, &y, NULL), PLM_OK);
    ops->upload(ops, x, values, sizeof values);
    plm_emulation_card(cards[i]);
    plm_status status = ops->record_begin(ops, &error);
    if (status == PLM_OK) {
      operators(ops, x, y);
      status = ops->record_end(ops, &recording, &error);
    }
    plm_emulation_card("capture=sound");
    assert_int_not_equal(status, PLM_OK);
    assert_int_equal(error.status, status);
    assert_null(recording);
    if (strstr(error.what, said[i]) == NULL) fail_msg("%s: %s", cards[i], error.what);
    assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
    operators(ops, x, y);
    ops->download(ops, values, x, sizeof values);
    for (int j = 0; j < N; j++) assert_true(values[j] == (float)(16 * j));
    assert_int_equal(ops->record_begin(ops, NULL), PLM_OK); /* another one may succeed */
    operators(ops, x, y);
    assert_int_equal(ops->record_end(ops, &recording, NULL), PLM_OK);
    ops->replay(ops, recording);
    ops->download(ops, values, x, sizeof values);
    for (int j = 0; j < N; j++) assert_true(values[j] == (float)(256 * j));
    ops->release_recording(ops, recording);
    ops->release(ops, x);
    ops->release(ops, y);
    ops->close(ops);
  }
}

/* In a child, since a fault is final for its process. */
static void a_lost_device_stays_an_error(void **state)
{
  (void)state;
  skip_real();
  int status;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct plm_ops *ops, *again;
    struct plm_error error = {0}, second = {0};
    float values[N] = {0};
    void *x, *pinned;
    plm_emulation_card("lost=3");
    ops = device_case_open(PLM_PRECISION_FP32, 1);
    if (ops->allocate(ops, sizeof values, &x, NULL) != PLM_OK) _exit(1);
    if (ops->allocate_host(ops, sizeof values, &pinned, NULL) != PLM_OK) _exit(2);
    for (int i = 0; i < 4; i++) ops->zero(ops, x, sizeof values);
    ops->download_beside(ops, pinned, x, sizeof values);
    if (ops->synchronize(ops, &error) != PLM_FAILURE) _exit(3);
    if (strstr(error.what, "device 0: ") == NULL) _exit(4);
    if (ops->wait_copies(ops, &second) != PLM_FAILURE) _exit(5);
    if (strcmp(error.what, second.what) != 0) _exit(6); /* the first is the one that matters */
    if (ops->record_begin(ops, NULL) != PLM_FAILURE) _exit(7);
    ops->release_host(ops, pinned);
    ops->release(ops, x);
    ops->close(ops);
    if (plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &again, &error) == PLM_OK) _exit(8);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* Kernels with large shared memory must ask for it again. */
static void a_reset_between_two_backends_does_no_harm(void **state)
{
  (void)state;
  skip_real();
  static struct attention_batch sample;
  struct attention_case first, second;
  attention_batch_of(&sample, 1, 100, {0, 0, 100});
  attention_case_init(&first, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 128, true);
  attention_case_init(&second, &sample.batch, PLM_ATTENTION_DOCUMENT, 0, 0, 1, 128, true);
  attention_case_run_on_cuda(&first, 1);
  assert_int_equal(plm_cuda_planted_reset(), 0);
  attention_case_run_on_cuda(&second, 1);
  assert_memory_equal(first.data[OUT], second.data[OUT], first.rows * first.width * 2);
  attention_case_deinit(&first);
  attention_case_deinit(&second);
}

/* What a backend says of itself and of its device. Changes the card, so it is the last test. */
static void a_backend_describes_its_device(void **state)
{
  (void)state;
  skip_real();
  static const struct {
    const char *card, *isa;
  } cards[] = {{"capability=80", "sm_80"},
               {"capability=89", "sm_80"},
               {"capability=90", "sm_90"},
               {"capability=100", "sm_90"}};
  struct plm_ops *ops;
  struct plm_error error = {0};
  void *buffer = &error;
  plm_emulation_card("name=Some_Card driver=12040");
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    plm_emulation_card(cards[i].card);
    assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, NULL), PLM_OK);
    assert_string_equal(ops->name, "cuda");
    assert_string_equal(ops->isa, cards[i].isa);
    assert_string_equal(ops->processor, "Some Card");
    assert_memory_equal(ops->driver, "for CUDA 12040, with runtime ", 29);
    assert_int_equal(ops->act_bytes, 4);
    assert_int_equal(ops->threads, 1);
    ops->close(ops);
  }
  plm_emulation_card("capability=80");
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  assert_int_equal(ops->act_bytes, 2);
  assert_int_equal(ops->allocate(ops, (size_t)1 << 60, &buffer, &error), PLM_NO_MEMORY);
  assert_null(buffer);
  assert_memory_equal(error.what,
                      "no device memory for a buffer of 1152921504606846976 bytes: out of memory; ",
                      75);
  assert_non_null(strstr(error.what, " of 68.72 GB are free"));
  assert_non_null(strstr(error.hint, "use a smaller batch"));
  ops->close(ops);
  plm_emulation_card("capability=75");
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, &error), PLM_UNSUPPORTED);
  assert_string_equal(error.what, "Some Card has compute capability 7.5, 8.0 is needed");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failed_recording_is_called_instead),
      cmocka_unit_test(a_lost_device_stays_an_error),
      cmocka_unit_test(a_reset_between_two_backends_does_no_harm),
      cmocka_unit_test(a_backend_describes_its_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
