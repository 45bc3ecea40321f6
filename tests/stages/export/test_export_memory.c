/* `export` while memory runs out, at each of its allocations, or the disk fails, at each of its
 * calls: nothing is left behind, unless it is complete and only may not be on the disk. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "stages/export/export.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/scratch.h"

static plm_status export_model(void *context, struct plm_error *error)
{
  const struct plm_export_request *request = context;
  struct plm_export_result result;
  const plm_status status = plm_export(request, &result, error);
  const long at = checked_memory_pause(), disk = failing_disk_pause();
  const bool exists = plm_file_exists(request->output);
  const bool unsynced = failing_disk_failed(scratch_directory()); /* once it was renamed */
  assert_true(exists == (status == PLM_OK) || (exists && unsynced));
  assert_int_equal(plm_path_remove(request->output, NULL), PLM_OK);
  failing_disk_resume(disk);
  checked_memory_resume(at);
  return status;
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {"open */.exported.export-*", NULL}; /* to lock it */
  char folder[200], output[200];
  struct inference_case c;
  struct plm_export_request request = {
      .input = folder, .output = output, .dtype = "bfloat16", .license = "mit"};
  snprintf(folder, sizeof folder, "%.199s", scratch_path("model"));
  snprintf(output, sizeof output, "%.199s", scratch_path("exported"));
  inference_case_open(&c, PLM_UNET, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 2);
  inference_case_save(&c, folder);
  inference_case_close(&c);
  plm_log_init("t", PLM_LOG_ERROR);
  failing_disk_try(export_model, &request, unnoticed);
  failing_memory_try(export_model, &request, 20);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(failures_of_memory_and_disk_are_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
