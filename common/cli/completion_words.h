/* What the completion scripts of all shells share (common/cli/completion.h). */
#ifndef PLM_COMMON_CLI_COMPLETION_WORDS_H
#define PLM_COMMON_CLI_COMPLETION_WORDS_H

#include <stdbool.h>

#include "common/cli/completion.h"

/* What may stand in one place. */
struct plm_completions {
  bool files;
  char words[96]; /* each with a blank before it */
};

/* Reads a command's operands, as the usage has them. */
struct plm_completions plm_operand_completions(const char *operands);
/* Reads the name of an option's argument; the option has one. */
struct plm_completions plm_argument_completions(const struct plm_option *option);
/* Prints the keys of the settings, each with "=". */
void plm_completion_keys(void);
/* Prints the program's name with _ for each dash, for names of functions. */
void plm_completion_function(const struct plm_completed_program *program);
/* Prints text inside single quotes: `quote` for a single quote, and a backslash before each
 * character of `escaped`. */
void plm_completion_quoted(const char *text, const char *escaped, const char *quote);

void plm_completion_bash(const struct plm_completed_program *program);
void plm_completion_zsh(const struct plm_completed_program *program);
void plm_completion_fish(const struct plm_completed_program *program);

#endif
