/* `plm-pipeline completion SHELL`: prints completion scripts, made from the tables of commands,
 * options and settings. The stages' programs have their own tables and print their scripts
 * themselves. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/cli/completion.h"
#include "stages/commands/command.h"

static plm_status print_own(const char *shell, struct plm_error *error)
{
  struct plm_completed_program program = {.name = "plm-pipeline"};
  while (plm_commands[program.command_count] != NULL) program.command_count++;
  struct plm_completed_command *commands =
      plm_alloc_zeroed(program.command_count, sizeof *commands);
  for (size_t i = 0; i < program.command_count; i++)
    commands[i] = (struct plm_completed_command){.name = plm_commands[i]->name,
                                                 .operands = plm_commands[i]->operands,
                                                 .summary = plm_commands[i]->summary,
                                                 .options = plm_commands[i]->options};
  program.commands = commands;
  const plm_status status = plm_completion_print(&program, shell, error);
  free(commands);
  return status;
}

/* Becomes the program, which prints its script. */
static plm_status print_of_program(const char *folder, const char *name, const char *shell,
                                   struct plm_error *error)
{
  static const char *const programs[] = {"plm-packer", "plm-trainer", "plm-evaluator"};
  char path[PLM_PATH_SIZE];
  for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
    if (strcmp(programs[i], name) != 0) continue;
    PLM_TRY(plm_path_join(path, folder, name, error));
    execl(path, name, "--completion", shell, (char *)NULL);
    plm_error_errno(error, "cannot start %s", path);
    return plm_error_hint(error, "keep the four programs of one build in one folder");
  }
  plm_error_set(error, PLM_USAGE, "there is no completion for \"%.80s\"", name);
  return plm_error_hint(error, "name plm-packer, plm-trainer or plm-evaluator; without a name, the "
                               "script is for plm-pipeline");
}

static plm_status completion(const struct plm_command_context *context, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  PLM_TRY(plm_command_operands(context, 2, error));
  const char *shell = arguments->positional_count > 0 ? arguments->positionals[0] : "";
  const char *program =
      arguments->positional_count > 1 ? arguments->positionals[1] : "plm-pipeline";
  if (strcmp(program, "plm-pipeline") == 0) return print_own(shell, error);
  return print_of_program(context->program_directory, program, shell, error);
}

const struct plm_command plm_command_completion = {
    .name = "completion",
    .operands = "bash|zsh|fish [PROGRAM]",
    .summary = "print a completion script for bash, zsh or fish",
    .details =
        "PROGRAM is plm-pipeline (the default), plm-packer, plm-trainer or plm-evaluator. "
        "`make install` installs the scripts of all four. Otherwise, put this line into the "
        "shell's start-up file:\n\n"
        "  bash: source <(plm-pipeline completion bash)\n"
        "  zsh: source <(plm-pipeline completion zsh), after compinit\n"
        "  fish: plm-pipeline completion fish | source\n\n"
        "Or save the script where the shell looks for it: for zsh as _PROGRAM in a folder of "
        "$fpath, for fish as PROGRAM.fish in ~/.config/fish/completions.",
    .run = completion,
};
