/* The state and the parent of a process: one that runs, with a name that looks like the fields
 * behind it, one that is stopped, one that has ended, and none. */
#include "common/base/process/process_state.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness/cmocka_all.h"

/* A child that stops itself. It ends with this program, whatever happens. */
static pid_t start(void)
{
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  raise(SIGSTOP);
  _exit(0);
}

static void assert_state(pid_t pid, char wanted, pid_t parent)
{
  char state = '?';
  pid_t found = -1;
  assert_true(plm_process_state(pid, &state, &found));
  assert_int_equal(state, wanted);
  assert_int_equal(found, parent);
}

static void this_process_runs_whatever_its_name_is(void **state)
{
  (void)state;
  static const char *const names[] = {"a", ") Z 1", "(b) T 7 (", ")", ""};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    prctl(PR_SET_NAME, names[i]);
    assert_state(getpid(), 'R', getppid());
  }
  prctl(PR_SET_NAME, "test");
}

static void a_child_is_stopped_and_ends(void **state)
{
  (void)state;
  const pid_t child = start();
  siginfo_t ended;
  int status;
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  assert_true(WIFSTOPPED(status));
  assert_state(child, 'T', getpid());
  kill(child, SIGKILL);
  assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
  assert_state(child, 'Z', getpid());
  assert_int_equal(waitpid(child, &status, 0), child);
}

static void nothing_is_said_of_no_process(void **state)
{
  (void)state;
  const pid_t child = start();
  char letter = '?';
  pid_t parent = -1;
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_false(plm_process_state(child, &letter, &parent));
  assert_false(plm_process_state(-1, &letter, &parent));
  assert_int_equal(letter, '?');
  assert_int_equal(parent, -1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(this_process_runs_whatever_its_name_is),
      cmocka_unit_test(a_child_is_stopped_and_ends),
      cmocka_unit_test(nothing_is_said_of_no_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
