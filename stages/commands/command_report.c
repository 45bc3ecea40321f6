/* `plm-pipeline report [RUN...]`: writes one HTML file about one run or several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/cli/output_file.h"
#include "stages/commands/command.h"
#include "stages/views/report.h"

#define DEFAULT_FILE "report.html"

static const struct plm_option options[] = {
    {0, "output", "FILE", "where to write (default report.html in the first run's folder)"},
    {0, NULL, NULL, NULL},
};

/* The folders of the operands, or that of --run or the configuration. */
static plm_status find_folders(const struct plm_command_context *context,
                               char (*folders)[PLM_PATH_SIZE], size_t *count,
                               struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  char here[PLM_PATH_SIZE];
  PLM_TRY(plm_command_operands(context, PLM_REPORT_RUNS, error));
  *count = arguments->positional_count;
  if (*count == 0) {
    *count = 1;
    return plm_command_run_folder(context, folders[0], error);
  }
  if (context->run != NULL)
    return plm_error_set(error, PLM_USAGE, "name the runs as operands or with --run, not both");
  if (getcwd(here, sizeof here) == NULL)
    return plm_error_errno(error, "cannot find the working directory");
  for (size_t i = 0; i < *count; i++)
    PLM_TRY(plm_path_join(folders[i], here, arguments->positionals[i], error));
  return PLM_OK;
}

/* Runs whose folders have the same name are told apart by their paths. */
static void name_apart(struct plm_report_run *runs, size_t count)
{
  bool doubled[PLM_REPORT_RUNS] = {false};
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < count; j++)
      doubled[i] |= i != j && strcmp(runs[i].name, runs[j].name) == 0;
  for (size_t i = 0; i < count; i++)
    if (doubled[i]) runs[i].name = runs[i].folder;
}

static plm_status report_make_page(const struct plm_command_context *context,
                                   const struct plm_report_run *runs, size_t count,
                                   struct plm_error *error)
{
  char made[64], usual[PLM_PATH_SIZE];
  struct tm local;
  const time_t now = time(NULL);
  const char *path = plm_arguments_get(context->arguments, "output");
  struct plm_text text = {0};
  PLM_TRY(plm_path_join(usual, runs[0].folder, DEFAULT_FILE, error));
  if (path == NULL) path = usual;
  if (localtime_r(&now, &local) == NULL || strftime(made, sizeof made, "%F %H:%M %z", &local) == 0)
    made[0] = '\0';
  plm_report_page(&text, runs, count, made);
  const plm_status status = plm_output_write(path, text.data, text.length, false, error);
  if (status == PLM_OK && !plm_output_is_stream(path)) plm_info("%s is written", path);
  plm_text_deinit(&text);
  return status;
}

static plm_status report_finished(const struct plm_command_context *context,
                                  struct plm_error *error)
{
  static char folders[PLM_REPORT_RUNS][PLM_PATH_SIZE];
  static struct plm_report_run runs[PLM_REPORT_RUNS];
  size_t count, read = 0;
  PLM_TRY(find_folders(context, folders, &count, error));
  plm_status status = PLM_OK;
  while (status == PLM_OK && read < count) {
    status = plm_report_run_read(folders[read], &runs[read], error);
    if (status == PLM_OK) read++;
  }
  if (status == PLM_OK) {
    name_apart(runs, count);
    status = report_make_page(context, runs, count, error);
  }
  for (size_t i = 0; i < read; i++) plm_report_run_deinit(&runs[i]);
  return status;
}

const struct plm_command plm_command_report = {
    .name = "report",
    .operands = "[DIR...] [--output FILE]",
    .summary = "write an HTML page about one run or several",
    .details = "The page is one file that needs nothing else and loads nothing: charts of the "
               "training loss, the validation loss and accuracy, the learning rate, the "
               "throughput, the padding, the stalls and the gradient norm over the steps, "
               "the configuration, and the machine. It follows the light or dark setting of the "
               "browser.\n\n"
               "DIR is a run folder (default: the configuration's). The curves of up to 8 runs are "
               "overlaid. `--output -` writes to standard output.",
    .options = options,
    .run = report_finished,
};
