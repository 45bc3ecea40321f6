/* The completion script for fish: a line of `complete` for each word. */
#include <stdio.h>
#include <string.h>

#include "common/cli/completion_words.h"

static void print_text(const char *text)
{
  plm_completion_quoted(text, "\\", "\\'");
}

/* Begins a line that holds for a command: "" for none yet, NULL for any. */
static void begin_line(const struct plm_completed_program *program, const char *command)
{
  printf("complete -c %s", program->name);
  if (command == NULL || program->command_count == 0) return;
  printf(" -n '__");
  plm_completion_function(program);
  printf("_in %s'", command[0] != '\0' ? command : "\"\"");
}

static void print_options(const struct plm_completed_program *program, const char *command,
                          const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    begin_line(program, command);
    if (options->letter != 0) printf(" -s %c", options->letter);
    printf(" -l %s", options->name);
    if (options->argument != NULL) {
      const bool set = strcmp(options->name, "set") == 0;
      const struct plm_completions completions = plm_argument_completions(options);
      printf("%s", completions.files ? " -r -F" : " -x");
      if (completions.words[0] != '\0' || set) printf(" -a '");
      if (set) plm_completion_keys();
      if (completions.words[0] != '\0') printf("%s", completions.words + 1);
      if (completions.words[0] != '\0' || set) printf("'");
    }
    printf(" -d '");
    print_text(options->help);
    printf("'\n");
  }
}

static void completion_fish_print_words(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    if (options->argument == NULL) continue;
    printf(" --%s", options->name);
    if (options->letter != 0) printf(" -%c", options->letter);
  }
}

/* Defines __NAME_command, which finds the command past options and their arguments, and __NAME_in,
 * which tells whether it is the given one. */
static void completion_fish_find_command(const struct plm_completed_program *program)
{
  printf("function __");
  plm_completion_function(program);
  printf("_command\n  set -l skip 1\n"
         "  for word in (commandline -opc)\n    if test $skip = 1\n      set skip 0\n"
         "      continue\n    end\n    switch $word\n      case");
  completion_fish_print_words(plm_common_options);
  completion_fish_print_words(program->options);
  printf("\n        set skip 1\n      case '-*'\n      case '*'\n        echo $word\n"
         "        return\n    end\n  end\nend\nfunction __");
  plm_completion_function(program);
  printf("_in\n  set -l command (__");
  plm_completion_function(program);
  printf("_command)\n  test \"$command\" = \"$argv[1]\"\nend\n");
}

static void print_command(const struct plm_completed_program *program,
                          const struct plm_completed_command *command)
{
  const struct plm_completions completions = plm_operand_completions(command->operands);
  begin_line(program, "");
  printf(" -f -a %s -d '", command->name);
  print_text(command->summary);
  printf("'\n");
  print_options(program, command->name, command->options);
  if (completions.files && completions.words[0] == '\0') return;
  begin_line(program, command->name);
  if (!completions.files) printf(" -f");
  if (completions.words[0] != '\0') printf(" -a '%s'", completions.words + 1);
  putchar('\n');
}

void plm_completion_fish(const struct plm_completed_program *program)
{
  if (program->command_count > 0)
    completion_fish_find_command(program);
  else
    printf("complete -c %s -f\n", program->name); /* no file is an operand */
  for (size_t i = 0; i < program->command_count; i++) print_command(program, &program->commands[i]);
  print_options(program, "", program->options);
  print_options(program, NULL, plm_common_options);
}
