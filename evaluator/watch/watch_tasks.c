/* Probes, contacts and assays of checkpoints. */
#include "evaluator/watch/watch_tasks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/config/task_table.h"
#include "common/metrics/metrics.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "evaluator/contacts/contacts_command.h"
#include "evaluator/probe/probe.h"
#include "evaluator/probe/probe_report.h"
#include "evaluator/score/assay_list.h"
#include "evaluator/score/score_assays.h"
#include "evaluator/watch/watch_report.h"

/* Says which task an error is about. */
static plm_status name_task(const struct plm_config_task *task, plm_status status,
                            struct plm_error *error)
{
  if (status == PLM_OK || error->where[0] != '\0') return status;
  plm_error_where(error, "evaluator.tasks: %s", task->name);
  return status;
}

static struct plm_assay_choice choice_of(const struct plm_config_task *task)
{
  return (struct plm_assay_choice){.ids = (const char *const *)task->ids,
                                   .id_count = task->id_count,
                                   .max_variants = task->max_variants};
}

static plm_status open_task(struct plm_watch_tasks *tasks, uint32_t i, struct plm_error *error)
{
  const struct plm_config_task *task = &tasks->config->evaluator.tasks[i];
  if (task->kind == PLM_TASK_PROBE) {
    const struct plm_labelled_request request = plm_task_table(tasks->config, task);
    return plm_labelled_table_read(&request, &tasks->tables[i], error);
  }
  if (task->kind == PLM_TASK_CONTACTS) {
    PLM_TRY(plm_protein_folder_read(task->path, tasks->config->data.tokenizer, &tasks->folders[i],
                                    error));
    return plm_contacts_check(&tasks->folders[i], PLM_CONTACT_TRAINING, "", error);
  }
  struct plm_assay_list list = {0};
  const struct plm_assay_choice choice = choice_of(task);
  PLM_TRY(plm_assay_list_read(task->reference, task->path, &choice, &list, error));
  plm_assay_list_deinit(&list);
  return PLM_OK;
}

plm_status plm_watch_tasks_open(const struct plm_config *config, struct plm_watch_tasks *tasks,
                                struct plm_error *error)
{
  tasks->config = config;
  tasks->last = UINT64_MAX;
  for (uint32_t i = 0; i < config->evaluator.task_count; i++) {
    const struct plm_config_task *task = &config->evaluator.tasks[i];
    const plm_status status = name_task(task, open_task(tasks, i, error), error);
    /* as with the corpus of a set, it may be there later */
    if (status == PLM_NOT_FOUND) return error->status = PLM_UNAVAILABLE;
    if (status == PLM_CONFIG) return error->status = PLM_FORMAT; /* wrong files: no restart helps */
    PLM_TRY(status);
  }
  return PLM_OK;
}

void plm_watch_tasks_close(struct plm_watch_tasks *tasks)
{
  for (uint32_t i = 0; i < PLM_MAX_TASKS; i++) {
    plm_labelled_table_deinit(&tasks->tables[i]);
    plm_protein_folder_deinit(&tasks->folders[i]);
  }
}

/* The split that the lines of a task name. */
static const char *split_of(const struct plm_watch_tasks *tasks, uint32_t i)
{
  const struct plm_config_task *task = &tasks->config->evaluator.tasks[i];
  const struct plm_labelled_table *table = &tasks->tables[i];
  if (task->kind != PLM_TASK_PROBE || table->folds > 0) return plm_label_part_names[PLM_PART_TEST];
  return plm_label_part_names[plm_probe_tested(table)];
}

/* ---- probes ---- */

static void put_probe(cJSON *line, const struct plm_probe_results *results)
{
  const enum plm_label_kind kind = results->items.table->kind;
  const struct plm_probed *best = &results->layers[results->best];
  const int first = (int)plm_probe_first_measure(kind), end = (int)plm_probe_end_measure(kind);
  plm_metrics_string(line, "layer", best->layer);
  if (best->fit.fits == 1) plm_metrics_number(line, "alpha", best->fit.alphas[0]);
  plm_metrics_integer(line, "predictions", best->fit.count);
  for (int k = first; k < end; k++)
    plm_metrics_number(line, plm_measure_names[k], best->fit.measured[k].value);
  cJSON *low = cJSON_AddObjectToObject(line, "low"), *high = cJSON_AddObjectToObject(line, "high");
  cJSON *baseline = cJSON_AddObjectToObject(line, "baseline");
  for (int k = first; k < end; k++) {
    plm_metrics_number(low, plm_measure_names[k], best->fit.measured[k].low);
    plm_metrics_number(high, plm_measure_names[k], best->fit.measured[k].high);
    plm_metrics_number(baseline, plm_measure_names[k], results->baseline.measured[k].value);
  }
}

static plm_status run_probe(struct plm_watch_tasks *tasks, uint32_t i,
                            const struct plm_task_subject *subject, cJSON *line,
                            struct plm_error *error)
{
  struct plm_inference *inference;
  struct plm_probe_results results;
  const struct plm_probe_request request = {
      .table = plm_task_table(tasks->config, &tasks->config->evaluator.tasks[i]),
      .pooling = {.kinds = {PLM_POOL_MEAN}, .count = 1},
      .check = subject->check,
      .context = subject->context,
  };
  PLM_TRY(plm_inference_open_trunk(subject->directory, NULL, subject->ops,
                                   PLM_INFERENCE_BATCH_TOKENS, &inference, NULL, error));
  plm_metrics_string(line, "weights", inference->weights);
  const plm_status status = plm_probe_run(&request, &tasks->tables[i], inference, &results, error);
  if (status == PLM_OK) {
    put_probe(line, &results);
    plm_probe_results_deinit(&results);
  }
  plm_inference_close(inference);
  return status;
}

/* ---- contacts ---- */

static plm_status run_contacts(const struct plm_watch_tasks *tasks, uint32_t i,
                               const struct plm_task_subject *subject, cJSON *line,
                               struct plm_error *error)
{
  struct plm_inference *inference;
  struct plm_contacts_results results;
  const struct plm_contacts_request request = {
      .training = PLM_CONTACT_TRAINING, .check = subject->check, .context = subject->context};
  PLM_TRY(plm_inference_open_trunk(subject->directory, NULL, subject->ops, PLM_CONTACT_BATCH_TOKENS,
                                   &inference, NULL, error));
  plm_metrics_string(line, "weights", inference->weights);
  const plm_status status =
      plm_contacts_run(&request, &tasks->folders[i], inference, &results, error);
  if (status == PLM_OK) plm_contacts_add(line, &results);
  plm_inference_close(inference);
  return status;
}

/* ---- assays ---- */

static plm_status put_assays(void *context, const struct plm_assay_result *results, size_t count,
                             const char *weights, struct plm_error *error)
{
  static const char *const names[PLM_ASSAY_STATISTICS] = {"spearman", "auc", "mcc", "ndcg",
                                                          "top_recall"};
  cJSON *line = context;
  struct plm_assay_mean *means;
  size_t mean_count;
  double overall[PLM_ASSAY_STATISTICS];
  PLM_TRY(plm_assay_means(results, count, &means, &mean_count, overall, error));
  free(means);
  plm_metrics_string(line, "weights", weights);
  plm_metrics_integer(line, "assays", count);
  for (int k = 0; k < PLM_ASSAY_STATISTICS; k++) plm_metrics_number(line, names[k], overall[k]);
  cJSON *each = cJSON_AddObjectToObject(line, "spearman_by_assay");
  for (size_t i = 0; i < count; i++)
    plm_metrics_number(each, results[i].id, results[i].statistics[PLM_ASSAY_SPEARMAN]);
  return PLM_OK;
}

static plm_status run_assays(const struct plm_watch_tasks *tasks,
                             const struct plm_config_task *task,
                             const struct plm_task_subject *subject, cJSON *line,
                             struct plm_error *error)
{
  char folder[PLM_PATH_SIZE], scores[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(folder, tasks->config->run, PLM_RUN_TASKS, error));
  PLM_TRY(plm_path_join(scores, folder, task->name, error));
  PLM_TRY(plm_directory_make(folder, error));
  const struct plm_assays_request request = {
      .checkpoint = subject->directory,
      .reference = task->reference,
      .assays = task->path,
      .choice = choice_of(task),
      .scores = scores,
      .check = subject->check,
      .take = put_assays,
      .context = subject->context,
      .take_context = line,
  };
  plm_status status = plm_score_assays(&request, subject->ops, error);
  if (status == PLM_EXISTS) { /* an earlier evaluator was killed at another checkpoint */
    PLM_TRY(plm_path_remove(scores, error));
    status = plm_score_assays(&request, subject->ops, error);
  }
  return status == PLM_OK ? plm_path_remove(scores, error) : status;
}

/* ---- reports ---- */

/* Adds what the task measures to the line. */
static plm_status measure(struct plm_watch_tasks *tasks, uint32_t i,
                          const struct plm_task_subject *subject, cJSON *line,
                          struct plm_error *error)
{
  const struct plm_config_task *task = &tasks->config->evaluator.tasks[i];
  plm_status status = PLM_OK;
  switch ((enum plm_task_kind)task->kind) {
  case PLM_TASK_PROBE: status = run_probe(tasks, i, subject, line, error); break;
  case PLM_TASK_ASSAYS: status = run_assays(tasks, task, subject, line, error); break;
  case PLM_TASK_CONTACTS: status = run_contacts(tasks, i, subject, line, error); break;
  }
  return name_task(task, status, error);
}

/* A newer checkpoint that waits for the same task while training goes on; 0: none. */
static uint64_t find_newer(struct plm_watch_tasks *tasks, const struct plm_task_subject *subject,
                           uint32_t i)
{
  uint64_t newer = 0, *steps;
  size_t count;
  if (plm_watch_tasks_look(tasks)) return 0;
  if (plm_checkpoint_list(subject->checkpoints, &steps, &count, NULL) != PLM_OK) return 0;
  for (size_t k = 0; k < count; k++) {
    const unsigned due = plm_watch_tasks_due(tasks, steps[k]);
    if (steps[k] > subject->step && (due & 1u << (PLM_HISTORY_TASK + i)) != 0) newer = steps[k];
  }
  free(steps);
  return newer;
}

static void put_skip(const struct plm_config_task *task, uint64_t step, uint64_t newer, cJSON *line)
{
  char why[96];
  snprintf(why, sizeof why, "the checkpoint of step %" PRIu64 " is newer", newer);
  plm_info("%s is skipped for step %" PRIu64 ", because %s", task->name, step, why);
  plm_metrics_string(line, "task_skipped", why);
}

/* Numbers of a line are texts until it is read. */
static void show(uint64_t step, const cJSON *line, struct plm_tensorboard *board)
{
  char *text = plm_json_text(line, false);
  cJSON *read = plm_json_line(text);
  plm_watch_task_board(step, read, board);
  plm_watch_task_log(step, read);
  cJSON_Delete(read);
  free(text);
}

plm_status plm_watch_task_report(struct plm_watch_tasks *tasks, uint32_t i,
                                 const struct plm_task_subject *subject,
                                 struct plm_watch_journal *journal, struct plm_tensorboard *board,
                                 struct plm_error *error)
{
  const struct plm_config_task *task = &tasks->config->evaluator.tasks[i];
  const uint64_t started = plm_clock_ns(), newer = find_newer(tasks, subject, i);
  cJSON *line =
      plm_watch_line_begin(subject->step, &subject->identity, task->name, split_of(tasks, i));
  plm_status status = PLM_OK;
  bool measured = newer == 0;
  if (newer > 0)
    put_skip(task, subject->step, newer, line);
  else
    status = measure(tasks, i, subject, line, error);
  if (status == PLM_NOT_FINITE) { /* in this task; the checkpoint itself was evaluated */
    plm_warning("step %" PRIu64 " %s: %s", subject->step, task->name, error->what);
    plm_metrics_string(line, "task_skipped", error->what);
    measured = false;
    status = PLM_OK;
  }
  if (status != PLM_OK) {
    cJSON_Delete(line);
    if (status == PLM_TERMINATED) status = error->status = PLM_INTERRUPTED;
    return status;
  }
  plm_watch_line_end(line, subject->step, plm_clock_seconds_since(started), subject->trainer_path);
  if (measured) show(subject->step, line, board);
  PLM_TRY(plm_watch_write(journal, line, error));
  plm_history_add(&journal->history, subject->step, &subject->identity, PLM_HISTORY_TASK + i);
  return PLM_OK;
}

bool plm_watch_tasks_look(struct plm_watch_tasks *tasks)
{
  struct plm_done done;
  const bool ended = plm_done_read(tasks->config->run, &done, NULL) == PLM_OK;
  tasks->last = ended ? done.step : UINT64_MAX;
  return ended;
}

unsigned plm_watch_tasks_due(const struct plm_watch_tasks *tasks, uint64_t step)
{
  if (step != tasks->last) return plm_history_tasks_due(tasks->config, step);
  return ((1u << tasks->config->evaluator.task_count) - 1) << PLM_HISTORY_TASK;
}
