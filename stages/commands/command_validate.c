/* `plm-pipeline validate`: reports all mistakes of a configuration at once. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/text.h"
#include "common/config/task_table.h"
#include "common/corpus/corpus_description.h"
#include "common/huggingface/folder_facts.h"
#include "common/sequences/assay_ids.h"
#include "stages/commands/command.h"
#include "stages/supervisor/prepare/run_corpora.h"
#include "stages/supervisor/prepare/run_labels.h"

static plm_status validate_print_json(const struct plm_config_problems *problems,
                                      struct plm_error *error)
{
  cJSON *array = cJSON_CreateArray();
  for (size_t i = 0; i < plm_config_problems_count(problems); i++) {
    plm_json_append(array, cJSON_CreateString(plm_config_problem(problems, i)));
  }
  return plm_json_print(array, error);
}

/* A corpus that is not there is only worth a warning: it may be made later, or be on another host.
 * If it is there, packers must accept its file system, and it must have the clusters that sampling
 * needs. */
static plm_status validate_check_corpus(const struct plm_config *config, struct plm_error *error)
{
  const struct plm_plan_parameters parameters = plm_config_training_plan(config);
  struct plm_corpus_description description;
  PLM_TRY(plm_run_corpora_local(config, error));
  PLM_TRY(plm_run_corpora_present(config, error));
  PLM_TRY(plm_run_labels_check(config, error));
  if (config->corpus == NULL || parameters.sampling == PLM_SAMPLING_DOCUMENTS) return PLM_OK;
  const plm_status status = plm_corpus_description_read(config->corpus, &description, error);
  if (status == PLM_NOT_FOUND) return PLM_OK; /* it may be made later, or be on another host */
  if (status != PLM_OK) return status;
  const plm_status checked =
      plm_plan_check_corpus(&parameters, &description.info, config->corpus, error);
  plm_corpus_description_deinit(&description);
  return checked;
}

/* Says what trainer.init_from is, and whether it fits. Like a corpus, it may be on another host. */
static plm_status validate_init_from(const struct plm_config *config, struct plm_text *said,
                                     struct plm_error *error)
{
  const char *from = config->trainer.init_from;
  struct plm_model_folder folder;
  struct plm_folder_facts facts;
  struct plm_text notes = {0};
  if (from == NULL) return PLM_OK;
  if (!plm_file_exists(from)) {
    plm_warning("trainer.init_from: %s does not exist on this host", from);
    return PLM_OK;
  }
  plm_status status = plm_model_folder_check(from, &folder, NULL, error);
  if (status == PLM_OK) status = plm_folder_facts_read(&folder, &facts, error);
  if (status == PLM_OK) status = plm_model_folder_can_start(&folder, &config->model, &notes, error);
  if (status == PLM_OK) {
    plm_text_printf(said, "trainer.init_from: ");
    plm_folder_facts_print(&folder, &facts, said);
    plm_text_puts(said, "\n");
    if (notes.length > 0) plm_text_printf(said, PLM_NOTES_TITLE ":\n%s", notes.data);
  }
  plm_text_deinit(&notes);
  return status == PLM_OK ? PLM_OK : (error->status = PLM_CONFIG);
}

/* Like a corpus, what a task reads may be made later, or be on another host. */
static void validate_warn_tasks(const struct plm_config *config)
{
  for (uint32_t i = 0; i < config->evaluator.task_count; i++) {
    const struct plm_config_task *task = &config->evaluator.tasks[i];
    const char *const paths[] = {task->path, task->reference};
    for (size_t k = 0; k < 2; k++)
      if (paths[k] != NULL && !plm_file_exists(paths[k]))
        plm_warning("evaluator.tasks: %s: %s does not exist on this host", task->name, paths[k]);
  }
}

/* The columns of a probe are those of its table, and each row is as the evaluator takes it. */
static plm_status check_probe(const struct plm_config *config, const struct plm_config_task *task,
                              struct plm_error *error)
{
  const struct plm_labelled_request request = plm_task_table(config, task);
  struct plm_labelled_table table;
  const plm_status status = plm_labelled_table_read(&request, &table, error);
  plm_labelled_table_deinit(&table);
  if (status != PLM_OK && error->where[0] == '\0')
    plm_error_where(error, "evaluator.tasks: %s", task->name);
  if (status != PLM_FORMAT) return status;
  return error->status = PLM_CONFIG; /* a mistake in the configuration or in what it names */
}

/* Whether the reference file of assays, if it is here, lists those that the task names. */
static plm_status check_ids(const struct plm_config_task *task, struct plm_error *error)
{
  if (task->id_count == 0 || !plm_file_exists(task->reference)) return PLM_OK;
  const plm_status status =
      plm_assay_ids_check(task->reference, (const char *const *)task->ids, task->id_count, error);
  if (status == PLM_OK) return PLM_OK;
  if (error->where[0] == '\0') plm_error_where(error, "evaluator.tasks: %s", task->name);
  return error->status = PLM_CONFIG;
}

/* What exists on this host; a folder is no file later. */
static plm_status validate_tasks(const struct plm_config *config, struct plm_error *error)
{
  for (uint32_t i = 0; i < config->evaluator.task_count; i++) {
    const struct plm_config_task *task = &config->evaluator.tasks[i];
    if (!plm_file_exists(task->path)) continue;
    if (task->kind == PLM_TASK_PROBE) {
      PLM_TRY(check_probe(config, task, error));
      continue;
    }
    if (plm_directory_exists(task->path)) {
      PLM_TRY(check_ids(task, error));
      continue;
    }
    return plm_error_set(
        error, PLM_CONFIG, "evaluator.tasks: %s: %s is not a folder; %s", task->name, task->path,
        task->kind == PLM_TASK_CONTACTS ? "contacts need a folder of NAME.fasta and NAME.contacts"
                                        : "assays need the folder of their CSV files");
  }
  return PLM_OK;
}

static void check_more(struct plm_loader *loader)
{
  plm_run_corpora_check(loader);
  plm_config_check_schedule(loader);
}

static plm_status validate(const struct plm_command_context *context, struct plm_error *error)
{
  struct plm_config config;
  struct plm_config_override *overrides;
  struct plm_config_problems *problems;
  size_t count;
  PLM_TRY(plm_command_operands(context, 1, error));
  const char *path = context->arguments->positional_count > 0 ? context->arguments->positionals[0]
                                                              : context->config_path;
  PLM_TRY(plm_arguments_overrides(context->arguments, &overrides, &count, error));
  const plm_status status =
      plm_config_load_with(path, overrides, count, check_more, &config, &problems, error);
  plm_arguments_overrides_free(overrides, count);
  if (problems != NULL) { /* the result of this command, so that main has nothing to add */
    plm_error_set(error, status, "%s", "");
    if (context->json)
      PLM_TRY(validate_print_json(problems, error));
    else
      plm_config_problems_print(problems);
    plm_config_problems_free(problems);
  }
  if (status != PLM_OK) return status;
  struct plm_text advice = {0}, said = {0};
  plm_status checked = validate_check_corpus(&config, error);
  if (checked == PLM_OK) checked = validate_tasks(&config, error);
  if (checked == PLM_OK) checked = validate_init_from(&config, &said, error);
  if (checked != PLM_OK) {
    plm_text_deinit(&said);
    plm_config_deinit(&config);
    return checked;
  }
  validate_warn_tasks(&config);
  plm_config_advise(&config, &advice);
  if (advice.length > 0) plm_print(stderr, "%s", advice.data);
  plm_text_deinit(&advice);
  plm_config_deinit(&config);
  if (said.length > 0 && !context->quiet && !context->json) plm_print(stdout, "%s", said.data);
  plm_text_deinit(&said);
  if (context->json) return validate_print_json(NULL, error);
  if (!context->quiet)
    plm_print(stdout, "%s: valid\n", strncmp(path, "./", 2) == 0 ? path + 2 : path);
  return PLM_OK;
}

const struct plm_command plm_command_validate = {
    .name = "validate",
    .sets = true,
    .operands = "[FILE]",
    .summary = "check a configuration; all mistakes at once, with line and column",
    .details =
        "Exits with 2 if there are mistakes. A corpus that does not exist on this host is only "
        "a warning, because it may be on another one. What trainer.init_from names is opened, "
        "compared with the model, and described, with the settings that differ, and tables of "
        "probes are read. --json prints them as an array of texts.",
    .run = validate,
};
