/* After a failure the emulated runtime behaves as a device's: a capture that failed has executed
 * nothing, a fault stays also after a reset, and nothing outlives a reset. Callers that ignore this
 * get wrong results, or the process ends and says why. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/emulation/controls.h"
#include "tests/emulation/planted_runtime.h"

enum { N = PLM_RUNTIME_VALUES, ORDERS = 16, TIMES = 8, TEXT_BYTES = 1024 };

static float out[N];

/* Runs the caller in a child, whose faults are its own. Returns its first error, or -1 if the
 * process ended with a message, of which `text` gets the beginning. */
static int run(enum plm_planted_runtime fault, uint64_t order, const char *card,
               char text[TEXT_BYTES])
{
  int ends[2], status;
  ssize_t got, used = 0;
  struct {
    int code;
    float out[N];
  } result;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    plm_emulation_order(order);
    plm_emulation_card(card);
    for (int i = 0; i < N; i++) result.out[i] = NAN;
    result.code = plm_cuda_planted_runtime_run(fault, result.out);
    const ssize_t written = write(ends[1], &result, sizeof result);
    _exit(written == (ssize_t)sizeof result ? 0 : 1);
  }
  close(ends[1]);
  memset(text, 0, TEXT_BYTES);
  while ((got = read(ends[0], text + used, (size_t)(TEXT_BYTES - 1 - used))) > 0) used += got;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return -1;
  assert_int_equal(used, sizeof result);
  memcpy(&result, text, sizeof result);
  memcpy(out, result.out, sizeof out);
  return result.code;
}

static int right(void)
{
  int equal = 0;
  for (int i = 0; i < N; i++) equal += out[i] == (float)(TIMES * (i + 1));
  return equal == N;
}

static int nothing_came(void)
{
  int none = 0;
  for (int i = 0; i < N; i++) none += isnan(out[i]) != 0;
  return none == N;
}

static void a_sound_caller_is_right_in_any_order(void **state)
{
  (void)state;
  char text[TEXT_BYTES];
  for (uint64_t order = 1; order <= ORDERS; order++) {
    assert_int_equal(run(PLM_RUNTIME_SOUND, order, "", text), 0);
    assert_true(right());
  }
}

static void pageable_memory_is_read_late(void **state)
{
  (void)state;
  char text[TEXT_BYTES];
  int wrong = 0;
  for (uint64_t order = 1; order <= ORDERS; order++) {
    assert_int_equal(run(PLM_RUNTIME_REUSED, order, "", text), 0);
    wrong += !right();
    if (order == 1) assert_int_equal(wrong, 1); /* as late as possible */
  }
  assert_true(wrong >= 3);
}

static void a_failed_capture_has_executed_nothing(void **state)
{
  (void)state;
  static const char *const cards[] = {"capture=begin", "capture=call", "capture=end",
                                      "capture=instantiate"};
  char text[TEXT_BYTES];
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    if (run(PLM_RUNTIME_SOUND, 1, cards[i], text) <= 0) fail_msg("%s: no error", cards[i]);
    assert_true(nothing_came());
    const int code = run(PLM_RUNTIME_UNCHECKED, 1, cards[i], text);
    if (code == 0 || right()) fail_msg("%s: a caller that does not look is right", cards[i]);
  }
}

/* The graph's second kernel is the fault. */
static void a_fault_stays_after_a_reset(void **state)
{
  (void)state;
  char text[TEXT_BYTES];
  assert_true(run(PLM_RUNTIME_SOUND, 1, "lost=3", text) > 0);
  assert_true(nothing_came());
  assert_true(run(PLM_RUNTIME_RESET, 1, "lost=1", text) > 0);
  /* a kernel that a lost card would not run needs no permission */
  if (run(PLM_RUNTIME_NO_PERMISSION, 1, "lost=1", text) <= 0) fail_msg("%s", text);
  assert_true(nothing_came());
  assert_int_equal(run(PLM_RUNTIME_RESET, 1, "", text), 0); /* without a fault it helps */
  assert_true(right());
}

static void nothing_outlives_a_reset(void **state)
{
  (void)state;
  char text[TEXT_BYTES];
  assert_int_equal(run(PLM_RUNTIME_OLD_STREAM, 1, "", text), -1);
  assert_non_null(strstr(text, "a stream of before the device's reset"));
#ifndef __SANITIZE_ADDRESS__
  assert_int_equal(run(PLM_RUNTIME_OLD_BUFFER, 1, "", text), -1);
  assert_non_null(strstr(text, "not a buffer"));
#endif
  assert_int_equal(run(PLM_RUNTIME_OLD_PERMISSION, 1, "", text), -1);
  assert_non_null(strstr(text, "was allowed 0"));
}

/* A card of 8.0 has what every card has, one of 9.0 has more. */
static void a_block_has_no_more_shared_memory_than_the_card(void **state)
{
  (void)state;
  static const char *const enough[] = {"shared=102400", "capability=90"};
  static const char *const too_little[] = {"", "shared=102399", "capability=90 shared=101376"};
  char text[TEXT_BYTES];
  for (size_t i = 0; i < sizeof enough / sizeof *enough; i++) {
    if (run(PLM_RUNTIME_TOO_LARGE, 1, enough[i], text) != 0) fail_msg("%s: refused", enough[i]);
    assert_true(right());
  }
  for (size_t i = 0; i < sizeof too_little / sizeof *too_little; i++) {
    if (run(PLM_RUNTIME_TOO_LARGE, 1, too_little[i], text) <= 0)
      fail_msg("%s: allowed", too_little[i]);
    assert_true(nothing_came());
  }
}

static void an_unknown_card_ends_the_process(void **state)
{
  (void)state;
  char text[TEXT_BYTES];
  assert_int_equal(run(PLM_RUNTIME_SOUND, 1, "colour=green", text), -1);
  assert_non_null(strstr(text, "colour=green"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sound_caller_is_right_in_any_order),
      cmocka_unit_test(pageable_memory_is_read_late),
      cmocka_unit_test(a_failed_capture_has_executed_nothing),
      cmocka_unit_test(a_fault_stays_after_a_reset),
      cmocka_unit_test(nothing_outlives_a_reset),
      cmocka_unit_test(a_block_has_no_more_shared_memory_than_the_card),
      cmocka_unit_test(an_unknown_card_ends_the_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
