/* What plm-packer, plm-trainer and plm-evaluator share as programs: options, help, version, log
 * level, stop signals, exit code; and the configuration that their options name. */
#ifndef PLM_COMMON_CLI_PROGRAM_H
#define PLM_COMMON_CLI_PROGRAM_H

#include "common/base/status.h"
#include "common/cli/options.h"
#include "common/config/config.h"

struct plm_program {
  const char *name;  /* "plm-trainer" */
  const char *usage; /* the lines before the options in --help */
  const struct plm_option *options;
  const char *more; /* the lines behind the options; NULL for none */
  size_t operands;  /* words beside the options at most */
  plm_status (*run)(const struct plm_arguments *arguments, struct plm_error *error);
};

/* Parses, answers --help and --version, runs, prints the error; returns the exit code. Stop signals
 * are caught from the first moment. */
int plm_program_main(const struct plm_program *program, int argc, char **argv);

/* plm_arguments_load_config for a program that looks at a run from outside: without -c and
 * PLM_CONFIG, pipeline.yaml of the run folder given comes before ./pipeline.yaml. On PLM_OK the
 * caller deinits. */
plm_status plm_program_config(const struct plm_arguments *arguments, struct plm_config *config,
                              struct plm_error *error);

#endif
