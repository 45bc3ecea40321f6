/* `up` with scripts as the programs of the stages: a run in the foreground from its start to its
 * end, what it says, and how it ends. */
#include "tests/support/harness/cmocka_all.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/scripted_run.h"
#include "tests/support/harness/scratch.h"

/* The lines of `words` in the order of their stages. */
static void was_started(const char *stage, const char *arguments)
{
  char line[4 * PLM_PATH_SIZE];
  const char *words = scratch_contents("words");
  snprintf(line, sizeof line, "%s -c %s/pipeline.yaml --run %s%s\n", stage, scripted_run,
           scripted_run, arguments);
  if (strstr(words, line) == NULL) fail_msg("\"%s\" is not in: %s", line, words);
}

/* ---- in the foreground ------------------------------------------------------------------------
 */

/* All instances are started and ready, and what they say is shown at once. The trainer ends, then
 * the evaluator, then the packers are told to stop. */
static void a_run_ends_when_it_is_complete(void **state)
{
  char value[512];
  (void)state;
  command_case_program("plm-trainer",
                       BEGINS ALL_HAVE_BEGUN UNTIL_FOUR(" is ready ", "/proc/$PPID/fd/2")
                           UNTIL_FOUR("| a line", "/proc/$PPID/fd/2") "grep -c '| a line' "
                                                                      "/proc/$PPID/fd/2 "
                                                                      ">shown\n" IS_DONE);
  command_case_program("plm-evaluator", BEGINS ENDS_AFTERWARDS);
  assert_int_equal(UP("--profile", "3-4"), 0);
  assert_true(scripted_adopts);
  was_started("trainer.0", " --set trainer.profile.steps=3-4");
  was_started("evaluator.0", "");
  was_started("packer.0", "");
  was_started("packer.1", "");
  assert_string_equal(scratch_contents("told"), "packer\npacker\n");
  assert_string_equal(scratch_contents("shown"), "4\n");
  scripted_says("plm-pipeline: trainer.0 is ready (");
  scripted_says("plm-pipeline: packer.1 is ready (");
  scripted_says("\ntrainer.0   | a line\n");
  scripted_says("\nevaluator.0 | a line\n");
  scripted_says("\npacker.1    | a line\n");
  scripted_says("plm-pipeline: the run is complete at step 20\n");
  scripted_does_not_say("stop");
  assert_string_equal(scripted_out, "");
  assert_int_equal(plm_endpoint_read(scripted_run, "packers", value, NULL), PLM_NOT_FOUND);
}

static void quiet_runs_say_only_how_they_end(void **state)
{
  (void)state;
  command_case_program("plm-trainer", BEGINS ALL_HAVE_BEGUN IS_DONE);
  command_case_program("plm-evaluator", BEGINS ENDS_AFTERWARDS);
  assert_int_equal(UP("-q"), 0);
  assert_string_equal(scripted_err, "plm-pipeline: the run is complete at step 20\n");
}

/* One kind after the other. The endpoints of an earlier start are gone meanwhile. */
static void signals_stop_it_in_order(void **state)
{
  static const struct {
    const char *script;
    int code;
  } rows[] = {{BEGINS ALL_HAVE_BEGUN "kill -INT $PPID\n" STAYS, 130},
              {BEGINS ALL_HAVE_BEGUN "kill -TERM $PPID\n" STAYS, 143},
              {BEGINS ALL_HAVE_BEGUN "kill -HUP $PPID\n" STAYS, 143},
              {BEGINS ALL_HAVE_BEGUN "kill -USR1 $PPID\n" STAYS, 143}};
  char value[512];
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    command_case_program("plm-evaluator", rows[i].script);
    assert_int_equal(plm_directory_make(scripted_run, NULL), PLM_OK);
    assert_int_equal(plm_endpoint_write(scripted_run, "packers", "fatal", NULL), PLM_OK);
    assert_int_equal(plm_endpoint_write(scripted_run, "feed", "of an earlier start", NULL), PLM_OK);
    assert_int_equal(plm_endpoint_write(scripted_run, "evaluation_feed", "of an earlier one", NULL),
                     PLM_OK);
    scratch_write("words", "", 0);
    unlink("told");
    assert_int_equal(UP("--set", "seed=1"), rows[i].code);
    assert_string_equal(scratch_contents("told"), "trainer\nevaluator\npacker\npacker\n");
    scripted_says(
        "plm-pipeline: stopping: the trainer saves a checkpoint, then the evaluator and the "
        "packers "
        "stop; a second signal kills them\n");
    scripted_says("plm-pipeline: stopped before the first checkpoint\n");
    assert_int_equal(plm_endpoint_read(scripted_run, "packers", value, NULL), PLM_NOT_FOUND);
    assert_int_equal(plm_endpoint_read(scripted_run, "feed", value, NULL), PLM_NOT_FOUND);
    assert_int_equal(plm_endpoint_read(scripted_run, "evaluation_feed", value, NULL),
                     PLM_NOT_FOUND);
  }
}

/* A signal is seen while no stage is ready yet, and nothing else happens. */
static void a_signal_stops_stages_that_are_starting(void **state)
{
  (void)state;
  command_case_program("plm-evaluator", "#!/bin/sh\nkill -INT $PPID\nexec sleep 60\n");
  const int64_t begun_ms = plm_clock_ms();
  assert_int_equal(UP("evaluator"), 130);
  assert_true(plm_clock_ms() - begun_ms < 40000);
  scripted_says("plm-pipeline: stopped\n");
}

/* As under nohup. */
static void a_signal_that_is_ignored_does_not_stop_it(void **state)
{
  (void)state;
  command_case_program("plm-trainer", BEGINS ALL_HAVE_BEGUN "kill -HUP $PPID\n" IS_DONE);
  command_case_program("plm-evaluator", BEGINS ENDS_AFTERWARDS);
  assert_true(signal(SIGHUP, SIG_IGN) != SIG_ERR);
  const int code = UP("-q");
  assert_true(signal(SIGHUP, SIG_DFL) != SIG_ERR);
  assert_int_equal(code, 0);
}

/* The trainer leaves a checkpoint when it is stopped. */
static void a_stopped_run_says_how_it_continues(void **state)
{
  static const char trainer[] =
      BEGINS ALL_HAVE_BEGUN "trap 'mkdir -p \"$run/checkpoints\"; "
                            "ln -s step_00000007 \"$run/checkpoints/latest\"; exit 0' TERM\n"
                            "kill -INT $PPID\n" STAYS;
  (void)state;
  command_case_program("plm-trainer", trainer);
  assert_int_equal(UP("--set", "seed=1"), 130);
  scripted_says(
      "plm-pipeline: stopped; `plm-pipeline up its.yaml` with the same --set will continue from "
      "step 7\n");
  scripted_run_begin(NULL);
  command_case_program("plm-trainer", trainer);
  assert_int_equal(scripted_call((const char *const[]){"up", "-c", "its.yaml", NULL}), 130);
  scripted_says("`plm-pipeline up its.yaml` will continue from step 7\n");
  scripted_run_begin(NULL);
  command_case_program("plm-evaluator", BEGINS "kill -INT $PPID\n" STAYS);
  assert_int_equal(UP("evaluator"), 130);
  scripted_says(
      "plm-pipeline: stopping: the stages end what they are doing; a second signal kills them\n");
  scripted_says("plm-pipeline: stopped\n");
  assert_string_equal(scratch_contents("told"), "evaluator\n");
}

static void a_second_signal_kills(void **state)
{
  (void)state;
  command_case_program("plm-trainer", BEGINS ALL_HAVE_BEGUN
                       "trap 'kill -INT $PPID' TERM\nkill -INT $PPID\n" STAYS);
  assert_int_equal(UP("--set", "seed=1"), 130);
  scripted_says("plm-pipeline: second signal: killing all stages\n");
  assert_string_equal(scratch_contents("told"), "");
}

/* Stages do not outlive their supervisor. What it has launched elsewhere is stopped by SIGUSR1. */
static void stages_end_with_a_supervisor_that_is_killed(void **state)
{
  const char *const words[] = {"up", "its.yaml", "-q", "--launch", "trainer=env", NULL};
  int status;
  (void)state;
  command_case_program("plm-trainer",
                       BEGINS "trap 'echo launched >>told; exit 0' USR1\n" ALL_HAVE_BEGUN
                              "kill -KILL $PPID\n" STAYS);
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(command_case(words));
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  assert_true(scratch_appears("told", "launched\n", SCRIPTED_LIMIT_MS));
  assert_true(scratch_appears("told", "evaluator\n", SCRIPTED_LIMIT_MS));
  for (int i = 0;
       strlen(scratch_contents("told")) < strlen("launched\nevaluator\npacker\npacker\n"); i++) {
    assert_true(i < SCRIPTED_LIMIT_MS);
    usleep(1000);
  }
}

/* The root cause, and the lines before it; the code of the run is that of the stage. */
static void a_failure_ends_the_run(void **state)
{
  static struct plm_run_failure failure;
  (void)state;
  command_case_program("plm-trainer",
                       BEGINS ALL_HAVE_BEGUN "echo 'plm-trainer: too bad'\nexit 2\n");
  assert_int_equal(UP("--set", "seed=1"), 2);
  scripted_says("plm-pipeline: failed: trainer.0 exited with ");
  scripted_says("\n  | plm-trainer: a line\n  | plm-trainer: too bad\n  log: ");
  scripted_says("/logs/trainer.0.log\n");
  scripted_does_not_say("stopped");
  scripted_does_not_say("complete");
  assert_string_equal(scratch_contents("told"), "evaluator\npacker\npacker\n");
  assert_true(plm_run_failure_read(scripted_run, &failure));
  assert_int_equal(failure.exit_code, 2);
  assert_string_equal(failure.stage, "trainer.0");
  assert_non_null(strstr(failure.cause, "too bad"));
}

/* A gang has ended when the writer of its log has. mpirun starts no ranks here. */
static void a_gang_that_fails_ends_the_run(void **state)
{
  char paths[2 * PLM_PATH_SIZE];
  char *before = strdup(getenv("PATH"));
  (void)state;
  command_case_program("mpirun", "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Open MPI' && exit 0\n"
                                 "echo 'plm-trainer: too bad'\nexit 2\n");
  snprintf(paths, sizeof paths, "%s:%s", command_programs, before);
  setenv("PATH", paths, 1);
  setenv("PLM_MPI_LIBRARY", "/dev/null", 1); /* it only has to be there */
  const int64_t begun_ms = plm_clock_ms();
  const int code = UP("trainer", "--set", "trainer.ranks=2");
  unsetenv("PLM_MPI_LIBRARY");
  setenv("PATH", before, 1);
  free(before);
  assert_int_equal(code, 2);
  assert_true(plm_clock_ms() - begun_ms < 40000);
  scripted_says("plm-pipeline: failed: trainer.0 exited with ");
  scripted_says("\n  | plm-trainer: too bad\n  log: ");
  scripted_does_not_say("left processes behind");
}

/* ---- what it waits for, and what it refuses ---------------------------------------------------
 */

/* Releases the lock once `up` says that it waits. */
static void *release(void *lock)
{
  command_case_says("of an earlier `up` to end (process ");
  plm_lock_release(lock);
  return NULL;
}

/* `up evaluator`, while something else holds the lock of this role at first. */
static int up_after(const char *role)
{
  int status;
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct plm_lock *lock;
    pthread_t thread;
    if (plm_lock_acquire(scripted_run, role, &lock, NULL) != PLM_OK ||
        pthread_create(&thread, NULL, release, lock) != 0)
      _exit(99);
    const int code = COMMAND("up", "its.yaml", "evaluator");
    pthread_join(thread, NULL);
    scratch_write("err", command_err, strlen(command_err));
    _exit(code);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  snprintf(scripted_err, sizeof scripted_err, "%s", scratch_contents("err"));
  return WEXITSTATUS(status);
}

static void stages_of_an_earlier_one_are_waited_for(void **state)
{
  (void)state;
  assert_int_equal(plm_directory_make(scripted_run, NULL), PLM_OK);
  command_case_program("plm-evaluator", BEGINS "kill -INT $PPID\n" STAYS);
  assert_int_equal(up_after("evaluator"), 130);
  scripted_says("waiting for the evaluator of an earlier `up` to end (process ");
  scripted_does_not_say("waiting for the trainer");
}

/* Of a stage that is not started here, they are gone unless somebody else runs it. */
static void endpoints_of_others_are_kept(void **state)
{
  char value[512];
  struct plm_lock *lock;
  (void)state;
  command_case_program("plm-evaluator", BEGINS "kill -INT $PPID\n" STAYS);
  for (int running = 0; running < 2; running++) {
    assert_int_equal(plm_directory_make(scripted_run, NULL), PLM_OK);
    assert_int_equal(plm_endpoint_write(scripted_run, "feed", "tcp://127.0.0.1:1", NULL), PLM_OK);
    assert_int_equal(plm_endpoint_write(scripted_run, "prometheus", "127.0.0.1:1", NULL), PLM_OK);
    if (running) assert_int_equal(plm_lock_acquire(scripted_run, "trainer", &lock, NULL), PLM_OK);
    const int code = UP("evaluator");
    scripted_does_not_say("waiting for");
    if (running) plm_lock_release(lock);
    assert_int_equal(code, 130);
    assert_int_equal(plm_endpoint_read(scripted_run, "feed", value, NULL),
                     running ? PLM_OK : PLM_NOT_FOUND);
    assert_int_equal(plm_endpoint_read(scripted_run, "prometheus", value, NULL), PLM_NOT_FOUND);
  }
}

/* The run has ended at step 20, with a checkpoint. */
static void complete_run(void)
{
  static const char *const files[] = {"config.json", "model.safetensors"};
  struct plm_manifest manifest = {.step = 20, .count = 2};
  assert_int_equal(plm_directory_make("runs/a/checkpoints/step_00000020", NULL), PLM_OK);
  for (size_t i = 0; i < 2; i++) {
    struct plm_manifest_file *file = &manifest.files[i];
    char path[128];
    strcpy(file->name, files[i]);
    snprintf(path, sizeof path, "runs/a/checkpoints/step_00000020/%s", files[i]);
    scratch_write(path, files[i], strlen(files[i]));
    assert_int_equal(plm_hash_file(path, &file->hash, &file->size, NULL, NULL), PLM_OK);
  }
  char *text = plm_manifest_print(&manifest);
  scratch_write("runs/a/checkpoints/step_00000020/MANIFEST", text, strlen(text));
  free(text);
  const struct plm_done done = {.step = 20, .identity = manifest.files[1].hash};
  assert_int_equal(plm_done_write("runs/a", &done, NULL), PLM_OK);
}

/* No trainer starts, and without an evaluator nothing does. */
static void a_complete_run_is_only_evaluated(void **state)
{
  (void)state;
  command_case_program("plm-trainer", BEGINS IS_DONE);
  assert_int_equal(UP("trainer", "--set", "seed=1"), 0); /* it is not complete yet */
  assert_non_null(strstr(scratch_contents("words"), "trainer.0 "));
  scratch_write("words", "", 0);
  complete_run();
  assert_int_equal(UP("trainer", "packer"), 0);
  assert_string_equal(scripted_err, "plm-pipeline: the run is complete at step 20\n");
  assert_string_equal(scratch_contents("words"), "");
  scratch_write("runs/a/pulse.trainer.json", "{}\n", 3);
  command_case_program("plm-evaluator", BEGINS "kill -INT $PPID\n" STAYS);
  assert_int_equal(UP("--color", "never"), 130);
  scripted_says("plm-pipeline: the run is complete at step 20; evaluating checkpoints without "
                "metrics\n");
  assert_non_null(strstr(scratch_contents("words"), "evaluator.0 "));
  assert_null(strstr(scratch_contents("words"), "trainer.0 "));
  assert_false(plm_file_exists("runs/a/pulse.trainer.json"));
  command_case_program("plm-trainer", "#!/bin/sh\necho '{}'\n");
  assert_int_equal(UP("--dry-run"), 0);
  assert_int_equal(strncmp(scripted_out,
                           "the run is complete at step 20; only checkpoints without "
                           "metrics would be evaluated\n",
                           83),
                   0);
}

static void metrics_are_served_meanwhile(void **state)
{
  (void)state;
  command_case_program("plm-evaluator", BEGINS "kill -INT $PPID\n" STAYS);
  assert_int_equal(UP("evaluator", "--set", "metrics.prometheus=127.0.0.1:0"), 130);
  scripted_says("plm-pipeline: metrics at http://127.0.0.1:");
}

/* One supervisor has the run. */
static void a_run_has_one_supervisor(void **state)
{
  struct plm_lock *lock;
  (void)state;
  assert_int_equal(plm_directory_make(scripted_run, NULL), PLM_OK);
  assert_int_equal(plm_lock_acquire(scripted_run, "supervisor", &lock, NULL), PLM_OK);
  const int code = UP("-q"), behind = UP("-q", "-d");
  plm_lock_release(lock);
  assert_int_equal(code, 1);
  assert_int_equal(behind, 1);
  scripted_says("plm-pipeline: ");
  scripted_says("supervisor");
  assert_string_equal(scratch_contents("words"), "");
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_run_ends_when_it_is_complete, scripted_run_begin),
      cmocka_unit_test_setup(quiet_runs_say_only_how_they_end, scripted_run_begin),
      cmocka_unit_test_setup(signals_stop_it_in_order, scripted_run_begin),
      cmocka_unit_test_setup(a_signal_stops_stages_that_are_starting, scripted_run_begin),
      cmocka_unit_test_setup(a_signal_that_is_ignored_does_not_stop_it, scripted_run_begin),
      cmocka_unit_test_setup(a_stopped_run_says_how_it_continues, scripted_run_begin),
      cmocka_unit_test_setup(a_second_signal_kills, scripted_run_begin),
      cmocka_unit_test_setup(stages_end_with_a_supervisor_that_is_killed, scripted_run_begin),
      cmocka_unit_test_setup(a_failure_ends_the_run, scripted_run_begin),
      cmocka_unit_test_setup(a_gang_that_fails_ends_the_run, scripted_run_begin),
      cmocka_unit_test_setup(stages_of_an_earlier_one_are_waited_for, scripted_run_begin),
      cmocka_unit_test_setup(endpoints_of_others_are_kept, scripted_run_begin),
      cmocka_unit_test_setup(a_complete_run_is_only_evaluated, scripted_run_begin),
      cmocka_unit_test_setup(metrics_are_served_meanwhile, scripted_run_begin),
      cmocka_unit_test_setup(a_run_has_one_supervisor, scripted_run_begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
