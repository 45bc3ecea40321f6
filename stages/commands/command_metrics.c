/* `plm-pipeline metrics`: shows the metrics files as a table on a terminal, as lines of JSON when
 * piped, as CSV or as curves, and follows a run through restarts and resumes. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/name_list.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"
#include "common/metrics/metrics.h"
#include "common/run/log_tail.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "stages/commands/command.h"
#include "stages/views/metrics_curves.h"
#include "stages/views/plot.h"

enum { MAX_RUNS = 16, MAX_KEYS = 32, POLL_MS = 200, COLUMN = 12, LABEL = 100 };

static const struct plm_option options[] = {
    {'f', "follow", NULL, "keep printing lines as they come, until Ctrl-C"},
    {0, "keys", "A,B,...", "show only these fields"},
    {0, "csv", NULL, "print comma-separated values with a header line"},
    {0, "plot", NULL, "draw the curve of each field of --keys (default loss)"},
    {0, NULL, NULL, NULL},
};

static const struct {
  const char *name, *file;
  enum plm_metric_stage stage;
  /* without --keys: all in CSV; in a table those that have values, as many as fit */
  const char *columns;
} stages[] = {
    {"evaluator", PLM_RUN_EVALUATOR_METRICS, PLM_STAGE_EVALUATOR,
     "step,split,loss,perplexity,accuracy,spearman,precision_l,r2,rmse,macro_f1,auroc,"
     "baseline_entropy,mcc,pearson,auc,ndcg,top_recall,precision_l2,precision_l5,chance,tokens,"
     "labels,seconds,lag_steps,set"},
    {"trainer", PLM_RUN_TRAINER_METRICS, PLM_STAGE_TRAINER,
     "step,loss,lr_hidden,tokens_per_second,tokens,grad_norm,mask_rate,step_ms,data_wait_ms,"
     "checkpoint_ms,accuracy"},
    {"packer", PLM_RUN_PACKER_METRICS, PLM_STAGE_PACKER,
     "windows,documents_per_second,tokens_per_second,padding_fraction,queue,packer"},
};

enum form { FORM_JSON, FORM_CSV, FORM_TABLE };

struct view {
  int stage; /* into stages[] */
  enum form form;
  struct plm_name_list list;
  const char **keys; /* (key_count), of the list */
  int key_count;
  bool all_keys; /* no --keys: lines of JSON are printed as they are */
  const char *runs[MAX_RUNS];
  size_t run_count;
  int run_width; /* of the column that names the run; 0 with one run, which needs no name */
  unsigned printed;
};

static plm_status split_keys(struct view *view, const char *list, struct plm_error *error)
{
  plm_name_list_init(&view->list, list);
  if (view->list.count > MAX_KEYS)
    return plm_error_set(error, PLM_USAGE, "--keys names more than %d fields", MAX_KEYS);
  if (view->list.count == 0) return plm_error_set(error, PLM_USAGE, "--keys names no field");
  view->keys = view->list.names;
  view->key_count = (int)view->list.count;
  return PLM_OK;
}

/* Refuses a word of --keys that is not a metric of the stage. */
static plm_status metrics_check_keys(const struct view *view, struct plm_error *error)
{
  for (int i = 0; i < view->key_count; i++) {
    if (plm_metric_find(stages[view->stage].stage, view->keys[i]) != NULL) continue;
    size_t count;
    const struct plm_metric_field *table = plm_metric_table(&count);
    char known[400] = "";
    for (size_t f = 0; f < count; f++)
      if (table[f].stage == stages[view->stage].stage &&
          strlen(known) + strlen(table[f].name) + 2 < sizeof known)
        sprintf(known + strlen(known), "%s%s", known[0] != '\0' ? " " : "", table[f].name);
    plm_error_set(error, PLM_USAGE, "the %s has no metric \"%s\"", stages[view->stage].name,
                  view->keys[i]);
    return plm_error_hint(error, "its metrics are %s", known);
  }
  return PLM_OK;
}

/* The value as text, which the value itself or `number` holds; "" for objects, which no column can
 * show. Of a number, as many digits as read back equal, but at most `digits`. */
static const char *text_of(const cJSON *value, char number[64], int digits)
{
  if (cJSON_IsString(value)) return value->valuestring;
  if (cJSON_IsBool(value)) return cJSON_IsTrue(value) ? "true" : "false";
  if (!cJSON_IsNumber(value)) return "";
  for (int few = 6; few <= digits; few++) {
    snprintf(number, 64, "%.*g", few, value->valuedouble);
    if (strtod(number, NULL) == value->valuedouble) break;
  }
  return number;
}

/* The width of a field's column: its name after two spaces. A longer value shifts the rest. */
static int width_of(const char *key)
{
  const int name = (int)strlen(key) + 2;
  return name > COLUMN ? name : COLUMN;
}

/* The width of the terminal, 0 if that is unknown. */
static int terminal_width(void)
{
  struct winsize window;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}

/* Which columns of a view have a value in a line. */
struct filled {
  const struct view *view;
  bool columns[MAX_KEYS];
};

static bool find_filled(void *context, const cJSON *line)
{
  struct filled *filled = context;
  for (int i = 0; i < filled->view->key_count; i++) {
    char number[64];
    const cJSON *value = plm_metrics_value(line, filled->view->keys[i]);
    if (text_of(value, number, 6)[0] != '\0') filled->columns[i] = true;
  }
  return true;
}

/* Leaves out the columns that are empty in all lines so far: a run on labels has no perplexity, and
 * one on numbers no accuracy. A file that cannot be read has no values here; print_runs says why.
 */
static void leave_out_empty_columns(struct view *view)
{
  struct filled filled = {.view = view};
  int count = 0;
  for (size_t i = 0; i < view->run_count; i++) {
    char path[PLM_PATH_SIZE];
    if (plm_path_join(path, view->runs[i], stages[view->stage].file, NULL) == PLM_OK)
      (void)plm_metrics_each(path, find_filled, &filled, NULL);
  }
  for (int i = 0; i < view->key_count; i++)
    if (filled.columns[i]) view->keys[count++] = view->keys[i];
  if (count > 0) view->key_count = count;
}

/* Leaves out the last columns that do not fit the terminal. */
static void fit_columns(struct view *view)
{
  const int room = terminal_width();
  int width = view->run_width, fit = 0;
  while (fit < view->key_count && (width += width_of(view->keys[fit])) <= room) fit++;
  if (room > 0 && fit > 0) view->key_count = fit;
}

static void metrics_print_row(const struct view *view, const char *run, const cJSON *json)
{
  const bool csv = view->form == FORM_CSV, named = view->run_width > 0;
  struct plm_text row = {0};
  if (named && csv)
    plm_text_put_csv(&row, run, strlen(run), ',');
  else if (named)
    plm_text_printf(&row, "  %*s", view->run_width - 2, run);
  for (int i = 0; i < view->key_count; i++) {
    char number[64];
    const cJSON *value = plm_metrics_value(json, view->keys[i]);
    const char *text = text_of(value, number, csv ? 17 : 6);
    if (!csv && cJSON_IsString(value) && strcmp(view->keys[i], "split") == 0) {
      plm_metrics_subject(json, number, sizeof number); /* says which set it is of */
      text = number;
    }
    if (!csv) {
      plm_text_printf(&row, "  %*s", width_of(view->keys[i]) - 2, text);
      continue;
    }
    if (i > 0 || named) plm_text_puts(&row, ",");
    plm_text_put_csv(&row, text, strlen(text), ',');
  }
  if (row.data != NULL) plm_print(stdout, "%s\n", row.data);
  plm_text_deinit(&row);
}

static void print_head(struct view *view)
{
  if (view->form == FORM_JSON || (view->printed > 0 && view->form == FORM_CSV)) return;
  if (view->form == FORM_TABLE && view->printed % 40 != 0) return;
  if (view->form == FORM_TABLE && view->all_keys && view->printed == 0) {
    leave_out_empty_columns(view);
    fit_columns(view);
  }
  if (view->run_width > 0) printf("%*s", view->form == FORM_CSV ? 0 : view->run_width, "run");
  for (int i = 0; i < view->key_count; i++) {
    if (view->form == FORM_CSV)
      plm_print(stdout, "%s%s", i > 0 || view->run_width > 0 ? "," : "", view->keys[i]);
    else
      plm_print(stdout, "%*s", width_of(view->keys[i]), view->keys[i]);
  }
  putchar('\n');
}

/* Copies numbers as the stages print them; cJSON's own printing keeps only 15 digits of some. */
static void add_exact(cJSON *to, const char *name, const cJSON *value)
{
  if (cJSON_IsNumber(value)) {
    plm_metrics_number(to, name, value->valuedouble);
  } else if (cJSON_IsObject(value)) {
    cJSON *inner = cJSON_AddObjectToObject(to, name);
    const cJSON *item;
    cJSON_ArrayForEach(item, value) add_exact(inner, item->string, item);
  } else if (value != NULL) {
    plm_json_put(to, name, cJSON_Duplicate(value, true));
  }
}

static plm_status print_selected_json(const struct view *view, const char *run, const cJSON *json)
{
  cJSON *chosen = cJSON_CreateObject();
  if (view->run_width > 0) cJSON_AddStringToObject(chosen, "run", run);
  for (int i = 0; i < view->key_count; i++) {
    add_exact(chosen, view->keys[i], plm_metrics_value(json, view->keys[i]));
  }
  return plm_json_print(chosen, NULL);
}

/* A line as its stage wrote it, with all digits; with several runs, "run" comes first. */
static void print_whole_json(const struct view *view, const char *run, const char *line)
{
  struct plm_text text = {0};
  if (view->run_width > 0) {
    cJSON *name = cJSON_CreateString(run);
    char *quoted = name != NULL ? plm_json_text(name, false) : NULL;
    line += strcspn(line, "{") + 1; /* it is an object */
    const bool empty = line[strspn(line, " \t")] == '}';
    plm_text_printf(&text, "{\"run\":%s%s", quoted != NULL ? quoted : "null", empty ? "" : ",");
    free(quoted);
    cJSON_Delete(name);
  }
  plm_text_put_json(&text, line, strlen(line));
  puts(text.data);
  plm_text_deinit(&text);
}

static void metrics_print_line(struct view *view, const char *run, const char *line)
{
  cJSON *json = plm_json_line(line);
  if (!cJSON_IsObject(json)) { /* a damaged line is skipped */
    cJSON_Delete(json);
    return;
  }
  const cJSON *skipped = cJSON_GetObjectItemCaseSensitive(json, "skipped");
  print_head(view);
  if (view->form == FORM_JSON && view->all_keys) {
    print_whole_json(view, run, line);
  } else if (view->form == FORM_JSON) {
    (void)print_selected_json(view, run, json); /* without memory the line is skipped */
  } else if (view->form == FORM_TABLE && cJSON_IsString(skipped)) {
    char number[64];
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
    if (view->run_width > 0) plm_print(stdout, "%*s", view->run_width, run);
    plm_print(stdout, "%*s  skipped: %s\n", COLUMN, text_of(step, number, 15),
              skipped->valuestring);
  } else {
    metrics_print_row(view, run, json);
  }
  view->printed++;
  cJSON_Delete(json);
}

static plm_status print_runs(struct view *view, bool follow, struct plm_error *error)
{
  static struct plm_tail_lines runs[MAX_RUNS]; /* static because they are large */
  char path[PLM_PATH_SIZE];
  plm_status status = PLM_OK;
  for (size_t i = 0; i < view->run_count && status == PLM_OK; i++) {
    status = plm_path_join(path, view->runs[i], stages[view->stage].file, error);
    if (status == PLM_OK) plm_tail_init(&runs[i].tail, path, 0);
  }
  while (status == PLM_OK && plm_stop_requested == 0) {
    bool any = false;
    for (size_t i = 0; i < view->run_count && status == PLM_OK; i++) {
      const char *line = plm_tail_peek(&runs[i]);
      status = plm_tail_check(&runs[i].tail, error);
      if (status != PLM_OK || line == NULL) continue;
      any = true;
      metrics_print_line(view, view->runs[i], line);
      plm_tail_take(&runs[i]);
    }
    if (any) continue;
    fflush(stdout);
    if (!follow || ferror(stdout)) break;
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    nanosleep(&pause, NULL);
  }
  for (size_t i = 0; i < view->run_count; i++) plm_tail_lines_deinit(&runs[i]);
  if (status == PLM_OK && plm_stop_requested != 0) /* the usual end of -f needs no message */
    status = plm_error_set(error, plm_stop_status(plm_stop_requested), "%s", "");
  return status;
}

static const char *metrics_last_part(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

/* Adds the curves of one run; labels has room for one label each. Returns how many there were. */
static size_t add_series(const struct plm_curves *curves, const char *run,
                         struct plm_series *series, char (*labels)[LABEL])
{
  for (size_t i = 0; i < curves->count; i++) {
    const struct plm_curve *curve = &curves->list[i];
    const char *split = curves->count > 1 ? curve->split : "";
    snprintf(labels[i], sizeof labels[i], "%.40s%s%.55s", metrics_last_part(run),
             split[0] != '\0' ? " " : "", split);
    series[i] = (struct plm_series){labels[i], curve->x, curve->y, curve->count};
  }
  return curves->count;
}

static plm_status plot_key(const struct view *view, const char *key, bool color,
                           struct plm_error *error)
{
  struct plm_curves curves[MAX_RUNS] = {0};
  struct plm_series series[MAX_RUNS * PLM_CURVE_SPLITS];
  char labels[MAX_RUNS * PLM_CURVE_SPLITS][LABEL];
  size_t count = 0;
  plm_status status = PLM_OK;
  double baseline = NAN;
  for (size_t i = 0; i < view->run_count && status == PLM_OK; i++) {
    char path[PLM_PATH_SIZE];
    status = plm_path_join(path, view->runs[i], stages[view->stage].file, error);
    if (status == PLM_OK) status = plm_curves_read(path, key, &curves[i], error);
    if (strcmp(key, "loss") == 0 && isfinite(curves[i].baseline)) baseline = curves[i].baseline;
    count += add_series(&curves[i], view->runs[i], &series[count], &labels[count]);
  }
  const int width = terminal_width();
  const struct plm_plot plot = {.title = key,
                                .series = series,
                                .count = count,
                                .level = baseline,
                                .level_label = "composition only",
                                .columns = width == 0    ? 100
                                           : width > 120 ? 120
                                                         : width,
                                .rows = 20,
                                .color = color};
  if (status == PLM_OK) plm_plot_draw(stdout, &plot);
  for (size_t i = 0; i < view->run_count; i++) plm_curves_deinit(&curves[i]);
  return status;
}

static plm_status collect_runs(const struct plm_command_context *context, struct view *view,
                               char path[PLM_PATH_SIZE], struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  for (size_t i = 0; i < arguments->value_count; i++) {
    if (strcmp(arguments->values[i].option->name, "run") != 0) continue;
    if (view->run_count == MAX_RUNS)
      return plm_error_set(error, PLM_USAGE, "--run is given more than %d times", MAX_RUNS);
    view->runs[view->run_count++] = arguments->values[i].value;
  }
  if (view->run_count == 0) {
    PLM_TRY(plm_command_run_folder(context, path, error));
    view->runs[view->run_count++] = path;
  }
  for (size_t i = 0; i < view->run_count; i++) {
    const int width = (int)strlen(view->runs[i]) + 2;
    if (view->run_count > 1 && width > view->run_width) view->run_width = width;
    if (plm_file_exists(view->runs[i])) continue;
    plm_error_set(error, PLM_NOT_FOUND, "there is no run folder %s", view->runs[i]);
    return plm_error_hint(error, "start a run with `plm-pipeline up`, or name one with --run DIR");
  }
  return PLM_OK;
}

static plm_status choose_stage(const struct plm_arguments *arguments, struct view *view,
                               struct plm_error *error)
{
  const char *name = arguments->positional_count == 1 ? arguments->positionals[0] : "evaluator";
  for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
    view->stage = (int)i;
    if (strcmp(stages[i].name, name) == 0) return PLM_OK;
  }
  return plm_error_set(error, PLM_USAGE,
                       "\"%s\" is not a stage; the stages are evaluator, trainer and packer", name);
}

static plm_status metrics_show(const struct plm_command_context *context, struct view *view,
                               struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const char *keys = plm_arguments_get(arguments, "keys");
  const bool plot = plm_arguments_has(arguments, "plot");
  PLM_TRY(choose_stage(arguments, view, error));
  view->form = plm_arguments_has(arguments, "csv")       ? FORM_CSV
               : context->json || !isatty(STDOUT_FILENO) ? FORM_JSON
                                                         : FORM_TABLE;
  view->all_keys = keys == NULL;
  if (keys == NULL) keys = plot ? "loss" : stages[view->stage].columns;
  PLM_TRY(split_keys(view, keys, error));
  if (!view->all_keys) PLM_TRY(metrics_check_keys(view, error));
  if (!plot) {
    PLM_TRY(print_runs(view, plm_arguments_has(arguments, "follow"), error));
    if (view->printed == 0 && !context->quiet)
      plm_info("no metrics of the %s yet in %s", stages[view->stage].name, view->runs[0]);
    return PLM_OK;
  }
  for (int i = 0; i < view->key_count; i++)
    PLM_TRY(plot_key(view, view->keys[i], context->color, error));
  return PLM_OK;
}

static plm_status metrics_run(const struct plm_command_context *context, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct view view = {0};
  plm_stop_signals_install();
  PLM_TRY(plm_command_operands(context, 1, error));
  PLM_TRY(collect_runs(context, &view, path, error));
  const plm_status status = metrics_show(context, &view, error);
  plm_name_list_deinit(&view.list);
  return status;
}

const struct plm_command plm_command_metrics = {
    .name = "metrics",
    .operands = "[STAGE] [-f] [--keys A,B] [--csv | --plot] [--run DIR]...",
    .summary = "show the metrics of the evaluator (default), the trainer or the packers",
    .details = "Prints a table on a terminal, and lines of JSON when piped or with --json. STAGE "
               "is evaluator, trainer or packer. A table has the columns with values that fit; "
               "--keys chooses others, also a part of a field, as in tokens_by_source/FOLDER; "
               "--csv prints all. "
               "-f follows the file through restarts and resumes. "
               "With several --run, each line names its run, and --plot overlays their curves.",
    .options = options,
    .run = metrics_run,
};
