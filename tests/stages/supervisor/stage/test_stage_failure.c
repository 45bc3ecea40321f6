/* What a failure means: by its exit code, and by the failures before it. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "stages/supervisor/stage/stage_failure.h"
#include "tests/support/cases/supervisor_case.h"

enum { MINUTE_MS = 60000, WAIT_S = 300 };

static enum plm_failure_verdict add(struct plm_failures *failures, struct plm_failure failure,
                                    int64_t *delay_ms)
{
  if (failure.text == NULL) failure.text = "";
  return plm_failures_add(failures, &failure, WAIT_S, 0.0, delay_ms);
}

static void the_exit_code_decides_the_kind(void **state)
{
  static const struct {
    int status;
    enum plm_failure_kind kind;
  } rows[] = {
      {EXITED(1), PLM_FAILURE_UNKNOWN},    {EXITED(2), PLM_FAILURE_STAYS},
      {EXITED(3), PLM_FAILURE_UNKNOWN},    {EXITED(4), PLM_FAILURE_STAYS},
      {EXITED(5), PLM_FAILURE_NOT_FINITE}, {EXITED(6), PLM_FAILURE_PASSES},
      {EXITED(7), PLM_FAILURE_STAYS},      {EXITED(8), PLM_FAILURE_UNKNOWN},
      {EXITED(126), PLM_FAILURE_STAYS},    {EXITED(127), PLM_FAILURE_STAYS},
      {EXITED(143), PLM_FAILURE_UNKNOWN},  {KILLED(2), PLM_FAILURE_UNKNOWN},
      {KILLED(6), PLM_FAILURE_UNKNOWN},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (plm_failure_kind_of(rows[i].status) != rows[i].kind) fail_msg("row %zu", i);
}

/* The kinds of errors that a stage ends with. */
static void what_can_pass_has_its_own_code(void **state)
{
  static const plm_status passes[] = {PLM_IO, PLM_NO_SPACE, PLM_BUSY, PLM_UNAVAILABLE,
                                      PLM_NO_DESCRIPTORS};
  static const plm_status stays[] = {PLM_FORMAT, PLM_UNSUPPORTED};
  static const plm_status unknown[] = {PLM_FAILURE,   PLM_NO_MEMORY, PLM_CORRUPT,
                                       PLM_NOT_FOUND, PLM_LIMIT,     PLM_PROTOCOL};
  (void)state;
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    assert_int_equal(plm_status_stage_code(passes[i]), PLM_EXIT_MAY_PASS);
  for (size_t i = 0; i < sizeof stays / sizeof *stays; i++)
    assert_int_equal(plm_status_stage_code(stays[i]), PLM_EXIT_STAYS);
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
    assert_int_equal(plm_status_stage_code(unknown[i]), 1);
  assert_int_equal(plm_status_stage_code(PLM_CONFIG), PLM_EXIT_CONFIG);
  assert_int_equal(plm_status_stage_code(PLM_TIMEOUT), PLM_EXIT_TIMEOUT);
  assert_int_equal(plm_status_stage_code(PLM_NOT_FINITE), PLM_EXIT_NOT_FINITE);
  assert_int_equal(plm_status_stage_code(PLM_OK), 0);
  assert_int_equal(plm_status_exit_code(PLM_NO_SPACE), 1); /* of a command */
}

/* Ten failures within seconds: they are waited for, with doubled delays, up to the limit. */
static void a_cause_that_may_pass_is_waited_for(void **state)
{
  struct plm_failures failures = {0};
  int64_t delay_ms = 0;
  (void)state;
  for (int i = 0; i < 10; i++) {
    assert_int_equal(add(&failures,
                         (struct plm_failure){.kind = PLM_FAILURE_PASSES, .now_ms = 5000 + i},
                         &delay_ms),
                     PLM_VERDICT_WAITS);
    assert_int_equal(delay_ms, i < 6 ? 1000 << i : 60000);
  }
  struct plm_failure late = {.kind = PLM_FAILURE_PASSES, .now_ms = 5000 + 1000 * WAIT_S - 1};
  assert_int_equal(add(&failures, late, &delay_ms), PLM_VERDICT_WAITS);
  assert_int_equal(delay_ms, 1); /* one more attempt when the time is over */
  late.now_ms++;
  assert_int_equal(add(&failures, late, &delay_ms), PLM_VERDICT_TOO_LONG);
}

static void progress_begins_a_new_wait(void **state)
{
  struct plm_failures failures = {0};
  struct plm_failure failure = {.kind = PLM_FAILURE_PASSES, .now_ms = 1000, .mark = 10};
  int64_t delay_ms = 0;
  (void)state;
  assert_int_equal(add(&failures, failure, &delay_ms), PLM_VERDICT_WAITS);
  failure.now_ms += 1000 * WAIT_S;
  failure.mark = 20; /* a checkpoint was published */
  assert_int_equal(add(&failures, failure, &delay_ms), PLM_VERDICT_WAITS);
  assert_int_equal(delay_ms, 1000);
  failure.now_ms += 1000 * WAIT_S;
  failure.lived_ms = PLM_BACKOFF_WINDOW_MS; /* it worked for ten minutes */
  assert_int_equal(add(&failures, failure, &delay_ms), PLM_VERDICT_WAITS);
  failure.now_ms += 1000 * WAIT_S;
  failure.lived_ms = PLM_BACKOFF_WINDOW_MS - 1;
  assert_int_equal(add(&failures, failure, &delay_ms), PLM_VERDICT_TOO_LONG);
}

static void without_a_limit_nothing_is_waited_for(void **state)
{
  struct plm_failures failures = {0};
  const struct plm_failure failure = {.kind = PLM_FAILURE_PASSES, .text = ""};
  int64_t delay_ms = 0;
  (void)state;
  assert_int_equal(plm_failures_add(&failures, &failure, 0, 0.0, &delay_ms), PLM_VERDICT_TOO_LONG);
}

static void values_that_are_not_finite_are_replayed_once(void **state)
{
  struct plm_failures failures = {0};
  struct plm_failure failure = {
      .kind = PLM_FAILURE_NOT_FINITE, .at_step = true, .step = 70, .text = "a"};
  int64_t delay_ms = 0;
  (void)state;
  assert_int_equal(add(&failures, failure, &delay_ms), PLM_VERDICT_AGAIN);
  failure.step = 71; /* another step is another failure */
  failure.now_ms = 11 * MINUTE_MS;
  assert_int_equal(add(&failures, failure, &delay_ms), PLM_VERDICT_AGAIN);
  failure.now_ms += 11 * MINUTE_MS; /* five deaths in ten minutes are never reached */
  failure.text = "b";
  assert_int_equal(add(&failures, failure, &delay_ms), PLM_VERDICT_REPEATED);
}

static void an_error_is_the_same_to_the_letter(void **state)
{
  static const struct {
    struct plm_failure failure;
    enum plm_failure_verdict verdict;
  } rows[] = {
      {{.at_step = true, .step = 7, .text = "no"}, PLM_VERDICT_REPEATED},
      {{.at_step = true, .step = 7, .text = "no!"}, PLM_VERDICT_AGAIN},
      {{.at_step = true, .step = 8, .text = "no"}, PLM_VERDICT_AGAIN},
      {{.at_step = false, .step = 7, .text = "no"}, PLM_VERDICT_AGAIN},
      {{.at_step = true, .step = 7, .text = ""}, PLM_VERDICT_AGAIN},
      {{.kind = PLM_FAILURE_NOT_FINITE, .at_step = true, .step = 7, .text = "no"},
       PLM_VERDICT_AGAIN},
  };
  int64_t delay_ms = 0;
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_failures failures = {0};
    const struct plm_failure first = {.at_step = true, .step = 7, .text = "no"};
    assert_int_equal(add(&failures, first, &delay_ms), PLM_VERDICT_AGAIN);
    if (add(&failures, rows[i].failure, &delay_ms) != rows[i].verdict) fail_msg("row %zu", i);
  }
  /* without a step or without words, nothing shows that it is the same */
  for (int i = 0; i < 2; i++) {
    struct plm_failures failures = {0};
    const struct plm_failure vague = {.at_step = i == 0, .text = i == 0 ? "" : "no"};
    assert_int_equal(add(&failures, vague, &delay_ms), PLM_VERDICT_AGAIN);
    assert_int_equal(add(&failures, vague, &delay_ms), PLM_VERDICT_AGAIN);
  }
}

/* A full disk between two failures at the same step changes nothing about them, and is no death. */
static void what_may_pass_does_not_count(void **state)
{
  struct plm_failures failures = {0};
  const struct plm_failure full = {.kind = PLM_FAILURE_PASSES, .at_step = true, .step = 7};
  const struct plm_failure same = {.at_step = true, .step = 7, .text = "no"};
  int64_t delay_ms = 0;
  (void)state;
  for (int i = 0; i < 6; i++) assert_int_equal(add(&failures, full, &delay_ms), PLM_VERDICT_WAITS);
  assert_int_equal(add(&failures, same, &delay_ms), PLM_VERDICT_AGAIN);
  assert_int_equal(add(&failures, full, &delay_ms), PLM_VERDICT_WAITS);
  assert_int_equal(delay_ms, 1000); /* a new wait */
  assert_int_equal(add(&failures, same, &delay_ms), PLM_VERDICT_REPEATED);
}

static void other_failures_count_to_five(void **state)
{
  struct plm_failures failures = {0};
  const struct plm_failure killed = {.kind = PLM_FAILURE_UNKNOWN};
  const struct plm_failure stays = {.kind = PLM_FAILURE_STAYS};
  int64_t delay_ms = 0;
  (void)state;
  assert_int_equal(add(&failures, stays, &delay_ms), PLM_VERDICT_STAYS);
  for (int i = 1; i <= 5; i++)
    assert_int_equal(add(&failures, killed, &delay_ms),
                     i < 5 ? PLM_VERDICT_AGAIN : PLM_VERDICT_TOO_OFTEN);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_exit_code_decides_the_kind),
      cmocka_unit_test(what_can_pass_has_its_own_code),
      cmocka_unit_test(a_cause_that_may_pass_is_waited_for),
      cmocka_unit_test(progress_begins_a_new_wait),
      cmocka_unit_test(without_a_limit_nothing_is_waited_for),
      cmocka_unit_test(values_that_are_not_finite_are_replayed_once),
      cmocka_unit_test(an_error_is_the_same_to_the_letter),
      cmocka_unit_test(what_may_pass_does_not_count),
      cmocka_unit_test(other_failures_count_to_five),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
