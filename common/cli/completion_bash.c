/* The completion script for bash: a function for the program that fills in COMPREPLY. */
#include <stdio.h>
#include <string.h>

#include "common/cli/completion_words.h"

static void print_names(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    printf(" --%s", options->name);
    if (options->letter != 0) printf(" -%c", options->letter);
  }
}

static void print_pattern(const struct plm_option *option, const char *separator)
{
  printf("%s--%s", separator, option->name);
  if (option->letter != 0) printf("|-%c", option->letter);
}

/* Prints the patterns of the options that have an argument. */
static void print_patterns(const struct plm_option *options, const char **separator)
{
  for (; options != NULL && options->name != NULL; options++) {
    if (options->argument == NULL) continue;
    print_pattern(options, *separator);
    *separator = "|";
  }
}

/* Finds the command, past the options before it and their arguments. */
static void completion_bash_find_command(const struct plm_completed_program *program)
{
  const char *separator = "";
  printf("  for ((i = 1; i < COMP_CWORD; i++)); do\n    case ${COMP_WORDS[i]} in\n      ");
  print_patterns(plm_common_options, &separator);
  print_patterns(program->options, &separator);
  printf(") ((i++)); [[ ${COMP_WORDS[i]} == '=' ]] && ((i++)) ;;\n      -*) ;;\n"
         "      *) command=${COMP_WORDS[i]}; break ;;\n    esac\n  done\n");
}

static void arguments(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    if (options->argument == NULL || strcmp(options->name, "set") == 0) continue;
    const struct plm_completions completions = plm_argument_completions(options);
    printf("    ");
    print_pattern(options, "");
    printf(") words='%s' files=%d ;;\n", completions.words, completions.files);
  }
}

/* The arguments of the options that only one command has. */
static void arguments_of_command(const char *command, const struct plm_option *options)
{
  if (options == NULL || options->name == NULL) return;
  printf("  %s) case $before in\n", command);
  arguments(options);
  printf("  esac ;;\n");
}

/* The names of commands and options, and the operands. */
static void words(const struct plm_completed_program *program)
{
  printf("    '') files=0 words='");
  for (size_t i = 0; i < program->command_count; i++) printf("%s ", program->commands[i].name);
  print_names(program->options);
  print_names(plm_common_options);
  printf("' ;;\n");
  for (size_t i = 0; i < program->command_count; i++) {
    const struct plm_completed_command *command = &program->commands[i];
    const struct plm_completions completions = plm_operand_completions(command->operands);
    printf("    %s) files=%d; if [[ $word == -* ]]; then words='", command->name,
           completions.files);
    print_names(command->options);
    print_names(plm_common_options);
    printf("'; else words='%s'; fi ;;\n", completions.words);
  }
}

void plm_completion_bash(const struct plm_completed_program *program)
{
  putchar('_');
  plm_completion_function(program);
  printf("()\n{\n  local word=$2 before=$3 command= words= files= i\n"
         "  if [[ $word == '=' ]]; then word=; before='='; fi\n"
         "  [[ $before == '=' ]] && before=${COMP_WORDS[COMP_CWORD - 2]}\n");
  if (program->command_count > 0) completion_bash_find_command(program);
  printf("  [[ $before == --set ]] && compopt -o nospace 2>/dev/null\n"
         "  case $command:$before in\n    *:--set) words='");
  plm_completion_keys();
  printf("' files=0 ;;\n  esac\n  [[ -n $files ]] || case $before in\n");
  arguments(plm_common_options);
  printf("  esac\n  [[ -n $files ]] || case $command in\n");
  arguments_of_command("''", program->options);
  for (size_t i = 0; i < program->command_count; i++)
    arguments_of_command(program->commands[i].name, program->commands[i].options);
  printf("  esac\n  [[ -n $files ]] || case $command in\n");
  words(program);
  printf("  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  [[ $word != -* && $files == 1 ]] && COMPREPLY+=($(compgen -f -- \"$word\"))\n"
         "  return 0\n}\ncomplete -o filenames -F _");
  plm_completion_function(program);
  printf(" %s\n", program->name);
}
