/* What a program returns and says after each stop signal. */
#include "common/run/stop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness/cmocka_all.h"

static int no_signal(void **state)
{
  (void)state;
  plm_stop_requested = 0;
  unsetenv(PLM_SUPERVISED); /* of whoever runs the test */
  return 0;
}

static void without_a_signal_nothing_is_said(void **state)
{
  struct plm_error error = {0};
  (void)state;
  assert_int_equal(plm_stop_check("; nothing was written", &error), PLM_OK);
  assert_int_equal(plm_stop_drained(&error), PLM_OK);
  assert_string_equal(error.what, "");
}

static void each_signal_has_its_status_and_name(void **state)
{
  static const struct {
    int signal_number;
    plm_status status;
    const char *what;
  } rows[] = {{SIGINT, PLM_INTERRUPTED, "stopped by Ctrl-C; nothing was written"},
              {SIGTERM, PLM_TERMINATED, "stopped by SIGTERM; nothing was written"},
              {SIGUSR1, PLM_TERMINATED, "stopped by SIGUSR1; nothing was written"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_error error = {0};
    plm_stop_requested = rows[i].signal_number;
    assert_int_equal(plm_stop_status(rows[i].signal_number), rows[i].status);
    assert_int_equal(plm_stop_check("; nothing was written", &error), rows[i].status);
    assert_string_equal(error.what, rows[i].what);
    assert_int_equal(error.status, rows[i].status);
    memset(&error, 0, sizeof error);
    assert_int_equal(plm_stop_drained(&error), rows[i].status);
    assert_string_equal(error.what, "");
    assert_int_equal(error.status, rows[i].status);
  }
}

/* SIGUSR1 comes ahead of SIGTERM, so the signal after it does not kill. */
static void the_first_signal_is_kept(void **state)
{
  (void)state;
  stack_t stack;
  plm_stop_signals_install();
  assert_int_equal(sigaltstack(NULL, &stack), 0);
  assert_int_equal(stack.ss_flags & SS_DISABLE, 0); /* handlers have a stack of their own */
  assert_int_equal(plm_stop_requested, 0);
  raise(SIGUSR1);
  assert_int_equal(plm_stop_requested, SIGUSR1);
  raise(SIGTERM);
  assert_int_equal(plm_stop_requested, SIGUSR1);
  raise(SIGPIPE); /* it is ignored */
}

/* The kernel sends Ctrl-C in the name of process 0, and without a supervisor the second one kills.
 */
static void the_second_signal_kills(void **state)
{
  int status;
  (void)state;
  const pid_t child = fork();
  if (child == 0) {
    siginfo_t of_nobody = {.si_code = SI_QUEUE, .si_pid = 0};
    plm_stop_signals_install();
    for (int i = 0; i < 2; i++) syscall(SYS_rt_sigqueueinfo, getpid(), SIGINT, &of_nobody);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static volatile sig_atomic_t seen;

static void note(int number)
{
  seen = number;
}

/* Also after two installations. */
static void afterwards_signals_act_as_before(void **state)
{
  (void)state;
  static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGPIPE};
  enum { COUNT = sizeof numbers / sizeof *numbers };
  void (*before[COUNT])(int);
  for (int i = 0; i < COUNT; i++) before[i] = signal(numbers[i], note);
  plm_stop_signals_install();
  plm_stop_signals_install();
  plm_stop_signals_restore();
  for (int i = 0; i < COUNT; i++) {
    seen = 0;
    raise(numbers[i]);
    assert_int_equal(seen, numbers[i]);
  }
  assert_int_equal(plm_stop_requested, 0);
  for (int i = 0; i < COUNT; i++) signal(numbers[i], before[i]);
  plm_stop_signals_restore(); /* there is nothing to restore */
  plm_stop_signals_install();
  raise(SIGUSR1);
  plm_stop_signals_restore();
  assert_int_equal(plm_stop_requested, SIGUSR1);
  for (int i = 0; i < COUNT; i++) assert_true(signal(numbers[i], before[i]) == before[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(without_a_signal_nothing_is_said, no_signal),
      cmocka_unit_test_setup(each_signal_has_its_status_and_name, no_signal),
      cmocka_unit_test_setup(the_second_signal_kills, no_signal),
      cmocka_unit_test_setup(afterwards_signals_act_as_before, no_signal),
      cmocka_unit_test_setup(the_first_signal_is_kept, no_signal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
