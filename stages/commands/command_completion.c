/* `plm-pipeline completion SHELL`: prints completion scripts, made from the tables of commands,
 * options and settings. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/config/settings.h"
#include "stages/commands/command.h"

static void print_names(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    printf(" --%s", options->name);
    if (options->letter != 0) printf(" -%c", options->letter);
  }
}

static void print_keys(const char *separator)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) printf("%s%s=", i > 0 ? separator : "", table[i].key);
}

/* ---- what can be completed where, read from the words of the help -------------------------- */

struct completions {
  bool files;
  char words[96]; /* each with a blank before it */
};

/* Reads "FILE", "[STAGE...]" or "auto|never|PATH": words in capitals name a kind of thing, others
 * are literal. */
static void add_alternatives(const char *text, size_t size, struct completions *completions)
{
  static const char *const paths[] = {"DIR", "FILE", "FILE.tsv", "PATH", "IN"};
  for (const char *end = text + size; text < end;) {
    const size_t length = strcspn(text, "|[] ");
    size_t whole = length < (size_t)(end - text) ? length : (size_t)(end - text);
    const char *const from = text;
    char word[32];
    text += whole + 1;
    while (whole > 0 && from[whole - 1] == '.') whole--; /* "IN..." */
    snprintf(word, sizeof word, "%.*s", (int)whole, from);
    const size_t used = strlen(completions->words), room = sizeof completions->words - used;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
      completions->files |= strcmp(word, paths[i]) == 0;
    if (strcmp(word, "STAGE") == 0)
      snprintf(completions->words + used, room, " trainer evaluator packer");
    else if (strcmp(word, "packer=N") == 0)
      snprintf(completions->words + used, room, " packer=");
    else if (word[0] >= 'a' && word[0] <= 'z' && strpbrk(word, "=,") == NULL)
      snprintf(completions->words + used, room, " %s", word);
  }
}

/* Reads a command's operands, and passes over the options and their arguments among them. */
static struct completions operand_completions(const char *operands)
{
  struct completions completions = {0};
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

static struct completions argument_completions(const struct plm_option *option)
{
  struct completions completions = {0};
  add_alternatives(option->argument, strlen(option->argument), &completions);
  if (strcmp(option->name, "color") == 0)
    snprintf(completions.words, sizeof completions.words, " auto always never");
  return completions;
}

/* ---- bash ----------------------------------------------------------------------------------- */

static void print_pattern(const struct plm_option *option, const char *separator)
{
  printf("%s--%s", separator, option->name);
  if (option->letter != 0) printf("|-%c", option->letter);
}

/* Finds the command, past the options before it and their arguments. */
static void bash_find_command(void)
{
  const char *separator = "";
  printf("  for ((i = 1; i < COMP_CWORD; i++)); do\n    case ${COMP_WORDS[i]} in\n      ");
  for (const struct plm_option *option = plm_common_options; option->name != NULL; option++) {
    if (option->argument == NULL) continue;
    print_pattern(option, separator);
    separator = "|";
  }
  printf(") ((i++)); [[ ${COMP_WORDS[i]} == '=' ]] && ((i++)) ;;\n      -*) ;;\n"
         "      *) command=${COMP_WORDS[i]}; break ;;\n    esac\n  done\n");
}

static void bash_arguments(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    if (options->argument == NULL || strcmp(options->name, "set") == 0) continue;
    const struct completions completions = argument_completions(options);
    printf("    ");
    print_pattern(options, "");
    printf(") words='%s' files=%d ;;\n", completions.words, completions.files);
  }
}

static void bash(void)
{
  printf("_plm_pipeline()\n{\n  local word=$2 before=$3 command= words= files= i\n"
         "  if [[ $word == '=' ]]; then word=; before='='; fi\n"
         "  [[ $before == '=' ]] && before=${COMP_WORDS[COMP_CWORD - 2]}\n");
  bash_find_command();
  printf("  [[ $before == --set ]] && compopt -o nospace 2>/dev/null\n"
         "  case $command:$before in\n    *:--set) words='");
  print_keys(" ");
  printf("' files=0 ;;\n  esac\n  [[ -n $files ]] || case $before in\n");
  bash_arguments(plm_common_options);
  printf("  esac\n  [[ -n $files ]] || case $command in\n");
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    if (plm_commands[i]->options == NULL || plm_commands[i]->options->name == NULL) continue;
    printf("  %s) case $before in\n", plm_commands[i]->name);
    bash_arguments(plm_commands[i]->options);
    printf("  esac ;;\n");
  }
  printf("  esac\n  [[ -n $files ]] || case $command in\n    '') files=0 words='");
  for (size_t i = 0; plm_commands[i] != NULL; i++) printf("%s ", plm_commands[i]->name);
  print_names(plm_common_options);
  printf("' ;;\n");
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    const struct completions completions = operand_completions(plm_commands[i]->operands);
    printf("    %s) files=%d; if [[ $word == -* ]]; then words='", plm_commands[i]->name,
           completions.files);
    print_names(plm_commands[i]->options);
    print_names(plm_common_options);
    printf("'; else words='%s'; fi ;;\n", completions.words);
  }
  printf("  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  [[ $word != -* && $files == 1 ]] && COMPREPLY+=($(compgen -f -- \"$word\"))\n"
         "  return 0\n}\ncomplete -o filenames -F _plm_pipeline plm-pipeline\n");
}

/* ---- zsh ------------------------------------------------------------------------------------ */

/* Prints text inside single quotes: `quote` for a single quote, and a backslash before each
 * character of `escaped`. */
static void print_quoted(const char *text, const char *escaped, const char *quote)
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

/* Prints text inside a specification for _arguments. */
static void print_in_zsh(const char *text)
{
  print_quoted(text, "[]:\\", "'\\''");
}

/* Prints an action of _arguments. In an option's specification a colon would end it. */
static void zsh_action(const struct completions *completions, bool option)
{
  const char *words = completions->words + (completions->words[0] == ' ');
  const char *colon = option ? "\\:" : ":";
  if (completions->files && words[0] != '\0')
    printf("_alternative \"files%sfile%s_files\" \"words%sword%s(%s)\"", colon, colon, colon, colon,
           words);
  else if (completions->files)
    printf("_files");
  else
    printf("(%s)", words);
}

static void zsh_options(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    const bool argument = options->argument != NULL;
    printf(" \\\n      '*");
    if (options->letter != 0)
      printf("'{-%c%s,--%s%s}'[", options->letter, argument ? "+" : "", options->name,
             argument ? "=" : "");
    else
      printf("--%s%s[", options->name, argument ? "=" : "");
    print_in_zsh(options->help);
    printf("]");
    if (argument && strcmp(options->name, "set") == 0) {
      printf(":KEY=VALUE:compadd -S \"\" -- $keys");
    } else if (argument) {
      const struct completions completions = argument_completions(options);
      printf(":");
      print_in_zsh(options->argument);
      printf(":");
      zsh_action(&completions, true);
    }
    printf("'");
  }
}

/* Completes the words after the command as if the command were a program. */
static void zsh_commands(void)
{
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    const struct completions completions = operand_completions(plm_commands[i]->operands);
    printf("  %s)\n    _arguments", plm_commands[i]->name);
    zsh_options(plm_commands[i]->options);
    zsh_options(plm_common_options);
    if (completions.files || completions.words[0] != '\0') {
      const bool open = strchr(completions.words, '=') != NULL; /* "packer=" wants a number next */
      printf(" \\\n      '*:operand:");
      if (open)
        printf("compadd -S \"\" --%s", completions.words);
      else
        zsh_action(&completions, false);
      printf("'");
    }
    printf(" && result=0 ;;\n");
  }
}

static void zsh(void)
{
  printf("#compdef plm-pipeline\n_plm-pipeline()\n{\n"
         "  local curcontext=$curcontext state line result=1\n  local -a commands keys\n"
         "  typeset -A opt_args\n  commands=(\n");
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    printf("    '%s:", plm_commands[i]->name);
    print_quoted(plm_commands[i]->summary, "", "'\\''");
    printf("'\n");
  }
  printf("  )\n  keys=(");
  print_keys(" ");
  printf(")\n  _arguments -C -A '-*'");
  zsh_options(plm_common_options);
  printf(" \\\n      '1: :->command' '*:: :->words' && result=0\n"
         "  if [[ $state == command ]]; then\n"
         "    _describe command commands && result=0\n    return result\n  fi\n"
         "  [[ $state == words ]] || return result\n"
         "  curcontext=${curcontext%%:*:*}:plm-pipeline-$line[1]:\n  case $line[1] in\n");
  zsh_commands();
  printf("  esac\n  return result\n}\n"
         "# from a folder of $fpath, or sourced\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _plm-pipeline \"$@\"\n"
         "else\n  compdef _plm-pipeline plm-pipeline\nfi\n");
}

/* ---- fish ----------------------------------------------------------------------------------- */

static void print_in_fish(const char *text)
{
  print_quoted(text, "\\", "\\'");
}

static void fish_options(const char *command, const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    printf("complete -c plm-pipeline");
    if (command != NULL) printf(" -n '__plm_pipeline_in %s'", command);
    if (options->letter != 0) printf(" -s %c", options->letter);
    printf(" -l %s", options->name);
    if (options->argument != NULL) {
      const bool set = strcmp(options->name, "set") == 0;
      const struct completions completions = argument_completions(options);
      printf("%s", completions.files ? " -r -F" : " -x");
      if (completions.words[0] != '\0' || set) printf(" -a '");
      if (set) print_keys(" ");
      if (completions.words[0] != '\0') printf("%s", completions.words + 1);
      if (completions.words[0] != '\0' || set) printf("'");
    }
    printf(" -d '");
    print_in_fish(options->help);
    printf("'\n");
  }
}

/* Defines __plm_pipeline_command, which finds the command past options and their arguments, and
 * __plm_pipeline_in, which tells whether it is the given one. */
static void fish_find_command(void)
{
  printf("function __plm_pipeline_command\n  set -l skip 1\n"
         "  for word in (commandline -opc)\n    if test $skip = 1\n      set skip 0\n"
         "      continue\n    end\n    switch $word\n      case");
  for (const struct plm_option *option = plm_common_options; option->name != NULL; option++) {
    if (option->argument == NULL) continue;
    printf(" --%s", option->name);
    if (option->letter != 0) printf(" -%c", option->letter);
  }
  printf("\n        set skip 1\n      case '-*'\n      case '*'\n        echo $word\n"
         "        return\n    end\n  end\nend\n"
         "function __plm_pipeline_in\n  set -l command (__plm_pipeline_command)\n"
         "  test \"$command\" = \"$argv[1]\"\nend\n");
}

static void fish(void)
{
  fish_find_command();
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    const char *name = plm_commands[i]->name;
    printf("complete -c plm-pipeline -n '__plm_pipeline_in \"\"' -f -a %s -d '", name);
    print_in_fish(plm_commands[i]->summary);
    printf("'\n");
    fish_options(name, plm_commands[i]->options);
    const struct completions completions = operand_completions(plm_commands[i]->operands);
    if (completions.files && completions.words[0] == '\0') continue;
    printf("complete -c plm-pipeline -n '__plm_pipeline_in %s'%s", name,
           completions.files ? "" : " -f");
    if (completions.words[0] != '\0') printf(" -a '%s'", completions.words + 1);
    putchar('\n');
  }
  fish_options(NULL, plm_common_options);
}

static plm_status completion(const struct plm_command_context *context, struct plm_error *error)
{
  static const struct {
    const char *name;
    void (*print)(void);
  } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  PLM_TRY(plm_command_operands(context, 1, error));
  const char *shell =
      context->arguments->positional_count > 0 ? context->arguments->positionals[0] : "";
  for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
    if (strcmp(shells[i].name, shell) != 0) continue;
    shells[i].print();
    return PLM_OK;
  }
  if (shell[0] == '\0')
    return plm_error_set(error, PLM_USAGE, "which shell? Name bash, zsh or fish");
  return plm_error_set(error, PLM_USAGE, "\"%.80s\" is not bash, zsh or fish", shell);
}

const struct plm_command plm_command_completion = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .summary = "print a completion script for bash, zsh or fish",
    .details =
        "Put this line into the shell's start-up file:\n\n"
        "  bash: source <(plm-pipeline completion bash)\n"
        "  zsh: source <(plm-pipeline completion zsh), after compinit\n"
        "  fish: plm-pipeline completion fish | source\n\n"
        "Or save the script where the shell looks for it: for zsh as _plm-pipeline in a folder of "
        "$fpath, for fish as plm-pipeline.fish in ~/.config/fish/completions.",
    .run = completion,
};
