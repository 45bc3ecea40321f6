/* The completion script for zsh: a function that calls _arguments. */
#include <stdio.h>
#include <string.h>

#include "common/cli/completion_words.h"

/* Prints text inside a specification for _arguments. */
static void print_specification(const char *text)
{
  plm_completion_quoted(text, "[]:\\", "'\\''");
}

/* Prints an action of _arguments. In an option's specification a colon would end it. */
static void action(const struct plm_completions *completions, bool option)
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

static void print_options(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    const bool argument = options->argument != NULL;
    printf(" \\\n      '*");
    if (options->letter != 0)
      printf("'{-%c%s,--%s%s}'[", options->letter, argument ? "+" : "", options->name,
             argument ? "=" : "");
    else
      printf("--%s%s[", options->name, argument ? "=" : "");
    print_specification(options->help);
    printf("]");
    if (argument && strcmp(options->name, "set") == 0) {
      printf(":KEY=VALUE:compadd -S \"\" -- $keys");
    } else if (argument) {
      const struct plm_completions completions = plm_argument_completions(options);
      printf(":");
      print_specification(options->argument);
      printf(":");
      action(&completions, true);
    }
    printf("'");
  }
}

/* Completes the words after the command as if the command were a program. */
static void words_of_command(const struct plm_completed_command *command)
{
  const struct plm_completions completions = plm_operand_completions(command->operands);
  printf("  %s)\n    _arguments", command->name);
  print_options(command->options);
  print_options(plm_common_options);
  if (completions.files || completions.words[0] != '\0') {
    const bool open = strchr(completions.words, '=') != NULL; /* "packer=" wants a number next */
    printf(" \\\n      '*:operand:");
    if (open)
      printf("compadd -S \"\" --%s", completions.words);
    else
      action(&completions, false);
    printf("'");
  }
  printf(" && result=0 ;;\n");
}

static void print_commands(const struct plm_completed_program *program)
{
  printf("  local -a commands\n  commands=(\n");
  for (size_t i = 0; i < program->command_count; i++) {
    printf("    '%s:", program->commands[i].name);
    plm_completion_quoted(program->commands[i].summary, "", "'\\''");
    printf("'\n");
  }
  printf("  )\n  _arguments -C -A '-*'");
  print_options(program->options);
  print_options(plm_common_options);
  printf(" \\\n      '1: :->command' '*:: :->words' && result=0\n"
         "  if [[ $state == command ]]; then\n"
         "    _describe command commands && result=0\n    return result\n  fi\n"
         "  [[ $state == words ]] || return result\n"
         "  curcontext=${curcontext%%:*:*}:%s-$line[1]:\n  case $line[1] in\n",
         program->name);
  for (size_t i = 0; i < program->command_count; i++) words_of_command(&program->commands[i]);
  printf("  esac\n");
}

void plm_completion_zsh(const struct plm_completed_program *program)
{
  const char *name = program->name;
  printf("#compdef %s\n_%s()\n{\n  local curcontext=$curcontext state line result=1\n"
         "  local -a keys\n  typeset -A opt_args\n  keys=(",
         name, name);
  plm_completion_keys();
  printf(")\n");
  if (program->command_count > 0) {
    print_commands(program);
  } else {
    printf("  _arguments");
    print_options(program->options);
    print_options(plm_common_options);
    printf(" && result=0\n");
  }
  printf("  return result\n}\n"
         "# from a folder of $fpath, or sourced\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _%s \"$@\"\n"
         "else\n  compdef _%s %s\nfi\n",
         name, name, name);
}
