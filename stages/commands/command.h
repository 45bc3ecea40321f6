/* A command of plm-pipeline. Each is one `const struct plm_command plm_command_NAME`, usually in
 * stages/commands/command_NAME.c, and is entered in the table of command_table.c, which drives
 * dispatch, help and completion. */
#ifndef PLM_STAGES_COMMANDS_COMMAND_H
#define PLM_STAGES_COMMANDS_COMMAND_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "common/cli/options.h"

struct plm_command_context {
  const struct plm_arguments *arguments;
  const char *config_path;          /* -c, PLM_CONFIG or "./pipeline.yaml"; may not exist */
  bool config_given;                /* by -c or PLM_CONFIG */
  const char *run;                  /* --run or NULL */
  bool json, quiet, verbose, color; /* color: resolved for stdout */
  const char *program_directory;    /* of plm-pipeline and the stages' programs */
};

struct plm_command {
  const char *name;
  const char *operands;             /* "IN... --corpus DIR": for the usage line */
  const char *summary;              /* one line, with a verb */
  const char *details;              /* paragraphs for --help; may be NULL */
  const struct plm_option *options; /* besides plm_common_options; ends with a NULL name */
  bool sets; /* applies --set to a configuration; otherwise it may only choose the run */
  /* Prints the results. The status becomes the exit code, and main prints the error, unless
   * error->what is empty because the command has already reported everything. */
  plm_status (*run)(const struct plm_command_context *context, struct plm_error *error);
};

/* All commands, in the order of the help; NULL-terminated. */
extern const struct plm_command *const plm_commands[];
const struct plm_command *plm_command_find(const char *name); /* NULL if unknown */

/* Runs a command with its parsed arguments, as the program whose folder is named. */
plm_status plm_command_run(const struct plm_command *command, const struct plm_arguments *arguments,
                           const char *program_directory, struct plm_error *error);

/* The absolute path of the run folder that a command is about: --run, else the configuration's
 * `run`. With --run, no configuration is read. */
plm_status plm_command_run_folder(const struct plm_command_context *context,
                                  char path[PLM_PATH_SIZE], struct plm_error *error);

/* The configuration that the run was last started with, from its own pipeline.yaml and without the
 * environment. A run that has never started has none: without --run, the configuration at hand is
 * read instead, with its --set. PLM_USAGE if --set names another key than `run` for a run that has
 * started. The caller deinits *config. */
plm_status plm_command_run_config(const struct plm_command_context *context,
                                  struct plm_config *config, struct plm_error *error);
/* Reads RUN/pipeline.yaml; PLM_NOT_FOUND if there is none. `run` becomes this folder, also if it
 * was moved since. The caller deinits *config. */
plm_status plm_command_read_run(const char *run, struct plm_config *config,
                                struct plm_error *error);

/* PLM_USAGE if --set names another key than `run`, which `command` would ignore. */
plm_status plm_command_check_set(const struct plm_arguments *arguments, const char *command,
                                 struct plm_error *error);

/* PLM_USAGE if more than `most` operands were given. */
plm_status plm_command_operands(const struct plm_command_context *context, size_t most,
                                struct plm_error *error);

/* Reads "packer=4", as `scale` and `up --scale` take it. PLM_USAGE beyond 256 packers. */
plm_status plm_command_parse_scale(const char *text, unsigned *packers, struct plm_error *error);

/* The status that makes main end with a run's exit code. error->what is empty: whoever ended the
 * run has explained it. */
plm_status plm_command_status_of_code(int code, struct plm_error *error);

#endif
