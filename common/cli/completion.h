/* Completion scripts for bash, zsh and fish, made from the tables of options, commands and
 * settings. */
#ifndef PLM_COMMON_CLI_COMPLETION_H
#define PLM_COMMON_CLI_COMPLETION_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/cli/options.h"

/* A word that chooses what a program does: a command of plm-pipeline, a task of plm-evaluator. */
struct plm_completed_command {
  const char *name;
  const char *operands;             /* "IN... --corpus DIR", as in the usage; NULL: none */
  const char *summary;              /* one line */
  const struct plm_option *options; /* besides plm_common_options; NULL: none */
};

struct plm_completed_program {
  const char *name;                 /* "plm-packer" */
  const struct plm_option *options; /* before or without a command, besides plm_common_options;
                                     * NULL: none */
  const struct plm_completed_command *commands;
  size_t command_count;
};

/* Prints the script for the program to standard output. PLM_USAGE: the shell is not bash, zsh or
 * fish. shell: "" if none was named. */
plm_status plm_completion_print(const struct plm_completed_program *program, const char *shell,
                                struct plm_error *error);

#endif
