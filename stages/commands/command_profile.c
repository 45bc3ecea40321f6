/* `plm-pipeline profile`: where the time of profiled steps went, by operator. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/text/printable.h"
#include "common/run/run.h"
#include "stages/commands/command.h"
#include "stages/views/profile_table.h"

static const struct plm_option options[] = {
    {.name = "shapes", .help = "a row for each shape of an operator"},
    {.name = "rank",
     .argument = "N",
     .help = "only this rank; otherwise the times are means over all ranks"},
    {0},
};

/* The operand is a profile or a run folder; without one, it is the run's. */
static plm_status find_profile(const struct plm_command_context *context, char path[PLM_PATH_SIZE],
                               struct plm_error *error)
{
  char run[PLM_PATH_SIZE];
  const char *operand = context->arguments->positionals[0]; /* or NULL */
  if (operand != NULL && !plm_file_exists(operand))
    return plm_error_set(error, PLM_NOT_FOUND, "there is no file or folder %s", operand);
  if (operand != NULL && !plm_directory_exists(operand))
    return plm_path_join(path, ".", operand, error);
  if (operand == NULL) PLM_TRY(plm_command_run_folder(context, run, error));
  if (operand == NULL) operand = run;
  PLM_TRY(plm_path_join(path, operand, PLM_RUN_PROFILE, error));
  if (plm_file_exists(path)) return PLM_OK;
  plm_error_set(error, PLM_NOT_FOUND, "%s has no profile", operand);
  return plm_error_hint(error, "make one of some steps that are still to come: `plm-pipeline up "
                               "--profile 10-12`, or trainer.profile.steps");
}

static plm_status profile_print(const struct plm_command_context *context, FILE *file,
                                struct plm_error *error)
{
  struct plm_profile_view view = {.shapes = plm_arguments_has(context->arguments, "shapes"),
                                  .rank = -1};
  struct plm_profile_table table = {0};
  struct plm_text out = {0};
  unsigned rank = 0;
  PLM_TRY(plm_arguments_within(context->arguments, "rank", 0, PLM_MAX_RANKS - 1, &rank, error));
  if (plm_arguments_has(context->arguments, "rank")) view.rank = rank;
  const plm_status status = plm_profile_table_read(file, &view, &table, error);
  if (status == PLM_OK)
    (context->json ? plm_profile_table_json : plm_profile_table_print)(&table, &out);
  if (status == PLM_OK) plm_print(stdout, "%s", out.data);
  plm_text_deinit(&out);
  plm_profile_table_deinit(&table);
  return status;
}

static plm_status profile_run(const struct plm_command_context *context, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_command_operands(context, 1, error));
  PLM_TRY(find_profile(context, path, error));
  FILE *file = fopen(path, "re");
  if (file == NULL) return plm_error_errno(error, "cannot open %s", path);
  const plm_status status = profile_print(context, file, error);
  fclose(file);
  if (status == PLM_FORMAT || status == PLM_IO) plm_error_where(error, "%s", path);
  if (status != PLM_OK) return status;
  return fflush(stdout) == 0 ? PLM_OK : plm_error_errno(error, "cannot write the table");
}

const struct plm_command plm_command_profile = {
    .name = "profile",
    .operands = "[FILE | RUN] [--shapes] [--rank N]",
    .summary = "show where the time of profiled steps went, by operator",
    .details =
        "Reads profile.json of the run folder, which `up --profile FIRST-LAST` or "
        "trainer.profile.steps makes, or the file that is named. The times, and the numbers of "
        "calls, are means of a step. GFLOP/s and GB/s count the products of an operator and the "
        "least that it has to read and write. The last column is how long the machine's measured "
        "limits would need for that, as a share of the time: the rate of a large product, and that "
        "of a copy in memory. What lies in the processor's cache can exceed the latter. `other` is "
        "what the host did between these, `idle` when the device had nothing to do. Below come "
        "what ran beside the steps or between them: transfers between ranks and checkpoints. The "
        "file itself opens in ui.perfetto.dev and chrome://tracing.",
    .options = options,
    .run = profile_run,
};
