/* The precision of contacts while memory runs out, at each allocation, or the disk fails, at each
 * call, from the folder of proteins to the numbers. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/inference/inference.h"
#include "common/ops/open.h"
#include "evaluator/contacts/contacts.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/harness/scratch.h"

enum { PROTEINS = 5, TRAINING = 2 };

static char model[PLM_PATH_SIZE], proteins[PLM_PATH_SIZE];
static struct plm_contacts_results expected;

/* Takes the place of libc's function in this program. */
DIR *opendir(const char *path)
{
  return failing_disk_fails("opendir", path)
             ? NULL
             : fdopendir(openat(AT_FDCWD, path, O_DIRECTORY | O_CLOEXEC));
}

static int checks = -1; /* that succeed before one does not; -1: all do */

static plm_status check(void *context, struct plm_error *error)
{
  (void)context;
  if (checks < 0 || checks-- > 0) return PLM_OK;
  return plm_error_set(error, PLM_INTERRUPTED, "no more");
}

static plm_status read_and_measure(struct plm_ops *ops, struct plm_contacts_results *results,
                                   struct plm_error *error)
{
  const struct plm_contacts_request request = {.training = TRAINING, .check = check};
  struct plm_protein_folder folder;
  struct plm_inference *inference;
  PLM_TRY(plm_inference_open_trunk(model, NULL, ops, PLM_CONTACT_BATCH_TOKENS, &inference, NULL,
                                   error));
  plm_status status = plm_protein_folder_read(proteins, inference->tokenizer->kind, &folder, error);
  if (status == PLM_OK) {
    assert_int_equal(folder.count, PROTEINS);
    status = plm_contacts_run(&request, &folder, inference, results, error);
    plm_protein_folder_deinit(&folder);
  }
  plm_inference_close(inference);
  return status;
}

/* Opens a device of its own, because one keeps its failure. The numbers are the same whatever the
 * work did without. */
static plm_status measure(void *context, struct plm_error *error)
{
  struct plm_ops *ops;
  struct plm_contacts_results results;
  long memory = checked_memory_pause(), disk = failing_disk_pause();
  (void)context;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  failing_disk_resume(disk);
  checked_memory_resume(memory);
  const plm_status status = read_and_measure(ops, &results, error);
  memory = checked_memory_pause(), disk = failing_disk_pause();
  ops->close(ops);
  if (status == PLM_OK && expected.tested == 0) expected = results;
  if (status == PLM_OK)
    assert_memory_equal(results.precision, expected.precision, sizeof results.precision);
  failing_disk_resume(disk);
  checked_memory_resume(memory);
  return status;
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  task_files_model("model", PLM_TRANSFORMER, 0, model);
  task_files_proteins("proteins", PROTEINS, proteins);
  assert_int_equal(measure(NULL, NULL), PLM_OK);
  assert_int_equal(expected.tested, PROTEINS - TRAINING);
  failing_disk_try(measure, NULL, NULL);
  failing_memory_try(measure, NULL, 60);
}

/* It is asked before each protein and each step of the fit whether it may go on. */
static void it_ends_when_it_may_not_go_on(void **state)
{
  (void)state;
  int asked = 0;
  for (plm_status status = PLM_INTERRUPTED; status != PLM_OK; asked++) {
    struct plm_error error = {0};
    checks = asked;
    status = measure(NULL, &error);
    assert_int_equal(status == PLM_OK, checks >= 0); /* none has failed */
    if (status == PLM_OK) break;
    assert_int_equal(status, PLM_INTERRUPTED);
    assert_string_equal(error.what, "no more");
  }
  checks = -1;
  assert_true(asked > PROTEINS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(failures_of_memory_and_disk_are_said),
                                     cmocka_unit_test(it_ends_when_it_may_not_go_on)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
