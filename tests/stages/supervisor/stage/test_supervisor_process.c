/* Which program a process runs, and which processes belong to a stage. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/run/stop.h"
#include "stages/supervisor/stage/supervisor_process.h"

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

/* Starts a child that runs `cat` until its input ends, marked as a supervisor would mark it, or not
 * if mark is NULL. Returns after it has its environment. */
static pid_t start_marked(const char *mark, int input)
{
  char variable[160], byte, *const arguments[] = {"cat", NULL};
  char *const environment[] = {"OTHER=1", mark != NULL ? variable : NULL, NULL};
  int started[2];
  snprintf(variable, sizeof variable, "%s=%s", PLM_SUPERVISED, mark != NULL ? mark : "");
  assert_int_equal(pipe2(started, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(input, STDIN_FILENO) < 0) _exit(1);
    execve("/bin/cat", arguments, environment);
    _exit(1);
  }
  assert_true(child > 0);
  close(started[1]);
  assert_int_equal(read(started[0], &byte, 1), 0); /* closed by execve */
  close(started[0]);
  return child;
}

/* The stage's own process, and others that this process started for the same stage and instance;
 * an ended one no more. */
static void processes_of_a_stage_are_found(void **state)
{
  (void)state;
  int input[2], status;
  char marks[4][64];
  pid_t children[6], found[2] = {0, 0};
  assert_int_equal(pipe2(input, O_CLOEXEC), 0);
  const int me = (int)getpid();
  snprintf(marks[0], sizeof marks[0], "%d.packer.3", me);
  snprintf(marks[1], sizeof marks[1], "%d.packer.33", me);
  snprintf(marks[2], sizeof marks[2], "%d.trainer.3", me);
  snprintf(marks[3], sizeof marks[3], "%d.packer.3", me + 1);
  for (int i = 0; i < 4; i++) children[i] = start_marked(marks[i], input[0]);
  children[4] = start_marked(NULL, input[0]);
  children[5] = start_marked(NULL, input[0]);

  assert_int_equal(plm_process_find("packer", 3, 0, found, 2), 1);
  assert_int_equal(found[0], children[0]);
  assert_int_equal(found[1], 0);
  assert_int_equal(plm_process_find("packer", 33, 0, found, 2), 1);
  assert_int_equal(found[0], children[1]);
  assert_int_equal(plm_process_find("trainer", 3, 0, found, 2), 1);
  assert_int_equal(found[0], children[2]);
  assert_int_equal(plm_process_find("evaluator", 3, 0, found, 2), 0);
  struct rlimit before;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit none = {0, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0); /* none without a descriptor */
  assert_int_equal(plm_process_find("packer", 3, 0, found, 2), 0);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  found[0] = found[1] = 0;
  assert_int_equal(plm_process_find("packer", 3, children[4], found, 1), 2); /* one has room */
  assert_true(found[0] == children[0] || found[0] == children[4]);
  assert_int_equal(found[1], 0);
  assert_int_equal(plm_process_find("packer", 3, children[4], found, 2), 2);
  assert_true(found[0] != found[1]);
  assert_true(found[1] == children[0] || found[1] == children[4]);

  assert_int_equal(plm_process_signal_all("packer", 3, children[4], SIGKILL), 2);
  assert_int_equal(waitpid(children[0], &status, 0), children[0]);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)children[4], &info, WEXITED | WNOWAIT), 0);
  assert_int_equal(plm_process_find("packer", 3, children[4], found, 2), 0); /* not a zombie */
  assert_int_equal(waitpid(children[4], &status, 0), children[4]);
  close(input[1]); /* the others have got no signal, and end by themselves */
  for (int i = 1; i < 6; i++) {
    if (i == 4) continue;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  close(input[0]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_name_is_compared),
      cmocka_unit_test(a_long_name_is_cut),
      cmocka_unit_test(nobody_runs_nothing),
      cmocka_unit_test(a_stopped_process_is_paused),
      cmocka_unit_test(processes_of_a_stage_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
