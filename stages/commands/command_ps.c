/* `plm-pipeline ps`: shows the stages while a run is running. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/log/progress.h"
#include "common/base/log/terminal.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/commands/command.h"
#include "stages/supervisor/control/ps_rows.h"

enum { WATCH_S = 1 };

/* Tokens a second and the queue's length; "" if the row does not have them. */
static void rate_text(const cJSON *row, char rate[32], char queue[32])
{
  rate[0] = queue[0] = '\0';
  const double tokens = plm_json_number(row, "rate", 0.0);
  if (cJSON_HasObjectItem(row, "rate"))
    snprintf(rate, 32, "%.*f k/s", tokens < 10000 ? 1 : 0, 1e-3 * tokens);
  if (rate[0] != '\0' && tokens < 50 && plm_json_number(row, "ahead", 0.0) > 0)
    snprintf(rate, 32, "ready"); /* its chunks wait to be used; 0.0 k/s would look dead */
  if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(row, "standby"))) snprintf(rate, 32, "standby");
  if (cJSON_HasObjectItem(row, "queue"))
    snprintf(queue, 32, "%.0f", plm_json_number(row, "queue", 0.0));
}

/* Below the row of a stage that is in back-off or has failed for good. */
static void print_cause(FILE *out, const cJSON *row)
{
  char time[PLM_FAILURE_TIME_SIZE];
  if (!cJSON_HasObjectItem(row, "cause")) return;
  plm_run_failure_time(plm_json_number(row, "failed_at", 0.0), time);
  plm_print(out, "  %s: %s\n", time, plm_json_string(row, "cause", ""));
  if (cJSON_HasObjectItem(row, "continue"))
    plm_print(out, "  start it again with: %s\n", plm_json_string(row, "continue", ""));
}

static void ps_print_table(FILE *out, const cJSON *stages, bool color)
{
  const cJSON *row;
  fprintf(out, "%-11s %-10s %7s %-9s %8s %8s %6s %8s %5s\n", "STAGE", "NODE", "PID", "STATE",
          "RESTARTS", "AGE", "SIGN", "RATE", "QUEUE");
  cJSON_ArrayForEach(row, stages)
  {
    char name[64], node[64], state[32], stage[32], age[32], sign[32], rate[32], queue[32],
        ranks[32], pid[32];
    plm_printable(state, sizeof state, plm_json_string(row, "state", ""), PLM_PRINTABLE_LINE);
    plm_printable(node, sizeof node, plm_json_string(row, "node", ""), PLM_PRINTABLE_LINE);
    plm_printable(stage, sizeof stage, plm_json_string(row, "stage", ""), PLM_PRINTABLE_LINE);
    const bool fatal = strcmp(state, "fatal") == 0, ready = strcmp(state, "ready") == 0;
    const char *paint = ready ? "\033[32m" : (fatal ? "\033[31m" : "\033[33m");
    snprintf(name, sizeof name, "%s.%.0f", stage, plm_json_number(row, "instance", 0.0));
    plm_format_duration(plm_json_number(row, "age_s", 0.0), age);
    sign[0] = '\0';
    if (cJSON_HasObjectItem(row, "sign_age_s"))
      plm_format_duration(plm_json_number(row, "sign_age_s", 0.0), sign);
    rate_text(row, rate, queue);
    ranks[0] = '\0';
    if (cJSON_HasObjectItem(row, "ranks"))
      snprintf(ranks, sizeof ranks, "  %.0f ranks", plm_json_number(row, "ranks", 0.0));
    const double number = plm_json_number(row, "pid", 0.0);
    snprintf(pid, sizeof pid, number > 0 ? "%.0f" : "-", number);
    fprintf(out, "%-11s %-10s %7s %s%-9s%s %8.0f %8s %6s %8s %5s%s\n", name, node, pid,
            color ? paint : "", state, color ? "\033[0m" : "",
            plm_json_number(row, "restarts", 0.0), age, sign, rate, queue, ranks);
    if (cJSON_HasObjectItem(row, "activity"))
      plm_print(out, "  %s: %s\n", name, plm_json_string(row, "activity", ""));
    print_cause(out, row);
  }
}

/* A run that is not running may have failed: then the reason, and how to continue. */
static plm_status ps_explain(const char *run, struct plm_error *error)
{
  static struct plm_run_failure failure; /* static because it is large */
  char time[PLM_FAILURE_TIME_SIZE];
  if (!plm_run_failure_read(run, &failure)) return PLM_NOT_RUNNING;
  plm_run_failure_time(failure.time_s, time);
  plm_error_set(error, PLM_NOT_RUNNING,
                "%s is not running. It failed at %s with exit code %d: %s %s", run, time,
                failure.exit_code, failure.stage, failure.cause);
  return plm_error_hint(error, "continue with `plm-pipeline up %s/%s`", run, PLM_RUN_CONFIG);
}

/* The table takes the place of the one before it, in one write, so that nothing flickers. */
static void redraw_table(const cJSON *stages, bool color)
{
  char *text = NULL;
  size_t size = 0;
  FILE *memory = open_memstream(&text, &size);
  if (memory == NULL) return;
  ps_print_table(memory, stages, color);
  if (fclose(memory) != 0) return;
  struct plm_text screen = {0};
  plm_text_puts(&screen, "\033[H");
  for (const char *row = text; *row != '\0';) {
    const size_t length = strcspn(row, "\n");
    plm_text_puts(&screen, "\033[2K");
    plm_text_append(&screen, row, length);
    plm_text_puts(&screen, "\n");
    row += length + (row[length] == '\n');
  }
  plm_text_puts(&screen, "\033[J");
  fwrite(screen.data, 1, screen.length, stdout);
  plm_text_deinit(&screen);
  free(text);
}

static plm_status ps_show(const struct plm_command_context *context, const char *run, bool redraw,
                          struct plm_error *error)
{
  cJSON *stages = NULL;
  const plm_status status = plm_ps_read(run, &stages, error);
  if (status == PLM_NOT_RUNNING) return ps_explain(run, error);
  if (status != PLM_OK) return status;
  *error = (struct plm_error){0};
  if (context->json) {
    return plm_json_print(stages, error);
  }
  if (redraw)
    redraw_table(stages, context->color);
  else
    ps_print_table(stdout, stages, context->color);
  cJSON_Delete(stages);
  return PLM_OK;
}

static plm_status ps(const struct plm_command_context *context, struct plm_error *error)
{
  char run[PLM_PATH_SIZE];
  const bool watch = plm_arguments_has(context->arguments, "watch");
  PLM_TRY(plm_command_operands(context, 0, error));
  PLM_TRY(plm_command_run_folder(context, run, error));
  for (bool shown = false;;) {
    const bool redraw = watch && !context->json && plm_terminal_can_redraw(STDOUT_FILENO);
    const plm_status status = ps_show(context, run, redraw, error);
    if (status == PLM_NOT_RUNNING && shown) { /* it was watched to its end */
      *error = (struct plm_error){0};
      return PLM_OK;
    }
    if (status != PLM_OK || !watch) return status;
    shown = true;
    fflush(stdout);
    sleep(WATCH_S);
  }
}

static const struct plm_option options[] = {
    {0, "watch", NULL, "show the table again every second, until the run ends"},
    {0, NULL, NULL, NULL},
};

const struct plm_command plm_command_ps = {
    .name = "ps",
    .summary = "show the stages of a run: state, process, restarts, ages, rate, queue",
    .details =
        "Packers that joined from other hosts are listed as well. Without a supervisor, the "
        "stages that were started by hand are listed. Exits with 3 if the run is not running, "
        "and then says why it failed, if it did.\n\n"
        "AGE is the time since its process started, and SIGN the time since its last sign of life: "
        "a step or a part of the start of the trainer, a batch of the evaluator or its look for "
        "checkpoints, a message of a packer to a consumer.\n\n"
        "RATE is in thousands of tokens a second: those that a packer serves, that the trainer "
        "trains on (padding excluded), or that the evaluator predicted in its last evaluation. "
        "QUEUE is the number of requests that wait at a packer, or of checkpoints that wait for "
        "the evaluator. A packer on standby has the next window ready. If the trainer has several "
        "ranks, their number is added, and PID is mpirun's.\n\n"
        "Below a stage that is in back-off or has failed for good stands when and why it failed "
        "last.\n\n"
        "Below a trainer whose steps do not end stands what it does, for example \"waiting for "
        "packers 1:00\" or \"no step for 3:05\". Below an evaluator or a starting trainer that "
        "gives no sign of life stands \"no sign for 3:05\" and what it does; below a packer whose "
        "messages come to nobody, \"heard by no consumer for 0:40\". Below a stage whose process "
        "is stopped, "
        "\"stopped by a signal\".\n\n"
        "--json prints an array of {stage, instance, node, pid, state, ready, restarts, age_s}, "
        "with rate, queue, standby and ranks where they are known, failed_at (seconds since "
        "1970) and cause after a failure, continue (the command that starts a stage again that has "
        "failed for good), step_age_s (seconds since the last step), sign_age_s "
        "(seconds since the last sign of life), doing (what the evaluator or a starting trainer "
        "does), corpora (the folders that a packer serves) and activity.",
    .options = options,
    .run = ps,
};
