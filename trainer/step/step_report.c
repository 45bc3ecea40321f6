/* Writes the reports of steps. */
#include "trainer/step/step_report.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/run/run.h"

enum { WAITING_LIMIT = 10000 /* lines */, STDERR_EVERY_MS = 5000, BOARD_EVERY_MS = 10000 };

struct plm_step_report {
  struct plm_metrics_file *file;
  struct plm_tensorboard *board; /* NULL: off */
  cJSON *waiting;                /* array of lines that could not be written yet */
  uint64_t last_step;
  double pace_s;               /* smoothed duration of a step */
  int64_t resumed_step;        /* to be told with the next line; -1: not, or told */
  int64_t stderr_ms, board_ms; /* when each was last written */
  bool warned;
};

static plm_status step_report_cut(struct plm_metrics_file *file, uint64_t keep_bytes,
                                  struct plm_error *error)
{
  const uint64_t size = plm_metrics_size(file);
  if (size >= keep_bytes) return plm_metrics_cut(file, keep_bytes, error);
  plm_warning("%s has %llu bytes, but %llu when its checkpoint was written: lines are missing",
              PLM_RUN_TRAINER_METRICS, (unsigned long long)size, (unsigned long long)keep_bytes);
  return PLM_OK;
}

plm_status plm_step_report_open(const char *run, bool tensorboard, uint64_t keep_bytes,
                                int64_t resumed_step, uint64_t last_step,
                                struct plm_step_report **out, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_step_report *report = calloc(1, sizeof *report);
  if (report == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the reports");
  report->last_step = last_step;
  report->resumed_step = resumed_step;
  report->waiting = cJSON_CreateArray();
  plm_status status;
  PLM_TRY_GOTO(status, plm_path_join(path, run, PLM_RUN_TRAINER_METRICS, error), failed);
  PLM_TRY_GOTO(status, plm_metrics_open(path, &report->file, error), failed);
  PLM_TRY_GOTO(status, step_report_cut(report->file, keep_bytes, error), failed);
  PLM_TRY_GOTO(status, plm_path_join(path, run, PLM_RUN_TENSORBOARD "/trainer", error), failed);
  struct plm_error board_error = {0};
  if (tensorboard &&
      (plm_directory_make(path, &board_error) != PLM_OK ||
       plm_tensorboard_open(path, resumed_step, &report->board, &board_error) != PLM_OK))
    plm_warning("no TensorBoard files: %s", board_error.what);
  *out = report;
  return PLM_OK;
failed:
  plm_step_report_close(report);
  return status;
}

static plm_status write_lines(struct plm_step_report *report, struct plm_error *error)
{
  for (cJSON *line; (line = cJSON_GetArrayItem(report->waiting, 0)) != NULL;) {
    PLM_TRY(plm_metrics_write(report->file, cJSON_Duplicate(line, 1), error));
    cJSON_DeleteItemFromArray(report->waiting, 0);
  }
  return PLM_OK;
}

void plm_step_report_close(struct plm_step_report *report)
{
  if (report == NULL) return;
  if (report->file != NULL) (void)write_lines(report, NULL);
  plm_tensorboard_close(report->board);
  plm_metrics_close(report->file);
  cJSON_Delete(report->waiting);
  free(report);
}

struct plm_metrics_file *plm_step_report_file(struct plm_step_report *report)
{
  return report->file;
}

static double memory_bytes(void) /* resident */
{
  long pages;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file == NULL) return NAN;
  if (fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  fclose(file);
  return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* An object with the norm of each layer. */
static void add_norms(cJSON *json, const struct plm_layer_norms *norms)
{
  static const char *const names[PLM_MEASURED_NORMS] = {[PLM_MEASURED_GRADIENT] = "gradient_norms",
                                                        [PLM_MEASURED_WEIGHT] = "weight_norms",
                                                        [PLM_MEASURED_UPDATE] = "update_norms"};
  for (int kind = 0; kind < PLM_MEASURED_NORMS; kind++) {
    cJSON *object = cJSON_AddObjectToObject(json, names[kind]);
    for (size_t l = 0; l < plm_layer_norms_count(norms); l++)
      plm_metrics_number(object, plm_layer_norms_name(norms, l),
                         plm_layer_norms_value(norms, kind, l));
  }
}

static void add_sources(cJSON *json, const struct plm_source_totals *sources)
{
  if (sources == NULL || sources->count == 0) return;
  cJSON *tokens = cJSON_AddObjectToObject(json, "tokens_by_source"),
        *losses = cJSON_AddObjectToObject(json, "loss_by_source");
  for (uint32_t k = 0; k < sources->count; k++) {
    plm_metrics_integer(tokens, sources->names[k], sources->tokens[k]);
    plm_metrics_number(losses, sources->names[k], sources->losses[k]);
  }
}

static cJSON *step_report_build(const struct plm_step_line *line, int64_t resumed_step)
{
  const struct plm_step_result *result = line->result;
  const double real = (double)result->totals.real_tokens,
               padded = (double)result->totals.padded_tokens;
  cJSON *json = plm_metrics_line();
  plm_metrics_integer(json, "step", line->step);
  plm_metrics_number(json, "loss", result->loss);
  plm_metrics_number(json, "accuracy", result->accuracy);
  plm_metrics_number(json, "lr_hidden", line->rates.of[PLM_GROUP_HIDDEN]);
  plm_metrics_number(json, "lr_embed", line->rates.of[PLM_GROUP_EMBED]);
  plm_metrics_number(json, "lr_head", line->rates.of[PLM_GROUP_HEAD]);
  plm_metrics_number(json, "lr_scalar", line->rates.of[PLM_GROUP_SCALAR]);
  plm_metrics_number(json, "grad_norm", result->grad_norm);
  plm_metrics_number(json, "clip_norm", result->clip_norm);
  plm_metrics_number(json, "mask_rate", line->mask_rate);
  plm_metrics_integer(json, "window", result->window);
  plm_metrics_integer(json, "tokens", line->tokens);
  add_sources(json, line->by_source);
  plm_metrics_number(json, "epoch", line->epoch);
  plm_metrics_number(json, "padding_fraction", 1 - real / padded);
  plm_metrics_integer(json, "skipped_updates", line->skipped_updates);
  if (result->norms != NULL) add_norms(json, result->norms);
  if (line->warning != NULL) plm_metrics_string(json, "warning", line->warning);
  if (resumed_step >= 0) plm_metrics_integer(json, "resumed", (uint64_t)resumed_step);
  if (!line->exact) cJSON_AddBoolToObject(json, "exact", false);
  plm_metrics_number(json, "tokens_per_second", real / line->step_s);
  plm_metrics_number(json, "padded_tokens_per_second", padded / line->step_s);
  plm_metrics_number(json, "step_ms", 1e3 * line->step_s);
  plm_metrics_number(json, "data_wait_ms", 1e3 * line->data_wait_s);
  plm_metrics_number(json, "checkpoint_ms", 1e3 * line->checkpoint_s);
  plm_metrics_number(json, "mfu",
                     line->product_flops > 0 ? result->flops / line->step_s / line->product_flops
                                             : NAN);
  plm_metrics_number(json, "memory_bytes", memory_bytes());
  if (result->slowest_rank >= 0)
    plm_metrics_integer(json, "slowest_rank", (uint64_t)result->slowest_rank);
  plm_metrics_number(json, "time", plm_clock_wall_s());
  return json;
}

static void end_board(struct plm_step_report *report, const struct plm_error *error)
{
  plm_warning("no more TensorBoard scalars are written: %s", error->what);
  plm_tensorboard_close(report->board);
  report->board = NULL;
}

static plm_status write_scalar(struct plm_step_report *report, uint64_t step, const char *tag,
                               const cJSON *item, struct plm_error *error)
{
  if (cJSON_IsNull(item)) return PLM_OK;
  const double value = cJSON_IsRaw(item) ? strtod(item->valuestring, NULL) : item->valuedouble;
  return plm_tensorboard_scalar(report->board, (int64_t)step, tag, value, error);
}

/* A number is one scalar, an object one for each layer or source: NAME/PART. */
static plm_status write_item(struct plm_step_report *report, uint64_t step, const cJSON *item,
                             struct plm_error *error)
{
  if (!cJSON_IsObject(item)) return write_scalar(report, step, item->string, item, error);
  const cJSON *part;
  cJSON_ArrayForEach(part, item)
  {
    char tag[192];
    snprintf(tag, sizeof tag, "%s/%s", item->string, part->string);
    PLM_TRY(write_scalar(report, step, tag, part, error));
  }
  return PLM_OK;
}

/* Every number of the line is a scalar, except its step and time. */
static void write_board(struct plm_step_report *report, uint64_t step, const cJSON *json)
{
  size_t count;
  const struct plm_metric_field *table = plm_metric_table(&count);
  struct plm_error error = {0};
  plm_status status = PLM_OK;
  for (size_t i = 0; i < count && status == PLM_OK; i++) {
    if (table[i].stage != PLM_STAGE_TRAINER || table[i].kind == PLM_METRIC_TEXT ||
        strcmp(table[i].name, "step") == 0 || strcmp(table[i].name, "time") == 0)
      continue;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, table[i].name);
    if (item != NULL) status = write_item(report, step, item, &error);
  }
  const int64_t now = plm_clock_ms();
  if (status == PLM_OK && (now - report->board_ms >= BOARD_EVERY_MS || step == report->last_step)) {
    report->board_ms = now;
    status = plm_tensorboard_flush(report->board, &error);
  }
  if (status != PLM_OK) end_board(report, &error);
}

/* The pace is that of the live block of `up`, which stands below these lines. */
static void step_report_print_line(struct plm_step_report *report, const struct plm_step_line *line)
{
  report->pace_s = report->pace_s > 0 ? 0.9 * report->pace_s + 0.1 * line->step_s : line->step_s;
  const int64_t now = plm_clock_ms();
  const bool last = line->step == report->last_step;
  if (report->stderr_ms != 0 && now - report->stderr_ms < STDERR_EVERY_MS && !last) return;
  report->stderr_ms = now;
  const double left_s = (double)(report->last_step - line->step) * report->pace_s;
  char eta[64] = "", duration[32];
  if (!last) snprintf(eta, sizeof eta, ", %s left", plm_format_duration(left_s, duration));
  plm_info("step %llu/%llu  loss %.4f  lr %.3g  %.0f tokens/s%s%s", (unsigned long long)line->step,
           (unsigned long long)report->last_step, line->result->loss,
           line->rates.of[PLM_GROUP_HIDDEN],
           (double)line->result->totals.real_tokens / line->step_s, eta,
           line->result->skipped ? "  (update skipped)" : "");
}

plm_status plm_step_report_flush(struct plm_step_report *report, struct plm_error *error)
{
  struct plm_error board_error = {0};
  PLM_TRY(write_lines(report, error));
  if (report->board != NULL && plm_tensorboard_flush(report->board, &board_error) != PLM_OK)
    end_board(report, &board_error);
  return PLM_OK;
}

plm_status plm_step_report_write(struct plm_step_report *report, const struct plm_step_line *line,
                                 struct plm_error *error)
{
  cJSON *json = step_report_build(line, report->resumed_step);
  if (json == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a line of metrics");
  report->resumed_step = -1;
  if (report->board != NULL) write_board(report, line->step, json);
  step_report_print_line(report, line);
  plm_json_append(report->waiting, json);
  struct plm_error reason = {0};
  if (write_lines(report, &reason) == PLM_OK) {
    report->warned = false;
    return PLM_OK;
  }
  if (!report->warned) plm_warning("metrics cannot be written and wait in memory: %s", reason.what);
  report->warned = true;
  if (cJSON_GetArraySize(report->waiting) <= WAITING_LIMIT) return PLM_OK;
  if (error != NULL) *error = reason;
  return reason.status;
}
