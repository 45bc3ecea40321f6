/* How the supervisor stops a stage, and when it kills it. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "stages/supervisor/stage/supervisor_process.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/captured.h"

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

static void a_stage_has_the_settings_time_and_its_own(void **state)
{
  static const int64_t expected[] = {45500, 45500, 40500};
  struct plm_supervisor *supervisor = *state;
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    for (int ready = 0; ready < 2; ready++) {
      struct supervised *stage = supervisor_case_add(supervisor, (enum plm_stage_index)kind,
                                                     ready ? PLM_STAGE_READY : PLM_STAGE_STARTING);
      const int64_t before = plm_clock_ms();
      supervised_stop(supervisor->stages.config, stage);
      const int64_t after = plm_clock_ms(), kill_ms = stage->kill_ms;
      assert_int_equal(stage->state, PLM_STAGE_STOPPING);
      assert_in_range(kill_ms, before + expected[kind], after + expected[kind]);
      stage->kill_ms = 7; /* asked again, it gets no more time */
      supervised_stop(supervisor->stages.config, stage);
      assert_int_equal(stage->kill_ms, 7);
    }
  }
}

static void a_stage_without_a_process_has_stopped(void **state)
{
  static const enum plm_stage_state states[] = {PLM_STAGE_IDLE, PLM_STAGE_BACKOFF, PLM_STAGE_DONE,
                                                PLM_STAGE_FATAL};
  static const enum plm_stage_state expected[] = {PLM_STAGE_STOPPED, PLM_STAGE_STOPPED,
                                                  PLM_STAGE_DONE, PLM_STAGE_FATAL};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
    struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, states[i]);
    supervised_stop(supervisor->stages.config, stage);
    assert_int_equal(stage->state, expected[i]);
    assert_int_equal(stage->kill_ms, 0);
    stage->state = states[i];
    supervised_kill(stage);
    assert_int_equal(stage->state, expected[i]);
    assert_int_equal(stage->kill_ms, 0);
    assert_false(stage->killed_by_us);
  }
}

/* A child that ends by SIGKILL, but not by SIGTERM. */
static pid_t stubborn(void)
{
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_IGN);
    (void)!write(ready[1], "", 1);
    for (;;) pause();
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

/* Waits for its end, and returns the number of the signal. */
static int signal_of(pid_t pid)
{
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  return WTERMSIG(status);
}

static void it_is_killed_when_its_time_is_up(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
  stage->pid = stubborn();
  supervised_tick(&supervisor->launcher, stage, 1000); /* no deadline */
  assert_int_equal(waitpid(stage->pid, NULL, WNOHANG), 0);
  stage->state = PLM_STAGE_STOPPING;
  stage->kill_ms = 2000;
  supervised_tick(&supervisor->launcher, stage, 1999);
  assert_false(stage->killed_by_us);
  assert_int_equal(stage->kill_ms, 2000);
  supervised_tick(&supervisor->launcher, stage, 2000);
  assert_true(stage->killed_by_us);
  assert_int_equal(stage->kill_ms, 3000); /* again, for processes that were forked meanwhile */
  assert_int_equal(signal_of(stage->pid), SIGKILL);
}

static void killing_takes_effect_at_once(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  stage->pid = stubborn();
  const int64_t before = plm_clock_ms();
  supervised_kill(stage);
  assert_in_range(stage->kill_ms, before + 1000, plm_clock_ms() + 1000);
  assert_int_equal(stage->state, PLM_STAGE_STOPPING);
  assert_true(stage->killed_by_us);
  assert_int_equal(signal_of(stage->pid), SIGKILL);
}

static void its_end_waits_for_the_writer_of_its_log(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_STOPPING);
  stage->gang = &supervisor->gang;
  supervisor->gang.log_pid = NOBODY;
  const int64_t before = plm_clock_ms();
  supervised_reaped(&supervisor->launcher, stage, EXITED(0));
  assert_true(stage->ending && stage->state == PLM_STAGE_STOPPING);
  assert_in_range(stage->kill_ms, before + LEFTOVER_GRACE_MS, plm_clock_ms() + LEFTOVER_GRACE_MS);
  supervised_tick(&supervisor->launcher, stage, before);
  assert_true(stage->ending);
  supervisor->gang.log_pid = 0;
  supervised_tick(&supervisor->launcher, stage, before);
  assert_true(!stage->ending && stage->state == PLM_STAGE_STOPPED && stage->kill_ms == 0);
  /* it keeps the deadline that it has already */
  stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_STOPPING);
  stage->gang = &supervisor->gang;
  supervisor->gang.log_pid = NOBODY;
  stage->kill_ms = before + 60000;
  supervised_reaped(&supervisor->launcher, stage, EXITED(0));
  assert_int_equal(stage->kill_ms, before + 60000);
}

/* What does not end in time is killed each second, which is said once. */
static void what_does_not_end_is_killed(void **state)
{
  static const char *const says[] = {
      "plm-pipeline: packer.0 did not stop in time; killing it\n",
      "plm-pipeline: trainer.0 left processes behind; killing them\n"};
  struct plm_supervisor *supervisor = *state;
  for (int ending = 0; ending < 2; ending++) {
    struct supervised *stage = supervisor_case_add(
        supervisor, ending ? PLM_KIND_TRAINER : PLM_KIND_PACKER, PLM_STAGE_STOPPING);
    if (ending) stage->gang = &supervisor->gang;
    supervisor->gang.log_pid = NOBODY;
    stage->ending = ending == 1;
    stage->kill_ms = 5000;
    for (int64_t now_ms = 4999; now_ms <= 6000; now_ms += now_ms == 4999 ? 1 : 1000) {
      captured_begin(STDERR_FILENO);
      supervised_tick(&supervisor->launcher, stage, now_ms);
      assert_string_equal(captured_end(), now_ms == 5000 ? says[ending] : "");
      assert_int_equal(stage->killed_by_us, now_ms >= 5000);
      assert_int_equal(stage->kill_ms, now_ms < 5000 ? 5000 : now_ms + 1000);
    }
  }
}

/* The writer of a gang's log ends by itself, unless its disk hangs. So it is killed last. */
static void the_writer_of_the_log_is_killed_last(void **state)
{
  char *const argv[] = {"/bin/sleep", "1000", NULL};
  const struct plm_process_start start = {
      .argv = argv, .stage = "trainer", .log_path = "/dev/null", .elsewhere = true};
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_STOPPING);
  pid_t rank;
  int ready;
  assert_int_equal(plm_process_start(&start, &rank, &ready, NULL), PLM_OK);
  stage->gang = &supervisor->gang;
  stage->ending = stage->killed_by_us = true;
  stage->kill_ms = 5000;
  const pid_t writer = supervisor->gang.log_pid = stubborn();
  supervised_tick(&supervisor->launcher, stage, 5000);
  assert_int_equal(signal_of(rank), SIGKILL);
  assert_int_equal(waitpid(writer, NULL, WNOHANG), 0);
  supervised_tick(&supervisor->launcher, stage, 6000);
  assert_int_equal(signal_of(writer), SIGKILL);
  close(ready);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_stage_has_the_settings_time_and_its_own), TEST(a_stage_without_a_process_has_stopped),
      TEST(it_is_killed_when_its_time_is_up),          TEST(killing_takes_effect_at_once),
      TEST(its_end_waits_for_the_writer_of_its_log),   TEST(what_does_not_end_is_killed),
      TEST(the_writer_of_the_log_is_killed_last),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
