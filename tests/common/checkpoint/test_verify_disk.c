/* Checkpoints that cannot be listed or read, one call after another: the error is said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/unevaluated.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], step_folder[PLM_PATH_SIZE];

/* A checkpoint of step 3 whose two files have a few bytes. */
static int publish(void **state)
{
  static const char *const names[] = {"model.safetensors", "config.json"};
  struct plm_manifest *manifest = must(calloc(1, sizeof *manifest));
  char path[PLM_PATH_SIZE];
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  scratch_run(run);
  assert_int_equal(plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, NULL), PLM_OK);
  assert_int_equal(plm_path_join(step_folder, folder, "step_00000003", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(step_folder, NULL), PLM_OK);
  manifest->step = 3;
  manifest->count = 2;
  for (int i = 0; i < 2; i++) {
    struct plm_manifest_file *file = &manifest->files[i];
    snprintf(file->name, sizeof file->name, "%s", names[i]);
    file->size = 5;
    file->hash = plm_hash_bytes("12345", 5);
    assert_int_equal(plm_path_join(path, step_folder, names[i], NULL), PLM_OK);
    scratch_write(path, "12345", 5);
  }
  char *text = plm_manifest_print(manifest);
  assert_int_equal(plm_path_join(path, step_folder, "MANIFEST", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  free(text);
  free(manifest);
  assert_int_equal(plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  scratch_write(path, "{\"step\":2,\"split\":\"valid\"}\n", 27);
  return 0;
}

static plm_status verify(void *context, struct plm_error *error)
{
  uint64_t step;
  struct plm_hash identity;
  (void)context;
  PLM_TRY(plm_checkpoint_verify(step_folder, &step, &identity, NULL, error));
  assert_int_equal(step, 3);
  assert_true(plm_hash_equal(identity, plm_hash_bytes("12345", 5)));
  return PLM_OK;
}

static plm_status find_newest(void *context, struct plm_error *error)
{
  uint64_t step = 0;
  (void)context;
  PLM_TRY(plm_checkpoint_newest(folder, &step, NULL, error));
  assert_int_equal(step, 3);
  return PLM_OK;
}

static plm_status find_unevaluated(void *context, struct plm_error *error)
{
  const struct plm_config_evaluator evaluator = {.splits = {(char *)"valid"}, .split_count = 1};
  struct plm_unevaluated left;
  (void)context;
  PLM_TRY(plm_unevaluated_read(run, &evaluator, &left, error));
  assert_int_equal(left.count, 1);
  assert_int_equal(left.first, 3);
  return PLM_OK;
}

static void each_failure_is_said(void **state)
{
  /* one that cannot be read is skipped, with a warning that has the reason */
  static const char *const skipped[] = {"open *MANIFEST",      "read *MANIFEST",
                                        "read *MANIFEST",      "opendir *00000003",
                                        "+readdir *00000003",  "+stat *00000003*",
                                        "+lstat *00000003*",   "open *.safetensors",
                                        "pread *.safetensors", "pread *.safetensors",
                                        "open *config.json",   "pread *config.json",
                                        "pread *config.json",  NULL};
  /* one without its MANIFEST is compared only by its step */
  static const char *const unidentified[] = {"open *MANIFEST", "read *MANIFEST", "read *MANIFEST",
                                             NULL};
  (void)state;
  failing_disk_try(verify, NULL, NULL);
  failing_disk_try(find_newest, NULL, skipped);
  failing_disk_try(find_unevaluated, NULL, unidentified);
}

static void an_evaluator_of_an_unknown_split_is_refused(void **state)
{
  const struct plm_config_evaluator evaluator = {.splits = {(char *)"valud"}, .split_count = 1};
  struct plm_unevaluated left;
  struct plm_error error = {0};
  (void)state;
  assert_int_not_equal(plm_unevaluated_read(run, &evaluator, &left, &error), PLM_OK);
  assert_non_null(strstr(error.what, "valud"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_failure_is_said),
      cmocka_unit_test(an_evaluator_of_an_unknown_split_is_refused),
  };
  return cmocka_run_group_tests(tests, publish, NULL);
}
