/* The command line of `plm-evaluator probe`. */
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/cli/output_file.h"
#include "common/cli/task_options.h"
#include "common/metrics/metrics.h"
#include "evaluator/contacts/contacts_command.h"
#include "evaluator/probe/probe.h"
#include "evaluator/probe/probe_report.h"
#include "evaluator/task/task.h"
#include "evaluator/task/task_checkpoints.h"

struct probe_command {
  struct plm_probe_request request;
  const char *output;
  bool json, quiet;         /* quiet: the predictions go to stdout */
  size_t checkpoints, done; /* done: those that were measured */
  struct plm_labelled_table table;
  cJSON *line; /* with --json */
};

static plm_status parse_task(const struct plm_arguments *arguments, enum plm_label_kind *kind,
                             struct plm_error *error)
{
  const char *task = plm_arguments_get(arguments, "task");
  *kind = PLM_LABEL_GUESSED;
  if (task == NULL) return PLM_OK;
  const int found = plm_text_find(plm_probe_task_names, task);
  if (found >= 0) {
    *kind = (enum plm_label_kind)(PLM_LABEL_NUMBER + found);
    return PLM_OK;
  }
  return plm_error_set(error, PLM_USAGE,
                       "--task must be regression, classification, residues or contacts, not "
                       "\"%.80s\"",
                       task);
}

static plm_status refuse_folder(const struct plm_arguments *arguments, struct plm_error *error)
{
  const char *path = arguments->positional_count == 1 ? arguments->positionals[0] : NULL;
  if (path == NULL || !plm_directory_exists(path)) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "%s is a folder, not a table", path);
  return plm_error_hint(error, "for a folder of proteins with contacts, give --task contacts");
}

static plm_status parse_request(const struct plm_arguments *arguments,
                                struct probe_command *command, struct plm_error *error)
{
  struct plm_probe_request *request = &command->request;
  const char *pooling = plm_arguments_get(arguments, "pooling");
  PLM_TRY(plm_task_needs(arguments, plm_probe_options, "checkpoint",
                         "a checkpoint, for example runs/demo/checkpoints/latest", error));
  PLM_TRY(parse_task(arguments, &request->table.kind, error));
  PLM_TRY(refuse_folder(arguments, error));
  PLM_TRY(plm_task_needs(arguments, plm_probe_options, "target", "the column to predict", error));
  if (arguments->positional_count != 1) {
    plm_error_set(error, PLM_USAGE, "%s",
                  arguments->positional_count == 0 ? "no table is named" : "name one table");
    return plm_error_hint(error, "it is a CSV, TSV or JSONL file with a column of sequences");
  }
  request->table = (struct plm_labelled_request){
      .kind = request->table.kind,
      .path = arguments->positionals[0],
      .sequence_column = plm_arguments_get(arguments, "sequence-column"),
      .target_column = plm_arguments_get(arguments, "target"),
      .split_column = plm_arguments_get(arguments, "split"),
  };
  PLM_TRY(plm_pooling_parse(pooling != NULL ? pooling : "mean", &request->pooling, error));
  PLM_TRY(plm_task_number(arguments, "alpha", 0, false, 1e12, &request->alpha, error));
  PLM_TRY(plm_task_max_length(arguments, &request->max_length, error));
  request->layers = plm_arguments_get(arguments, "layers");
  command->output = plm_arguments_get(arguments, "output");
  command->json = plm_arguments_has(arguments, "json");
  command->quiet = command->output != NULL && plm_output_is_stdout(command->output);
  command->checkpoints = plm_task_checkpoint_count(arguments);
  if (command->output != NULL && command->checkpoints > 1)
    return plm_error_set(error, PLM_USAGE,
                         "--output writes the predictions of one model, so it takes one "
                         "--checkpoint");
  if (command->json) PLM_TRY(plm_output_check_stdout(command->output, "--json", error));
  return plm_output_check_inputs("--output", command->output, arguments->positionals, 1, error);
}

/* Reads the table once; all models must read letters in the same way. */
static plm_status read_table(struct probe_command *command, const char *checkpoint,
                             enum plm_tokenizer_kind tokenizer, struct plm_error *error)
{
  struct plm_labelled_request *table = &command->request.table;
  if (command->done > 0) {
    if (table->tokenizer == tokenizer) return PLM_OK;
    plm_error_set(error, PLM_USAGE, "%s has another tokenizer than the models before it",
                  checkpoint);
    return plm_error_hint(error, "run the command once for each");
  }
  table->tokenizer = tokenizer;
  PLM_TRY(plm_labelled_table_read(table, &command->table, error));
  if (command->json) plm_probe_add_table(command->line, &command->table);
  return PLM_OK;
}

static plm_status put_results(struct probe_command *command, const char *checkpoint,
                              const struct plm_inference *inference,
                              const struct plm_probe_results *results, struct plm_error *error)
{
  const struct plm_probed *best = &results->layers[results->best];
  const enum plm_label_kind kind = command->table.kind;
  plm_probe_warn(&command->table, &results->items);
  if (command->output != NULL)
    PLM_TRY(plm_probe_write_predictions(results, command->output, error));
  if (command->json) {
    plm_probe_add_results(
        plm_task_checkpoint_object(command->line, command->checkpoints, checkpoint, inference),
        results);
    return PLM_OK;
  }
  if (command->quiet) return PLM_OK;
  if (command->done == 1) { /* only now: a probe that fails prints nothing but its error */
    plm_probe_print_table(&command->table);
    plm_probe_print_header(&command->table);
  }
  plm_probe_print_row(checkpoint, best->layer, kind, &best->fit);
  if (command->done == command->checkpoints)
    plm_probe_print_row(kind == PLM_LABEL_RESIDUES ? "(composition only)"
                                                   : "(composition and length only)",
                        "-", kind, &results->baseline);
  plm_probe_print_layers(results);
  return PLM_OK;
}

static plm_status probe_checkpoint(void *context, const char *checkpoint,
                                   struct plm_inference *inference, struct plm_error *error)
{
  struct probe_command *command = context;
  struct plm_probe_results results;
  PLM_TRY(read_table(command, checkpoint, inference->tokenizer->kind, error));
  PLM_TRY(plm_probe_run(&command->request, &command->table, inference, &results, error));
  command->done++;
  const plm_status status = put_results(command, checkpoint, inference, &results, error);
  plm_probe_results_deinit(&results);
  return status;
}

static plm_status task_probe_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct probe_command command = {0};
  const char *task = plm_arguments_get(arguments, "task");
  struct plm_ops *ops;
  if (task != NULL && strcmp(task, "contacts") == 0) return plm_contacts_command(arguments, error);
  if (plm_arguments_has(arguments, "train"))
    return plm_error_set(error, PLM_USAGE, "--train is for --task contacts");
  PLM_TRY(parse_request(arguments, &command, error));
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  if (command.json) command.line = cJSON_CreateObject();
  const plm_status status = plm_task_each_checkpoint(arguments, PLM_INFERENCE_BATCH_TOKENS, ops,
                                                     probe_checkpoint, &command, error);
  plm_labelled_table_deinit(&command.table);
  ops->close(ops);
  if (status == PLM_OK && command.json) return plm_json_print(command.line, error);
  cJSON_Delete(command.line);
  return status;
}

const struct plm_program plm_task_probe = {
    .name = "plm-evaluator probe",
    .usage = "usage: plm-evaluator probe --checkpoint DIR TABLE --target COLUMN [options]\n\n"
             "Says how well linear models on frozen embeddings predict the labels of a table.\n",
    .options = plm_probe_options,
    .operands = 1,
    .run = task_probe_run,
};
