/* The tasks of the watching evaluator on a disk that fails: whichever call it is, from the files of
 * a task to its line, the error is passed on, and there is no line. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/ops/open.h"
#include "common/run/run.h"
#include "evaluator/contacts/contacts.h"
#include "evaluator/watch/watch_tasks.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static char model[PLM_PATH_SIZE];
static const struct plm_hash identity = {.low = 0x1234, .high = 0xabcd};

static plm_status open_and_report(const struct plm_config *config, struct plm_ops *ops,
                                  struct plm_watch_journal *journal, struct plm_error *error)
{
  struct plm_watch_tasks tasks = {0};
  const struct plm_task_subject subject = {.step = 2,
                                           .identity = identity,
                                           .directory = model,
                                           .checkpoints = scratch_path("checkpoints"),
                                           .trainer_path = scratch_path("trainer.jsonl"),
                                           .ops = ops};
  plm_status status = plm_watch_tasks_open(config, &tasks, error);
  if (status == PLM_OK) status = plm_watch_task_report(&tasks, 0, &subject, journal, NULL, error);
  plm_watch_tasks_close(&tasks);
  return status;
}

/* Opens a device and a journal of its own. */
static plm_status report(void *context, struct plm_error *error)
{
  const struct plm_config *config = context;
  char path[PLM_PATH_SIZE];
  struct plm_watch_journal journal = {0};
  struct plm_ops *ops;
  long at = failing_disk_pause();
  assert_int_equal(plm_path_remove(config->run, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(config->run, NULL), PLM_OK);
  assert_int_equal(plm_lock_acquire(config->run, "evaluator", &journal.lock, NULL), PLM_OK);
  assert_int_equal(plm_watch_journal_open(&journal, config, NULL), PLM_OK);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  captured_begin(STDERR_FILENO);
  failing_disk_resume(at);
  const plm_status status = open_and_report(config, ops, &journal, error);
  at = failing_disk_pause();
  captured_end();
  assert_int_equal(plm_history_splits(&journal.history, 2, &identity) != 0, status == PLM_OK);
  plm_watch_journal_close(&journal);
  plm_lock_release(journal.lock);
  ops->close(ops);
  assert_int_equal(plm_path_join(path, config->run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  if (status == PLM_OK) assert_string_not_equal(scratch_contents(path), "");
  failing_disk_resume(at);
  return status;
}

static void try_task(const char *task, const char *const *unnoticed)
{
  char run[PLM_PATH_SIZE], yaml[6 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_error error = {0};
  scratch_run(run);
  snprintf(yaml, sizeof yaml,
           "run: %s\ntrainer: {steps: 10, schedule: {warmup_steps: 1, cooldown_steps: 1}, "
           "checkpoint: {every: 2}}\nevaluator:\n  tasks:\n    - {name: a, %s}\n",
           run, task);
  if (plm_config_load_text(yaml, strlen(yaml), &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  failing_disk_try(report, &config, unnoticed);
  plm_config_deinit(&config);
}

static const char *const is_done[] = {"open */DONE", NULL}; /* it is looked at for a skip */

static void a_probe(void **state)
{
  (void)state;
  char table[PLM_PATH_SIZE], task[2 * PLM_PATH_SIZE];
  task_files_table("table.csv", 30, table);
  snprintf(task, sizeof task, "kind: probe, path: %s, target: y, split: part", table);
  try_task(task, is_done);
}

static void contacts(void **state)
{
  (void)state;
  char proteins[PLM_PATH_SIZE], task[2 * PLM_PATH_SIZE];
  task_files_proteins("proteins", PLM_CONTACT_TRAINING + 1, proteins);
  snprintf(task, sizeof task, "kind: contacts, path: %s", proteins);
  try_task(task, is_done);
}

static void assays(void **state)
{
  (void)state;
  static const char list[] =
      "DMS_id,DMS_filename,UniProt_ID,target_seq,coarse_selection_type,DMS_binarization_cutoff\n"
      "ONE,one.csv,P1,MKTAYIAKQRQISFVKSHFS,Activity,1\n";
  static const char one[] = "mutant,DMS_score\nM1A,1\nK2E:T3S,0.5\nY5W,2\n";
  char task[3 * PLM_PATH_SIZE];
  scratch_write(scratch_path("list.csv"), list, sizeof list - 1);
  scratch_write(scratch_path("one.csv"), one, sizeof one - 1);
  snprintf(task, sizeof task, "kind: assays, path: %s, reference: %s", scratch_directory(),
           scratch_path("list.csv"));
  try_task(task, is_done);
}

static int setup(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  task_files_model("model", PLM_TRANSFORMER, 0, model);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_probe),
      cmocka_unit_test(contacts),
      cmocka_unit_test(assays),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
