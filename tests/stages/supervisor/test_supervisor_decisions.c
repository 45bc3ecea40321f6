/* What the states of all stages mean for the run: when it ends, in which order it stops, and with
 * which exit code and root cause. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/run/run.h"
#include "stages/supervisor/report/supervisor_report.h"
#include "stages/supervisor/supervisor_failure.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { IDLE = PLM_STAGE_IDLE, READY = PLM_STAGE_READY, AGAIN = PLM_STAGE_BACKOFF };
enum { STOPPING = PLM_STAGE_STOPPING, STOPPED = PLM_STAGE_STOPPED };
enum { DONE = PLM_STAGE_DONE, FATAL = PLM_STAGE_FATAL };

static unsigned long free_blocks = 1;

/* Takes the place of libc's function in this program. */
int statvfs(const char *path, struct statvfs *information)
{
  (void)path;
  *information = (struct statvfs){.f_bavail = free_blocks};
  return 0;
}

static struct plm_text failure; /* what was said last of the root cause */

static int setup(void **state)
{
  *state = supervisor_case_open("seed: 1\n");
  return 0;
}

static int teardown(void **state)
{
  plm_text_deinit(&failure);
  supervisor_case_close(*state);
  return 0;
}

static struct supervised *add(struct plm_supervisor *supervisor, enum plm_stage_index kind,
                              int state)
{
  return supervisor_case_add(supervisor, kind, (enum plm_stage_state)state);
}

/* Makes the run one of a trainer, an evaluator and two packers. A state of -1 leaves a stage out.
 */
static void states(struct plm_supervisor *supervisor, const int wanted[4])
{
  static const enum plm_stage_index kinds[] = {PLM_KIND_TRAINER, PLM_KIND_EVALUATOR,
                                               PLM_KIND_PACKER, PLM_KIND_PACKER};
  supervisor->stages.count = 0;
  for (int i = 0; i < 4; i++)
    if (wanted[i] >= 0) add(supervisor, kinds[i], wanted[i]);
}

static void when_a_run_is_over(void **state)
{
  static const struct {
    int states[4];
    bool over;
  } rows[] = {
      {{READY, READY, READY, READY}, false}, {{DONE, READY, READY, READY}, false},
      {{READY, DONE, READY, READY}, false},  {{DONE, DONE, READY, READY}, true},
      {{DONE, FATAL, READY, READY}, true},   {{READY, FATAL, READY, READY}, false},
      {{FATAL, READY, READY, READY}, true},  {{DONE, AGAIN, READY, READY}, false},
      {{AGAIN, DONE, READY, READY}, false},  {{DONE, STOPPED, READY, READY}, true},
      {{READY, READY, FATAL, FATAL}, false}, {{READY, READY, DONE, DONE}, false},
      {{DONE, -1, READY, READY}, true},      {{READY, -1, READY, READY}, false},
      {{-1, DONE, READY, READY}, true},      {{-1, READY, READY, READY}, false},
      {{-1, -1, READY, READY}, false},       {{-1, -1, DONE, READY}, false},
      {{-1, -1, READY, DONE}, false},        {{-1, -1, DONE, FATAL}, true},
  };
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    states(supervisor, rows[i].states);
    supervisor->stages.draining = false;
    drain_turn(&supervisor->drain);
    if (supervisor->stages.draining != rows[i].over) fail_msg("row %zu", i);
    assert_int_equal(supervisor->drain.signal, 0);
  }
}

/* A stage that was stopped to be started again is not over. */
static void a_restart_does_not_end_the_run(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){STOPPED, DONE, READY, READY});
  supervisor->stages.all[0].start_again = true;
  drain_turn(&supervisor->drain);
  assert_false(supervisor->stages.draining);
  supervisor->stages.all[0].start_again = false;
  drain_turn(&supervisor->drain);
  assert_true(supervisor->stages.draining);
}

/* Stages that `scale` has removed do not count as present. */
static void removed_stages_are_not_waited_for(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){STOPPED, -1, READY, READY});
  supervisor->stages.all[0].removed = true;
  drain_turn(&supervisor->drain); /* only packers are left */
  assert_false(supervisor->stages.draining);
}

static void expect_states(const struct plm_supervisor *supervisor, const int expected[4])
{
  for (size_t i = 0; i < supervisor->stages.count; i++)
    if ((int)supervisor->stages.all[i].state != expected[i])
      fail_msg("stage %zu is %s", i, plm_stage_state_name(supervisor->stages.all[i].state));
}

/* The trainer stops first, then the evaluator, then the packers, which serve both. */
static void one_kind_stops_after_the_other(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){READY, READY, READY, AGAIN});
  supervisor->stages.all[2].start_again = true;
  drain_begin(&supervisor->drain, SIGTERM);
  assert_int_equal(supervisor->drain.signal, SIGTERM);
  drain_turn(&supervisor->drain);
  drain_turn(&supervisor->drain);
  expect_states(supervisor, (int[]){STOPPING, READY, READY, AGAIN});
  supervisor->stages.all[0].state = PLM_STAGE_STOPPED;
  drain_turn(&supervisor->drain);
  expect_states(supervisor, (int[]){STOPPED, STOPPING, READY, AGAIN});
  assert_false(drain_is_over(&supervisor->drain));
  supervisor->stages.all[1].state = PLM_STAGE_STOPPED;
  drain_turn(&supervisor->drain);
  expect_states(supervisor, (int[]){STOPPED, STOPPED, STOPPING, STOPPED});
  assert_false(supervisor->stages.all[2].start_again);
  assert_false(drain_is_over(&supervisor->drain));
  supervisor->stages.all[2].state = PLM_STAGE_STOPPED;
  assert_true(drain_is_over(&supervisor->drain));
  supervisor->stages.draining = false;
  assert_false(drain_is_over(&supervisor->drain));
}

static void the_second_signal_kills(void **state)
{
  static const struct {
    int signals[3];
    bool kills;
  } rows[] = {{{SIGINT, 0, 0}, false},        {{SIGINT, SIGINT, 0}, true},
              {{SIGTERM, SIGINT, 0}, true},   {{SIGUSR1, SIGTERM, 0}, false},
              {{SIGUSR1, SIGUSR1, 0}, false}, {{SIGUSR1, SIGTERM, SIGTERM}, true},
              {{SIGTERM, SIGUSR1, 0}, false}, {{SIGINT, SIGTERM, SIGINT}, true}};
  enum { ROWS = sizeof rows / sizeof *rows };
  struct plm_supervisor *supervisor = *state;
  for (size_t k = 0; k < 2 * ROWS; k++) { /* also when no packer is left */
    const size_t i = k % ROWS;
    supervisor->drain.packers_fatal = k >= ROWS;
    states(supervisor, (int[]){READY, READY, READY, AGAIN});
    supervisor->stages.draining = supervisor->drain.killing = false;
    supervisor->drain.signals = 0;
    captured_begin(STDERR_FILENO);
    for (int s = 0; s < 3 && rows[i].signals[s] != 0; s++)
      drain_begin(&supervisor->drain, rows[i].signals[s]);
    assert_int_equal(captured_times(captured_end(), "second signal: killing all stages"),
                     rows[i].kills);
    if (supervisor->drain.killing != rows[i].kills) fail_msg("row %zu", i);
    assert_int_equal(supervisor->drain.signal, rows[i].signals[0]); /* the first gives the code */
    drain_turn(&supervisor->drain);
    expect_states(supervisor, rows[i].kills ? (int[]){STOPPING, STOPPING, STOPPING, STOPPED}
                                            : (int[]){STOPPING, READY, READY, AGAIN});
  }
}

static bool told(const struct plm_supervisor *supervisor)
{
  char value[512];
  return plm_endpoint_read(supervisor->stages.config->run, "packers", value, NULL) == PLM_OK &&
         strcmp(value, "fatal") == 0;
}

/* The trainer is told that no packer is left, and that there is one again. */
static void the_trainer_is_told_when_no_packer_is_left(void **state)
{
  static const struct {
    int states[2];
    bool told;
  } rows[] = {{{READY, READY}, false}, {{FATAL, READY}, false},  {{FATAL, FATAL}, true},
              {{AGAIN, FATAL}, false}, {{FATAL, STOPPED}, true}, {{DONE, DONE}, false},
              {{DONE, FATAL}, true}};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    states(supervisor, (int[]){READY, READY, rows[i].states[0], rows[i].states[1]});
    drain_turn(&supervisor->drain);
    if (told(supervisor) != rows[i].told) fail_msg("row %zu", i);
    assert_int_equal(supervisor->drain.packers_fatal, rows[i].told);
  }
}

/* If it cannot be told, that is said once. */
static void the_trainer_may_not_be_told(void **state)
{
  struct plm_supervisor *supervisor = *state;
  char path[PLM_PATH_SIZE];
  assert_int_equal(
      plm_path_join(path, supervisor->stages.config->run, "endpoints.json/in it", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  states(supervisor, (int[]){READY, READY, FATAL, FATAL});
  captured_begin(STDERR_FILENO);
  drain_turn(&supervisor->drain);
  drain_turn(&supervisor->drain);
  const char *said = captured_end(), *at = strstr(said, "endpoints.json");
  assert_non_null(at);
  assert_string_equal(strchr(at, '\n'), "\n");
  assert_null(strstr(said, "failed for good"));
}

/* ---- the root cause ------------------------------------------------------------------------ */

static void fail_stage(struct plm_supervisor *supervisor, size_t i, int status, const char *how)
{
  struct supervised *stage = &supervisor->stages.all[i];
  stage->state = PLM_STAGE_FATAL;
  stage->wait_status = status;
  stage->started_ms = 5;
  supervised_note_failure(&supervisor->stages, stage, how);
}

static int judge(const struct plm_supervisor *supervisor)
{
  plm_text_clear(&failure);
  return stages_judge_failures(&supervisor->stages, supervisor->options.chosen, &failure);
}

/* Fails unless the failures give this code, and the text has these lines in this order. */
static void expect_failure(struct plm_supervisor *supervisor, int code, const char *const *lines)
{
  assert_int_equal(judge(supervisor), code);
  const char *at = failure.length > 0 ? failure.data : "";
  for (; *lines != NULL; lines++) {
    const char *found = strstr(at, *lines);
    if (found == NULL) fail_msg("\"%s\" is not in: %s", *lines, at);
    at = found + strlen(*lines);
  }
}
#define EXPECT_FAILURE(supervisor, code, ...) \
  expect_failure(supervisor, code, (const char *const[]){__VA_ARGS__, NULL})

static void the_trainers_code_wins(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){READY, READY, READY, READY});
  fail_stage(supervisor, 3, EXITED(2), "exited with 2");
  fail_stage(supervisor, 1, EXITED(2), "exited with 2");
  fail_stage(supervisor, 0, EXITED(3), "exited with 3");
  EXPECT_FAILURE(supervisor, 1, "failed: evaluator.0 exited with 2\n", "evaluator.0.log\n",
                 "also failed: trainer.0 exited with 3\n", "trainer.0.log\n",
                 "warning: packer.1 exited with 2\n", "packer.1.log\n");
}

static void codes_that_say_what_to_do_are_passed_on(void **state)
{
  static const int statuses[] = {EXITED(2), EXITED(4),   EXITED(5),   EXITED(6),
                                 EXITED(7), EXITED(126), EXITED(127), EXITED(1),
                                 EXITED(3), KILLED(2),   KILLED(4)};
  static const int codes[] = {2, 4, 5, 6, 7, 7, 7, 1, 1, 1, 1};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    states(supervisor, (int[]){READY, READY, READY, READY});
    fail_stage(supervisor, 0, statuses[i], "ended");
    assert_int_equal(judge(supervisor), codes[i]);
  }
}

static void packers_alone_do_not_fail_a_run_that_trains(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){DONE, DONE, READY, READY});
  fail_stage(supervisor, 2, EXITED(2), "exited with 2");
  EXPECT_FAILURE(supervisor, 0, "warning: packer.0 exited with 2\n");
  for (int kind = 0; kind < PLM_KIND_PACKER; kind++) supervisor->options.chosen[kind] = false;
  EXPECT_FAILURE(supervisor, 2, "failed: packer.0 exited with 2\n"); /* a run of packers only */
  fail_stage(supervisor, 3, EXITED(4), "exited with 4");
  EXPECT_FAILURE(supervisor, 2, "failed: packer.0",
                 "also failed: packer.1"); /* the first decides */
  supervisor->options.chosen[PLM_KIND_EVALUATOR] = true;
  EXPECT_FAILURE(supervisor, 0, "warning: packer.0 exited with 2\n");
}

/* If all packers have failed and the trainer ends with 4, they are the cause. */
static void a_starved_trainer_is_not_the_cause(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){READY, DONE, READY, READY});
  fail_stage(supervisor, 2, EXITED(2), "exited with 2");
  fail_stage(supervisor, 0, EXITED(4), "exited with 4");
  EXPECT_FAILURE(supervisor, 4, "failed: trainer.0", "warning: packer.0"); /* one packer is left */
  supervisor->stages.all[3].removed = true;
  EXPECT_FAILURE(supervisor, 4, "failed: packer.0", "also failed: trainer.0");
  supervisor->stages.all[0].wait_status = EXITED(3);
  EXPECT_FAILURE(supervisor, 1, "failed: trainer.0", "warning: packer.0");
}

/* Of what the stage has written, the last 20 lines; of a gang, without what mpirun says. */
static void the_last_lines_are_told(void **state)
{
  struct plm_supervisor *supervisor = *state;
  for (int gang = 0; gang < 2; gang++) {
    char expected[4000] = "failed: trainer.0 exited with 3\n", line[PLM_PATH_SIZE + 80],
         text[4000] = "";
    states(supervisor, (int[]){READY, READY, READY, READY});
    struct supervised *stage = &supervisor->stages.all[0];
    stage->gang = gang == 1 ? &supervisor->gang : NULL;
    for (int i = 0; i < 34; i++) {
      snprintf(line, sizeof line, "%s%d\n", i % 3 == 0 ? "  Exit code:    " : "line ", i);
      strcat(text, line);
      if (gang == 0 ? i < 14 : i < 2 || i % 3 == 0) continue;
      strcat(expected, "  | ");
      strcat(expected, line);
    }
    scratch_write(stage->tail.path, text, strlen(text));
    stage->log_start = (struct plm_tail_place){0};
    fail_stage(supervisor, 0, EXITED(3), "exited with 3");
    free_blocks = gang == 0;
    if (free_blocks == 0) {
      snprintf(line, sizeof line, "  the disk of %s is full, so its last lines may be missing\n",
               stage->tail.path);
      strcat(expected, line);
    }
    snprintf(line, sizeof line, "  log: %s\n", stage->tail.path);
    strcat(expected, line);
    assert_int_equal(judge(supervisor), 1);
    free_blocks = 1;
    assert_string_equal(failure.data, expected);
  }
}

/* What is said when a stage is given up: at once, or at the fifth failure. */
static void a_stage_that_is_given_up_is_named(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){READY, READY, READY, READY});
  struct supervised *evaluator = &supervisor->stages.all[1], *packer = &supervisor->stages.all[3];
  captured_begin(STDERR_FILENO);
  supervised_failed(&supervisor->stages, &supervisor->screen, evaluator, PLM_FAILURE_STAYS, "left");
  for (int i = 0; i < 5; i++) {
    packer->state = PLM_STAGE_READY;
    supervised_failed(&supervisor->stages, &supervisor->screen, packer, PLM_FAILURE_UNKNOWN,
                      "left");
    assert_int_equal(packer->state, i < 4 ? AGAIN : FATAL);
  }
  const char *said = captured_end();
  assert_non_null(strstr(said, "evaluator.0 left\n"));
  assert_non_null(strstr(said, "packer.1 left; restarting it in "));
  assert_non_null(strstr(said, "packer.1 left, for the fifth time in ten minutes: giving up\n"));
  assert_int_equal(evaluator->state, FATAL);
  assert_string_equal(evaluator->failed_how, "left");
  assert_int_equal(evaluator->failed_as, 1);
  assert_int_equal(packer->failed_as, 2);
  assert_false(packer->failed_again);
}

/* What does not fit is cut off. */
static void a_long_reason_is_cut(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){READY, READY, READY, READY});
  struct supervised *packer = &supervisor->stages.all[2];
  char how[501];
  memset(how, 'x', sizeof how - 1);
  how[sizeof how - 1] = '\0';
  captured_begin(STDERR_FILENO);
  for (int i = 0; i < 5; i++) {
    packer->state = PLM_STAGE_READY;
    supervised_failed(&supervisor->stages, &supervisor->screen, packer, PLM_FAILURE_UNKNOWN, how);
  }
  assert_non_null(strstr(captured_end(), "x, for the f\n"));
  assert_int_equal(strlen(packer->failed_how), sizeof packer->failed_how - 1);
}

static void four_failures_are_told(void **state)
{
  struct plm_supervisor *supervisor = *state;
  states(supervisor, (int[]){READY, READY, READY, READY});
  for (int i = 0; i < 2; i++) add(supervisor, PLM_KIND_PACKER, READY);
  for (size_t i = 0; i < 4; i++) fail_stage(supervisor, i, EXITED(1), "exited with 1");
  assert_int_equal(judge(supervisor), 1);
  assert_null(strstr(failure.data, "more stages"));
  for (size_t i = 4; i < 6; i++) fail_stage(supervisor, i, EXITED(1), "exited with 1");
  EXPECT_FAILURE(supervisor, 1, "trainer.0 ", "evaluator.0 ", "packer.0 ", "packer.1 ",
                 "and 2 more stages failed\n");
}

static void ends_are_told_in_words(void **state)
{
  static const struct {
    int status;
    bool gang, hung;
    const char *text;
  } rows[] = {{EXITED(0), false, false, "ended before the run was complete"},
              {EXITED(3), false, false, "exited with 3"},
              {EXITED(143), false, false,
               "was stopped by a signal that did not come from this run (exit code 143)"},
              {EXITED(130), false, false,
               "was stopped by a signal that did not come from this run (exit code 130)"},
              {EXITED(138), false, false, "exited with 138"},
              {KILLED(9), false, false, "was killed by signal 9 (Killed)"},
              {KILLED(9), true, true, "lost rank 0, and mpirun did not notice"},
              {EXITED(137), false, false, "exited with 137"},
              {EXITED(137), true, false, "lost a rank to signal 9 (Killed)"},
              {EXITED(128), true, false, "exited with 128"},
              {KILLED(9), true, false, "was killed by signal 9 (Killed)"}};
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = add(supervisor, PLM_KIND_TRAINER, FATAL);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[96];
    stage->wait_status = rows[i].status;
    stage->gang = rows[i].gang ? &supervisor->gang : NULL;
    supervisor->gang.hung = rows[i].hung;
    supervised_ending(stage, text);
    assert_string_equal(text, rows[i].text);
  }
}

/* The memory ends behind the last place for a client. */
static void places_for_clients_end_with_the_last_one(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct requests *requests = malloc(sizeof *requests);
  assert_non_null(requests);
  *requests = supervisor->requests;
  requests_init(requests);
  requests_answer_ready(requests);
  requests_answer_end(requests, 0, "");
  free(requests);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(when_a_run_is_over),
      TEST(a_restart_does_not_end_the_run),
      TEST(removed_stages_are_not_waited_for),
      TEST(one_kind_stops_after_the_other),
      TEST(the_second_signal_kills),
      TEST(the_trainer_is_told_when_no_packer_is_left),
      TEST(the_trainer_may_not_be_told),
      TEST(the_trainers_code_wins),
      TEST(codes_that_say_what_to_do_are_passed_on),
      TEST(packers_alone_do_not_fail_a_run_that_trains),
      TEST(a_starved_trainer_is_not_the_cause),
      TEST(the_last_lines_are_told),
      TEST(a_stage_that_is_given_up_is_named),
      TEST(four_failures_are_told),
      TEST(a_long_reason_is_cut),
      TEST(ends_are_told_in_words),
      TEST(places_for_clients_end_with_the_last_one),
  };
  return cmocka_run_group_tests_name("supervisor decisions", tests, NULL, NULL);
}
