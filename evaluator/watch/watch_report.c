/* Puts the result of an evaluation into lines and scalars. */
#include "evaluator/watch/watch_report.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/run.h"
#include "evaluator/labels/label_report.h"
#include "evaluator/watch/hparams.h"

static void add_lag(const char *trainer_path, uint64_t step, cJSON *line)
{
  cJSON *last = NULL; /* without a line the trainer is at step 0 */
  double lag = 0;
  if (plm_metrics_last(trainer_path, &last, NULL) == PLM_OK) {
    const cJSON *trained = cJSON_GetObjectItemCaseSensitive(last, "step");
    if (cJSON_IsNumber(trained)) lag = fmax(0, trained->valuedouble - (double)step);
    cJSON_Delete(last);
  }
  plm_metrics_number(line, "lag_steps", lag);
}

cJSON *plm_watch_line_begin(uint64_t step, const struct plm_hash *identity, const char *set,
                            const char *split)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], folder[64], hex[PLM_HASH_HEX_SIZE];
  plm_checkpoint_name(step, name);
  snprintf(folder, sizeof folder, PLM_RUN_CHECKPOINTS "/%s", name);
  plm_hash_to_hex(*identity, hex);
  cJSON *line = plm_metrics_line();
  plm_metrics_integer(line, "step", step);
  plm_metrics_string(line, "checkpoint", folder);
  plm_metrics_string(line, "identity", hex);
  plm_metrics_string(line, "set", set);
  plm_metrics_string(line, "split", split);
  return line;
}

void plm_watch_line_end(cJSON *line, uint64_t step, double seconds, const char *trainer_path)
{
  plm_metrics_number(line, "seconds", seconds);
  if (trainer_path != NULL) add_lag(trainer_path, step, line);
  plm_metrics_number(line, "time", plm_clock_wall_s());
}

cJSON *plm_watch_report_line(const struct plm_watch_report *report, const char *trainer_path)
{
  cJSON *line = plm_watch_line_begin(report->step, &report->identity, report->held_out->set,
                                     plm_split_name(report->held_out->split));
  if (report->skipped != NULL)
    plm_metrics_string(line, "task_skipped", report->skipped);
  else
    plm_evaluation_report(report->result, report->weights, report->baseline_entropy, line);
  plm_watch_line_end(line, report->step, report->skipped != NULL ? 0 : report->result->seconds,
                     trainer_path);
  return line;
}

static void add_scalar(struct plm_tensorboard *board, uint64_t step, const char *subject,
                       const char *name, double value)
{
  char tag[192];
  struct plm_error error = {0};
  snprintf(tag, sizeof tag, "%s/%s", subject, name);
  if (plm_tensorboard_scalar(board, (int64_t)step, tag, value, &error) != PLM_OK)
    plm_log_error(&error);
}

/* "valid" or, with the separator ' ', "refseq valid". */
static void subject_of(const struct plm_held_out *held_out, char separator, char text[64])
{
  const char *split = plm_split_name(held_out->split);
  if (strcmp(held_out->set, PLM_OWN_SET) == 0)
    snprintf(text, 64, "%s", split);
  else
    snprintf(text, 64, "%s%c%s", held_out->set, separator, split);
}

/* Where the scalars of a model that predicts labels go. */
struct label_scalars {
  struct plm_tensorboard *board;
  uint64_t step;
  char subject[64];
};

static void add_label_scalar(void *context, const char *name, double value)
{
  const struct label_scalars *to = context;
  add_scalar(to->board, to->step, to->subject, name, value);
}

void plm_watch_report_board(const struct plm_watch_report *report, struct plm_tensorboard *board)
{
  const struct plm_evaluation_result *result = report->result;
  char subject[64];
  if (board == NULL || report->skipped != NULL) return;
  if (result->labels != NULL) {
    struct label_scalars to = {.board = board, .step = report->step};
    subject_of(report->held_out, '/', to.subject);
    plm_label_report_each(result->labels, add_label_scalar, &to);
    (void)plm_tensorboard_flush(board, NULL); /* may fail: evaluator.jsonl is the record */
    return;
  }
  const struct {
    const char *name;
    double value;
  } scalars[] = {
      {"loss", result->loss},
      {"perplexity", result->perplexity},
      {"accuracy", result->classification.accuracy},
      {"f1", result->classification.f1},
      {"mcc", result->classification.mcc},
      {"baseline_entropy", report->baseline_entropy},
      {"elbo", result->elbo},
  };
  subject_of(report->held_out, '/', subject);
  for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
    if (isnan(scalars[i].value) && strcmp(scalars[i].name, "elbo") == 0) continue;
    add_scalar(board, report->step, subject, scalars[i].name, scalars[i].value);
  }
  for (uint32_t i = 0; i < result->entropy_count; i++) {
    char name[64];
    snprintf(name, sizeof name, "attention_entropy/%s", result->entropies[i].layer);
    add_scalar(board, report->step, subject, name, result->entropies[i].entropy);
  }
  (void)plm_tensorboard_flush(board, NULL); /* may fail: evaluator.jsonl is the record */
}

/* Whether a number of a task's line is a measure. */
static bool is_measure(const char *name)
{
  static const char *const others[] = {"v",          "step",    "alpha",     "predictions",
                                       "assays",     "trained", "tested",    "heads",
                                       "heads_used", "seconds", "lag_steps", "time"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(others[i], name) == 0) return false;
  return true;
}

void plm_watch_task_board(uint64_t step, const cJSON *line, struct plm_tensorboard *board)
{
  const cJSON *item;
  const char *set = plm_metrics_set(line);
  if (board == NULL) return;
  cJSON_ArrayForEach(item, line)
  {
    if (cJSON_IsNumber(item) && is_measure(item->string))
      add_scalar(board, step, set, item->string, item->valuedouble);
  }
  cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(line, "baseline"))
  {
    char name[64];
    snprintf(name, sizeof name, "baseline/%s", item->string);
    if (cJSON_IsNumber(item)) add_scalar(board, step, set, name, item->valuedouble);
  }
  (void)plm_tensorboard_flush(board, NULL); /* may fail: evaluator.jsonl is the record */
}

void plm_watch_task_log(uint64_t step, const cJSON *line)
{
  struct plm_text text = {0};
  const cJSON *item, *baseline = cJSON_GetObjectItemCaseSensitive(line, "baseline");
  cJSON_ArrayForEach(item, line)
  {
    if (!cJSON_IsNumber(item) || !is_measure(item->string)) continue;
    plm_text_printf(&text, "%s%s %.4f", text.length > 0 ? ", " : "", item->string,
                    item->valuedouble);
    const double other = plm_json_number(baseline, item->string, NAN);
    if (isfinite(other)) plm_text_printf(&text, " (composition %.4f)", other);
  }
  plm_info("step %" PRIu64 " %s: %s", step, plm_metrics_set(line),
           text.length > 0 ? text.data : "no measure exists");
  plm_text_deinit(&text);
}

void plm_watch_report_settings(const struct plm_config *config,
                               const struct plm_held_out_list *held_out, const char *directory)
{
  char subjects[PLM_MAX_HELD_OUT][64];
  const char *names[PLM_MAX_HELD_OUT];
  struct plm_error error = {0};
  for (uint32_t i = 0; i < held_out->count; i++) {
    subject_of(&held_out->items[i], '/', subjects[i]);
    names[i] = subjects[i];
  }
  const struct plm_hparams hparams = {
      .config = config, .subjects = names, .subject_count = held_out->count};
  if (plm_hparams_write(directory, &hparams, &error) != PLM_OK)
    plm_warning("TensorBoard has no table of the settings: %s", error.what);
}

void plm_watch_report_complete(const char *directory)
{
  struct plm_error error = {0};
  if (plm_hparams_end(directory, &error) != PLM_OK)
    plm_warning("TensorBoard shows the run as running: %s", error.what);
}

void plm_watch_report_log(const struct plm_watch_report *report)
{
  const struct plm_evaluation_result *result = report->result;
  char subject[64];
  subject_of(report->held_out, ' ', subject);
  if (report->skipped != NULL) {
    plm_warning("step %" PRIu64 " %s: %s", report->step, subject, report->skipped);
    return;
  }
  if (result->labels != NULL) {
    struct plm_text text = {0};
    plm_label_report_words(result->labels, &text);
    plm_info("step %" PRIu64 " %s: %s", report->step, subject, text.data);
    plm_text_deinit(&text);
    return;
  }
  plm_info("step %" PRIu64 " %s: loss %.4f (composition %.4f), perplexity %.2f, accuracy %.1f %%",
           report->step, subject, result->loss, report->baseline_entropy, result->perplexity,
           100 * result->classification.accuracy);
}
