/* One stage of the supervisor: when it is started again, and what its end means. */
#include "common/run/done.h"
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/run/run.h"
#include "stages/supervisor/report/supervisor_report.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { NOBODY = 1 << 30 }; /* no process can have this number */

static int setup(void **state)
{
  *state = supervisor_case_open("trainer: {stop_timeout_s: 35.5}\n");
  return 0;
}

static int teardown(void **state)
{
  supervisor_case_close(*state);
  return 0;
}

/* The exit code that the failures give the run. */
static int judge(const struct plm_supervisor *supervisor)
{
  struct plm_text text = {0};
  const int code = stages_judge_failures(&supervisor->stages, supervisor->options.chosen, &text);
  plm_text_deinit(&text);
  return code;
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void what_its_own_end_means(void **state)
{
  enum { NO = PLM_RESTART_NO, FAIL = PLM_RESTART_ON_FAILURE, ALWAYS = PLM_RESTART_ALWAYS };
  enum { T = PLM_KIND_TRAINER, E = PLM_KIND_EVALUATOR, P = PLM_KIND_PACKER };
  enum { AGAIN = PLM_STAGE_BACKOFF, DONE = PLM_STAGE_DONE, FATAL = PLM_STAGE_FATAL };
  static const struct {
    int kind, restart, status;
    bool hung;
    int expected[2]; /* without DONE, with DONE */
  } rows[] = {
      {T, NO, EXITED(0), false, {FATAL, DONE}},      {T, FAIL, EXITED(0), false, {AGAIN, DONE}},
      {T, ALWAYS, EXITED(0), false, {AGAIN, DONE}},  {E, FAIL, EXITED(0), false, {AGAIN, DONE}},
      {E, NO, EXITED(0), false, {FATAL, DONE}},      {P, NO, EXITED(0), false, {DONE, DONE}},
      {P, FAIL, EXITED(0), false, {DONE, DONE}},     {P, ALWAYS, EXITED(0), false, {AGAIN, AGAIN}},
      {T, ALWAYS, EXITED(2), false, {FATAL, FATAL}}, {T, ALWAYS, EXITED(4), false, {FATAL, FATAL}},
      {P, ALWAYS, EXITED(2), false, {FATAL, FATAL}}, {T, FAIL, EXITED(1), false, {AGAIN, AGAIN}},
      {T, FAIL, EXITED(3), false, {AGAIN, AGAIN}},   {T, NO, EXITED(3), false, {FATAL, FATAL}},
      {E, FAIL, EXITED(5), false, {AGAIN, AGAIN}},   {P, FAIL, KILLED(9), false, {AGAIN, AGAIN}},
      {P, NO, KILLED(9), false, {FATAL, FATAL}},     {T, FAIL, KILLED(2), false, {AGAIN, AGAIN}},
      {P, FAIL, EXITED(143), false, {AGAIN, AGAIN}}, {P, NO, EXITED(143), false, {FATAL, FATAL}},
      {E, FAIL, EXITED(143), false, {AGAIN, AGAIN}}, {T, FAIL, EXITED(143), false, {AGAIN, AGAIN}},
      {T, FAIL, KILLED(9), true, {AGAIN, DONE}},     {T, NO, KILLED(9), true, {FATAL, DONE}},
  };
  for (int done = 0; done < 2; done++) {
    struct plm_supervisor *supervisor = *state;
    struct plm_config *config = (struct plm_config *)supervisor->stages.config;
    if (done)
      assert_int_equal(plm_done_write(supervisor->stages.config->run,
                                      &(struct plm_done){.step = 3, .identity = {0}}, NULL),
                       PLM_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      config->trainer.restart = config->evaluator.restart = config->packer_restart = PLM_RESTART_NO;
      enum plm_restart *const policies[] = {&config->trainer.restart, &config->evaluator.restart,
                                            &config->packer_restart};
      *policies[rows[i].kind] = (enum plm_restart)rows[i].restart;
      supervisor->stages.count = 0;
      struct supervised *stage =
          supervisor_case_add(supervisor, (enum plm_stage_index)rows[i].kind, PLM_STAGE_READY);
      supervisor->gang.hung = rows[i].hung;
      if (rows[i].hung) stage->gang = &supervisor->gang;
      stage->pid = NOBODY;
      const int64_t before = plm_clock_ms();
      supervised_reaped(&supervisor->launcher, stage, rows[i].status);
      if ((int)stage->state != rows[i].expected[done])
        fail_msg("row %zu, DONE %d: %s", i, done, plm_stage_state_name(stage->state));
      assert_int_equal(stage->pid, 0);
      assert_int_equal(stage->wait_status, rows[i].status);
      if (stage->state == PLM_STAGE_BACKOFF) /* the jitter takes up to a quarter of a second */
        assert_in_range(stage->due_ms, before + 750, plm_clock_ms() + 1000);
      assert_int_equal(stage->failed_as != 0, stage->state == PLM_STAGE_FATAL);
    }
  }
}

static void write_in_run(const struct plm_supervisor *supervisor, const char *name,
                         const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, name, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

/* An evaluator that is told to stop once DONE exists also ends with 0. It has finished only if
 * evaluator.jsonl has all of its splits for every checkpoint. */
static void an_evaluator_has_finished_when_its_reports_are_complete(void **state)
{
  static const struct {
    const char *reports; /* NULL: no file */
    enum plm_restart restart;
    enum plm_stage_state expected;
  } rows[] = {
      {NULL, PLM_RESTART_ON_FAILURE, PLM_STAGE_BACKOFF},
      {NULL, PLM_RESTART_NO, PLM_STAGE_FATAL},
      {"{\"step\":3,\"split\":\"valid\"}\n", PLM_RESTART_ON_FAILURE, PLM_STAGE_BACKOFF},
      {"{\"step\":6,\"split\":\"valid\"}\n", PLM_RESTART_ON_FAILURE, PLM_STAGE_BACKOFF},
      {"{\"step\":3,\"split\":\"valid\"}\n{\"step\":6,\"split\":\"test\"}\n",
       PLM_RESTART_ON_FAILURE, PLM_STAGE_BACKOFF},
      {"{\"step\":3,\"split\":\"valid\"}\n{\"step\":6,\"split\":\"valid\"}\n",
       PLM_RESTART_ON_FAILURE, PLM_STAGE_DONE},
      {"{\"step\":3,\"skipped\":\"corrupt\"}\n{\"step\":6,\"split\":\"valid\"}\n", PLM_RESTART_NO,
       PLM_STAGE_DONE},
  };
  struct plm_supervisor *supervisor = *state;
  char folder[PLM_PATH_SIZE];
  assert_int_equal(plm_done_write(supervisor->stages.config->run,
                                  &(struct plm_done){.step = 6, .identity = {0}}, NULL),
                   PLM_OK);
  for (int step = 3; step <= 6; step += 3) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step_%08d", step);
    assert_int_equal(plm_path_join(folder, supervisor->stages.config->run, name, NULL), PLM_OK);
    assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  }
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].reports != NULL)
      write_in_run(supervisor, PLM_RUN_EVALUATOR_METRICS, rows[i].reports);
    ((struct plm_config *)supervisor->stages.config)->evaluator.restart = rows[i].restart;
    struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
    supervised_reaped(&supervisor->launcher, stage, EXITED(0));
    if (stage->state != rows[i].expected)
      fail_msg("row %zu: %s", i, plm_stage_state_name(stage->state));
    if (stage->state == PLM_STAGE_FATAL)
      assert_string_equal(stage->failed_how, "ended before every checkpoint was evaluated");
  }
  assert_int_equal(
      plm_path_join(folder, supervisor->stages.config->run, PLM_RUN_EVALUATOR_METRICS, NULL),
      PLM_OK);
  assert_int_equal(plm_path_remove(folder, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK); /* nobody knows */
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
  supervised_reaped(&supervisor->launcher, stage, EXITED(0));
  assert_int_equal(stage->state, PLM_STAGE_FATAL);
}

static void five_deaths_are_permanent(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
  for (int death = 1; death <= 5; death++) {
    stage->state = PLM_STAGE_READY;
    supervised_reaped(&supervisor->launcher, stage, KILLED(9));
    assert_int_equal(stage->state, death < 5 ? PLM_STAGE_BACKOFF : PLM_STAGE_FATAL);
  }
  assert_int_equal(stage->failed_as, 1);
  assert_string_equal(stage->failed_how, "was killed by signal 9 (Killed), for the fifth time in "
                                         "ten minutes: giving up");
}

/* Lets a trainer that has run for a minute and reported a step end with this code and error. */
static void fail_at_step(struct plm_supervisor *supervisor, struct supervised *stage, int step,
                         int code, const char *words)
{
  char line[256];
  stage->state = PLM_STAGE_READY;
  stage->started_ms = plm_clock_ms() - 60000;
  snprintf(line, sizeof line, "{\"step\":%d,\"time\":%.3f}\n", step, plm_clock_wall_s() - 1);
  write_in_run(supervisor, PLM_RUN_TRAINER_METRICS, line);
  snprintf(line, sizeof line, "plm-trainer: begins\n%splm-trainer: %s\n  a hint\n",
           step % 2 == 0 ? "" : "2026-01-02T03:04:05.678Z ", words);
  write_in_run(supervisor, "logs/trainer.0.log", line);
  supervised_reaped(&supervisor->launcher, stage, EXITED(code));
}

static void a_replay_that_ends_in_the_same_way_is_the_last(void **state)
{
  struct plm_supervisor *supervisor = *state;
  static const struct {
    int step, code;
    const char *words;
    enum plm_stage_state expected;
  } rows[] = {
      {70, 5, "steps were skipped", PLM_STAGE_BACKOFF},
      {70, 1, "no such thing", PLM_STAGE_BACKOFF},
      {71, 1, "no such thing", PLM_STAGE_BACKOFF},
      {71, 6, "the disk is full", PLM_STAGE_BACKOFF},
      {71, 1, "no such thing", PLM_STAGE_FATAL},
  };
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fail_at_step(supervisor, stage, rows[i].step, rows[i].code, rows[i].words);
    if (stage->state != rows[i].expected)
      fail_msg("row %zu: %s", i, plm_stage_state_name(stage->state));
  }
  assert_non_null(strstr(stage->failed_how, "twice after step 71 with the same error"));
  assert_non_null(strstr(stage->failed_how, "plm-pipeline trace --step 72"));
  const size_t length = strlen(stage->failed_how); /* the cause also has what it printed */
  assert_int_equal(strncmp(stage->cause, stage->failed_how, length), 0);
  assert_string_equal(stage->cause + length, ": no such thing");
  assert_int_equal(judge(supervisor), 5);
  /* values that are not finite, whatever is said about them */
  stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
  fail_at_step(supervisor, stage, 70, 5, "a");
  assert_int_equal(stage->state, PLM_STAGE_BACKOFF);
  fail_at_step(supervisor, stage, 70, 5, "b");
  assert_int_equal(stage->state, PLM_STAGE_FATAL);
  assert_non_null(strstr(stage->failed_how, "exited with 5, twice at the same step"));
  assert_non_null(strstr(stage->failed_how, "trainer.clip.norm"));
  assert_string_equal(stage->cause, stage->failed_how);
}

/* A step that an earlier process reported says nothing about this one. */
static void an_error_before_the_first_step_is_not_a_replay(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
  for (int i = 0; i < 4; i++) {
    char line[64];
    snprintf(line, sizeof line, "{\"step\":7,\"time\":%.3f}\n", plm_clock_wall_s() - 120);
    write_in_run(supervisor, PLM_RUN_TRAINER_METRICS, line);
    write_in_run(supervisor, "logs/trainer.0.log", "plm-trainer: no device\n");
    stage->state = PLM_STAGE_READY;
    stage->started_ms = plm_clock_ms() - 60000;
    supervised_reaped(&supervisor->launcher, stage, EXITED(1));
    assert_int_equal(stage->state, PLM_STAGE_BACKOFF);
  }
}

/* What may pass is no death: six failures at once, and the stage is still started again. */
static void a_full_disk_is_waited_for(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct plm_config *config = (struct plm_config *)supervisor->stages.config;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  for (int i = 0; i < 6; i++) {
    stage->state = PLM_STAGE_READY;
    supervised_reaped(&supervisor->launcher, stage, EXITED(6));
    assert_int_equal(stage->state, PLM_STAGE_BACKOFF);
  }
  config->supervisor.wait_s = 0;
  stage->state = PLM_STAGE_READY;
  supervised_reaped(&supervisor->launcher, stage, EXITED(6));
  assert_int_equal(stage->state, PLM_STAGE_FATAL);
  assert_string_equal(stage->failed_how, "exited with 6; its cause has not passed within "
                                         "supervisor.wait_s (0 s): giving up");
  config->packer_restart = PLM_RESTART_NO;
  stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  supervised_reaped(&supervisor->launcher, stage, EXITED(6));
  assert_int_equal(stage->state, PLM_STAGE_FATAL);
  assert_string_equal(stage->failed_how, "exited with 6");
}

/* A packer that has worked for ten minutes begins to wait anew. A trainer has to get on: without a
 * newer checkpoint, it goes on waiting. */
static void who_has_worked_waits_anew(void **state)
{
  static const struct {
    enum plm_stage_index kind;
    int64_t lived_ms;
    unsigned attempts; /* after two failures */
  } rows[] = {{PLM_KIND_PACKER, 660000, 1},
              {PLM_KIND_PACKER, 540000, 2},
              {PLM_KIND_EVALUATOR, 660000, 1},
              {PLM_KIND_TRAINER, 660000, 2}};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct supervised *stage = supervisor_case_add(supervisor, rows[i].kind, PLM_STAGE_READY);
    for (int k = 0; k < 2; k++) {
      stage->state = PLM_STAGE_READY;
      stage->started_ms = plm_clock_ms() - rows[i].lived_ms;
      supervised_reaped(&supervisor->launcher, stage, EXITED(6));
      assert_int_equal(stage->state, PLM_STAGE_BACKOFF);
    }
    if (stage->failures.attempts != rows[i].attempts) fail_msg("row %zu", i);
  }
}

/* However it ends while it is stopping, it has stopped, and is neither a failure nor restarted. */
static void an_end_while_stopping_is_no_failure(void **state)
{
  static const int statuses[] = {EXITED(0), EXITED(2), KILLED(SIGTERM), KILLED(SIGKILL)};
  static const char *const says[] = {
      "", "plm-pipeline: packer.1 exited with 2 while it was stopping\n", "",
      "plm-pipeline: packer.3 was killed by signal 9 (Killed) while it was stopping\n"};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
    struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_STOPPING);
    stage->kill_ms = 99;
    captured_begin(STDERR_FILENO);
    supervised_reaped(&supervisor->launcher, stage, statuses[i]);
    assert_string_equal(captured_end(), says[i]);
    assert_int_equal(stage->state, PLM_STAGE_STOPPED);
    assert_true(stage->kill_ms == 0 && stage->failed_as == 0);
  }
  assert_int_equal(supervisor->stages.failures, 0);
}

/* ---- starts -------------------------------------------------------------------------------- */

static void a_program_that_is_missing_is_a_permanent_failure(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_IDLE);
  stage->started_ms = 5; /* how an earlier process ended is not the reason */
  stage->wait_status = EXITED(2);
  supervised_start(&supervisor->launcher, stage);
  assert_int_equal(stage->state, PLM_STAGE_FATAL);
  assert_int_equal(stage->failed_as, 1);
  assert_non_null(strstr(stage->failed_how, "could not be started: cannot run "));
  assert_non_null(strstr(stage->failed_how, "/plm-trainer"));
  assert_int_equal(judge(supervisor), 7);
}

/* A folder in place of its log is an error of the disk, which may pass. */
static void a_start_that_may_succeed_later_is_tried_again(void **state)
{
  static const struct {
    enum plm_restart restart;
    enum plm_stage_state expected;
  } rows[] = {{PLM_RESTART_ON_FAILURE, PLM_STAGE_BACKOFF},
              {PLM_RESTART_ALWAYS, PLM_STAGE_BACKOFF},
              {PLM_RESTART_NO, PLM_STAGE_FATAL}};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ((struct plm_config *)supervisor->stages.config)->evaluator.restart = rows[i].restart;
    struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_IDLE);
    assert_int_equal(mkdir(stage->tail.path, 0755), 0);
    supervised_start(&supervisor->launcher, stage);
    assert_int_equal(stage->state, rows[i].expected);
  }
}

static void write_program(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(scratch_path("bin"), NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, scratch_path("bin"), name, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0755, NULL), PLM_OK);
}

/* Lets the stage's process end by itself, and returns what waitpid says. */
static int end_of(struct supervised *stage)
{
  int status;
  assert_true(stage->pid > 0);
  assert_int_equal(waitpid(stage->pid, &status, 0), stage->pid);
  return status;
}

static void it_starts_again_when_its_delay_is_over(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_BACKOFF);
  write_program("plm-packer", "#!/bin/sh\nexit 7\n");
  stage->due_ms = 5000;
  stage->killed_by_us = stage->silent = stage->heard = stage->listing = true;
  stage->spoken_ms = stage->launched_pid = 5;
  stage->pulse.begun = true;
  supervised_tick(&supervisor->launcher, stage, 4999);
  assert_int_equal(stage->state, PLM_STAGE_BACKOFF);
  supervisor->stages.draining = true;
  supervised_tick(&supervisor->launcher, stage, 5000);
  assert_int_equal(stage->state, PLM_STAGE_BACKOFF);
  assert_int_equal(stage->restarts, 0);
  supervisor->stages.draining = false;
  const int64_t before = plm_clock_ms();
  supervised_tick(&supervisor->launcher, stage, 5000);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  assert_int_equal(stage->restarts, 1);
  assert_in_range(stage->started_ms, before, plm_clock_ms());
  /* nothing of the process before is left */
  assert_false(stage->killed_by_us || stage->silent || stage->heard || stage->listing);
  assert_false(stage->spoken_ms != 0 || stage->launched_pid != 0 || stage->pulse.begun);
  assert_int_equal(end_of(stage), EXITED(7));
  close(stage->ready_fd);
  unlink(scratch_path("bin/plm-packer"));
}

/* `restart` stops the stage and starts it again, but not in a run that ends. */
static void a_restart_follows_the_stop(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_STOPPED);
  write_program("plm-packer", "#!/bin/sh\nexit 0\n");
  supervised_tick(&supervisor->launcher, stage, 0);
  assert_int_equal(stage->state, PLM_STAGE_STOPPED);
  stage->start_again = true;
  supervisor->stages.draining = true;
  supervised_tick(&supervisor->launcher, stage, 0);
  assert_int_equal(stage->state, PLM_STAGE_STOPPED);
  supervisor->stages.draining = false;
  supervised_tick(&supervisor->launcher, stage, 0);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  assert_int_equal(stage->restarts, 1);
  assert_false(stage->start_again);
  end_of(stage);
  close(stage->ready_fd);
  unlink(scratch_path("bin/plm-packer"));
}

static void a_line_makes_it_ready(void **state)
{
  struct plm_supervisor *supervisor = *state;
  int ends[2];
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_STARTING);
  assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
  stage->ready_fd = ends[0];
  supervised_readable(&supervisor->screen, stage); /* nothing to read */
  assert_int_equal(write(ends[1], "7", 1), 1);
  supervised_readable(&supervisor->screen, stage); /* no line yet */
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  assert_int_equal(stage->ready_fd, ends[0]);
  assert_int_equal(write(ends[1], "\n", 1), 1);
  const int64_t before = plm_clock_ms();
  double took_s = 0;
  stage->started_ms = before - 3000;
  captured_begin(STDERR_FILENO);
  supervised_readable(&supervisor->screen, stage);
  const char *said = captured_end();
  assert_int_equal(sscanf(said, "plm-pipeline: trainer.0 is ready (%lf s)\n", &took_s), 1);
  assert_true(took_s >= 3 && took_s <= 3.1 + 1e-3 * (double)(plm_clock_ms() - before));
  assert_int_equal(stage->state, PLM_STAGE_READY);
  assert_int_equal(stage->ready_fd, -1);
  close(ends[1]);
  /* a pipe that is closed without a line */
  stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_STARTING);
  assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
  stage->ready_fd = ends[0];
  close(ends[1]);
  supervised_readable(&supervisor->screen, stage);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  assert_int_equal(stage->ready_fd, -1);
}

static void signs_of_life_are_expected_of_some(void **state)
{
  static const struct {
    enum plm_stage_index kind;
    enum plm_stage_state state;
    bool begun, known;
  } rows[] = {{PLM_KIND_TRAINER, PLM_STAGE_READY, true, true},
              {PLM_KIND_TRAINER, PLM_STAGE_READY, false, false},
              {PLM_KIND_TRAINER, PLM_STAGE_STARTING, true, false},
              {PLM_KIND_PACKER, PLM_STAGE_STARTING, true, true},
              {PLM_KIND_PACKER, PLM_STAGE_BACKOFF, true, false}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct supervised stage = {
        .kind = rows[i].kind,
        .state = rows[i].state,
        .pulse = {.begun = rows[i].begun, .since_ms = plm_clock_ms() - 5000}};
    const double unheard_s = supervised_unheard_s(&stage);
    if (rows[i].known ? unheard_s < 5 : unheard_s != -1) fail_msg("row %zu: %g", i, unheard_s);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(what_its_own_end_means),
      TEST(an_evaluator_has_finished_when_its_reports_are_complete),
      TEST(five_deaths_are_permanent),
      TEST(a_replay_that_ends_in_the_same_way_is_the_last),
      TEST(an_error_before_the_first_step_is_not_a_replay),
      TEST(a_full_disk_is_waited_for),
      TEST(who_has_worked_waits_anew),
      TEST(an_end_while_stopping_is_no_failure),
      TEST(a_program_that_is_missing_is_a_permanent_failure),
      TEST(a_start_that_may_succeed_later_is_tried_again),
      TEST(it_starts_again_when_its_delay_is_over),
      TEST(a_restart_follows_the_stop),
      TEST(a_line_makes_it_ready),
      TEST(signs_of_life_are_expected_of_some),
  };
  return cmocka_run_group_tests_name("supervisor stage", tests, NULL, NULL);
}
