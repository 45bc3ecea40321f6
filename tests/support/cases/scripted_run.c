/* The scripts and what is said of them. */
#include "tests/support/cases/scripted_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cases/command_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

char scripted_folder[PLM_PATH_SIZE], scripted_run[PLM_PATH_SIZE];
char scripted_out[1 << 14], scripted_err[1 << 14];
bool scripted_adopts;

int scripted_run_begin(void **state)
{
  static const char yaml[] =
      "run: runs/a\ncorpus: null\npacker: {instances: 2}\ntrainer: {steps: 20}\n"
      "network: {feed: 'tcp://127.0.0.1:*', evaluation_feed: 'tcp://127.0.0.1:*', "
      "announcements: 'tcp://127.0.0.1:*'}\n";
  (void)state;
  signal(SIGHUP, SIG_DFL); /* under nohup, runs would ignore it */
  scratch_run(scripted_folder);
  assert_int_equal(chdir(scripted_folder), 0);
  scratch_write("its.yaml", yaml, strlen(yaml));
  scratch_write("words", "", 0);
  assert_int_equal(plm_path_join(scripted_run, scripted_folder, "runs/a", NULL), PLM_OK);
  command_case_program("plm-trainer", BEGINS STAYS);
  command_case_program("plm-evaluator", BEGINS STAYS);
  command_case_program("plm-packer", BEGINS STAYS);
  return 0;
}

int scripted_call(const char *const *words)
{
  int status;
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const int code = command_case(words);
    scratch_write("out", command_out, strlen(command_out));
    scratch_write("err", command_err, strlen(command_err));
    int adopts = 0;
    if (prctl(PR_GET_CHILD_SUBREAPER, &adopts) == 0 && adopts == 1) scratch_write("adopts", "", 0);
    _exit(code);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  snprintf(scripted_out, sizeof scripted_out, "%s", scratch_contents("out"));
  snprintf(scripted_err, sizeof scripted_err, "%s", scratch_contents("err"));
  scripted_adopts = plm_file_exists("adopts");
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

void scripted_says(const char *text)
{
  if (strstr(scripted_err, text) == NULL) fail_msg("\"%s\" is not in: %s", text, scripted_err);
}

void scripted_does_not_say(const char *text)
{
  if (strstr(scripted_err, text) != NULL) fail_msg("\"%s\" is in: %s", text, scripted_err);
}
