/* Parses the command line by tables of options, and prints their help. */
#include "common/cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/text/suggest.h"

const struct plm_option plm_common_options[] = {
    {'c', "config", "FILE", "the configuration (default ./pipeline.yaml)"},
    {0, "run", "DIR", "the run folder (default: the configuration's)"},
    {0, "set", "KEY=VALUE", "change one key of the configuration; may be repeated"},
    {0, "json", NULL, "print results as JSON"},
    {'q', "quiet", NULL, "print no progress or information, only results, warnings and errors"},
    {'v', "verbose", NULL, "print more messages"},
    {0, "color", "WHEN", "auto, always or never (NO_COLOR is respected)"},
    {'h', "help", NULL, "this help"},
    {0, "version", NULL, "print the version"},
    {0, NULL, NULL, NULL},
};

static const struct plm_option *by_name(const struct plm_option *table, const char *name,
                                        size_t length)
{
  for (; table != NULL && table->name != NULL; table++) {
    if (strlen(table->name) == length && strncmp(table->name, name, length) == 0) return table;
  }
  return NULL;
}

static const struct plm_option *by_letter(const struct plm_option *table, char letter)
{
  for (; table != NULL && table->name != NULL; table++) {
    if (table->letter == letter) return table;
  }
  return NULL;
}

static plm_status unknown_option(const struct plm_option *table, const char *name, size_t length,
                                 struct plm_error *error)
{
  char word[64];
  snprintf(word, sizeof word, "%.*s", (int)length, name);
  struct plm_suggestion suggestion = {.word = word};
  for (const struct plm_option *o = table; o != NULL && o->name != NULL; o++) {
    plm_suggest(&suggestion, o->name);
  }
  for (const struct plm_option *o = plm_common_options; o->name != NULL; o++) {
    plm_suggest(&suggestion, o->name);
  }
  plm_error_set(error, PLM_USAGE, "unknown option \"--%s\"", word);
  if (suggestion.best != NULL) {
    plm_error_set(error, PLM_USAGE, "unknown option \"--%s\"; did you mean \"--%s\"?", word,
                  suggestion.best);
  }
  return PLM_USAGE;
}

static void options_add_value(struct plm_arguments *arguments, const struct plm_option *option,
                              const char *value)
{
  arguments->values[arguments->value_count++] =
      (struct plm_option_value){.option = option, .value = value};
}

/* A path must not be empty: `--run "$UNSET"` must not mean the current folder. */
static plm_status check_paths(const struct plm_arguments *arguments, struct plm_error *error)
{
  for (size_t v = 0; v < arguments->value_count; v++) {
    const struct plm_option *option = arguments->values[v].option;
    if (option->argument == NULL || arguments->values[v].value[0] != '\0') continue;
    if (strncmp(option->argument, "DIR", 3) == 0 || strncmp(option->argument, "FILE", 4) == 0)
      return plm_error_set(error, PLM_USAGE,
                           "option \"--%s\" needs an argument (%s), but got an empty word",
                           option->name, option->argument);
  }
  return PLM_OK;
}

static plm_status parse_long(char **argv, int argc, int *i, const struct plm_option *table,
                             struct plm_arguments *arguments, struct plm_error *error)
{
  const char *name = argv[*i] + 2;
  const size_t length = strcspn(name, "=");
  const struct plm_option *option = by_name(table, name, length);
  if (option == NULL) option = by_name(plm_common_options, name, length);
  if (option == NULL) return unknown_option(table, name, length, error);
  if (option->argument == NULL) {
    if (name[length] == '=') {
      return plm_error_set(error, PLM_USAGE, "option \"--%s\" takes no value", option->name);
    }
    options_add_value(arguments, option, NULL);
  } else if (name[length] == '=') {
    options_add_value(arguments, option, name + length + 1);
  } else if (*i + 1 < argc) {
    options_add_value(arguments, option, argv[++*i]);
  } else {
    return plm_error_set(error, PLM_USAGE, "option \"--%s\" needs an argument: %s", option->name,
                         option->argument);
  }
  return PLM_OK;
}

/* -abc is a cluster of flags. The first letter that takes a value takes the rest of the word or, if
 * nothing is left of it, the next word. */
static plm_status parse_letters(char **argv, int argc, int *i, const struct plm_option *table,
                                struct plm_arguments *arguments, struct plm_error *error)
{
  for (const char *letter = argv[*i] + 1; *letter != '\0'; letter++) {
    const struct plm_option *option = by_letter(table, *letter);
    if (option == NULL) option = by_letter(plm_common_options, *letter);
    if (option == NULL) {
      return plm_error_set(error, PLM_USAGE, "unknown option \"-%c\"", *letter);
    }
    if (option->argument == NULL) {
      options_add_value(arguments, option, NULL);
      continue;
    }
    if (letter[1] != '\0') {
      options_add_value(arguments, option, letter[1] == '=' ? letter + 2 : letter + 1);
    } else if (*i + 1 < argc) {
      options_add_value(arguments, option, argv[++*i]);
    } else {
      return plm_error_set(error, PLM_USAGE, "option \"-%c\" needs an argument: %s", *letter,
                           option->argument);
    }
    return PLM_OK;
  }
  return PLM_OK;
}

plm_status plm_arguments_parse(int argc, char **argv, const struct plm_option *table,
                               struct plm_arguments *arguments, struct plm_error *error)
{
  size_t room = 1;
  for (int i = 1; i < argc; i++) room += strlen(argv[i]) + 1; /* letters may be clustered */
  *arguments =
      (struct plm_arguments){.values = plm_alloc_zeroed(room, sizeof *arguments->values),
                             .positionals = plm_alloc_zeroed((size_t)argc + 1, sizeof(char *))};
  plm_status status = PLM_OK;
  bool only_positionals = false;
  for (int i = 1; i < argc && status == PLM_OK; i++) {
    if (only_positionals || argv[i][0] != '-' || argv[i][1] == '\0') {
      arguments->positionals[arguments->positional_count++] = argv[i];
    } else if (strcmp(argv[i], "--") == 0) {
      only_positionals = true;
    } else if (argv[i][1] == '-') {
      status = parse_long(argv, argc, &i, table, arguments, error);
    } else {
      status = parse_letters(argv, argc, &i, table, arguments, error);
    }
  }
  if (status == PLM_OK) status = check_paths(arguments, error);
  if (status != PLM_OK) plm_arguments_deinit(arguments);
  return status;
}

void plm_arguments_deinit(struct plm_arguments *arguments)
{
  free(arguments->values);
  free(arguments->positionals);
  *arguments = (struct plm_arguments){0};
}

const char *plm_arguments_get(const struct plm_arguments *arguments, const char *name)
{
  for (size_t i = arguments->value_count; i-- > 0;) {
    const struct plm_option_value *value = &arguments->values[i];
    if (strcmp(value->option->name, name) == 0) return value->value != NULL ? value->value : "";
  }
  return NULL;
}

bool plm_arguments_has(const struct plm_arguments *arguments, const char *name)
{
  return plm_arguments_get(arguments, name) != NULL;
}

static plm_status not_whole(const char *name, const char *text, struct plm_error *error)
{
  return plm_error_set(error, PLM_USAGE, "option \"--%s\" needs a whole number, not \"%.80s\"",
                       name, text);
}

plm_status plm_arguments_u64(const struct plm_arguments *arguments, const char *name,
                             unsigned long long fallback, unsigned long long *value,
                             struct plm_error *error)
{
  const char *text = plm_arguments_get(arguments, name);
  *value = fallback;
  if (text == NULL) return PLM_OK;
  char *end;
  errno = 0;
  const unsigned long long number = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
    return not_whole(name, text, error);
  *value = number;
  return PLM_OK;
}

plm_status plm_arguments_within(const struct plm_arguments *arguments, const char *name,
                                unsigned least, unsigned most, unsigned *value,
                                struct plm_error *error)
{
  unsigned long long given;
  PLM_TRY(plm_arguments_u64(arguments, name, *value, &given, error));
  if (given < least || given > most)
    return plm_error_set(error, PLM_USAGE, "--%s must be from %u to %u", name, least, most);
  *value = (unsigned)given;
  return PLM_OK;
}

plm_status plm_arguments_i64(const struct plm_arguments *arguments, const char *name,
                             long long fallback, long long *value, struct plm_error *error)
{
  const char *text = plm_arguments_get(arguments, name);
  *value = fallback;
  if (text == NULL) return PLM_OK;
  char *end;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  const char first = text[text[0] == '-' || text[0] == '+'];
  if (first < '0' || first > '9' || *end != '\0' || errno != 0) return not_whole(name, text, error);
  *value = number;
  return PLM_OK;
}

/* ---- help ---------------------------------------------------------------------------------- */

/* The width of the terminal; without one, that in COLUMNS. */
static int help_width(void)
{
  enum { LEAST = 40, USUAL = 100 };
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= LEAST) return size.ws_col;
  const char *columns = getenv("COLUMNS");
  const long width = columns != NULL ? strtol(columns, NULL, 10) : 0;
  return width >= LEAST && width <= 1000 ? (int)width : USUAL;
}

/* Prints the words of text from `column` on, wrapped to `width`; later lines begin at `indent`. */
static void options_print_words(const char *text, size_t size, int indent, int column, int width)
{
  const char *end = text + size;
  bool first = true;
  while (text < end) {
    const int length =
        (int)strcspn(text, " \n") < end - text ? (int)strcspn(text, " \n") : (int)(end - text);
    if (!first && length > 0) {
      const bool fits = column + 1 + length < width;
      if (fits)
        putchar(' ');
      else
        printf("\n%*s", indent, "");
      column = fits ? column + 1 : indent;
    }
    printf("%.*s", length, text);
    column += length;
    first = first && length == 0;
    text += length + 1;
  }
  putchar('\n');
}

/* Length of the paragraph at text, which ends before an empty or an indented line. */
static size_t paragraph_of(const char *text)
{
  size_t size = 0;
  while (text[size] != '\0') {
    if (text[size] == '\n' && (text[size + 1] == ' ' || text[size + 1] == '\n')) return size;
    size++;
  }
  return size;
}

plm_status plm_arguments_color(const struct plm_arguments *arguments, bool *color,
                               struct plm_error *error)
{
  const char *when = plm_arguments_get(arguments, "color");
  const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
  if (when != NULL && strcmp(when, "always") == 0) {
    *color = true;
  } else if (when != NULL && strcmp(when, "never") == 0) {
    *color = false;
  } else if (when == NULL || strcmp(when, "auto") == 0) {
    *color = isatty(STDOUT_FILENO) && (no_color == NULL || no_color[0] == '\0') &&
             terminal != NULL && strcmp(terminal, "dumb") != 0;
  } else {
    return plm_error_set(error, PLM_USAGE,
                         "option \"--color\" must be auto, always or never, not "
                         "\"%.80s\"",
                         when);
  }
  return PLM_OK;
}

void plm_help_text(const char *text, int column)
{
  const int width = help_width();
  while (*text != '\0') {
    if (*text == '\n') { /* an empty line */
      putchar(*text++);
      continue;
    }
    const size_t size = paragraph_of(text);
    const int spaces = (int)strspn(text, " ");
    const bool usage = strncmp(text, "usage: ", 7) == 0;
    printf("%*s", spaces, "");
    options_print_words(text + spaces, size - (size_t)spaces, usage ? 7 : spaces + column,
                        spaces + column, width);
    text += size;
    if (*text == '\n') text++;
  }
}

void plm_options_help(const struct plm_option *table)
{
  enum { HELP_COLUMN = 28 };
  for (; table != NULL && table->name != NULL; table++) {
    char left[96];
    int used = table->letter != 0 ? snprintf(left, sizeof left, "  -%c, ", table->letter)
                                  : snprintf(left, sizeof left, "      ");
    used += snprintf(left + used, sizeof left - (size_t)used, "--%s%s%s", table->name,
                     table->argument != NULL ? " " : "",
                     table->argument != NULL ? table->argument : "");
    printf("%s", left);
    if (used + 2 > HELP_COLUMN) {
      printf("\n%*s", HELP_COLUMN, "");
    } else {
      printf("%*s", HELP_COLUMN - used, "");
    }
    plm_help_text(table->help, HELP_COLUMN);
  }
}
