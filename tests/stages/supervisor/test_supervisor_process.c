/* Which program a process runs. */
#include "tests/support/cmocka_all.h"
#include <signal.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stages/supervisor/supervisor_process.h"

static void the_name_is_compared(void **state)
{
  (void)state;
  assert_int_equal(prctl(PR_SET_NAME, "plm-evaluator"), 0);
  assert_true(plm_process_runs(getpid(), "plm-evaluator"));
  assert_false(plm_process_runs(getpid(), "plm-trainer"));
  assert_false(plm_process_runs(getpid(), "plm-evaluator2"));
  assert_false(plm_process_runs(getpid(), "plm-evaluato"));
}

/* The kernel keeps 15 bytes. */
static void a_long_name_is_cut(void **state)
{
  (void)state;
  assert_int_equal(prctl(PR_SET_NAME, "a-name-of-20-letters"), 0);
  assert_true(plm_process_runs(getpid(), "a-name-of-20-letters"));
  assert_true(plm_process_runs(getpid(), "a-name-of-20-le, and more"));
  assert_false(plm_process_runs(getpid(), "a-name-of-20-l"));
}

static void nobody_runs_nothing(void **state)
{
  (void)state;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_false(plm_process_runs(child, "a-name-of-20-letters"));
}

static void a_stopped_process_is_paused(void **state)
{
  (void)state;
  int status;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  assert_false(plm_process_is_paused(child));
  kill(child, SIGSTOP);
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  assert_true(WIFSTOPPED(status));
  assert_true(plm_process_is_paused(child));
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_false(plm_process_is_paused(child));
  assert_false(plm_process_is_paused(0));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_name_is_compared),
      cmocka_unit_test(a_long_name_is_cut),
      cmocka_unit_test(nobody_runs_nothing),
      cmocka_unit_test(a_stopped_process_is_paused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
