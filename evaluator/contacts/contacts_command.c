/* Runs over checkpoints; tables and JSON. */
#include "evaluator/contacts/contacts_command.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/cli/task_options.h"
#include "common/metrics/metrics.h"
#include "evaluator/task/task.h"
#include "evaluator/task/task_checkpoints.h"

struct contacts_command {
  struct plm_contacts_request request;
  const char *folder;
  size_t checkpoints, done;
  cJSON *line; /* with --json */
};

void plm_contacts_add(cJSON *object, const struct plm_contacts_results *results)
{
  for (int m = 0; m < PLM_CONTACT_MEASURES; m++)
    plm_metrics_number(object, plm_contact_measure_names[m], results->precision[m]);
  plm_metrics_number(object, "chance", results->chance);
  plm_metrics_integer(object, "trained", results->trained);
  plm_metrics_integer(object, "tested", results->tested);
  plm_metrics_integer(object, "heads", results->heads);
  plm_metrics_integer(object, "heads_used", results->used);
}

static plm_status parse_contacts(const struct plm_arguments *arguments,
                                 struct contacts_command *command, struct plm_error *error)
{
  static const char *const others[] = {"target", "split",           "layers", "pooling",
                                       "alpha",  "sequence-column", "output"};
  PLM_TRY(plm_task_needs(arguments, plm_probe_options, "checkpoint",
                         "a checkpoint, for example runs/demo/checkpoints/latest", error));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (plm_arguments_has(arguments, others[i]))
      return plm_error_set(error, PLM_USAGE, "--%s does not apply to --task contacts", others[i]);
  if (arguments->positional_count != 1) {
    plm_error_set(error, PLM_USAGE, "%s",
                  arguments->positional_count == 0 ? "no folder is named" : "name one folder");
    return plm_error_hint(error, "it has a pair of files for each protein, NAME.fasta and "
                                 "NAME.contacts");
  }
  command->folder = arguments->positionals[0];
  command->request.training = PLM_CONTACT_TRAINING;
  PLM_TRY(plm_arguments_within(arguments, "train", 1, 1000000, &command->request.training, error));
  PLM_TRY(plm_task_max_length(arguments, &command->request.max_length, error));
  command->checkpoints = plm_task_checkpoint_count(arguments);
  return PLM_OK;
}

static void put_contacts_json(struct contacts_command *command, const char *checkpoint,
                              const struct plm_inference *inference,
                              const struct plm_contacts_results *results)
{
  if (command->done == 0) {
    plm_metrics_string(command->line, "folder", command->folder);
    plm_metrics_string(command->line, "task", "contacts");
  }
  plm_contacts_add(
      plm_task_checkpoint_object(command->line, command->checkpoints, checkpoint, inference),
      results);
}

static void print_contacts(const struct contacts_command *command, const char *checkpoint,
                           const struct plm_contacts_results *results)
{
  if (command->done == 0) {
    plm_print(stdout, "folder  %s: %u proteins to learn from, %u to test\n\n", command->folder,
              results->trained, results->tested);
    printf("%-32s  %-11s %-8s %-8s %-8s %s\n", "checkpoint", "heads", "L", "L/2", "L/5", "chance");
  }
  char heads[32];
  snprintf(heads, sizeof heads, "%u of %u", results->used, results->heads);
  plm_print(stdout, "%-32s  %-11s", checkpoint, heads);
  for (int m = 0; m < PLM_CONTACT_MEASURES; m++) printf(" %-8.3f", results->precision[m]);
  printf(" %.3f\n", results->chance);
}

static plm_status measure_contacts(void *context, const char *checkpoint,
                                   struct plm_inference *inference, struct plm_error *error)
{
  struct contacts_command *command = context;
  struct plm_protein_folder folder;
  struct plm_contacts_results results;
  char number[64];
  PLM_TRY(plm_protein_folder_read(command->folder, inference->tokenizer->kind, &folder, error));
  plm_status status = plm_contacts_check(&folder, command->request.training, " (--train)", error);
  if (status == PLM_OK)
    status = plm_contacts_run(&command->request, &folder, inference, &results, error);
  plm_protein_folder_deinit(&folder);
  if (status == PLM_FORMAT && error->where[0] == '\0')
    plm_error_where(error, "%s", command->folder);
  PLM_TRY(status);
  if (results.cut > 0)
    plm_warning("proteins of which %s sees only the beginning: %s", checkpoint,
                plm_format_count(results.cut, number));
  if (command->line != NULL)
    put_contacts_json(command, checkpoint, inference, &results);
  else
    print_contacts(command, checkpoint, &results);
  command->done++;
  return PLM_OK;
}

plm_status plm_contacts_command(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct contacts_command command = {0};
  struct plm_ops *ops;
  PLM_TRY(parse_contacts(arguments, &command, error));
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  if (plm_arguments_has(arguments, "json")) command.line = cJSON_CreateObject();
  const plm_status status = plm_task_each_checkpoint(arguments, PLM_CONTACT_BATCH_TOKENS, ops,
                                                     measure_contacts, &command, error);
  ops->close(ops);
  if (status == PLM_OK && command.line != NULL) return plm_json_print(command.line, error);
  cJSON_Delete(command.line);
  return status;
}
