/* `plm-pipeline runs [DIR]`: lists the runs in a folder, with what a person asks first: is it
 * running, how far is it, how good, how fast? */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/commands/command.h"
#include "stages/supervisor/control/ps_rows.h"
#include "stages/views/run_activity.h"
#include "stages/views/run_state.h"

enum { TOLD_PACKERS = 8 };

static const struct plm_option options[] = {{0, NULL, NULL, NULL}};

struct run_summary {
  const char *state;
  bool failed;
  struct plm_run_failure failure;          /* if it failed */
  struct plm_activity activity, evaluator; /* if it is running */
  struct plm_ps_packers packers;           /* likewise; troubled: NULL if it is not running */
  double step, loss, valid_loss, tokens_per_second;
};

struct last_loss {
  char split[16]; /* the first that was reported, which is the first of evaluator.splits */
  double value;
};

static bool keep_last_loss(void *context, const cJSON *line)
{
  struct last_loss *last = context;
  const double value = plm_json_number(line, "loss", NAN);
  const cJSON *split = cJSON_GetObjectItemCaseSensitive(line, "split");
  if (!isfinite(value) || !cJSON_IsString(split) || plm_metrics_is_extra(line)) return true;
  if (last->split[0] == '\0') snprintf(last->split, sizeof last->split, "%s", split->valuestring);
  if (strcmp(last->split, split->valuestring) == 0) last->value = value;
  return true;
}

static plm_status runs_summarise(const char *run, struct run_summary *summary,
                                 struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  cJSON *last = NULL;
  *summary = (struct run_summary){.state = plm_run_state(run),
                                  .step = NAN,
                                  .loss = NAN,
                                  .valid_loss = NAN,
                                  .tokens_per_second = NAN};
  summary->failed =
      strcmp(summary->state, "failed") == 0 && plm_run_failure_read(run, &summary->failure);
  PLM_TRY(plm_path_join(path, run, PLM_RUN_TRAINER_METRICS, error));
  if (plm_metrics_last(path, &last, NULL) == PLM_OK) {
    summary->step = plm_json_number(last, "step", NAN);
    summary->loss = plm_json_number(last, "loss", NAN);
    summary->tokens_per_second = plm_json_number(last, "tokens_per_second", NAN);
  }
  if (strcmp(summary->state, "running") == 0) {
    plm_activity_read(run, &summary->activity);
    plm_activity_read_evaluator(run, &summary->evaluator);
    summary->tokens_per_second = summary->activity.rate > 0 ? summary->activity.rate : NAN;
    plm_ps_packers(run, &summary->packers);
  }
  cJSON_Delete(last);
  PLM_TRY(plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, error));
  struct last_loss last_loss = {.value = NAN};
  PLM_TRY(plm_metrics_each(path, keep_last_loss, &last_loss, error));
  summary->valid_loss = last_loss.value;
  return PLM_OK;
}

static void continue_command(const char *run, char command[PLM_PATH_SIZE + 64])
{
  snprintf(command, PLM_PATH_SIZE + 64, "plm-pipeline up %s/%s", run, PLM_RUN_CONFIG);
}

static plm_status runs_print_json(const char *name, const char *run,
                                  const struct run_summary *summary, struct plm_error *error)
{
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "name", name);
  cJSON_AddStringToObject(object, "run", run);
  cJSON_AddStringToObject(object, "state", summary->state);
  plm_metrics_number(object, "step", summary->step);
  plm_metrics_number(object, "loss", summary->loss);
  plm_metrics_number(object, "evaluator_loss", summary->valid_loss);
  plm_metrics_number(object, "tokens_per_second", summary->tokens_per_second);
  if (summary->activity.stepped)
    cJSON_AddNumberToObject(object, "step_age_s", summary->activity.age_s);
  if (summary->activity.text[0] != '\0')
    cJSON_AddStringToObject(object, "activity", summary->activity.text);
  if (summary->evaluator.pulsed) {
    cJSON_AddNumberToObject(object, "evaluator_sign_age_s", summary->evaluator.sign_age_s);
    cJSON_AddStringToObject(object, "evaluator_doing", summary->evaluator.sign.doing);
  }
  if (summary->evaluator.text[0] != '\0')
    cJSON_AddStringToObject(object, "evaluator_activity", summary->evaluator.text);
  if (summary->packers.troubled != NULL) {
    cJSON_AddNumberToObject(object, "packers", (double)summary->packers.serve);
    plm_json_put(object, "packer_activities", cJSON_Duplicate(summary->packers.troubled, true));
  }
  if (summary->failed) {
    cJSON *failure = cJSON_AddObjectToObject(object, "failure");
    cJSON_AddNumberToObject(failure, "time", summary->failure.time_s);
    cJSON_AddNumberToObject(failure, "exit", summary->failure.exit_code);
    cJSON_AddStringToObject(failure, "stage", summary->failure.stage);
    cJSON_AddStringToObject(failure, "cause", summary->failure.cause);
    char command[PLM_PATH_SIZE + 64];
    continue_command(run, command);
    cJSON_AddStringToObject(failure, "continue", command);
  }
  return plm_json_print(object, error);
}

static void print_cell(double value, int width, int digits)
{
  if (isfinite(value))
    printf("%*.*f", width, digits, value);
  else
    printf("%*s", width, "-");
}

/* A run has hundreds of packers at most; few are told. */
static void print_packers(const cJSON *troubled)
{
  const cJSON *item;
  int left = cJSON_GetArraySize(troubled), told = 0;
  cJSON_ArrayForEach(item, troubled)
  {
    if (told++ == TOLD_PACKERS) break;
    plm_print(stdout, "  %s: %s\n", plm_json_string(item, "packer", ""),
              plm_json_string(item, "activity", ""));
  }
  left -= TOLD_PACKERS;
  if (left > 0) plm_print(stdout, "  and %d more packers; see plm-pipeline ps\n", left);
}

static void runs_print_row(const char *name, const char *run, const struct run_summary *summary)
{
  plm_print(stdout, "%-26.26s %-9s", name, summary->state);
  print_cell(summary->step, 9, 0);
  print_cell(summary->loss, 11, 4);
  print_cell(summary->valid_loss, 11, 4);
  print_cell(summary->tokens_per_second, 13, 0);
  print_cell(summary->packers.troubled != NULL ? (double)summary->packers.serve : NAN, 9, 0);
  putchar('\n');
  if (summary->activity.text[0] != '\0') plm_print(stdout, "  %s\n", summary->activity.text);
  if (summary->evaluator.text[0] != '\0')
    plm_print(stdout, "  evaluator: %s\n", summary->evaluator.text);
  print_packers(summary->packers.troubled);
  if (!summary->failed) return;
  char time[PLM_FAILURE_TIME_SIZE];
  plm_run_failure_time(summary->failure.time_s, time);
  plm_print(stdout, "  %s: %s %s\n", time, summary->failure.stage, summary->failure.cause);
  char command[PLM_PATH_SIZE + 64];
  continue_command(run, command);
  plm_print(stdout, "  continue with: %s\n", command);
}

static int visible(const struct dirent *entry)
{
  return entry->d_name[0] != '.';
}

static plm_status runs_run(const struct plm_command_context *context, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const char *directory = arguments->positional_count > 0 ? arguments->positionals[0] : "runs";
  struct dirent **entries;
  PLM_TRY(plm_command_operands(context, 1, error));
  const int count = scandir(directory, &entries, visible, alphasort);
  if (count < 0) {
    plm_error_errno(error, "cannot read the folder %s", directory);
    return plm_error_hint(error, "name the folder that holds the runs: plm-pipeline runs DIR");
  }
  plm_status status = PLM_OK;
  int shown = 0;
  for (int i = 0; i < count; i++) {
    char path[PLM_PATH_SIZE];
    struct run_summary summary;
    const char *name = entries[i]->d_name;
    if (status == PLM_OK) status = plm_path_join(path, directory, name, error);
    if (status == PLM_OK && plm_is_run(path)) {
      status = runs_summarise(path, &summary, error);
      if (shown++ == 0 && !context->json)
        printf("%-26s %-9s%9s%11s%11s%13s%9s\n", "run", "state", "step", "loss", "valid",
               "tokens/s", "packers");
      if (status == PLM_OK && context->json)
        status = runs_print_json(name, path, &summary, error);
      else if (status == PLM_OK)
        runs_print_row(name, path, &summary);
      cJSON_Delete(summary.packers.troubled);
    }
    free(entries[i]);
  }
  free(entries);
  if (status == PLM_OK && shown == 0 && !context->json)
    plm_print(stderr, "plm-pipeline: there are no runs in %s\n", directory);
  return status;
}

const struct plm_command plm_command_runs = {
    .name = "runs",
    .operands = "[DIR]",
    .summary = "list the runs in a folder (default: runs)",
    .details =
        "A run is running, complete, stopped, or failed: its last start ended with a failure, "
        "whose "
        "time and cause follow, with the command that continues the run. The speed of a running "
        "run "
        "falls while no step ends; then a line says what it waits for. packers is how many packers "
        "serve it, as in `ps`; a line for each says if one is silent, stopped by a signal, in "
        "back-off or failed.\n\n"
        "--json prints an object for each run: {name, run, state, step, loss, evaluator_loss, "
        "tokens_per_second}, with failure: {time, exit, stage, cause, continue} if it failed, and "
        "step_age_s, "
        "activity, evaluator_sign_age_s, evaluator_doing, evaluator_activity, packers and "
        "packer_activities ({packer, activity} for each of those lines) if it is running.",
    .options = options,
    .run = runs_run,
};
