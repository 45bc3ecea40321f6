/* Command-line options of all four programs, defined by tables. GNU style: --name VALUE,
 * --name=VALUE, -n VALUE, clustered short flags, "--". An unknown option is an error (exit code 2)
 * that suggests the nearest one. */
#ifndef PLM_COMMON_CLI_OPTIONS_H
#define PLM_COMMON_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/config/config.h"

struct plm_option {
  char letter;          /* 0: none */
  const char *name;     /* without dashes */
  const char *argument; /* name of its argument in the help; NULL: it is a flag */
  const char *help;
};

/* One occurrence on the command line. */
struct plm_option_value {
  const struct plm_option *option;
  const char *value; /* NULL for a flag */
};

/* The options that every program has: -c --config FILE, --run DIR, --set KEY=VALUE, --json, -q, -v,
 * --color, -h, --version. The last row has no name. */
extern const struct plm_option plm_common_options[];

struct plm_arguments {
  struct plm_option_value *values;
  size_t value_count;
  const char **positionals; /* a NULL follows the last one */
  size_t positional_count;
};

/* Parses argv[1..] by table, whose last row has no name, and by plm_common_options. PLM_USAGE names
 * the wrong option and may suggest another. On PLM_OK the caller calls _deinit. */
plm_status plm_arguments_parse(int argc, char **argv, const struct plm_option *table,
                               struct plm_arguments *arguments, struct plm_error *error);
void plm_arguments_deinit(struct plm_arguments *arguments);
/* The value given last, "" for a flag; NULL if the option is absent. */
const char *plm_arguments_get(const struct plm_arguments *arguments, const char *name);
bool plm_arguments_has(const struct plm_arguments *arguments, const char *name);
/* The value as a whole number, or `fallback` if the option is absent. PLM_USAGE. */
plm_status plm_arguments_u64(const struct plm_arguments *arguments, const char *name,
                             unsigned long long fallback, unsigned long long *value,
                             struct plm_error *error);
/* The same for a number within limits; *value stays if the option is absent. */
plm_status plm_arguments_within(const struct plm_arguments *arguments, const char *name,
                                unsigned least, unsigned most, unsigned *value,
                                struct plm_error *error);
/* The same for a number that may have a sign. */
plm_status plm_arguments_i64(const struct plm_arguments *arguments, const char *name,
                             long long fallback, long long *value, struct plm_error *error);

/* Whether output to stdout is coloured: as --color says, otherwise if stdout is a terminal with
 * colours (TERM) and NO_COLOR is not set. PLM_USAGE. */
plm_status plm_arguments_color(const struct plm_arguments *arguments, bool *color,
                               struct plm_error *error);

/* --set and --run as overrides for plm_config_load, in the order in which they were given.
 * PLM_USAGE for a --set without "=". The caller frees them with plm_arguments_overrides_free. */
plm_status plm_arguments_overrides(const struct plm_arguments *arguments,
                                   struct plm_config_override **overrides, size_t *count,
                                   struct plm_error *error);
void plm_arguments_overrides_free(struct plm_config_override *overrides, size_t count);

/* Loads the configuration from `file`, or if that is NULL from -c, PLM_CONFIG or ./pipeline.yaml,
 * and applies PLM_* variables, --set and --run. If no file is named and ./pipeline.yaml does not
 * exist, that is an error if `required`; otherwise the defaults are used. The problems of a wrong
 * configuration are printed, and error->what is then empty so that nothing is printed twice. */
plm_status plm_arguments_load_config(const struct plm_arguments *arguments, const char *file,
                                     bool required, struct plm_config *config,
                                     struct plm_error *error);

/* The file that PLM_CONFIG names; NULL if it is unset or empty. */
const char *plm_environment_config(void);

/* Sets up the log for a program by its name, -q and -v. */
void plm_arguments_log(const struct plm_arguments *arguments, const char *program);

/* Prints help, wrapped to the width of the terminal. Lines join into paragraphs, which end before
 * an empty or an indented line. column: where the cursor is, and where the following lines begin.
 */
void plm_help_text(const char *text, int column);
/* Prints the help of each option of a table. */
void plm_options_help(const struct plm_option *table);

#endif
