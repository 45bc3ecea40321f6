/* Stages that `up --launch` starts elsewhere, through a program that passes on only SIGUSR1. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/run/run.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/scratch.h"

static int setup(void **state)
{
  *state = supervisor_case_open("trainer: {ranks: 2}\n");
  return 0;
}

static int teardown(void **state)
{
  supervisor_case_close(*state);
  return 0;
}

/* The shell's words come before the stage's command line. It is ready when it has bound its
 * endpoints, and is told to stop by SIGUSR1. */
static void a_stage_may_be_launched_elsewhere(void **state)
{
  static const char launch[] = "env AT='the other' sh -c 'trap \"exit 143\" USR1; "
                               "echo \"$AT: $*\"; while :; do :; done' sh";
  static const char *const keys[] = {"feed", "announcements"};
  struct plm_supervisor *supervisor = *state;
  const char *run = supervisor->options.config->run;
  char line[4 * PLM_PATH_SIZE], value[512], *log = NULL;
  size_t size = 0;
  int status;
  supervisor->options.launch[PLM_KIND_TRAINER] = launch;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_IDLE);
  assert_int_equal(plm_endpoint_write(run, keys[0], "of an earlier start", NULL), PLM_OK);
  supervised_start(&supervisor->launcher, stage);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  assert_int_equal(plm_endpoint_read(run, keys[0], value, NULL), PLM_NOT_FOUND);
  for (int i = 0; i < 2; i++) {
    supervised_tick(&supervisor->launcher, stage, 0);
    assert_int_equal(stage->state, PLM_STAGE_STARTING);
    assert_int_equal(plm_endpoint_write(run, keys[i], "tcp://127.0.0.1:1", NULL), PLM_OK);
  }
  supervised_tick(&supervisor->launcher, stage, 0);
  assert_int_equal(stage->state, PLM_STAGE_READY);
  while (log == NULL || strchr(log, '\n') == NULL) { /* it handles the signal now */
    free(log);
    log = NULL;
    (void)plm_file_read(stage->tail.path, 1 << 20, &log, &size, NULL);
  }
  snprintf(line, sizeof line, "the other: %s -c %s/pipeline.yaml --run %s\n",
           scratch_path("bin/plm-trainer"), run, run);
  assert_string_equal(log, line);
  free(log);
  supervised_stop(supervisor->stages.config, stage);
  assert_int_equal(waitpid(stage->pid, &status, 0), stage->pid);
  assert_int_equal(status, EXITED(143));
  supervised_reaped(&supervisor->launcher, stage, status);
  assert_int_equal(stage->state, PLM_STAGE_STOPPED);
}

/* Only its main process is killed: srun's other process then ends the step. Such a trainer is no
 * gang, whatever trainer.ranks says. */
static void what_launched_it_is_killed_alone(void **state)
{
  struct plm_supervisor *supervisor = *state;
  char path[PLM_PATH_SIZE], launch[2 * PLM_PATH_SIZE], *text = NULL;
  size_t size = 0;
  int status;
  snprintf(path, sizeof path, "%s", scratch_path("other"));
  snprintf(launch, sizeof launch, "sh -c 'sleep 1000 & echo $! >%s; wait'", path);
  supervisor->options.launch[PLM_KIND_TRAINER] = launch;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_IDLE);
  assert_null(stage->gang);
  supervised_start(&supervisor->launcher, stage);
  while (text == NULL || strchr(text, '\n') == NULL) {
    free(text);
    text = NULL;
    (void)plm_file_read(path, 1 << 20, &text, &size, NULL);
  }
  supervised_kill(stage);
  assert_int_equal(waitpid(stage->pid, &status, 0), stage->pid);
  assert_int_equal(status, KILLED(SIGKILL));
  assert_int_equal(kill((pid_t)atoi(text), SIGKILL), 0); /* it still lived */
  free(text);
  close(stage->ready_fd);
}

/* Slurm signals all stages of a job that it ends. One that ends before the supervisor has asked it
 * has stopped, but only in a run that stops. */
static void who_stops_with_the_job_has_not_failed(void **state)
{
  static const struct {
    bool draining;
    int status;
    enum plm_stage_state expected;
  } rows[] = {{true, EXITED(143), PLM_STAGE_STOPPED},
              {false, EXITED(143), PLM_STAGE_BACKOFF},
              {true, EXITED(137), PLM_STAGE_BACKOFF},
              {true, KILLED(SIGTERM), PLM_STAGE_BACKOFF}};
  struct plm_supervisor *supervisor = *state;
  supervisor->options.launch[PLM_KIND_EVALUATOR] = "srun";
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
    supervisor->stages.draining = rows[i].draining;
    supervised_reaped(&supervisor->launcher, stage, rows[i].status);
    if (stage->state != rows[i].expected) fail_msg("row %zu", i);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_stage_may_be_launched_elsewhere),
      TEST(what_launched_it_is_killed_alone),
      TEST(who_stops_with_the_job_has_not_failed),
  };
  return cmocka_run_group_tests_name("supervisor launch", tests, NULL, NULL);
}
