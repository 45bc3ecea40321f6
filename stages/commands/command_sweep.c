/* `plm-pipeline sweep`: a run for each combination of the values of --set, one after another or
 * several at once, and one report about all of them. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/metrics/metrics.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "stages/commands/child_up.h"
#include "stages/commands/command.h"
#include "stages/commands/sweep_grid.h"
#include "stages/views/median.h"
#include "stages/views/metrics_curves.h"
#include "stages/views/report.h"
#include "stages/views/run_state.h"

enum {
  POLL_MS = 100,
  EARLIER_EXTRA_S = 5,
  MOST_JOBS = 64,
  MOST_SETS = 64,
  EXTRA_ARGUMENTS = 8,
};

enum outcome { NOT_STARTED, RUNS, COMPLETE, FAILED };

struct sweep_run {
  char name[PLM_SWEEP_NAME_SIZE];
  char folder[PLM_PATH_SIZE], log[PLM_PATH_SIZE];
  uint64_t steps; /* trainer.steps */
  struct plm_config_stop_when stop_when;
  double stop_timeout_s; /* trainer.stop_timeout_s */
  enum outcome outcome;
  int code; /* of a run that failed */
  struct plm_child child;
  double final_loss, best_loss, tokens_per_second; /* NAN: none */
};

struct sweep {
  const struct plm_command_context *context;
  const char *file;
  char output[PLM_PATH_SIZE];
  struct plm_sweep_grid grid;
  struct sweep_run *runs; /* (grid.runs) */
  unsigned jobs;
};

static const struct plm_option options[] = {
    {0, "output", "DIR",
     "folder of the run folders (default: the configuration's run, and -sweep)"},
    {0, "jobs", "N", "runs at once, 1 to 64 (default 1); more than one on ports of their own"},
    {0, "dry-run", NULL, "check and list the runs; start nothing"},
    {0, NULL, NULL, NULL},
};

/* ---- what to run --------------------------------------------------------------------------- */

/* Loads the configuration of run i, which is thereby checked. */
static plm_status load_run(const struct sweep *sweep, size_t i, const char *folder,
                           struct plm_config *config, struct plm_error *error)
{
  struct plm_config_override overrides[MOST_SETS + 1];
  struct plm_config_problems *problems = NULL;
  const size_t count = sweep->grid.axis_count;
  for (size_t a = 0; a < count; a++)
    overrides[a] =
        (struct plm_config_override){sweep->grid.axes[a].key, plm_sweep_value(&sweep->grid, i, a)};
  if (folder != NULL) overrides[count] = (struct plm_config_override){"run", folder};
  const plm_status status =
      plm_config_load(sweep->file, overrides, count + (folder != NULL), config, &problems, error);
  if (problems == NULL) return status;
  plm_config_problems_print(problems);
  plm_config_problems_free(problems);
  return plm_error_set(error, status, "run %zu of the sweep (%s) has no valid configuration", i + 1,
                       sweep->runs[i].name);
}

static plm_status find_output(struct sweep *sweep, struct plm_error *error)
{
  const char *given = plm_arguments_get(sweep->context->arguments, "output");
  struct plm_config config;
  if (given != NULL) return plm_path_join(sweep->output, ".", given, error);
  PLM_TRY(load_run(sweep, 0, NULL, &config, error));
  const int length = snprintf(sweep->output, PLM_PATH_SIZE, "%s-sweep", config.run);
  plm_config_deinit(&config);
  return length < PLM_PATH_SIZE
             ? PLM_OK
             : plm_error_set(error, PLM_LIMIT, "the path of the sweep is too long");
}

static plm_status plan_runs(struct sweep *sweep, struct plm_error *error)
{
  sweep->runs = plm_alloc_zeroed(sweep->grid.runs, sizeof *sweep->runs);
  for (size_t i = 0; i < sweep->grid.runs; i++)
    plm_sweep_name(&sweep->grid, i, sweep->runs[i].name);
  PLM_TRY(find_output(sweep, error));
  for (size_t i = 0; i < sweep->grid.runs; i++) {
    struct sweep_run *run = &sweep->runs[i];
    struct plm_config config;
    PLM_TRY(plm_path_join(run->folder, sweep->output, run->name, error));
    if (snprintf(run->log, PLM_PATH_SIZE, "%s.log", run->folder) >= PLM_PATH_SIZE)
      return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", run->folder);
    PLM_TRY(load_run(sweep, i, run->folder, &config, error));
    run->steps = config.trainer.steps;
    run->stop_when = config.trainer.stop_when;
    run->stop_timeout_s = config.trainer.stop_timeout_s;
    plm_config_deinit(&config);
  }
  return PLM_OK;
}

static plm_status read_sets(struct sweep *sweep, struct plm_config_override **overrides,
                            size_t *count, struct plm_error *error)
{
  PLM_TRY(plm_arguments_overrides(sweep->context->arguments, overrides, count, error));
  if (*count > MOST_SETS)
    return plm_error_set(error, PLM_USAGE, "--set is given more than %d times", MOST_SETS);
  for (size_t i = 0; i < *count; i++) {
    if (strcmp((*overrides)[i].key, "run") != 0) continue;
    plm_error_set(error, PLM_USAGE, "each run of a sweep has a folder of its own");
    return plm_error_hint(error, "name the folder of all of them with --output DIR");
  }
  return plm_sweep_grid_make(*overrides, *count, &sweep->grid, error);
}

/* ---- running ------------------------------------------------------------------------------- */

/* Whether the run is complete as it is configured now and nothing of it failed since. */
static bool command_sweep_is_complete(const struct sweep_run *run)
{
  struct plm_done done;
  char why[PLM_DONE_WHY_SIZE];
  return strcmp(plm_run_state(run->folder), "complete") == 0 &&
         plm_done_read(run->folder, &done, NULL) == PLM_OK &&
         plm_done_holds(&done, run->steps, plm_stop_metric_names[run->stop_when.metric],
                        run->stop_when.patience, why);
}

static plm_status command_sweep_start(struct sweep *sweep, size_t i, struct plm_error *error)
{
  char *settings[MOST_SETS];
  const char *arguments[2 * MOST_SETS + EXTRA_ARGUMENTS];
  size_t count = 0;
  struct sweep_run *run = &sweep->runs[i];
  arguments[count++] = "up";
  arguments[count++] = sweep->file;
  arguments[count++] = "--run";
  arguments[count++] = run->folder;
  for (size_t a = 0; a < sweep->grid.axis_count; a++) {
    settings[a] = plm_format("%s=%s", sweep->grid.axes[a].key, plm_sweep_value(&sweep->grid, i, a));
    arguments[count++] = "--set";
    arguments[count++] = settings[a];
  }
  arguments[count] = NULL;
  const struct plm_child_options how = {.program_directory = sweep->context->program_directory,
                                        .arguments = arguments,
                                        .log = run->log,
                                        .own_ports = sweep->jobs > 1};
  const plm_status status = plm_child_start(&how, &run->child, error);
  for (size_t a = 0; a < sweep->grid.axis_count; a++) free(settings[a]);
  PLM_TRY(status);
  run->outcome = RUNS;
  plm_info("run %zu of %zu: %s", i + 1, sweep->grid.runs, run->name);
  return PLM_OK;
}

static void command_sweep_settle(struct sweep_run *run)
{
  run->code = run->child.code;
  run->outcome = run->code == 0 ? COMPLETE : FAILED;
  if (run->outcome == FAILED && plm_stop_requested == 0)
    plm_warning("%s failed with exit code %d; see %s", run->name, run->code, run->log);
}

/* The run of a sweep that was killed may still be stopping. One that does not stop is left to
 * `up`, which says who holds it. */
static void wait_for_earlier(const struct sweep_run *run)
{
  const int64_t until_ms =
      plm_clock_ms() + (int64_t)(1000 * (run->stop_timeout_s + EARLIER_EXTRA_S));
  bool said = false;
  while (strcmp(plm_run_state(run->folder), "running") == 0 && plm_clock_ms() < until_ms &&
         plm_stop_requested == 0) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    if (!said) plm_info("waiting for an earlier start of %s to end", run->name);
    said = true;
    nanosleep(&pause, NULL);
  }
}

/* Starts the next run, if there is one. */
static plm_status start_next(struct sweep *sweep, size_t *next, unsigned *running,
                             struct plm_error *error)
{
  for (; *next < sweep->grid.runs && *running < sweep->jobs; ++*next) {
    wait_for_earlier(&sweep->runs[*next]);
    if (plm_stop_requested != 0) return PLM_OK;
    if (command_sweep_is_complete(&sweep->runs[*next])) {
      plm_info("run %zu of %zu: %s is complete", *next + 1, sweep->grid.runs,
               sweep->runs[*next].name);
      continue;
    }
    PLM_TRY(command_sweep_start(sweep, *next, error));
    ++*running;
  }
  return PLM_OK;
}

static plm_status command_sweep_run_all(struct sweep *sweep, struct plm_error *error)
{
  size_t next = 0;
  unsigned running = 0;
  plm_status status = plm_directory_make(sweep->output, error);
  while (true) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    if (status == PLM_OK && plm_stop_requested == 0)
      status = start_next(sweep, &next, &running, error);
    if (running == 0) break;
    for (size_t i = 0; i < next; i++) {
      struct sweep_run *run = &sweep->runs[i];
      if (run->outcome != RUNS) continue;
      if (plm_stop_requested != 0 || status != PLM_OK) plm_child_stop(&run->child);
      if (!plm_child_ended(&run->child)) continue;
      command_sweep_settle(run);
      running--;
    }
    if (running > 0) nanosleep(&pause, NULL); /* a signal ends it early */
  }
  if (status != PLM_OK) return status;
  return plm_stop_check("; the same command continues the sweep", error);
}

/* ---- the report ---------------------------------------------------------------------------- */

static plm_status command_sweep_measure(struct sweep_run *run, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_curves losses = {0}, rates = {0};
  run->final_loss = run->best_loss = run->tokens_per_second = NAN;
  PLM_TRY(plm_path_join(path, run->folder, PLM_RUN_EVALUATOR_METRICS, error));
  plm_status status = plm_curves_read(path, "loss", &losses, error);
  if (status == PLM_OK) status = plm_path_join(path, run->folder, PLM_RUN_TRAINER_METRICS, error);
  if (status == PLM_OK) status = plm_curves_read(path, "tokens_per_second", &rates, error);
  const struct plm_curve *loss = &losses.list[0]; /* the first split of the run's own corpus */
  for (size_t i = 0; status == PLM_OK && losses.count > 0 && i < loss->count; i++) {
    run->final_loss = loss->y[i];
    if (!(run->best_loss <= loss->y[i])) run->best_loss = loss->y[i];
  }
  if (status == PLM_OK && rates.count > 0 && rates.list[0].count > 0)
    run->tokens_per_second = plm_median(rates.list[0].y, rates.list[0].count);
  plm_curves_deinit(&losses);
  plm_curves_deinit(&rates);
  return status;
}

static const char *outcome_text(const struct sweep_run *run, char text[32])
{
  if (run->outcome == FAILED)
    snprintf(text, 32, "failed (%d)", run->code);
  else
    snprintf(text, 32, "complete");
  return text;
}

static void print_number(double value, int width, const char *format)
{
  char text[40] = "-";
  if (isfinite(value)) snprintf(text, sizeof text, format, value);
  printf("  %*s", width, text);
}

static int column_width(const struct plm_sweep_axis *axis)
{
  size_t width = strlen(axis->key);
  for (size_t i = 0; i < axis->count; i++)
    if (strlen(axis->values[i]) > width) width = strlen(axis->values[i]);
  return (int)width;
}

static void command_sweep_print_table(const struct sweep *sweep)
{
  char text[32];
  for (size_t a = 0; a < sweep->grid.axis_count; a++)
    if (sweep->grid.axes[a].count > 1)
      plm_print(stdout, "%-*s  ", column_width(&sweep->grid.axes[a]), sweep->grid.axes[a].key);
  printf("%-12s  %10s  %10s  %10s\n", "state", "loss", "best", "tokens/s");
  for (size_t i = 0; i < sweep->grid.runs; i++) {
    const struct sweep_run *run = &sweep->runs[i];
    for (size_t a = 0; a < sweep->grid.axis_count; a++)
      if (sweep->grid.axes[a].count > 1)
        plm_print(stdout, "%-*s  ", column_width(&sweep->grid.axes[a]),
                  plm_sweep_value(&sweep->grid, i, a));
    printf("%-12s", outcome_text(run, text));
    print_number(run->final_loss, 10, "%.4f");
    print_number(run->best_loss, 10, "%.4f");
    print_number(run->tokens_per_second, 10, "%.0f");
    putchar('\n');
  }
}

static plm_status command_sweep_print_json(const struct sweep *sweep, struct plm_error *error)
{
  for (size_t i = 0; i < sweep->grid.runs; i++) {
    const struct sweep_run *run = &sweep->runs[i];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "run", run->folder);
    cJSON *settings = cJSON_AddObjectToObject(object, "settings");
    for (size_t a = 0; a < sweep->grid.axis_count; a++)
      cJSON_AddStringToObject(settings, sweep->grid.axes[a].key,
                              plm_sweep_value(&sweep->grid, i, a));
    cJSON_AddStringToObject(object, "state", run->outcome == FAILED ? "failed" : "complete");
    if (run->outcome == FAILED) cJSON_AddNumberToObject(object, "exit", run->code);
    plm_metrics_number(object, "loss", run->final_loss);
    plm_metrics_number(object, "best_loss", run->best_loss);
    plm_metrics_number(object, "tokens_per_second", run->tokens_per_second);
    PLM_TRY(plm_json_print(object, error));
  }
  return PLM_OK;
}

/* Puts the runs that a report can show into `best`, those with the least loss first. */
static size_t choose_best(const struct sweep *sweep, const struct sweep_run *best[PLM_REPORT_RUNS])
{
  size_t count = 0;
  for (size_t i = 0; i < sweep->grid.runs; i++) {
    const struct sweep_run *run = &sweep->runs[i];
    size_t place = count;
    if (!plm_is_run(run->folder)) continue;
    while (place > 0 && !(best[place - 1]->best_loss <= run->best_loss) && isfinite(run->best_loss))
      place--;
    if (place == PLM_REPORT_RUNS) continue;
    if (count < PLM_REPORT_RUNS) count++;
    for (size_t k = count - 1; k > place; k--) best[k] = best[k - 1];
    best[place] = run;
  }
  return count;
}

enum { ARGUMENTS = PLM_REPORT_RUNS + 5 };

/* One HTML page, by `plm-pipeline report`. */
static plm_status command_sweep_make_page(const struct sweep *sweep, struct plm_error *error)
{
  const struct sweep_run *best[PLM_REPORT_RUNS];
  const char *arguments[ARGUMENTS] = {"report"};
  char page[PLM_PATH_SIZE];
  struct plm_child child;
  size_t used = 1;
  const size_t count = choose_best(sweep, best);
  if (count == 0) return PLM_OK;
  PLM_TRY(plm_path_join(page, sweep->output, "report.html", error));
  for (size_t i = 0; i < count; i++) arguments[used++] = best[i]->folder;
  arguments[used++] = "--output";
  arguments[used++] = page;
  arguments[used] = "--quiet";
  const struct plm_child_options how = {.program_directory = sweep->context->program_directory,
                                        .arguments = arguments};
  PLM_TRY(plm_child_start(&how, &child, error));
  while (!plm_child_ended(&child)) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 100000L};
    nanosleep(&pause, NULL);
  }
  if (child.code != 0) return plm_error_set(error, PLM_FAILURE, "%s could not be written", page);
  plm_info("%s is written%s", page,
           count < sweep->grid.runs ? "; it shows the runs with the least loss" : "");
  return PLM_OK;
}

static plm_status command_sweep_report(struct sweep *sweep, struct plm_error *error)
{
  size_t failed = 0;
  for (size_t i = 0; i < sweep->grid.runs; i++) {
    PLM_TRY(command_sweep_measure(&sweep->runs[i], error));
    failed += sweep->runs[i].outcome == FAILED;
  }
  if (sweep->context->json)
    PLM_TRY(command_sweep_print_json(sweep, error));
  else
    command_sweep_print_table(sweep);
  fflush(stdout);
  PLM_TRY(command_sweep_make_page(sweep, error));
  if (failed == 0) return PLM_OK;
  plm_error_set(error, PLM_FAILURE, "%zu of %zu runs failed", failed, sweep->grid.runs);
  return plm_error_hint(error, "the same command continues those that are not complete");
}

static void list_runs(const struct sweep *sweep)
{
  for (size_t i = 0; i < sweep->grid.runs; i++) {
    plm_print(stdout, "%s%s\n", sweep->runs[i].folder,
              command_sweep_is_complete(&sweep->runs[i]) ? "  (complete)" : "");
    for (size_t a = 0; a < sweep->grid.axis_count; a++)
      plm_print(stdout, "  --set %s=%s\n", sweep->grid.axes[a].key,
                plm_sweep_value(&sweep->grid, i, a));
  }
}

static plm_status run_sweep(struct sweep *sweep, struct plm_error *error)
{
  PLM_TRY(plan_runs(sweep, error));
  if (plm_arguments_has(sweep->context->arguments, "dry-run")) {
    list_runs(sweep);
    return PLM_OK;
  }
  plm_stop_signals_install();
  PLM_TRY(command_sweep_run_all(sweep, error));
  return command_sweep_report(sweep, error);
}

static plm_status command_sweep_run(const struct plm_command_context *context,
                                    struct plm_error *error)
{
  struct sweep sweep = {.context = context, .jobs = 1, .file = context->config_path};
  struct plm_config_override *overrides = NULL;
  size_t count = 0;
  PLM_TRY(plm_command_operands(context, 1, error));
  PLM_TRY(plm_arguments_within(context->arguments, "jobs", 1, MOST_JOBS, &sweep.jobs, error));
  if (context->arguments->positional_count > 0) sweep.file = context->arguments->positionals[0];
  plm_status status = read_sets(&sweep, &overrides, &count, error);
  if (status == PLM_OK) status = run_sweep(&sweep, error);
  plm_sweep_grid_deinit(&sweep.grid);
  plm_arguments_overrides_free(overrides, count);
  free(sweep.runs);
  return status;
}

const struct plm_command plm_command_sweep = {
    .name = "sweep",
    .sets = true,
    .operands = "[FILE]",
    .summary = "train a run for each combination of the values of --set",
    .details =
        "--set KEY=A,B gives a key several values; a value that is a list is written in brackets "
        "([0.1,0.2],[0.3]). Each combination is a run in a folder of its own, DIR/NAME, whose name "
        "says the values. What a run prints goes to DIR/NAME.log.\n\n"
        "The same command continues a sweep that was stopped or killed: runs that are complete are "
        "skipped, and one that was interrupted goes on. If a run fails, the others are still "
        "trained; the exit code is then 1. At the end, a table shows the evaluation loss at the "
        "end and at best, and the speed; DIR/report.html compares up to 8 runs, those with the "
        "least loss. --json prints an object for each run: {run, settings, state, exit, loss, "
        "best_loss, tokens_per_second}.",
    .options = options,
    .run = command_sweep_run,
};
