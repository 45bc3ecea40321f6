/* The programs' common frame. */
#include "common/config/program.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/run/run.h"

static plm_status run_program(const struct plm_program *program,
                              const struct plm_arguments *arguments, struct plm_error *error)
{
  if (plm_arguments_has(arguments, "help")) {
    puts(program->usage);
    plm_options_help(program->options);
    plm_options_help(plm_common_options);
    return PLM_OK;
  }
  if (plm_arguments_has(arguments, "version")) {
    printf("%s %s\n", program->name, PLM_VERSION);
    return PLM_OK;
  }
  if (plm_arguments_has(arguments, "quiet")) plm_log_init(program->name, PLM_LOG_WARNING);
  if (plm_arguments_has(arguments, "verbose")) plm_log_init(program->name, PLM_LOG_DEBUG);
  plm_stop_signals_install();
  return program->run(arguments, error);
}

int plm_program_main(const struct plm_program *program, int argc, char **argv)
{
  struct plm_arguments arguments = {0};
  struct plm_error error = {0};
  plm_log_init(program->name, PLM_LOG_INFO);
  plm_status status = plm_arguments_parse(argc, argv, program->options, &arguments, &error);
  if (status == PLM_OK) status = run_program(program, &arguments, &error);
  plm_arguments_deinit(&arguments);
  if (status != PLM_OK && error.what[0] != '\0') plm_error_print(program->name, &error);
  return plm_status_exit_code(status);
}

/* NULL: no file, defaults alone. */
static const char *choose_file(const struct plm_arguments *arguments, char path[PLM_PATH_SIZE])
{
  const char *given = plm_arguments_get(arguments, "config");
  const char *run = plm_arguments_get(arguments, "run");
  if (given == NULL) given = getenv("PLM_CONFIG");
  if (given != NULL) return given;
  if (run != NULL && plm_path_join(path, run, PLM_RUN_CONFIG, NULL) == PLM_OK &&
      plm_file_exists(path))
    return path;
  return plm_file_exists("pipeline.yaml") ? "pipeline.yaml" : NULL;
}

plm_status plm_program_config(const struct plm_arguments *arguments, struct plm_config *config,
                              struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_config_override *overrides;
  struct plm_config_problems *problems = NULL;
  size_t count;
  PLM_TRY(plm_arguments_overrides(arguments, &overrides, &count, error));
  const plm_status status =
      plm_config_load(choose_file(arguments, path), overrides, count, config, &problems, error);
  if (problems != NULL) plm_config_problems_print(problems);
  plm_config_problems_free(problems);
  plm_arguments_overrides_free(overrides, count);
  return status;
}
