/* Reads what a report says about a run. */
#include "stages/views/report_facts.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/trainer_json.h"
#include "common/run/run.h"
#include "stages/views/run_state.h"

enum { CONFIG_LIMIT = 1 << 20 };

static plm_status read_config(struct plm_report_run *run, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, run->folder, PLM_RUN_CONFIG, error));
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  const plm_status status = plm_config_load_text(text, size, &run->config, error);
  free(text);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}

static void copy_word(const cJSON *object, const char *name, char *to, size_t size)
{
  snprintf(to, size, "%s", plm_json_string(object, name, ""));
}

/* The trainer writes "family, model, name, stepping"; only the name means something to a reader. */
static void copy_processor(const cJSON *resolved, char *to, size_t size)
{
  const char *text = plm_json_string(resolved, "processor", "");
  const char *begin = text;
  for (int commas = 0; commas < 2 && begin != NULL; commas++) {
    begin = strstr(begin, ", ");
    if (begin != NULL) begin += 2;
  }
  const char *end = begin != NULL ? strrchr(begin, ',') : NULL;
  if (end != NULL)
    snprintf(to, size, "%.*s", (int)(end - begin), begin);
  else
    snprintf(to, size, "%s", text);
}

static unsigned copy_count(const cJSON *object, const char *name)
{
  const double value = plm_json_number(object, name, 0);
  return value >= 0 && value < 1e9 ? (unsigned)value : 0;
}

static void report_read_machine(const cJSON *state, struct plm_report_machine *machine)
{
  const cJSON *resolved = cJSON_GetObjectItemCaseSensitive(state, "resolved");
  if (!cJSON_IsObject(resolved)) return;
  machine->known = true;
  copy_processor(resolved, machine->processor, sizeof machine->processor);
  copy_word(resolved, "device", machine->device, sizeof machine->device);
  copy_word(resolved, "level", machine->level, sizeof machine->level);
  copy_word(resolved, "precision", machine->precision, sizeof machine->precision);
  copy_word(resolved, "products", machine->products, sizeof machine->products);
  copy_word(resolved, "version", machine->version, sizeof machine->version);
  copy_word(resolved, "build", machine->build, sizeof machine->build);
  machine->threads = copy_count(resolved, "threads");
  machine->ranks = copy_count(resolved, "ranks");
  machine->product_flops = plm_json_number(resolved, "product_flops_per_second", 0);
}

/* Takes the configuration of the checkpoint. Of a run that is running, pipeline.yaml holds, and
 * what it changed since the checkpoint becomes marks. */
static plm_status report_read_config(const cJSON *state, struct plm_report_run *run,
                                     struct plm_error *error)
{
  const char *yaml = plm_json_string(state, "configuration", NULL);
  struct plm_config trained, kept;
  struct plm_text changes = {0};
  char *text = NULL;
  uint64_t step;
  if (yaml == NULL || plm_config_load_text(yaml, strlen(yaml), &trained, NULL) != PLM_OK)
    return PLM_OK;
  plm_status status = PLM_OK;
  if (strcmp(run->state, "running") == 0) {
    if (plm_json_count(cJSON_GetObjectItemCaseSensitive(state, "step"), &step) &&
        plm_config_check_resume(&trained, &run->config, &changes, NULL) == PLM_OK)
      plm_marks_add_changes(&run->marks, step, changes.data);
  } else if (plm_config_print_kept(&trained, &run->config, &text, NULL) == PLM_OK) {
    status = plm_config_load_text(text, strlen(text), &kept, error);
    if (status == PLM_OK) {
      plm_config_deinit(&run->config);
      run->config = kept;
    }
  }
  free(text);
  plm_text_deinit(&changes);
  plm_config_deinit(&trained);
  return status;
}

/* A checkpoint that cannot be read leaves the machine unknown: `checkpoints --verify` is the
 * command that says what is wrong with it. */
static plm_status read_checkpoint(struct plm_report_run *run, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t *steps = NULL;
  size_t count = 0;
  plm_status status = PLM_OK;
  PLM_TRY(plm_path_join(path, run->folder, PLM_RUN_CHECKPOINTS, error));
  if (plm_checkpoint_list(path, &steps, &count, NULL) != PLM_OK) return PLM_OK;
  if (count > 0) {
    plm_checkpoint_name(steps[count - 1], name);
    char folder[PLM_PATH_SIZE];
    cJSON *state = NULL;
    if (plm_path_join(folder, path, name, NULL) == PLM_OK &&
        plm_trainer_json_read(folder, &state, NULL) == PLM_OK && state != NULL) {
      report_read_machine(state, &run->machine);
      plm_marks_add_history(&run->marks, cJSON_GetObjectItemCaseSensitive(state, "history"));
      status = report_read_config(state, run, error);
      cJSON_Delete(state);
    }
  }
  free(steps);
  return status;
}

static plm_status read_metrics(struct plm_report_run *run, struct plm_error *error)
{
#define NAME(name) #name,
#define KEY(name, key) key,
  static const char *const trainer[] = {PLM_REPORT_TRAINER(NAME) PLM_REPORT_PARTS(KEY)};
  static const char *const evaluator[] = {"loss",
                                          PLM_MEASURES_OF_CLASSES_EACH(PLM_MEASURE_NAME)
                                              PLM_MEASURES_OF_NUMBERS_EACH(PLM_MEASURE_NAME)};
#undef KEY
#undef NAME
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, run->folder, PLM_RUN_TRAINER_METRICS, error));
  PLM_TRY(plm_curves_read_keys(path, trainer, PLM_REPORT_TRAINER_COUNT, run->trainer, error));
  PLM_TRY(plm_path_join(path, run->folder, PLM_RUN_EVALUATOR_METRICS, error));
  return plm_curves_read_keys(path, evaluator, PLM_REPORT_EVALUATOR_COUNT, run->evaluator, error);
}

plm_status plm_report_run_read(const char *folder, struct plm_report_run *run,
                               struct plm_error *error)
{
  *run = (struct plm_report_run){0};
  snprintf(run->folder, sizeof run->folder, "%s", folder);
  for (size_t end = strlen(run->folder); end > 1 && run->folder[end - 1] == '/'; end--)
    run->folder[end - 1] = '\0';
  const char *slash = strrchr(run->folder, '/');
  run->name = slash != NULL && slash[1] != '\0' ? slash + 1 : run->folder;
  if (!plm_is_run(run->folder)) {
    plm_error_set(error, PLM_NOT_FOUND, "%s is not a run folder: it has no %s", run->folder,
                  PLM_RUN_CONFIG);
    return plm_error_hint(error, "`plm-pipeline runs` lists the runs of a folder");
  }
  run->state = plm_run_state(run->folder);
  PLM_TRY(read_config(run, error));
  plm_status status = read_checkpoint(run, error);
  if (status == PLM_OK) status = read_metrics(run, error);
  if (status == PLM_OK)
    plm_marks_add_resumes(&run->marks, plm_report_curve(run, PLM_REPORT_TRAINER_resumed));
  if (status != PLM_OK) plm_report_run_deinit(run);
  return status;
}

void plm_report_run_deinit(struct plm_report_run *run)
{
  plm_config_deinit(&run->config);
  for (size_t i = 0; i < PLM_REPORT_TRAINER_COUNT; i++) plm_curves_deinit(&run->trainer[i]);
  for (size_t i = 0; i < PLM_REPORT_EVALUATOR_COUNT; i++) plm_curves_deinit(&run->evaluator[i]);
}

const struct plm_curve *plm_report_curve(const struct plm_report_run *run,
                                         enum plm_report_trainer_metric metric)
{
  const struct plm_curves *curves = &run->trainer[metric];
  return curves->count > 0 && curves->list[0].count > 0 ? &curves->list[0] : NULL;
}
