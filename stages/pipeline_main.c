/* plm-pipeline: finds the command, parses its options, runs it, and turns its status into an exit
 * code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/suggest.h"
#include "common/cli/program.h"
#include "stages/commands/command.h"

static const char program[] = "plm-pipeline";

static void print_overview(void)
{
  plm_help_text(
      "usage: plm-pipeline COMMAND [OPTIONS]\n\n"
      "Trains protein language models, from sequences to evaluated checkpoints, and uses them or "
      "published weights (ESM-2, ESM-C): embeddings, variant scores, contacts, labels.\n\n"
      "commands:",
      0);
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    printf("  %-12s ", plm_commands[i]->name);
    plm_help_text(plm_commands[i]->summary, 15);
  }
  printf("\noptions of every command:\n");
  plm_options_help(plm_common_options);
  putchar('\n');
  plm_help_text("`plm-pipeline COMMAND -h` says more about a command. Exit codes: " PLM_EXIT_CODES,
                0);
}

static void print_command_help(const struct plm_command *command)
{
  const char *operands = command->operands != NULL ? command->operands : "";
  char usage[512];
  snprintf(usage, sizeof usage, "usage: plm-pipeline %s %s", command->name, operands);
  plm_help_text(usage, 0);
  putchar('\n');
  plm_help_text(command->summary, 0);
  if (command->details != NULL) {
    putchar('\n');
    plm_help_text(command->details, 0);
  }
  if (command->options != NULL && command->options[0].name != NULL) {
    printf("\noptions:\n");
    plm_options_help(command->options);
  }
  printf("\noptions of every command:\n");
  plm_options_help(plm_common_options);
}

/* The index of the first word that is neither an option nor the value of a common option; argc if
 * there is none. */
static int pipeline_main_find_command(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-' || argv[i][1] == '\0') return i;
    if (strcmp(argv[i], "--") == 0) return i + 1;
    for (const struct plm_option *o = plm_common_options; o->name != NULL; o++) {
      const bool is_long = argv[i][1] == '-' && strcmp(argv[i] + 2, o->name) == 0;
      const bool is_short = argv[i][1] == o->letter && o->letter != 0 && argv[i][2] == '\0';
      if (!is_long && !is_short) continue;
      if (o->argument != NULL) i++;
      break;
    }
  }
  return argc;
}

static plm_status find_program_directory(char directory[PLM_PATH_SIZE], struct plm_error *error)
{
  const ssize_t length = readlink("/proc/self/exe", directory, PLM_PATH_SIZE - 1);
  if (length < 0) return plm_error_errno(error, "/proc/self/exe");
  directory[length] = '\0';
  char *slash = strrchr(directory, '/');
  if (slash != NULL) *slash = '\0';
  return PLM_OK;
}

static plm_status run_command(const struct plm_command *command,
                              const struct plm_arguments *arguments, struct plm_error *error)
{
  char directory[PLM_PATH_SIZE];
  PLM_TRY(find_program_directory(directory, error));
  return plm_command_run(command, arguments, directory, error);
}

static int pipeline_main_finish(plm_status status, const char *command, struct plm_error *error)
{
  status = plm_program_flush_output(status, error);
  if (status == PLM_OK) return 0;
  if (error->what[0] != '\0') {
    plm_error_print(program, error);
    if (status == PLM_USAGE && error->hint[0] == '\0') {
      fprintf(stderr, "  try `plm-pipeline %s%s-h`\n", command, command[0] != '\0' ? " " : "");
    }
  }
  return plm_status_exit_code(status);
}

static plm_status unknown_command(const char *name, struct plm_error *error)
{
  struct plm_suggestion suggestion = {.word = name};
  for (size_t i = 0; plm_commands[i] != NULL; i++) plm_suggest(&suggestion, plm_commands[i]->name);
  if (suggestion.best == NULL) {
    return plm_error_set(error, PLM_USAGE, "unknown command \"%.80s\"", name);
  }
  return plm_error_set(error, PLM_USAGE, "unknown command \"%.80s\"; did you mean \"%s\"?", name,
                       suggestion.best);
}

int main(int argc, char **argv)
{
  struct plm_error error = {0};
  struct plm_arguments arguments;
  plm_program_begin();
  const int at = pipeline_main_find_command(argc, argv);
  const struct plm_command *command = at < argc ? plm_command_find(argv[at]) : NULL;
  if (at < argc && command == NULL && strcmp(argv[at], "help") != 0) {
    return pipeline_main_finish(unknown_command(argv[at], &error), "", &error);
  }
  if (at < argc) memmove(argv + at, argv + at + 1, sizeof *argv * (size_t)(argc - at));
  const char *name = command != NULL ? command->name : "";
  plm_status status =
      plm_arguments_parse(at < argc ? argc - 1 : argc, argv,
                          command != NULL ? command->options : NULL, &arguments, &error);
  if (status != PLM_OK) return pipeline_main_finish(status, name, &error);
  if (plm_arguments_has(&arguments, "version")) {
    printf("plm-pipeline %s\n", PLM_VERSION);
  } else if (command == NULL && arguments.positional_count == 1) { /* help COMMAND */
    command = plm_command_find(arguments.positionals[0]);
    if (command != NULL)
      print_command_help(command);
    else
      status = unknown_command(arguments.positionals[0], &error);
  } else if (command == NULL && (plm_arguments_has(&arguments, "help") || at < argc)) {
    print_overview();
  } else if (command == NULL) {
    status = plm_error_set(&error, PLM_USAGE, "a command is needed");
  } else if (plm_arguments_has(&arguments, "help")) {
    print_command_help(command);
  } else {
    status = run_command(command, &arguments, &error);
  }
  plm_arguments_deinit(&arguments);
  return pipeline_main_finish(status, name, &error);
}
