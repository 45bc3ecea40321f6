/* Reads the options of `export` and `push`. */
#include "stages/commands/export_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/checkpoint/checkpoint.h"
#include "common/run/run.h"

static plm_status find_in_run(const struct plm_command_context *context, char path[PLM_PATH_SIZE],
                              struct plm_error *error)
{
  char run[PLM_PATH_SIZE], checkpoints[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  unsigned long long given;
  uint64_t step;
  PLM_TRY(plm_command_run_folder(context, run, error));
  PLM_TRY(plm_path_join(checkpoints, run, PLM_RUN_CHECKPOINTS, error));
  if (!plm_file_exists(checkpoints)) {
    plm_error_set(error, PLM_NOT_FOUND, "there are no checkpoints in %s", run);
    return plm_error_hint(error,
                          "name a checkpoint with --checkpoint DIR, or a run with --run DIR");
  }
  if (plm_arguments_has(context->arguments, "step")) {
    PLM_TRY(plm_arguments_u64(context->arguments, "step", 0, &given, error));
    step = given;
  } else {
    PLM_TRY(plm_checkpoint_newest(checkpoints, &step, NULL, error));
  }
  plm_checkpoint_name(step, name);
  PLM_TRY(plm_path_join(path, checkpoints, name, error));
  if (plm_file_exists(path)) return PLM_OK;
  plm_error_set(error, PLM_NOT_FOUND, "the run has no checkpoint of step %" PRIu64, step);
  plm_error_where(error, "%s", run);
  return plm_error_hint(error, "`plm-pipeline checkpoints` lists the ones it has");
}

plm_status plm_export_folder(const struct plm_command_context *context, char path[PLM_PATH_SIZE],
                             struct plm_error *error)
{
  const char *given = plm_arguments_get(context->arguments, "checkpoint");
  if (given == NULL) return find_in_run(context, path, error);
  if (context->run != NULL || plm_arguments_has(context->arguments, "step"))
    return plm_error_set(error, PLM_USAGE, "--checkpoint cannot be combined with --run or --step");
  if (strlen(given) >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "the path %.200s… is too long", given);
  snprintf(path, PLM_PATH_SIZE, "%s", given);
  return PLM_OK;
}

struct plm_export_request plm_export_request_of(const struct plm_arguments *arguments)
{
  return (struct plm_export_request){.weights = plm_arguments_get(arguments, "weights"),
                                     .dtype = plm_arguments_get(arguments, "dtype"),
                                     .license = plm_arguments_get(arguments, "license"),
                                     .name = plm_arguments_get(arguments, "name"),
                                     .force = plm_arguments_has(arguments, "force"),
                                     .merge = plm_arguments_has(arguments, "merge")};
}
