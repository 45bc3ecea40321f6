/* What several commands need: the run they are about, and checks of operands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/run/run.h"
#include "stages/commands/command.h"

plm_status plm_command_run(const struct plm_command *command, const struct plm_arguments *arguments,
                           const char *program_directory, struct plm_error *error)
{
  struct plm_command_context context = {
      .arguments = arguments,
      .config_path = plm_arguments_get(arguments, "config"),
      .run = plm_arguments_get(arguments, "run"),
      .json = plm_arguments_has(arguments, "json"),
      .quiet = plm_arguments_has(arguments, "quiet"),
      .verbose = plm_arguments_has(arguments, "verbose"),
      .program_directory = program_directory,
  };
  if (context.config_path == NULL) context.config_path = plm_environment_config();
  context.config_given = context.config_path != NULL;
  if (!context.config_given) context.config_path = "./pipeline.yaml";
  PLM_TRY(plm_arguments_color(arguments, &context.color, error));
  if (!command->sets) PLM_TRY(plm_command_check_set(arguments, command->name, error));
  plm_arguments_log(arguments, "plm-pipeline");
  return command->run(&context, error);
}

plm_status plm_command_check_set(const struct plm_arguments *arguments, const char *command,
                                 struct plm_error *error)
{
  struct plm_config_override *sets;
  size_t count;
  PLM_TRY(plm_arguments_overrides(arguments, &sets, &count, error));
  plm_status status = PLM_OK;
  for (size_t i = 0; i < count && status == PLM_OK; i++) {
    if (strcmp(sets[i].key, "run") == 0) continue;
    plm_error_set(error, PLM_USAGE, "--set %.200s has no effect on %s", sets[i].key, command);
    status = plm_error_hint(error, "a run is shown as it was started; `up --set` changes a "
                                   "setting, and --set run=DIR chooses the run");
  }
  plm_arguments_overrides_free(sets, count);
  return status;
}

plm_status plm_command_run_folder(const struct plm_command_context *context,
                                  char path[PLM_PATH_SIZE], struct plm_error *error)
{
  if (context->run != NULL) {
    char here[PLM_PATH_SIZE];
    if (getcwd(here, sizeof here) == NULL)
      return plm_error_errno(error, "cannot find the working directory");
    return plm_path_join(path, here, context->run, error);
  }
  struct plm_config config;
  PLM_TRY(plm_arguments_load_config(context->arguments, NULL, false, &config, error));
  snprintf(path, PLM_PATH_SIZE, "%s", config.run);
  plm_config_deinit(&config);
  return PLM_OK;
}

plm_status plm_command_read_run(const char *run, struct plm_config *config, struct plm_error *error)
{
  enum { CONFIG_LIMIT = 1 << 20 };
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, run, PLM_RUN_CONFIG, error));
  PLM_TRY(plm_file_read(path, CONFIG_LIMIT, &text, &size, error));
  const plm_status status = plm_config_load_text(text, size, config, error);
  free(text);
  if (status != PLM_OK) {
    plm_error_where(error, "%s", path);
    return status;
  }
  free(config->run); /* where the run was when it was started; its folder may have been moved */
  config->run = plm_strdup(run);
  return PLM_OK;
}

plm_status plm_command_run_config(const struct plm_command_context *context,
                                  struct plm_config *config, struct plm_error *error)
{
  char run[PLM_PATH_SIZE];
  PLM_TRY(plm_command_run_folder(context, run, error));
  plm_status status = plm_command_read_run(run, config, error);
  if (status == PLM_NOT_FOUND && context->run == NULL)
    return plm_arguments_load_config(context->arguments, NULL, true, config, error);
  if (status != PLM_OK) return status;
  status = plm_command_check_set(context->arguments, "a run that has started", error);
  if (status != PLM_OK) plm_config_deinit(config);
  return status;
}

plm_status plm_command_operands(const struct plm_command_context *context, size_t most,
                                struct plm_error *error)
{
  if (context->arguments->positional_count <= most) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "unexpected argument \"%.200s\"",
                       context->arguments->positionals[most]);
}

plm_status plm_command_parse_scale(const char *text, unsigned *packers, struct plm_error *error)
{
  static const char name[] = "packer=";
  const char *digits = text + sizeof name - 1;
  char *end = NULL;
  if (strncmp(text, name, sizeof name - 1) == 0 && *digits >= '0' && *digits <= '9') {
    const unsigned long count = strtoul(digits, &end, 10);
    if (*end == '\0' && count <= 256) {
      *packers = (unsigned)count;
      return PLM_OK;
    }
  }
  return plm_error_set(error, PLM_USAGE, "expected packer=N with N from 0 to 256, found \"%.80s\"",
                       text);
}

plm_status plm_command_status_of_code(int code, struct plm_error *error)
{
  static const plm_status statuses[] = {PLM_CONFIG,      PLM_NOT_RUNNING, PLM_TIMEOUT,
                                        PLM_NOT_FINITE,  PLM_UNAVAILABLE, PLM_PERMANENT,
                                        PLM_INTERRUPTED, PLM_TERMINATED};
  if (code == 0) return PLM_OK;
  plm_error_set(error, PLM_FAILURE, "%s", "");
  for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
    if (plm_status_exit_code(statuses[i]) == code) error->status = statuses[i];
  }
  return error->status;
}
