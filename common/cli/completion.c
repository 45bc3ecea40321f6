/* What can be completed where, read from the words of the help, and the choice of the shell. */
#include "common/cli/completion.h"

#include <stdio.h>
#include <string.h>

#include "common/cli/completion_words.h"
#include "common/config/settings.h"

void plm_completion_keys(void)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) printf("%s%s=", i > 0 ? " " : "", table[i].key);
}

void plm_completion_function(const struct plm_completed_program *program)
{
  for (const char *c = program->name; *c != '\0'; c++) putchar(*c == '-' ? '_' : *c);
}

void plm_completion_quoted(const char *text, const char *escaped, const char *quote)
{
  for (; *text != '\0'; text++) {
    if (*text == '\'') {
      printf("%s", quote);
      continue;
    }
    if (strchr(escaped, *text) != NULL) putchar('\\');
    putchar(*text);
  }
}

/* Reads one word, "FILE", "DIR,..." or "auto": words in capitals name a kind of thing, others are
 * literal. */
static void add_word(const char *word, struct plm_completions *completions)
{
  static const char *const paths[] = {"DIR", "FILE", "FILE.tsv", "PATH", "IN"};
  static const struct {
    const char *kind, *words;
  } kinds[] = {{"STAGE", " trainer evaluator packer"},
               {"PROGRAM", " plm-packer plm-trainer plm-evaluator"},
               {"packer=N", " packer="}};
  const size_t used = strlen(completions->words), room = sizeof completions->words - used;
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
    completions->files |= strcmp(word, paths[i]) == 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (strcmp(word, kinds[i].kind) != 0) continue;
    snprintf(completions->words + used, room, "%s", kinds[i].words);
    return;
  }
  if (word[0] >= 'a' && word[0] <= 'z' && strpbrk(word, "=,") == NULL)
    snprintf(completions->words + used, room, " %s", word);
}

/* Reads "FILE", "[STAGE...]" or "auto|never|PATH". */
static void add_alternatives(const char *text, size_t size, struct plm_completions *completions)
{
  for (const char *end = text + size; text < end;) {
    const size_t length = strcspn(text, "|[] ");
    size_t whole = length < (size_t)(end - text) ? length : (size_t)(end - text);
    char word[32];
    const char *const from = text;
    text += whole + 1;
    while (whole > 0 && strchr(".,", from[whole - 1]) != NULL) whole--; /* "IN...", "DIR,..." */
    snprintf(word, sizeof word, "%.*s", (int)whole, from);
    add_word(word, completions);
  }
}

/* Passes over the options and their arguments among the operands. */
struct plm_completions plm_operand_completions(const char *operands)
{
  struct plm_completions completions = {0};
  bool option = false;
  while (operands != NULL && *operands != '\0') {
    const size_t length = strcspn(operands, " ");
    const bool dash = operands[strspn(operands, "[")] == '-';
    if (!dash && !option) add_alternatives(operands, length, &completions);
    option = dash && operands[length - 1] != ']';
    operands += length + (operands[length] == ' ');
  }
  return completions;
}

struct plm_completions plm_argument_completions(const struct plm_option *option)
{
  struct plm_completions completions = {0};
  add_alternatives(option->argument, strlen(option->argument), &completions);
  if (strcmp(option->name, "color") == 0)
    snprintf(completions.words, sizeof completions.words, " auto always never");
  return completions;
}

plm_status plm_completion_print(const struct plm_completed_program *program, const char *shell,
                                struct plm_error *error)
{
  static const struct {
    const char *name;
    void (*print)(const struct plm_completed_program *program);
  } shells[] = {
      {"bash", plm_completion_bash}, {"zsh", plm_completion_zsh}, {"fish", plm_completion_fish}};
  for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
    if (strcmp(shells[i].name, shell) != 0) continue;
    shells[i].print(program);
    return PLM_OK;
  }
  if (shell[0] == '\0')
    return plm_error_set(error, PLM_USAGE, "which shell? Name bash, zsh or fish");
  return plm_error_set(error, PLM_USAGE, "\"%.80s\" is not bash, zsh or fish", shell);
}
