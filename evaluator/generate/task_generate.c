/* The command line of `plm-evaluator generate`. */
#include <string.h>

#include "common/cli/output_file.h"
#include "common/cli/sequence_options.h"
#include "common/cli/task_options.h"
#include "evaluator/generate/generate.h"
#include "evaluator/task/task.h"

enum { MOST = 1 << 30 };

/* Reads option --NAME as a number from 1 to MOST. *value is not changed if the option is
 * not given. */
static plm_status generate_parse_count(const struct plm_arguments *arguments, const char *name,
                                       uint32_t *value, struct plm_error *error)
{
  unsigned long long number;
  if (!plm_arguments_has(arguments, name)) return PLM_OK;
  PLM_TRY(plm_arguments_u64(arguments, name, 0, &number, error));
  if (number < 1 || number > MOST)
    return plm_error_set(error, PLM_USAGE, "--%s %llu is not between 1 and %d", name, number, MOST);
  *value = (uint32_t)number;
  return PLM_OK;
}

static plm_status task_generate_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_generate_request request = {
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .weights = plm_arguments_get(arguments, "weights"),
      .input = arguments->positionals[0], /* or NULL */
      .output = plm_arguments_get(arguments, "output"),
      .trace = plm_arguments_get(arguments, "trace"),
      .temperature = 1,
      .top_p = 1,
      .json = plm_arguments_has(arguments, "json"),
  };
  uint32_t count = 1;
  unsigned long long seed;
  struct plm_ops *ops;
  PLM_TRY(plm_task_needs(arguments, plm_generate_options, "checkpoint",
                         "a checkpoint, for example runs/demo/checkpoints/latest", error));
  PLM_TRY(plm_task_needs(arguments, plm_generate_options, "output",
                         "where the FASTA goes (- is standard output)", error));
  if (request.json) PLM_TRY(plm_output_check_stdout(request.output, "--json", error));
  if (request.trace != NULL && plm_output_is_stdout(request.trace) &&
      (request.json || plm_output_is_stdout(request.output)))
    return plm_error_set(error, PLM_USAGE,
                         "--trace %s and %s would both write to standard output: name a file",
                         request.trace, request.json ? "--json" : "--output");
  if (request.trace != NULL && strcmp(request.trace, request.output) == 0)
    return plm_error_set(error, PLM_USAGE, "--trace and --output both name %.200s: name two files",
                         request.output);
  PLM_TRY(plm_sequence_options_parse(arguments, &request.choices, error));
  PLM_TRY(plm_task_number(arguments, "temperature", 0, true, 1e6, &request.temperature, error));
  PLM_TRY(plm_task_number(arguments, "top-p", 0, false, 1, &request.top_p, error));
  PLM_TRY(plm_arguments_u64(arguments, "seed", 0, &seed, error));
  PLM_TRY(generate_parse_count(arguments, "top-k", &request.top_k, error));
  PLM_TRY(generate_parse_count(arguments, "count", &count, error));
  PLM_TRY(generate_parse_count(arguments, "steps", &request.steps, error));
  PLM_TRY(plm_task_number(arguments, "remask", 0, true, 0.99, &request.remask, error));
  PLM_TRY(generate_parse_count(arguments, "length", &request.length, error));
  PLM_TRY(generate_parse_count(arguments, "max-tokens", &request.max_tokens, error));
  PLM_TRY(plm_task_max_length(arguments, &request.max_length, error));
  request.seed = seed;
  request.count = count;
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  const plm_status status = plm_generate(&request, ops, error);
  ops->close(ops);
  return status;
}

const struct plm_program plm_task_generate = {
    .name = "plm-evaluator generate",
    .usage = "usage: plm-evaluator generate --checkpoint DIR [IN] --output FILE [options]\n\n"
             "A masked model fills <mask> (or _) in the sequences of IN, or makes sequences of\n"
             "--length residues. A causal model continues the sequences of IN, or starts from "
             "nothing.\n",
    .options = plm_generate_options,
    .operands = 1,
    .run = task_generate_run,
};
