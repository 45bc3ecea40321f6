/* `up` prepares a run folder on a disk that fails: each failure is an error, and the next attempt
 * finds everything that it needs. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"
#include "stages/supervisor/prepare/run_prepare.h"
#include "tests/support/cases/whole_checkpoint.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/must.h"
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

/* A run with two checkpoints, which was started with 300 steps. */
static struct plm_config begin(void)
{
  char yaml[2 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_error error = {0};
  scratch_run(run);
  plm_log_init("t", PLM_LOG_ERROR);
  const int size = snprintf(yaml, sizeof yaml, "run: %s\ntrainer: {steps: 300}\n", run);
  scratch_write(in_run(PLM_RUN_CONFIG), yaml, (size_t)size);
  scratch_write(in_run(PLM_RUN_DONE), "old", 3);
  whole_checkpoint_write(in_run(PLM_RUN_CHECKPOINTS), 100);
  whole_checkpoint_write(in_run(PLM_RUN_CHECKPOINTS), 200);
  snprintf(yaml, sizeof yaml, "run: %s\ntrainer: {steps: 400}\n", run);
  must_work(plm_config_load_text(yaml, strlen(yaml), &config, &error), &error);
  return config;
}

struct attempt {
  enum plm_resume_mode mode;
  bool trains;
};

static void is_prepared(const struct attempt *attempt, const struct plm_prepared *prepared)
{
  const bool fresh = attempt->mode == PLM_RESUME_NEVER, moves = attempt->mode != PLM_RESUME_AUTO;
  const char *written = scratch_contents(in_run(PLM_RUN_CONFIG));
  assert_int_equal(prepared->step, fresh ? 0 : moves ? 100 : 200);
  assert_int_equal(prepared->resumes, !fresh);
  assert_false(prepared->complete || plm_file_exists(in_run(PLM_RUN_DONE)));
  assert_true(plm_file_exists(in_run(PLM_RUN_LOGS)));
  assert_non_null(strstr(written, attempt->trains ? "steps: 400" : "steps: 300"));
  assert_int_equal(plm_file_exists(in_run("checkpoints/step_00000200")), !moves);
  assert_int_equal(plm_file_exists(in_run("checkpoints/step_00000100")), !fresh);
}

static plm_status prepare(void *context, struct plm_error *error)
{
  const struct attempt *attempt = context;
  struct plm_prepared prepared;
  char path[PLM_PATH_SIZE];
  long at = failing_disk_pause();
  struct plm_config config = begin();
  snprintf(path, sizeof path, "%s", in_run("checkpoints/step_00000100"));
  failing_disk_resume(at);
  const plm_status status =
      plm_run_prepare(&config, attempt->mode, path, attempt->trains, &prepared, error);
  at = failing_disk_pause();
  if (status != PLM_OK) {
    /* The checkpoint is still there, or the move of everything is finished. */
    struct plm_error again = {0};
    must_work(plm_run_prepare(&config, attempt->mode, path, attempt->trains, &prepared, &again),
              &again);
  }
  is_prepared(attempt, &prepared);
  plm_config_deinit(&config);
  failing_disk_resume(at);
  return status;
}

static plm_status prepare_apart(void *context, struct plm_error *error)
{
  (void)context;
  long at = failing_disk_pause();
  struct plm_config config = begin();
  failing_disk_resume(at);
  const plm_status status = plm_run_prepare_apart(&config, error);
  at = failing_disk_pause();
  const char *written = scratch_contents(in_run(PLM_RUN_CONFIG_APART));
  if (status == PLM_OK) assert_non_null(strstr(written, "steps: 400"));
  plm_config_deinit(&config);
  failing_disk_resume(at);
  return status;
}

static void each_failure_of_the_disk_is_an_error(void **state)
{
  (void)state;
  /* A DONE that cannot be read does not hold. */
  static const char *const automatic[] = {"open */DONE", "read */DONE", "read */DONE",
                                          "unlink */FAILED", NULL};
  static const char *const path[] = {"unlink */FAILED", "fopen */profile.json", NULL};
  static const char *const never[] = {"unlink */FAILED", NULL};
  static struct {
    struct attempt attempt;
    const char *const *unnoticed;
  } rows[] = {{{PLM_RESUME_AUTO, true}, automatic},
              {{PLM_RESUME_AUTO, false}, automatic},
              {{PLM_RESUME_PATH, true}, path},
              {{PLM_RESUME_NEVER, true}, never}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    failing_disk_try(prepare, &rows[i].attempt, rows[i].unnoticed);
  failing_disk_try(prepare_apart, NULL, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_of_the_disk_is_an_error)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
