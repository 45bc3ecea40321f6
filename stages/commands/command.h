/* A command of plm-pipeline. Each lives in stages/commands/command_NAME.c as one `const struct
 * plm_command plm_command_NAME`, and stands in the table of stages/commands/command_table.c, which
 * drives dispatch, help, completion and the manual. */
#ifndef PLM_STAGES_COMMANDS_COMMAND_H
#define PLM_STAGES_COMMANDS_COMMAND_H

#include <stdbool.h>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/cli/options.h"

struct plm_command_context {
  const struct plm_arguments *arguments;
  const char *config_path;          /* -c, PLM_CONFIG or "./pipeline.yaml"; may not exist */
  bool config_given;                /* by the user: then it must exist */
  const char *run;                  /* --run or NULL */
  bool json, quiet, verbose, color; /* color: resolved for stdout */
  const char *program_directory;    /* where plm-pipeline and its siblings lie */
};

struct plm_command {
  const char *name;
  const char *operands;             /* "IN... --corpus DIR": for the usage line */
  const char *summary;              /* one line */
  const char *details;              /* paragraphs for --help and the manual; may be NULL */
  const struct plm_option *options; /* NULL-name terminated, beside plm_common_options */
  /* Prints its results; the status becomes the exit code, an error is printed by main. Narrative
   * failures that were already printed leave error->what empty. */
  plm_status (*run)(const struct plm_command_context *context, struct plm_error *error);
};

/* All commands, in the order of the help; NULL-terminated. */
extern const struct plm_command *const plm_commands[];
const struct plm_command *plm_command_find(const char *name); /* NULL: unknown */

/* The folder of the run that a command is about: --run, else the configuration's, absolute. With
 * --run no configuration is read. */
plm_status plm_command_run_folder(const struct plm_command_context *context,
                                  char path[PLM_PATH_SIZE], struct plm_error *error);

/* The configuration of that run as it was started (its own pipeline.yaml, without the environment);
 * before its first start, the one at hand. */
plm_status plm_command_run_config(const struct plm_command_context *context,
                                  struct plm_config *config, struct plm_error *error);
/* RUN/pipeline.yaml of a run folder; PLM_NOT_FOUND when it has none. */
plm_status plm_command_read_run(const char *run, struct plm_config *config,
                                struct plm_error *error);

/* PLM_USAGE when more than `most` operands were given. */
plm_status plm_command_operands(const struct plm_command_context *context, size_t most,
                                struct plm_error *error);

/* "packer=4", of `up --scale` and `scale`. */
plm_status plm_command_parse_scale(const char *text, unsigned *packers, struct plm_error *error);

/* A run's exit code as a status, so that main ends with it. It has been explained: error->what is
 * empty. */
plm_status plm_command_status_of_code(int code, struct plm_error *error);

#endif
