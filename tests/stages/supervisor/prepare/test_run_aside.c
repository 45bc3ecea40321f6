/* What is moved aside before a run starts anew or from an earlier step, and what becomes of a move
 * that was interrupted. */
#include "stages/supervisor/prepare/run_aside.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/cases/whole_checkpoint.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];

static const char *in_run(const char *name)
{
  static char paths[4][PLM_PATH_SIZE];
  static unsigned next;
  char *path = paths[next++ % 4];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  return path;
}

static void put(const char *name, const char *text)
{
  scratch_write(in_run(name), text, strlen(text));
}

/* The file has this text; NULL: there is none. */
static void has(const char *name, const char *expected)
{
  char *text;
  size_t size;
  if (expected == NULL) {
    if (access(in_run(name), F_OK) == 0) fail_msg("%s is there", name);
    return;
  }
  if (plm_file_read(in_run(name), 1 << 16, &text, &size, NULL) != PLM_OK)
    fail_msg("%s is not there", name);
  assert_string_equal(text, expected);
  free(text);
}

static void make_folder(const char *name)
{
  assert_int_equal(plm_directory_make(in_run(name), NULL), PLM_OK);
}

static const char trainer[] = "{\"step\":1}\n{\"step\":100}\nno json\n{\"step\":101}\n"
                              "{\"step\":\"300\"}\n{\"step\":300}\n{\"step\":30";
static const char evaluator[] = "{\"step\":0}\n{\"step\":100}\n{\"step\":20";

/* A run with the checkpoints 0, 100, 200 and 300, and a file of each kind. */
static int begin(void **state)
{
  static const char *const checkpoints[] = {"step_00000000", "step_00000100", "step_00000200",
                                            "step_00000300"};
  (void)state;
  scratch_run(run);
  plm_log_init("t", PLM_LOG_ERROR);
  put(PLM_RUN_CONFIG, "seed: 1\n");
  put(PLM_RUN_TRAINER_METRICS, trainer);
  put(PLM_RUN_EVALUATOR_METRICS, evaluator);
  put(PLM_RUN_DONE, "done");
  put(PLM_RUN_CORPUS, "corpus");
  put("own", "nobody's business");
  for (size_t i = 0; i < 4; i++) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/%s", checkpoints[i]);
    make_folder(name);
    snprintf(name, sizeof name, "checkpoints/%s/weights", checkpoints[i]);
    put(name, checkpoints[i]);
  }
  assert_int_equal(symlink("step_00000300", in_run("checkpoints/latest")), 0);
  return 0;
}

static void expect_later_moved(void)
{
  char link[64] = "";
  has("checkpoints/step_00000000/weights", "step_00000000");
  has("checkpoints/step_00000100/weights", "step_00000100");
  has("checkpoints/step_00000200", NULL);
  has("checkpoints/step_00000300", NULL);
  has("previous-1/checkpoints/step_00000200/weights", "step_00000200");
  has("previous-1/checkpoints/step_00000300/weights", "step_00000300");
  has("previous-1/checkpoints/step_00000100", NULL);
  assert_true(readlink(in_run("checkpoints/latest"), link, sizeof link - 1) > 0);
  assert_string_equal(link, "step_00000100");
  has(PLM_RUN_TRAINER_METRICS,
      "{\"step\":1}\n{\"step\":100}\nno json\n{\"step\":\"300\"}\n"); /* without the torn line */
  has("previous-1/trainer.jsonl", "{\"step\":101}\n{\"step\":300}\n");
  has(PLM_RUN_EVALUATOR_METRICS, evaluator); /* nothing of it is later, so it stays as it is */
  has("previous-1/evaluator.jsonl", NULL);
  has(PLM_RUN_DONE, NULL);
  has("previous-1/DONE", "done");
  has(PLM_RUN_CONFIG, "seed: 1\n");
  has(PLM_RUN_CORPUS, "corpus");
  has("own", "nobody's business");
  has("previous-1/" PLM_RUN_MOVING, NULL);
}

static void what_came_after_a_step_is_moved(void **state)
{
  (void)state;
  struct plm_error error = {0};
  if (plm_run_move_aside(run, false, 100, &error) != PLM_OK) fail_msg("%s", error.what);
  expect_later_moved();
  assert_int_equal(plm_run_finish_move(run, &error), PLM_OK); /* nothing is left to do */
  expect_later_moved();
  /* another move has a folder of its own, even if it finds nothing */
  assert_int_equal(plm_run_move_aside(run, false, 100, &error), PLM_OK);
  expect_later_moved();
  has("previous-2/DONE", NULL);
  assert_int_equal(access(in_run("previous-2/checkpoints"), F_OK), 0);
}

/* It is moved if its last step is later. */
static void a_profile_of_later_steps_is_moved(void **state)
{
  (void)state;
  for (int last = 100; last <= 101; last++) {
    char profile[200];
    snprintf(profile, sizeof profile,
             "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":90,\"last_step\":%d},"
             "\"traceEvents\":[\n",
             last);
    put(PLM_RUN_PROFILE, profile);
    assert_int_equal(plm_run_move_aside(run, false, 100, NULL), PLM_OK);
    has(PLM_RUN_PROFILE, last == 100 ? profile : NULL);
    has("previous-1/" PLM_RUN_PROFILE, NULL);
    has("previous-2/" PLM_RUN_PROFILE, last == 100 ? NULL : profile);
  }
}

static void everything_is_moved(void **state)
{
  (void)state;
  struct plm_error error = {0};
  static const char *const folders[] = {PLM_RUN_LOGS, PLM_RUN_TENSORBOARD};
  static const char *const files[] = {PLM_RUN_PACKER_METRICS, PLM_RUN_PROFILE, "run_id"};
  char name[64];
  for (size_t i = 0; i < 2; i++) make_folder(folders[i]);
  for (size_t i = 0; i < 3; i++) put(files[i], files[i]);
  make_folder("previous-1"); /* of an earlier move */
  if (plm_run_move_aside(run, true, 0, &error) != PLM_OK) fail_msg("%s", error.what);
  static const char *const gone[] = {PLM_RUN_CHECKPOINTS,
                                     PLM_RUN_TRAINER_METRICS,
                                     PLM_RUN_EVALUATOR_METRICS,
                                     PLM_RUN_PACKER_METRICS,
                                     PLM_RUN_TENSORBOARD,
                                     PLM_RUN_LOGS,
                                     PLM_RUN_PROFILE,
                                     PLM_RUN_CONFIG,
                                     PLM_RUN_CORPUS,
                                     PLM_RUN_DONE,
                                     "run_id"};
  for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
    has(gone[i], NULL);
    snprintf(name, sizeof name, "previous-2/%s", gone[i]);
    if (access(in_run(name), F_OK) != 0) fail_msg("%s is not there", name);
  }
  has("previous-2/trainer.jsonl", trainer);
  has("previous-2/run_id", "run_id");
  has("own", "nobody's business");
  has("previous-2/" PLM_RUN_MOVING, NULL);
  /* without a configuration, no run was ever started here */
  assert_int_equal(plm_run_move_aside(run, true, 0, &error), PLM_OK);
  has("previous-3", NULL);
}

/* The record says what was to be moved. Some of it has been moved, and some came back. */
static void an_interrupted_move_is_finished(void **state)
{
  (void)state;
  struct plm_error error = {0};
  make_folder("previous-1/checkpoints");
  put("previous-1/" PLM_RUN_MOVING, "100\n");
  assert_int_equal(
      rename(in_run("checkpoints/step_00000300"), in_run("previous-1/checkpoints/step_00000300")),
      0);
  put("previous-1/DONE", "done"); /* in both places: the one that came back is removed */
  if (plm_run_finish_move(run, &error) != PLM_OK) fail_msg("%s", error.what);
  expect_later_moved();
}

/* A checkpoint in both places is only removed if the one that was moved is whole. */
static void a_checkpoint_that_is_not_whole_stays(void **state)
{
  (void)state;
  struct plm_error error = {0};
  make_folder("previous-1/checkpoints/step_00000300");
  put("previous-1/" PLM_RUN_MOVING, "100\n");
  assert_int_not_equal(plm_run_finish_move(run, &error), PLM_OK);
  has("checkpoints/step_00000300/weights", "step_00000300");
  has("checkpoints/step_00000200/weights", "step_00000200");
  has(PLM_RUN_TRAINER_METRICS, trainer);
}

static void all_is_finished_but_what_is_newer(void **state)
{
  (void)state;
  struct plm_error error = {0};
  make_folder("previous-1");
  put("previous-1/" PLM_RUN_MOVING, "everything\n");
  put("previous-1/trainer.jsonl", "moved before\n");
  if (plm_run_finish_move(run, &error) != PLM_OK) fail_msg("%s", error.what);
  has("previous-1/trainer.jsonl", "moved before\n");
  has(PLM_RUN_TRAINER_METRICS, trainer);
  has(PLM_RUN_CONFIG, NULL);
  has("previous-1/pipeline.yaml", "seed: 1\n");
}

static void a_move_that_was_not_begun_is_forgotten(void **state)
{
  (void)state;
  static const char *const records[] = {"", "100", "everything"};
  for (size_t i = 0; i < 3; i++) {
    struct plm_error error = {0};
    make_folder("previous-1");
    put("previous-1/" PLM_RUN_MOVING, records[i]);
    if (plm_run_finish_move(run, &error) != PLM_OK) fail_msg("%s", error.what);
    has("previous-1", NULL);
    has(PLM_RUN_TRAINER_METRICS, trainer);
    has("checkpoints/step_00000300/weights", "step_00000300");
  }
}

/* ---- with a disk that fails ----------------------------------------------------------------- */

/* A move that an error ended can be finished, or was not begun and can be tried again. */
static plm_status move_later_states(void *context, struct plm_error *error)
{
  long at = failing_disk_pause();
  begin(NULL);
  failing_disk_resume(at);
  const plm_status status = plm_run_move_aside(run, false, 100, error);
  at = failing_disk_pause();
  if (status != PLM_OK) assert_int_equal(plm_run_finish_move(run, NULL), PLM_OK);
  if (access(in_run("previous-1"), F_OK) != 0) {
    ++*(int *)context;
    has(PLM_RUN_TRAINER_METRICS, trainer);
    has("checkpoints/step_00000300/weights", "step_00000300");
    has(PLM_RUN_DONE, "done");
    assert_int_equal(plm_run_move_aside(run, false, 100, NULL), PLM_OK);
  }
  expect_later_moved();
  failing_disk_resume(at);
  return status;
}

/* The record is there, and a checkpoint, DONE and lines are in both places. */
static plm_status finish_later_states(void *context, struct plm_error *error)
{
  (void)context;
  long at = failing_disk_pause();
  begin(NULL);
  make_folder("previous-1/checkpoints");
  put("previous-1/" PLM_RUN_MOVING, "100\n");
  put("previous-1/" PLM_RUN_DONE, "done");
  whole_checkpoint_write(in_run("checkpoints"), 400);
  whole_checkpoint_write(in_run("previous-1/checkpoints"), 400);
  failing_disk_resume(at);
  const plm_status status = plm_run_finish_move(run, error);
  at = failing_disk_pause();
  assert_int_equal(access(in_run("previous-1/checkpoints/step_00000400/MANIFEST"), F_OK), 0);
  if (status != PLM_OK) assert_int_equal(plm_run_finish_move(run, NULL), PLM_OK);
  expect_later_moved();
  has("checkpoints/step_00000400", NULL);
  failing_disk_resume(at);
  return status;
}

static plm_status move_all(void *context, struct plm_error *error)
{
  (void)context;
  long at = failing_disk_pause();
  begin(NULL);
  failing_disk_resume(at);
  const plm_status status = plm_run_move_aside(run, true, 0, error);
  at = failing_disk_pause();
  if (status != PLM_OK) assert_int_equal(plm_run_finish_move(run, NULL), PLM_OK);
  if (access(in_run("previous-1"), F_OK) != 0) {
    has(PLM_RUN_CONFIG, "seed: 1\n");
    assert_int_equal(plm_run_move_aside(run, true, 0, NULL), PLM_OK);
  }
  has(PLM_RUN_CONFIG, NULL);
  has(PLM_RUN_CHECKPOINTS, NULL);
  has("previous-1/trainer.jsonl", trainer);
  has("previous-1/checkpoints/step_00000300/weights", "step_00000300");
  has("previous-1/" PLM_RUN_MOVING, NULL);
  failing_disk_resume(at);
  return status;
}

static plm_status forget(void *context, struct plm_error *error)
{
  (void)context;
  long at = failing_disk_pause();
  begin(NULL);
  make_folder("previous-1");
  put("previous-1/" PLM_RUN_MOVING, "100");
  failing_disk_resume(at);
  const plm_status status = plm_run_finish_move(run, error);
  at = failing_disk_pause();
  assert_int_equal(plm_run_finish_move(run, NULL), PLM_OK);
  has("previous-1/" PLM_RUN_MOVING, NULL);
  has(PLM_RUN_TRAINER_METRICS, trainer);
  failing_disk_resume(at);
  return status;
}

static void each_failure_of_the_disk_is_an_error(void **state)
{
  (void)state;
  /* A profile that cannot be read stays, and an empty folder does no harm. */
  static const char *const later[] = {"fopen */profile.json", NULL}, *const empty[] = {
                                                                         "rmdir */previous-1",
                                                                         NULL};
  int not_begun = 0;
  failing_disk_try(move_later_states, &not_begun, later);
  assert_true(not_begun >= 5);
  failing_disk_try(finish_later_states, NULL, later);
  failing_disk_try(move_all, NULL, NULL);
  failing_disk_try(forget, NULL, empty);
}

/* Without room for its record nothing is moved, and the folder does not stay. */
static void a_move_without_a_record_is_not_begun(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct rlimit before, none;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  none = (struct rlimit){0, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
  const plm_status status = plm_run_move_aside(run, true, 0, &error);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(status, PLM_LIMIT);
  assert_non_null(strstr(error.what, "previous-1/" PLM_RUN_MOVING));
  has("previous-1", NULL);
  has(PLM_RUN_TRAINER_METRICS, trainer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(what_came_after_a_step_is_moved),
      TEST(a_profile_of_later_steps_is_moved),
      TEST(everything_is_moved),
      TEST(an_interrupted_move_is_finished),
      TEST(a_checkpoint_that_is_not_whole_stays),
      TEST(all_is_finished_but_what_is_newer),
      TEST(a_move_that_was_not_begun_is_forgotten),
      TEST(a_move_without_a_record_is_not_begun),
      TEST(each_failure_of_the_disk_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
