/* `plm-pipeline manual [PAGE]`: prints manual pages, made from the tables of commands, options and
 * settings, or writes all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/process/program_run.h"
#include "common/base/text/text.h"
#include "common/cli/program.h"
#include "common/cli/roff.h"
#include "stages/commands/command.h"
#include "stages/views/settings_manual.h"

static const char *const programs[] = {"plm-packer", "plm-trainer", "plm-evaluator"};
enum { PROGRAMS = sizeof programs / sizeof programs[0], NAME_SIZE = 64, PAGE_LIMIT = 1 << 16 };

static const struct plm_option options[] = {
    {0, "all", "DIR", "write every page to DIR/man1 and DIR/man5"},
    {0, NULL, NULL, NULL},
};

static void page_of(const struct plm_command *command, char name[NAME_SIZE])
{
  snprintf(name, NAME_SIZE, "plm-pipeline-%s", command->name);
}

/* ---- the pages of plm-pipeline -------------------------------------------------------------- */

static const char environment_config[] = "The configuration, if `-c` is not given.";
static const char environment_keys[] =
    "Every key of pipeline.yaml: PLM_ and the key in capitals, with _ for each dot.";
static const char environment_color[] = "If it is not empty, nothing is coloured.";
static const char run_folder[] =
    "The configuration as last started (pipeline.yaml), the metrics (trainer.jsonl, "
    "evaluator.jsonl, packers.jsonl), checkpoints, logs, TensorBoard files, endpoints and locks.";

static void overview_page(struct plm_text *text)
{
  char name[NAME_SIZE];
  plm_roff_begin(text, "plm-pipeline", 1, "train protein language models");
  plm_roff_section(text, "SYNOPSIS");
  plm_roff_synopsis(text, "plm-pipeline COMMAND [OPTIONS]", strlen("plm-pipeline"));
  plm_roff_section(text, "DESCRIPTION");
  plm_roff_paragraphs(
      text,
      "plm-pipeline turns sequences into a corpus, starts and supervises the stages of a run "
      "(plm-packer, plm-trainer and plm-evaluator), and shows what they do. Their checkpoints "
      "are Hugging Face model folders.\n\n"
      "To begin: `plm-pipeline ingest sequences.fasta --corpus DIR`, then name the corpus in "
      "`pipeline.yaml`, then `plm-pipeline up`.");
  plm_roff_section(text, "COMMANDS");
  for (size_t i = 0; plm_commands[i] != NULL; i++)
    plm_roff_item(text, plm_commands[i]->name, plm_commands[i]->summary);
  plm_roff_section(text, "OPTIONS OF EVERY COMMAND");
  plm_roff_options(text, plm_common_options);
  plm_roff_section(text, "EXIT STATUS");
  plm_roff_paragraphs(text, PLM_EXIT_CODES);
  plm_roff_section(text, "ENVIRONMENT");
  plm_roff_item(text, "PLM_CONFIG", environment_config);
  plm_roff_item(text, "PLM_TRAINER_STEPS, ...", environment_keys);
  plm_roff_item(text, "NO_COLOR", environment_color);
  plm_roff_section(text, "FILES");
  plm_roff_item(text, "./pipeline.yaml", "The configuration, if no other is named.");
  plm_roff_item(text, "runs/NAME/", run_folder);
  plm_roff_section(text, "SEE ALSO");
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    page_of(plm_commands[i], name);
    plm_roff_refer(text, name, 1, i == 0);
  }
  for (size_t i = 0; i < PROGRAMS; i++) plm_roff_refer(text, programs[i], 1, false);
  plm_roff_refer(text, "pipeline.yaml", 5, false);
  plm_text_puts(text, "\n");
}

static void command_page(struct plm_text *text, const struct plm_command *command)
{
  char name[NAME_SIZE], line[512];
  const int bold = snprintf(line, sizeof line, "plm-pipeline %s", command->name);
  page_of(command, name);
  plm_roff_begin(text, name, 1, command->summary);
  plm_roff_section(text, "SYNOPSIS");
  snprintf(line + bold, sizeof line - (size_t)bold, " %s",
           command->operands != NULL ? command->operands : "[OPTIONS]");
  plm_roff_synopsis(text, line, (size_t)bold);
  if (command->details != NULL) {
    plm_roff_section(text, "DESCRIPTION");
    plm_roff_paragraphs(text, command->details);
  }
  plm_roff_section(text, "OPTIONS");
  plm_roff_options(text, command->options);
  if (command->options != NULL && command->options->name != NULL)
    plm_roff_subsection(text, "Options of every command");
  plm_roff_options(text, plm_common_options);
  plm_roff_section(text, "EXIT STATUS");
  plm_roff_paragraphs(text, PLM_EXIT_CODES);
  plm_roff_section(text, "SEE ALSO");
  plm_roff_refer(text, "plm-pipeline", 1, true);
  plm_roff_refer(text, "pipeline.yaml", 5, false);
  plm_text_puts(text, "\n");
}

/* ---- the pages of the stages' programs, which have the tables of their options ----------------
 */

static plm_status program_page(const char *folder, const char *name, struct plm_text *text,
                               struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_program_said said = {0};
  PLM_TRY(plm_path_join(path, folder, name, error));
  const char *const arguments[] = {path, "--manual-page", NULL};
  const plm_status status = plm_program_run(arguments, PAGE_LIMIT, 0, &said, error);
  const bool printed = status == PLM_OK && said.exit_code == 0 && said.out.length > 0;
  if (printed) plm_text_append(text, said.out.data, said.out.length);
  plm_program_said_deinit(&said);
  if (printed || status != PLM_OK) return status;
  plm_error_set(error, PLM_FAILURE, "%s did not print its manual page", path);
  return plm_error_hint(error, "keep the four programs of one build in one folder");
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* Appends the page of a name such as "up", "plm-pipeline-up", "plm-trainer" or "pipeline.yaml". */
static plm_status manual_make_page(const char *folder, const char *name, struct plm_text *text,
                                   struct plm_error *error)
{
  static const char prefix[] = "plm-pipeline-";
  const bool prefixed = strncmp(name, prefix, sizeof prefix - 1) == 0;
  const struct plm_command *command = plm_command_find(prefixed ? name + sizeof prefix - 1 : name);
  for (size_t i = 0; i < PROGRAMS; i++)
    if (strcmp(name, programs[i]) == 0) return program_page(folder, name, text, error);
  if (strcmp(name, "plm-pipeline") == 0) {
    overview_page(text);
  } else if (strcmp(name, "pipeline.yaml") == 0) {
    plm_settings_manual(text);
  } else if (command != NULL) {
    command_page(text, command);
  } else {
    plm_error_set(error, PLM_USAGE, "there is no manual page \"%.80s\"", name);
    return plm_error_hint(error, "name a command, plm-pipeline, plm-packer, plm-trainer, "
                                 "plm-evaluator or pipeline.yaml");
  }
  return PLM_OK;
}

static plm_status write_page(const char *folder, const char *directory, const char *name,
                             int section, struct plm_error *error)
{
  char man[PLM_PATH_SIZE], path[PLM_PATH_SIZE], file[NAME_SIZE + 8];
  struct plm_text text = {0};
  snprintf(file, sizeof file, "man%d", section);
  PLM_TRY(plm_path_join(man, directory, file, error));
  PLM_TRY(plm_directory_make(man, error));
  snprintf(file, sizeof file, "%s.%d", name, section);
  PLM_TRY(plm_path_join(path, man, file, error));
  plm_status status = manual_make_page(folder, name, &text, error);
  if (status == PLM_OK) status = plm_file_write(path, text.data, text.length, 0644, error);
  plm_text_deinit(&text);
  return status;
}

static plm_status manual_write_all(const char *folder, const char *directory,
                                   struct plm_error *error)
{
  PLM_TRY(write_page(folder, directory, "plm-pipeline", 1, error));
  PLM_TRY(write_page(folder, directory, "pipeline.yaml", 5, error));
  for (size_t i = 0; i < PROGRAMS; i++)
    PLM_TRY(write_page(folder, directory, programs[i], 1, error));
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    char name[NAME_SIZE];
    page_of(plm_commands[i], name);
    PLM_TRY(write_page(folder, directory, name, 1, error));
  }
  return PLM_OK;
}

static plm_status manual(const struct plm_command_context *context, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const char *directory = plm_arguments_get(arguments, "all");
  PLM_TRY(plm_command_operands(context, directory != NULL ? 0 : 1, error));
  if (directory != NULL) return manual_write_all(context->program_directory, directory, error);
  const char *name = arguments->positional_count > 0 ? arguments->positionals[0] : "plm-pipeline";
  struct plm_text text = {0};
  const plm_status status = manual_make_page(context->program_directory, name, &text, error);
  if (status == PLM_OK) fputs(text.data, stdout);
  plm_text_deinit(&text);
  return status;
}

const struct plm_command plm_command_manual = {
    .name = "manual",
    .operands = "[PAGE] | --all DIR",
    .summary = "print a manual page in roff, or write all of them",
    .details =
        "PAGE is a command, plm-pipeline (the default), plm-packer, plm-trainer, plm-evaluator or "
        "pipeline.yaml. To read a page that is not installed:\n\n"
        "  plm-pipeline manual pipeline.yaml | man -l -\n\n"
        "`make install` writes all pages to share/man.",
    .options = options,
    .run = manual,
};
