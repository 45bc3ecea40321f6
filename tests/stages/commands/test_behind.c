/* A run in the background: how its start ends, waiting for one that has ended before it could be
 * asked, and its log. */
#include "stages/commands/behind.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/run/run_failure.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];

static pid_t ends_with(int code)
{
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) _exit(code);
  return pid;
}

static void a_failure_is_told_with_its_code(void **state)
{
  static const struct plm_run_failure failure = {
      .exit_code = 2, .stage = "trainer.0", .cause = "exited with 2: too bad"};
  struct plm_error error = {0};
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_run_failure_write(run, &failure, NULL), PLM_OK);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_behind_wait_ready(run, ends_with(2), &error);
  assert_string_equal(captured_end(), "plm-pipeline: failed: trainer.0 exited with 2: too bad\n");
  assert_int_equal(status, PLM_CONFIG);
  assert_string_equal(error.what, ""); /* everything has been said */
  assert_string_equal(error.hint, "");
}

static void a_run_that_was_stopped_has_no_failure(void **state)
{
  struct plm_error error = {0};
  (void)state;
  scratch_run(run);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_behind_wait_ready(run, ends_with(143), &error);
  assert_string_equal(captured_end(), "");
  assert_int_equal(status, PLM_TERMINATED);
  assert_int_equal(plm_behind_wait_ready(run, ends_with(0), &error), PLM_OK);
}

/* Of the longest path that has logs, and of one that has none: nothing is turned to a log. */
static void a_path_that_is_too_long_is_an_error(void **state)
{
  static const size_t lengths[] = {PLM_PATH_SIZE - sizeof "/logs", PLM_PATH_SIZE - 1};
  struct plm_error error = {0};
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    memset(run, 'r', lengths[i]);
    run[lengths[i]] = '\0';
    assert_int_equal(plm_behind_log(run, &error), PLM_LIMIT);
  }
}

static void a_log_that_cannot_be_written_is_an_error(void **state)
{
  char log[PLM_PATH_SIZE];
  struct plm_error error = {0};
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_path_join(log, run, "logs/supervisor.log", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(log, NULL), PLM_OK);
  assert_int_equal(plm_behind_log(run, &error), PLM_IO);
  assert_non_null(strstr(error.what, "supervisor.log"));
}

/* ---- the start -------------------------------------------------------------------------------
 */

enum how { STARTS, FAILS, ENDS };

/* What the child does. */
static plm_status body(void *context, int started_fd, int *exit_code, struct plm_error *error)
{
  const enum how how = *(const enum how *)context;
  *exit_code = 4;
  if (how == STARTS && write(started_fd, "\n", 1) != 1) return PLM_IO;
  if (how != FAILS) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "what is wrong");
  plm_error_where(error, "where");
  return plm_error_hint(error, "a hint");
}

static void a_start_is_a_process(void **state)
{
  enum how how = STARTS;
  struct plm_error error = {0};
  int pid = 0, status = 0;
  (void)state;
  assert_int_equal(plm_behind_start(body, &how, &pid, &error), PLM_OK);
  assert_true(pid > 0);
  assert_int_equal(waitpid(pid, &status, 0), pid); /* it has not been waited for */
  assert_int_equal(WEXITSTATUS(status), 4);
  assert_string_equal(error.what, "");
}

/* All that is known comes through the pipe, or the exit code alone tells. */
static void an_error_before_the_start_is_passed_on(void **state)
{
  enum how how = FAILS;
  struct plm_error error = {0};
  int pid;
  (void)state;
  assert_int_equal(plm_behind_start(body, &how, &pid, &error), PLM_CONFIG);
  assert_int_equal(error.status, PLM_CONFIG);
  assert_string_equal(error.what, "what is wrong");
  assert_string_equal(error.where, "where");
  assert_string_equal(error.hint, "a hint");
  how = ENDS;
  error = (struct plm_error){0};
  assert_int_equal(plm_behind_start(body, &how, &pid, &error), PLM_TIMEOUT);
  assert_string_equal(error.what, "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failure_is_told_with_its_code),
      cmocka_unit_test(a_run_that_was_stopped_has_no_failure),
      cmocka_unit_test(a_path_that_is_too_long_is_an_error),
      cmocka_unit_test(a_start_is_a_process),
      cmocka_unit_test(an_error_before_the_start_is_passed_on),
      cmocka_unit_test(a_log_that_cannot_be_written_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
