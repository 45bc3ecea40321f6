/* What several commands need: the run they are about, checks of operands. */
#include <stdio.h>
#include <unistd.h>

#include "stages/command.h"

plm_status plm_command_run_folder(const struct plm_command_context *context,
                                  char path[PLM_PATH_SIZE], struct plm_error *error)
{
  if (context->run != NULL) {
    char here[PLM_PATH_SIZE];
    if (getcwd(here, sizeof here) == NULL) return plm_error_errno(error, "working directory");
    return plm_path_join(path, here, context->run, error);
  }
  struct plm_config config;
  PLM_TRY(plm_arguments_load_config(context->arguments, NULL, false, &config, error));
  snprintf(path, PLM_PATH_SIZE, "%s", config.run);
  plm_config_deinit(&config);
  return PLM_OK;
}

plm_status plm_command_operands(const struct plm_command_context *context, size_t most,
                                struct plm_error *error)
{
  if (context->arguments->positional_count <= most) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "unexpected argument \"%.200s\"",
                       context->arguments->positionals[most]);
}
