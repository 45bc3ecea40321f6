/* Stages that `up --launch` starts elsewhere, through a program that passes on only SIGUSR1. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
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

/* The shell's line with it has room for 2037 bytes. */
static void what_launches_it_has_a_length(void **state)
{
  struct plm_supervisor *supervisor = *state;
  char launch[2039] = "true ";
  int status;
  memset(launch + 5, 'x', sizeof launch - 6);
  supervisor->options.launch[PLM_KIND_EVALUATOR] = launch;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_IDLE);
  supervised_start(&supervisor->launcher, stage);
  assert_int_equal(stage->state, PLM_STAGE_FATAL);
  assert_string_equal(stage->failed_how,
                      "could not be started: the command after --launch evaluator= is too long");
  launch[2037] = '\0';
  stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_IDLE);
  supervised_start(&supervisor->launcher, stage);
  assert_int_equal(waitpid(stage->pid, &status, 0), stage->pid);
  assert_int_equal(status, EXITED(0));
  close(stage->ready_fd);
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
 * has stopped if the run stops, or is told to within seconds; otherwise it has failed. */
static void who_stops_with_the_job_has_not_failed(void **state)
{
  static const struct {
    bool before, after; /* whether the run is being stopped when it ends, and at the next tick */
    int status;
    int64_t later_ms;
    enum plm_stage_state at_once, expected;
  } rows[] = {{true, true, EXITED(143), 0, PLM_STAGE_STOPPED, PLM_STAGE_STOPPED},
              {false, true, EXITED(143), 0, PLM_STAGE_READY, PLM_STAGE_STOPPED},
              {false, false, EXITED(143), 1000, PLM_STAGE_READY, PLM_STAGE_READY},
              {false, false, EXITED(143), 60000, PLM_STAGE_READY, PLM_STAGE_BACKOFF},
              {true, true, EXITED(137), 0, PLM_STAGE_BACKOFF, PLM_STAGE_BACKOFF},
              {false, false, EXITED(1), 0, PLM_STAGE_BACKOFF, PLM_STAGE_BACKOFF},
              {true, true, KILLED(SIGTERM), 0, PLM_STAGE_BACKOFF, PLM_STAGE_BACKOFF}};
  struct plm_supervisor *supervisor = *state;
  supervisor->options.launch[PLM_KIND_EVALUATOR] = "srun";
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
    const int64_t now_ms = plm_clock_ms();
    stage->started_ms = now_ms;
    supervisor->stages.draining = rows[i].before;
    supervised_reaped(&supervisor->launcher, stage, rows[i].status);
    if (stage->state != rows[i].at_once) fail_msg("row %zu: at once", i);
    supervisor->stages.draining = rows[i].after;
    supervised_tick(&supervisor->launcher, stage, now_ms + rows[i].later_ms);
    if (stage->state == PLM_STAGE_STARTING) { /* the time of its next start has come, too */
      waitpid(stage->pid, NULL, 0);
      close(stage->ready_fd);
      stage->state = PLM_STAGE_BACKOFF;
    }
    if (stage->state != rows[i].expected) fail_msg("row %zu: later", i);
  }
}

/* A stage that may have been stopped from outside can be started again by hand meanwhile. */
static void a_restart_does_not_wait_for_the_job(void **state)
{
  struct plm_supervisor *supervisor = *state;
  supervisor->options.launch[PLM_KIND_EVALUATOR] = "srun";
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
  supervised_reaped(&supervisor->launcher, stage, EXITED(143));
  supervised_stop(supervisor->stages.config, stage);
  assert_int_equal(stage->state, PLM_STAGE_STOPPING);
  supervised_tick(&supervisor->launcher, stage, plm_clock_ms());
  assert_int_equal(stage->state, PLM_STAGE_STOPPED);
}

static cJSON *peer(const char *host, int pid)
{
  cJSON *packer = cJSON_CreateObject();
  cJSON_AddStringToObject(packer, "host", host);
  cJSON_AddNumberToObject(packer, "pid", pid);
  return packer;
}

/* A launched packer is the one that its first sign of life names, wherever that is: consumers list
 * it under that name, `ps` shows it once, and the watchdog kills what launched it if it falls
 * silent. */
static void a_launched_packer_says_where_it_is(void **state)
{
  static const char sign[] =
      "{\"doing\":\"serving\",\"written_ms\":5,\"host\":\"n2\",\"pid\":77}\n";
  struct plm_supervisor *supervisor = *state;
  const char *run = supervisor->options.config->run;
  char path[PLM_PATH_SIZE];
  cJSON *n2 = peer("n2", 77), *n3 = peer("n3", 77);
  int status;
  supervisor->options.launch[PLM_KIND_PACKER] = "tail -f /dev/null #";
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_IDLE);
  assert_int_equal(plm_run_tell(run, "pulse.packer.0.json", sign, NULL), PLM_OK);
  supervised_start(&supervisor->launcher, stage);
  assert_int_equal(plm_path_join(path, run, "pulse.packer.0.json", NULL), PLM_OK);
  assert_false(plm_file_exists(path)); /* of an earlier process */
  watchdog_turn(&supervisor->watchdog, 1000);
  assert_int_equal(stage->launched_pid, 0);
  assert_false(stage->pulse.begun); /* it may still wait for a node */
  assert_false(supervised_is_peer(stage, n2));

  assert_int_equal(plm_run_tell(run, "pulse.packer.0.json", sign, NULL), PLM_OK);
  watchdog_turn(&supervisor->watchdog, 3000);
  assert_int_equal(stage->launched_pid, 77);
  assert_string_equal(stage->launched_host, "n2");
  assert_true(supervised_is_peer(stage, n2));
  assert_false(supervised_is_peer(stage, n3));
  assert_true(stage->pulse.begun);

  watchdog_turn(&supervisor->watchdog, 1000000); /* no other sign for so long */
  assert_true(stage->silent);
  assert_int_equal(waitpid(stage->pid, &status, 0), stage->pid);
  assert_int_equal(status, KILLED(SIGKILL));
  close(stage->ready_fd);
  cJSON_Delete(n2);
  cJSON_Delete(n3);
}

/* A packer that begins or has ended leaves no sign, and nobody else takes one of it. */
static void only_a_packer_takes_its_sign_along(void **state)
{
  struct plm_supervisor *supervisor = *state;
  const char *run = supervisor->options.config->run;
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, "pulse.packer.0.json", NULL), PLM_OK);
  for (int ended = 0; ended < 2; ended++)
    for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
      supervisor->stages.count = 0;
      struct supervised *stage =
          supervisor_case_add(supervisor, (enum plm_stage_index)kind, PLM_STAGE_READY);
      stage->gang = NULL;
      assert_int_equal(plm_run_tell(run, "pulse.packer.0.json", "{}\n", NULL), PLM_OK);
      if (ended)
        supervised_reaped(&supervisor->launcher, stage, EXITED(2));
      else
        supervised_start(&supervisor->launcher, stage); /* its program is missing */
      assert_int_equal(stage->state, PLM_STAGE_FATAL);
      assert_int_equal(plm_file_exists(path), kind != PLM_KIND_PACKER);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_stage_may_be_launched_elsewhere),     TEST(what_launched_it_is_killed_alone),
      TEST(who_stops_with_the_job_has_not_failed), TEST(a_restart_does_not_wait_for_the_job),
      TEST(a_launched_packer_says_where_it_is),    TEST(what_launches_it_has_a_length),
      TEST(only_a_packer_takes_its_sign_along),
  };
  return cmocka_run_group_tests_name("supervisor launch", tests, NULL, NULL);
}
