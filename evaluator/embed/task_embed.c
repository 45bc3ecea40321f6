/* The command line of `plm-evaluator embed`. */
#include <string.h>

#include "common/cli/output_file.h"
#include "common/cli/sequence_options.h"
#include "common/cli/task_options.h"
#include "evaluator/embed/embed.h"
#include "evaluator/task/task.h"

enum {
  BATCH_TOKENS = 8192,
  MAP_BATCH_TOKENS = 2048, /* maps take most of the time, so the model's buffers can be small */
  LARGEST_BATCH_TOKENS = 1 << 22
};

static plm_status parse_kind(const struct plm_arguments *arguments,
                             struct plm_embed_request *request, struct plm_error *error)
{
  const char *pooling = plm_arguments_get(arguments, "pooling");
  const bool per_token = plm_arguments_has(arguments, "per-token");
  const bool logits = plm_arguments_has(arguments, "logits");
  request->attention = plm_arguments_get(arguments, "attention");
  const bool attention = request->attention != NULL;
  const bool contacts = plm_arguments_has(arguments, "contacts");
  if (per_token + logits + attention + contacts + (pooling != NULL) > 1) {
    plm_error_set(
        error, PLM_USAGE,
        "--pooling, --per-token, --logits, --attention and --contacts exclude each other");
    return plm_error_hint(error, "a file holds only one kind; run the command once for each");
  }
  request->layers = plm_arguments_get(arguments, "layers");
  if (logits && request->layers != NULL)
    return plm_error_set(error, PLM_USAGE,
                         "--layers and --logits exclude each other: logits are "
                         "made from the last hidden state");
  if (contacts && request->layers != NULL)
    return plm_error_set(error, PLM_USAGE,
                         "--layers and --contacts exclude each other: contacts are made from the "
                         "attention of all layers");
  if (attention && request->layers != NULL)
    return plm_error_set(error, PLM_USAGE,
                         "--layers and --attention exclude each other: --attention LAYER names its "
                         "layers itself");
  request->kind = per_token   ? PLM_EMBED_PER_TOKEN
                  : logits    ? PLM_EMBED_LOGITS
                  : attention ? PLM_EMBED_ATTENTION
                  : contacts  ? PLM_EMBED_CONTACTS
                              : PLM_EMBED_POOLED;
  if (request->kind != PLM_EMBED_POOLED) return PLM_OK;
  return plm_pooling_parse(pooling == NULL ? "mean" : pooling, &request->pooling, error);
}

static plm_status parse_request(const struct plm_arguments *arguments,
                                struct plm_embed_request *request, struct plm_error *error)
{
  const char *resume = plm_arguments_get(arguments, "resume");
  unsigned long long batch_tokens;
  PLM_TRY(plm_task_needs(arguments, plm_embed_options, "checkpoint",
                         "a checkpoint, for example runs/demo/checkpoints/latest", error));
  PLM_TRY(plm_task_needs(arguments, plm_embed_options, "output",
                         "where the embeddings go, FILE.safetensors or FILE.npy", error));
  if (arguments->positional_count == 0) {
    plm_error_set(error, PLM_USAGE, "no sequences are named: give a file, or - for stdin");
    return plm_error_hint(error, "it may be FASTA, JSONL, a table or text, plain, .gz or .zst");
  }
  if (resume != NULL && strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0)
    return plm_error_set(error, PLM_USAGE, "--resume must be auto or never, not \"%.80s\"", resume);
  const char *output = plm_arguments_get(arguments, "output");
  if (plm_arguments_has(arguments, "json"))
    PLM_TRY(plm_output_check_stdout(output, "--json", error));
  const bool maps =
      plm_arguments_has(arguments, "attention") || plm_arguments_has(arguments, "contacts");
  PLM_TRY(plm_arguments_u64(arguments, "batch-tokens", maps ? MAP_BATCH_TOKENS : BATCH_TOKENS,
                            &batch_tokens, error));
  if (batch_tokens == 0 || batch_tokens > LARGEST_BATCH_TOKENS)
    return plm_error_set(error, PLM_USAGE, "--batch-tokens must be 1 to %d", LARGEST_BATCH_TOKENS);
  *request = (struct plm_embed_request){
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .weights = plm_arguments_get(arguments, "weights"),
      .inputs = arguments->positionals,
      .input_count = arguments->positional_count,
      .output = output,
      .batch_tokens = (uint32_t)batch_tokens,
      .separate_chains = plm_arguments_has(arguments, "separate-chains"),
      .strict = plm_arguments_has(arguments, "strict"),
      .fresh = resume != NULL && strcmp(resume, "never") == 0,
      .json = plm_arguments_has(arguments, "json"),
  };
  PLM_TRY(plm_task_max_length(arguments, &request->max_length, error));
  PLM_TRY(plm_sequence_options_parse(arguments, &request->choices, error));
  return parse_kind(arguments, request, error);
}

static plm_status task_embed_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_embed_request request;
  struct plm_ops *ops;
  PLM_TRY(parse_request(arguments, &request, error));
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  const plm_status status = plm_embed(&request, ops, error);
  ops->close(ops);
  return status;
}

const struct plm_program plm_task_embed = {
    .name = "plm-evaluator embed",
    .usage = "usage: plm-evaluator embed --checkpoint DIR IN... --output FILE [options]\n\n"
             "Writes embeddings of sequences as safetensors or npy, in the order of the input.\n",
    .options = plm_embed_options,
    .operands = (size_t)-1,
    .run = task_embed_run,
};
