/* Parses the options that `embed` and `predict` share. */
#include "evaluator/embed/sequence_request.h"

#include <string.h>

#include "common/cli/output_file.h"
#include "common/cli/sequence_options.h"
#include "common/cli/task_options.h"
#include "evaluator/task/task.h"

enum { LARGEST_BATCH_TOKENS = 1 << 22 };

plm_status plm_sequence_request_parse(const struct plm_arguments *arguments,
                                      const struct plm_sequence_needs *needs,
                                      struct plm_sequence_request *request, struct plm_error *error)
{
  const char *resume = plm_arguments_get(arguments, "resume");
  unsigned long long batch_tokens;
  PLM_TRY(plm_task_needs(arguments, needs->options, "checkpoint", needs->checkpoint, error));
  PLM_TRY(plm_task_needs(arguments, needs->options, "output", needs->output, error));
  if (arguments->positional_count == 0) {
    plm_error_set(error, PLM_USAGE, "no sequences are named: give a file, or - for stdin");
    return plm_error_hint(error, "it may be FASTA, JSONL, a table or text, plain, .gz or .zst");
  }
  if (resume != NULL && strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0)
    return plm_error_set(error, PLM_USAGE, "--resume must be auto or never, not \"%.80s\"", resume);
  const char *output = plm_arguments_get(arguments, "output");
  const bool json = plm_arguments_has(arguments, "json");
  if (json) PLM_TRY(plm_output_check_stdout(output, "--json", error));
  PLM_TRY(plm_arguments_u64(arguments, "batch-tokens", needs->batch_tokens, &batch_tokens, error));
  if (batch_tokens == 0 || batch_tokens > LARGEST_BATCH_TOKENS)
    return plm_error_set(error, PLM_USAGE, "--batch-tokens must be 1 to %d", LARGEST_BATCH_TOKENS);
  *request = (struct plm_sequence_request){
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .weights = plm_arguments_get(arguments, "weights"),
      .inputs = arguments->positionals,
      .input_count = arguments->positional_count,
      .output = output,
      .batch_tokens = (uint32_t)batch_tokens,
      .strict = plm_arguments_has(arguments, "strict"),
      .fresh = resume != NULL && strcmp(resume, "never") == 0,
      .json = json,
  };
  PLM_TRY(plm_task_max_length(arguments, &request->max_length, error));
  return plm_sequence_options_parse(arguments, &request->choices, error);
}
