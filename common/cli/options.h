/* Command-line options of all four programs, from tables: GNU style (--name VALUE, --name=VALUE,
 * -n VALUE, clustered short flags, "--"). Unknown options get a suggestion, exit code 2. */
#ifndef PLM_COMMON_CLI_OPTIONS_H
#define PLM_COMMON_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/config/config.h"

struct plm_option {
  char letter;          /* 0: none */
  const char *name;     /* without dashes */
  const char *argument; /* name of its argument in the help, NULL: a flag */
  const char *help;
};

/* One occurrence on the command line. */
struct plm_option_value {
  const struct plm_option *option;
  const char *value; /* NULL for a flag */
};

/* -c --config FILE, --run DIR, --set KEY=VALUE, --json, -q, -v, --color, -h, --version: every
 * program has them. Terminated by a row with name NULL. */
extern const struct plm_option plm_common_options[];

struct plm_arguments {
  struct plm_option_value *values;
  size_t value_count;
  const char **positionals;
  size_t positional_count;
};

/* Parses argv[1..] against table (NULL-name terminated) and plm_common_options. PLM_USAGE names
 * the option and suggests. Caller deinits. */
plm_status plm_arguments_parse(int argc, char **argv, const struct plm_option *table,
                               struct plm_arguments *arguments, struct plm_error *error);
void plm_arguments_deinit(struct plm_arguments *arguments);
/* The last value given (""  for a flag), or NULL when absent. */
const char *plm_arguments_get(const struct plm_arguments *arguments, const char *name);
bool plm_arguments_has(const struct plm_arguments *arguments, const char *name);
/* Number with a clear error: PLM_USAGE. */
plm_status plm_arguments_u64(const struct plm_arguments *arguments, const char *name,
                             unsigned long long fallback, unsigned long long *value,
                             struct plm_error *error);
/* The same, with a sign if there is one. */
plm_status plm_arguments_i64(const struct plm_arguments *arguments, const char *name,
                             long long fallback, long long *value, struct plm_error *error);

/* Whether stdout gets colours: --color, else whether it is a terminal that has them (NO_COLOR,
 * TERM). PLM_USAGE. */
plm_status plm_arguments_color(const struct plm_arguments *arguments, bool *color,
                               struct plm_error *error);

/* --set and --run as overrides for plm_config_load, in the order given. PLM_USAGE for a --set
 * without "=". The caller frees with plm_arguments_overrides_free. */
plm_status plm_arguments_overrides(const struct plm_arguments *arguments,
                                   struct plm_config_override **overrides, size_t *count,
                                   struct plm_error *error);
void plm_arguments_overrides_free(struct plm_config_override *overrides, size_t count);

/* The configuration a program was told to use: -c, else PLM_CONFIG, else ./pipeline.yaml, with
 * PLM_* variables, --set and --run applied. `file` (may be NULL) comes before all three: the
 * positional FILE of some commands. Without a file that somebody named, a missing pipeline.yaml is
 * an error if `required`, else the defaults serve. The problems of a wrong configuration are
 * printed; error->what is then empty, so that nothing is said twice. */
plm_status plm_arguments_load_config(const struct plm_arguments *arguments, const char *file,
                                     bool required, struct plm_config *config,
                                     struct plm_error *error);

/* The file that PLM_CONFIG names; NULL when it is unset or empty. */
const char *plm_environment_config(void);

/* Sets up the log from -q and -v, under the program's name. */
void plm_arguments_log(const struct plm_arguments *arguments, const char *program);

/* Prints rows of help for a table, aligned to the terminal. */
/* Prints text for people, as wide as the terminal: lines flow into paragraphs, which end before an
 * empty line or one that is indented. column: how far the cursor stands, and where lines go on. */
void plm_help_text(const char *text, int column);
void plm_options_help(const struct plm_option *table);

#endif
