/* The command line of `plm-evaluator embed`. */
#include "common/cli/task_options.h"
#include "common/inference/inference.h"
#include "evaluator/embed/embed.h"
#include "evaluator/task/task.h"

/* maps take most of the time, so the model's buffers can be small */
enum { MAP_BATCH_TOKENS = 2048 };

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
  const bool maps =
      plm_arguments_has(arguments, "attention") || plm_arguments_has(arguments, "contacts");
  const struct plm_sequence_needs needs = {
      .options = plm_embed_options,
      .checkpoint = "a checkpoint, for example runs/demo/checkpoints/latest",
      .output = "where the embeddings go, FILE.safetensors or FILE.npy",
      .batch_tokens = maps ? MAP_BATCH_TOKENS : PLM_INFERENCE_BATCH_TOKENS};
  *request = (struct plm_embed_request){.separate_chains =
                                            plm_arguments_has(arguments, "separate-chains")};
  PLM_TRY(plm_sequence_request_parse(arguments, &needs, &request->of, error));
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
