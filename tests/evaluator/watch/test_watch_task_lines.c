/* The lines of evaluator.tasks: each has the numbers that its parts measure, and a task is skipped
 * while a newer checkpoint waits for it. Which tasks are due, and what is refused at the start. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/config/task_table.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "evaluator/contacts/contacts_command.h"
#include "evaluator/probe/probe.h"
#include "evaluator/score/score_assays.h"
#include "evaluator/watch/watch_tasks.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { ROWS = 30, PROTEINS = 22, STABILITY = 0, GYM, FOLDS, TASKS };
enum { BIT = PLM_HISTORY_TASK };

static char model[PLM_PATH_SIZE], broken[PLM_PATH_SIZE], table[PLM_PATH_SIZE],
    proteins[PLM_PATH_SIZE];
static const struct plm_hash identity = {.low = 0x1234, .high = 0xabcd};

struct scene {
  char run[PLM_PATH_SIZE], checkpoints[PLM_PATH_SIZE], trainer[PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_watch_journal journal;
  struct plm_watch_tasks tasks;
  struct plm_ops *ops;
};

/* A run of 10 steps whose checkpoints are 2 apart. */
static void configure(struct scene *scene, const char *tasks)
{
  char text[6 * PLM_PATH_SIZE];
  struct plm_error error = {0};
  *scene = (struct scene){0};
  scratch_run(scene->run);
  assert_int_equal(plm_path_join(scene->checkpoints, scene->run, "checkpoints", NULL), PLM_OK);
  assert_int_equal(plm_path_join(scene->trainer, scene->run, "trainer.jsonl", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(scene->checkpoints, NULL), PLM_OK);
  snprintf(text, sizeof text,
           "run: %s\ntrainer: {steps: 10, schedule: {warmup_steps: 1, cooldown_steps: 1}, "
           "checkpoint: {every: 2}}\nevaluator:\n  tasks:\n%s",
           scene->run, tasks);
  if (plm_config_load_text(text, strlen(text), &scene->config, &error) != PLM_OK)
    fail_msg("%s: %s", error.where, error.what);
}

static const char *all_tasks(void)
{
  static char text[5 * PLM_PATH_SIZE];
  snprintf(text, sizeof text,
           "    - {name: stability, kind: probe, path: %s, target: y, split: part}\n"
           "    - {name: gym, kind: assays, path: %s, reference: %s, every: 2}\n"
           "    - {name: folds, kind: contacts, path: %s}\n",
           table, scratch_directory(), scratch_path("list.csv"), proteins);
  return text;
}

static void open_scene(struct scene *scene)
{
  configure(scene, all_tasks());
  assert_int_equal(plm_lock_acquire(scene->run, "evaluator", &scene->journal.lock, NULL), PLM_OK);
  assert_int_equal(plm_watch_journal_open(&scene->journal, &scene->config, NULL), PLM_OK);
  struct plm_error error = {0};
  if (plm_watch_tasks_open(&scene->config, &scene->tasks, &error) != PLM_OK)
    fail_msg("%s", error.what);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &scene->ops, NULL), PLM_OK);
}

static void close_scene(struct scene *scene)
{
  plm_watch_tasks_close(&scene->tasks);
  plm_watch_journal_close(&scene->journal);
  plm_lock_release(scene->journal.lock);
  scene->ops->close(scene->ops);
  plm_config_deinit(&scene->config);
}

static struct plm_task_subject subject_of(const struct scene *scene, uint64_t step)
{
  return (struct plm_task_subject){.step = step,
                                   .identity = identity,
                                   .directory = model,
                                   .checkpoints = scene->checkpoints,
                                   .ops = scene->ops};
}

static char said[4096]; /* by the last report */

/* Whether the event file of the run's board has the tag. */
static bool has_scalar(const struct scene *scene, const char *tag)
{
  char folder[PLM_PATH_SIZE], *bytes;
  size_t size;
  assert_int_equal(plm_path_join(folder, scene->run, "board", NULL), PLM_OK);
  assert_int_equal(plm_file_read(scratch_only_file(folder), 1 << 20, &bytes, &size, NULL), PLM_OK);
  const bool found = memmem(bytes, size, tag, strlen(tag)) != NULL;
  free(bytes);
  return found;
}

/* Reports a task of a step, and returns its line without the version and the times. The caller
 * frees it. */
static cJSON *report(struct scene *scene, uint32_t i, const struct plm_task_subject *subject)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  struct plm_error error = {0};
  const uint64_t lines = scene->journal.lines;
  struct plm_tensorboard *board;
  assert_int_equal(plm_path_join(path, scene->run, "board", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  assert_int_equal(plm_tensorboard_open(path, -1, &board, NULL), PLM_OK);
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_watch_task_report(&scene->tasks, i, subject, &scene->journal, board, &error);
  snprintf(said, sizeof said, "%s", captured_end());
  plm_tensorboard_close(board);
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(scene->journal.lines, lines + 1);
  assert_int_equal(
      plm_history_splits(&scene->journal.history, subject->step, &identity) >> BIT & 7u, 1u << i);
  assert_int_equal(plm_path_join(path, scene->run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  text[size - 1] = '\0';
  const char *last = strrchr(text, '\n');
  cJSON *line = cJSON_Parse(last != NULL ? last + 1 : text);
  free(text);
  assert_non_null(line);
  static const char *const times[] = {"v", "seconds", "time"};
  for (int k = 0; k < 3; k++) {
    assert_true(cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(line, times[k])));
    cJSON_DeleteItemFromObjectCaseSensitive(line, times[k]);
  }
  return line;
}

static void expect_text(const cJSON *line, const char *name, const char *expected)
{
  const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, name));
  if (text == NULL) fail_msg("there is no %s", name);
  assert_string_equal(text, expected);
}

/* Numbers are written with nine digits. */
static void expect_number(const cJSON *line, const char *name, double expected)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
  if (expected != expected) {
    assert_true(cJSON_IsNull(item));
    return;
  }
  if (!cJSON_IsNumber(item)) fail_msg("there is no %s", name);
  const double off = item->valuedouble - expected;
  if (off > 1e-6 || off < -1e-6) fail_msg("%s: %g, not %g", name, item->valuedouble, expected);
}

static void expect_head(const cJSON *line, const char *set, const char *split)
{
  expect_number(line, "step", 4);
  expect_text(line, "checkpoint", "checkpoints/step_00000004");
  expect_text(line, "identity", "000000000000abcd0000000000001234");
  expect_text(line, "set", set);
  expect_text(line, "split", split);
  expect_text(line, "weights", "model");
  assert_false(cJSON_HasObjectItem(line, "task_skipped"));
  assert_false(cJSON_HasObjectItem(line, "lag_steps"));
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void a_probe(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene);
  const struct plm_task_subject subject = subject_of(&scene, 4);
  cJSON *line = report(&scene, STABILITY, &subject);
  struct plm_inference *inference;
  struct plm_probe_results results;
  const struct plm_probe_request request = {.pooling = {.kinds = {PLM_POOL_MEAN}, .count = 1}};
  assert_int_equal(plm_inference_open_trunk(model, NULL, scene.ops, PLM_INFERENCE_BATCH_TOKENS,
                                            &inference, NULL, NULL),
                   PLM_OK);
  assert_int_equal(
      plm_probe_run(&request, &scene.tasks.tables[STABILITY], inference, &results, NULL), PLM_OK);
  expect_head(line, "stability", "test");
  assert_true(has_scalar(&scene, "stability/spearman"));
  assert_non_null(strstr(said, "step 4 stability: spearman "));
  const struct plm_probe_fit *fit = &results.layers[results.best].fit;
  expect_text(line, "layer", "last");
  expect_number(line, "alpha", fit->alphas[0]);
  expect_number(line, "predictions", ROWS / 3);
  const cJSON *low = cJSON_GetObjectItemCaseSensitive(line, "low"),
              *high = cJSON_GetObjectItemCaseSensitive(line, "high"),
              *baseline = cJSON_GetObjectItemCaseSensitive(line, "baseline");
  for (int k = 0; k < PLM_MEASURES; k++) {
    const char *name = plm_measure_names[k];
    const bool of_numbers = k < PLM_MEASURES_OF_NUMBERS;
    const cJSON *const objects[] = {line, low, high, baseline};
    for (int o = 0; o < 4; o++) assert_int_equal(cJSON_HasObjectItem(objects[o], name), of_numbers);
    if (!of_numbers) continue;
    expect_number(line, name, fit->measured[k].value);
    expect_number(low, name, fit->measured[k].low);
    expect_number(high, name, fit->measured[k].high);
    expect_number(baseline, name, results.baseline.measured[k].value);
  }
  plm_probe_results_deinit(&results);
  plm_inference_close(inference);
  cJSON_Delete(line);
  close_scene(&scene);
}

static void contacts(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene);
  const struct plm_task_subject subject = subject_of(&scene, 4);
  cJSON *line = report(&scene, FOLDS, &subject);
  struct plm_inference *inference;
  struct plm_contacts_results results;
  const struct plm_contacts_request request = {.training = PLM_CONTACT_TRAINING};
  assert_int_equal(plm_inference_open_trunk(model, NULL, scene.ops, PLM_CONTACT_BATCH_TOKENS,
                                            &inference, NULL, NULL),
                   PLM_OK);
  assert_int_equal(
      plm_contacts_run(&request, &scene.tasks.folders[FOLDS], inference, &results, NULL), PLM_OK);
  expect_head(line, "folds", "test");
  expect_number(line, "trained", PLM_CONTACT_TRAINING);
  expect_number(line, "tested", PROTEINS - PLM_CONTACT_TRAINING);
  expect_number(line, "precision_l", results.precision[PLM_CONTACTS_L]);
  expect_number(line, "chance", results.chance);
  plm_inference_close(inference);
  cJSON_Delete(line);
  close_scene(&scene);
}

static struct plm_assay_result kept[2];

static plm_status keep(void *context, const struct plm_assay_result *results, size_t count,
                       const char *weights, struct plm_error *error)
{
  assert_ptr_equal(context, kept);
  (void)weights;
  (void)error;
  assert_int_equal(count, 2);
  memcpy(kept, results, sizeof kept);
  return PLM_OK;
}

static void assays(void **state)
{
  (void)state;
  struct scene scene;
  char scores[PLM_PATH_SIZE], other[PLM_PATH_SIZE];
  open_scene(&scene);
  const struct plm_task_subject subject = subject_of(&scene, 4);
  assert_int_equal(plm_path_join(scores, scene.run, "tasks/gym", NULL), PLM_OK);
  snprintf(other, sizeof other, "%s", scratch_path("scores"));
  const struct plm_assays_request request = {.checkpoint = model,
                                             .reference =
                                                 scene.config.evaluator.tasks[GYM].reference,
                                             .assays = scratch_directory(),
                                             .scores = other,
                                             .take = keep,
                                             .take_context = kept};
  captured_begin(STDERR_FILENO);
  assert_int_equal(plm_score_assays(&request, scene.ops, NULL), PLM_OK);
  captured_end();
  for (int again = 0; again < 2; again++) {
    cJSON *line = report(&scene, GYM, &subject);
    expect_head(line, "gym", "test");
    expect_number(line, "assays", 2);
    const cJSON *each = cJSON_GetObjectItemCaseSensitive(line, "spearman_by_assay");
    expect_number(each, "ONE", kept[0].statistics[PLM_ASSAY_SPEARMAN]);
    expect_number(each, "TWO", kept[1].statistics[PLM_ASSAY_SPEARMAN]);
    /* two proteins, and two types of selection */
    static const char *const names[] = {"spearman", "auc", "mcc", "ndcg", "top_recall"};
    for (int k = 0; k < PLM_ASSAY_STATISTICS; k++)
      expect_number(line, names[k], (kept[0].statistics[k] + kept[1].statistics[k]) / 2);
    cJSON_Delete(line);
    assert_false(plm_file_exists(scores));
    /* what another checkpoint has left there is begun anew */
    const struct plm_assays_request of_other = {.checkpoint = broken,
                                                .reference = request.reference,
                                                .assays = request.assays,
                                                .scores = scores,
                                                .take = keep,
                                                .take_context = kept};
    captured_begin(STDERR_FILENO);
    if (!again) (void)plm_score_assays(&of_other, scene.ops, NULL);
    captured_end();
  }
  close_scene(&scene);
}

/* ---- tasks that are not run ------------------------------------------------------------------ */

static void put_checkpoint(const struct scene *scene, const char *name)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, scene->checkpoints, name, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
}

static void a_newer_checkpoint_comes_first(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene);
  const struct plm_task_subject subject = subject_of(&scene, 4);
  put_checkpoint(&scene, "step_00000002");
  put_checkpoint(&scene, "step_00000004");
  put_checkpoint(&scene, "step_00000006");
  cJSON *line = report(&scene, STABILITY, &subject);
  expect_text(line, "task_skipped", "the checkpoint of step 6 is newer");
  expect_text(line, "set", "stability");
  assert_false(has_scalar(&scene, "stability/") || strstr(said, "spearman") != NULL);
  assert_non_null(strstr(said, "stability is skipped for step 4, because the checkpoint of step 6 "
                               "is newer\n"));
  assert_false(cJSON_HasObjectItem(line, "weights") || cJSON_HasObjectItem(line, "spearman"));
  cJSON_Delete(line);
  close_scene(&scene);
  open_scene(&scene);
  put_checkpoint(&scene, "step_00000004");
  put_checkpoint(&scene, "step_00000006"); /* for which the assays are not due */
  const struct plm_task_subject same = subject_of(&scene, 4);
  line = report(&scene, GYM, &same);
  expect_head(line, "gym", "test");
  cJSON_Delete(line);
  close_scene(&scene);
}

/* After the end of the run there is time for all of them. */
static void after_the_run_none_is_skipped(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene);
  const struct plm_task_subject subject = subject_of(&scene, 4);
  put_checkpoint(&scene, "step_00000006");
  assert_int_equal(
      plm_done_write(scene.run, &(struct plm_done){.step = 6, .identity = {1, 2}}, NULL), PLM_OK);
  cJSON *line = report(&scene, STABILITY, &subject);
  expect_head(line, "stability", "test");
  cJSON_Delete(line);
  close_scene(&scene);
}

static void what_is_not_finite_is_skipped(void **state)
{
  (void)state;
  static const uint32_t tasks[] = {STABILITY, GYM, FOLDS};
  for (int i = 0; i < 3; i++) {
    struct scene scene;
    open_scene(&scene);
    struct plm_task_subject subject = subject_of(&scene, 4);
    subject.directory = broken;
    cJSON *line = report(&scene, tasks[i], &subject);
    const cJSON *why = cJSON_GetObjectItemCaseSensitive(line, "task_skipped");
    if (!cJSON_IsString(why) || strncmp(why->valuestring, "the model", 9) != 0)
      fail_msg("%u: %s", tasks[i], cJSON_PrintUnformatted(line));
    cJSON_Delete(line);
    close_scene(&scene);
  }
}

static plm_status stop(void *context, struct plm_error *error)
{
  return plm_error_set(error, *(const plm_status *)context, "stopped");
}

/* A stop ends a task without a line, by whichever signal. */
static void a_stopped_task_has_no_line(void **state)
{
  (void)state;
  static plm_status ends[] = {PLM_TERMINATED, PLM_INTERRUPTED};
  for (uint32_t i = 0; i < TASKS; i++)
    for (int k = 0; k < 2; k++) {
      struct scene scene;
      struct plm_error error = {0};
      open_scene(&scene);
      struct plm_task_subject subject = subject_of(&scene, 4);
      subject.check = stop;
      subject.context = &ends[k];
      captured_begin(STDERR_FILENO);
      const plm_status status =
          plm_watch_task_report(&scene.tasks, i, &subject, &scene.journal, NULL, &error);
      captured_end();
      assert_int_equal(status, PLM_INTERRUPTED);
      assert_int_equal(error.status, PLM_INTERRUPTED);
      assert_int_equal(scene.journal.lines, 0);
      assert_null(plm_history_find(&scene.journal.history, 4));
      close_scene(&scene);
    }
}

/* ---- which are due, and what is refused ------------------------------------------------------ */

static void tasks_are_due(void **state)
{
  (void)state;
  const unsigned all = 7u << BIT, some = (1u << STABILITY | 1u << FOLDS) << BIT;
  struct scene scene;
  open_scene(&scene);
  assert_false(plm_watch_tasks_look(&scene.tasks));
  assert_true(scene.tasks.last == UINT64_MAX);
  assert_int_equal(plm_watch_tasks_due(&scene.tasks, 2), some);
  assert_int_equal(plm_watch_tasks_due(&scene.tasks, 3), 0);
  assert_int_equal(plm_watch_tasks_due(&scene.tasks, 4), all);
  assert_int_equal(plm_watch_tasks_due(&scene.tasks, 10), all);
  const struct plm_done done = {.step = 3, .identity = {1, 2}, .metric = "loss", .patience = 2};
  assert_int_equal(plm_done_write(scene.run, &done, NULL), PLM_OK);
  assert_true(plm_watch_tasks_look(&scene.tasks));
  assert_true(scene.tasks.last == 3);
  assert_int_equal(plm_watch_tasks_due(&scene.tasks, 3), all); /* its last checkpoint */
  assert_int_equal(plm_watch_tasks_due(&scene.tasks, 2), some);
  close_scene(&scene);
}

static void refused(const char *format, const char *path, plm_status expected, const char *where)
{
  struct scene scene;
  struct plm_error error = {0};
  char tasks[2 * PLM_PATH_SIZE];
  snprintf(tasks, sizeof tasks, format, path);
  configure(&scene, tasks);
  assert_int_equal(plm_watch_tasks_open(&scene.config, &scene.tasks, &error), expected);
  assert_int_equal(error.status, expected);
  if (strstr(error.where, where) == NULL) fail_msg("%s: %s", error.where, error.what);
  plm_watch_tasks_close(&scene.tasks);
  plm_config_deinit(&scene.config);
}

/* What is missing may come later; what is wrong stays so. */
static void files_are_looked_for_at_the_start(void **state)
{
  (void)state;
  static const char probe[] = "    - {name: a, kind: probe, path: %s, target: y}\n";
  static const char contact[] = "    - {name: a, kind: contacts, path: %s}\n";
  char few[PLM_PATH_SIZE];
  task_files_proteins("few", PLM_CONTACT_TRAINING, few);
  refused(probe, scratch_path("none.csv"), PLM_UNAVAILABLE, "");
  refused(contact, scratch_path("none"), PLM_UNAVAILABLE, "evaluator.tasks: a");
  refused(contact, few, PLM_FORMAT, "evaluator.tasks: a");
  refused(probe, few, PLM_FORMAT, "evaluator.tasks: a");
  refused("    - {name: a, kind: probe, path: %s, target: z}\n", table, PLM_FORMAT, "");
  refused("    - {name: a, kind: assays, path: /, reference: %s}\n", scratch_path("none.csv"),
          PLM_UNAVAILABLE, "");
}

static int setup(void **state)
{
  (void)state;
  static const char list[] =
      "DMS_id,DMS_filename,UniProt_ID,target_seq,coarse_selection_type,DMS_binarization_cutoff\n"
      "ONE,one.csv,P1,MKTAYIAKQRQISFVKSHFS,Activity,\nTWO,two.csv,P2,MKTAYIAKQRQISFVKSHFS,Binding,"
      "2\n";
  static const char one[] = "mutant,DMS_score,DMS_score_bin\nM1A,1,1\nK2E:T3S,0.5,0\nY5W,2,1\n"
                            "I6L,0.1,0\n";
  static const char two[] = "mutant,DMS_score\nA4G,1\nK8E,3\nY5F,2.5\nI6V,0.1\n";
  plm_log_init("t", PLM_LOG_INFO);
  task_files_model("model", PLM_TRANSFORMER, 0, model);
  task_files_model("broken", PLM_TRANSFORMER, 'K', broken);
  task_files_table("table.csv", ROWS, table);
  task_files_proteins("proteins", PROTEINS, proteins);
  scratch_write(scratch_path("list.csv"), list, sizeof list - 1);
  scratch_write(scratch_path("one.csv"), one, sizeof one - 1);
  scratch_write(scratch_path("two.csv"), two, sizeof two - 1);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_probe),
      cmocka_unit_test(contacts),
      cmocka_unit_test(assays),
      cmocka_unit_test(a_newer_checkpoint_comes_first),
      cmocka_unit_test(after_the_run_none_is_skipped),
      cmocka_unit_test(what_is_not_finite_is_skipped),
      cmocka_unit_test(a_stopped_task_has_no_line),
      cmocka_unit_test(tasks_are_due),
      cmocka_unit_test(files_are_looked_for_at_the_start),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
