/* The command line of `plm-evaluator predict`. */
#include <string.h>

#include "common/cli/output_file.h"
#include "common/cli/sequence_options.h"
#include "common/cli/task_options.h"
#include "evaluator/predict/predict.h"
#include "evaluator/task/task.h"

enum { PREDICT_BATCH_TOKENS = 8192, PREDICT_LARGEST_BATCH = 1 << 22 };

static plm_status predict_parse(const struct plm_arguments *arguments,
                                struct plm_predict_request *request, struct plm_error *error)
{
  const char *resume = plm_arguments_get(arguments, "resume");
  unsigned long long batch_tokens;
  PLM_TRY(plm_task_needs(arguments, plm_predict_options, "checkpoint",
                         "a model that was fine-tuned with labels", error));
  PLM_TRY(plm_task_needs(arguments, plm_predict_options, "output",
                         "where the predictions go, FILE.csv, FILE.tsv or FILE.jsonl", error));
  if (arguments->positional_count == 0) {
    plm_error_set(error, PLM_USAGE, "no sequences are named: give a file, or - for stdin");
    return plm_error_hint(error, "it may be FASTA, JSONL, a table or text, plain, .gz or .zst");
  }
  if (resume != NULL && strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0)
    return plm_error_set(error, PLM_USAGE, "--resume must be auto or never, not \"%.80s\"", resume);
  const char *output = plm_arguments_get(arguments, "output");
  const bool json = plm_arguments_has(arguments, "json");
  if (json) PLM_TRY(plm_output_check_stdout(output, "--json", error));
  PLM_TRY(plm_arguments_u64(arguments, "batch-tokens", PREDICT_BATCH_TOKENS, &batch_tokens, error));
  if (batch_tokens == 0 || batch_tokens > PREDICT_LARGEST_BATCH)
    return plm_error_set(error, PLM_USAGE, "--batch-tokens must be 1 to %d", PREDICT_LARGEST_BATCH);
  *request = (struct plm_predict_request){
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .weights = plm_arguments_get(arguments, "weights"),
      .inputs = arguments->positionals,
      .input_count = arguments->positional_count,
      .output = output,
      .batch_tokens = (uint32_t)batch_tokens,
      .per_residue = plm_arguments_has(arguments, "per-residue"),
      .logits = plm_arguments_has(arguments, "logits"),
      .strict = plm_arguments_has(arguments, "strict"),
      .json = json,
      .fresh = resume != NULL && strcmp(resume, "never") == 0,
  };
  PLM_TRY(plm_task_max_length(arguments, &request->max_length, error));
  return plm_sequence_options_parse(arguments, &request->choices, error);
}

static plm_status predict_task_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_predict_request request;
  struct plm_ops *ops;
  PLM_TRY(predict_parse(arguments, &request, error));
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  const plm_status status = plm_predict(&request, ops, error);
  ops->close(ops);
  return status;
}

const struct plm_program plm_task_predict = {
    .name = "plm-evaluator predict",
    .usage = "usage: plm-evaluator predict --checkpoint DIR IN... --output FILE [options]\n\n"
             "Writes the labels that a fine-tuned model predicts, in the order of the input.\n",
    .options = plm_predict_options,
    .operands = (size_t)-1,
    .run = predict_task_run,
};
