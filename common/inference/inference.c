/* A checkpoint opened for inference: see inference.h. */
#include "common/inference/inference.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/model_folder.h"
#include "common/model/architecture.h"

enum { LEAST_TOKENS = 3 }; /* <cls>, a residue, <eos> */

static uint32_t chunks_of(uint32_t batch_tokens, uint32_t length)
{
  return length < batch_tokens ? batch_tokens / length : 1;
}

uint32_t plm_inference_batch_chunks(uint32_t max_length)
{
  return chunks_of(PLM_INFERENCE_BATCH_TOKENS, max_length);
}

/* What the model is opened for. */
enum needs {
  NEEDS_ITS_HEAD, /* whichever it has */
  NEEDS_TOKENS,   /* a head for labels is left out */
  NEEDS_TRUNK,    /* the same */
  NEEDS_LABELS
};

static plm_status open_parts(struct plm_inference *inference, const char *folder, enum needs needs,
                             uint32_t batch_tokens, struct plm_error *error)
{
  PLM_TRY(plm_huggingface_config_read(folder, &inference->config, &inference->window,
                                      &inference->objective, error));
  if (needs == NEEDS_TOKENS || needs == NEEDS_TRUNK)
    inference->config.head = (struct plm_head_config){0};
  if (needs == NEEDS_LABELS && inference->config.head.kind == PLM_PREDICTS_TOKENS)
    return plm_head_missing(folder, error);
  PLM_TRY(plm_parameters_check(folder, "model.safetensors", &inference->config, error));
  const uint32_t length = inference->config.max_length;
  inference->tokenizer = plm_huggingface_tokenizer(&inference->config);
  if (inference->tokenizer == NULL)
    return plm_error_set(error, PLM_UNSUPPORTED, "no tokenizer has %u tokens",
                         inference->config.vocab_size);
  inference->batch_tokens = batch_tokens;
  const uint32_t positions = inference->config.max_positions;
  inference->trained_length = positions != 0 ? positions : length;
  PLM_TRY(plm_inference_set_limit(inference, 0, error));
  inference->max_chunks = chunks_of(batch_tokens, length);
  const struct plm_model_options options = {.max_chunks = inference->max_chunks};
  PLM_TRY(plm_model_open(&inference->config, inference->ops, &options, &inference->model, error));
  return plm_masks_open(&inference->config, inference->ops, inference->max_chunks,
                        &inference->masks, error);
}

static plm_status inference_open(const char *folder, enum needs needs, struct plm_ops *ops,
                                 uint32_t batch_tokens, struct plm_inference **inference,
                                 struct plm_error *error)
{
  struct plm_inference *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->ops = ops;
  const plm_status status = open_parts(opened, folder, needs, batch_tokens, error);
  if (status != PLM_OK) {
    plm_inference_close(opened);
    return status;
  }
  *inference = opened;
  return PLM_OK;
}

plm_status plm_inference_open(const char *folder, struct plm_ops *ops, uint32_t batch_tokens,
                              struct plm_inference **inference, struct plm_error *error)
{
  return inference_open(folder, NEEDS_ITS_HEAD, ops, batch_tokens, inference, error);
}

void plm_inference_close(struct plm_inference *inference)
{
  if (inference == NULL) return;
  plm_masks_close(inference->masks);
  plm_model_close(inference->model);
  free(inference);
}

static plm_status inference_load(struct plm_inference *inference, const char *folder,
                                 const char *file, bool trunk_only, struct plm_advance *advance,
                                 struct plm_error *error)
{
  struct plm_model_config config; /* not used: only the window differs between checkpoints */
  PLM_TRY(plm_huggingface_config_read(folder, &config, &inference->window, NULL, error));
  inference->weights = strcmp(file, "ema.safetensors") == 0 ? "ema" : "model";
  if (trunk_only)
    return plm_parameters_load_trunk(folder, file, inference->model, &inference->head, advance,
                                     error);
  return plm_parameters_load(folder, file, inference->model, advance, error);
}

plm_status plm_inference_load(struct plm_inference *inference, const char *folder,
                              struct plm_advance *advance, struct plm_error *error)
{
  char ema[PLM_PATH_SIZE];
  bool exists;
  PLM_TRY(plm_path_join(ema, folder, "ema.safetensors", error));
  PLM_TRY(plm_file_look(ema, &exists, error));
  return inference_load(inference, folder, exists ? "ema.safetensors" : "model.safetensors", false,
                        advance, error);
}

static plm_status open_verified(const char *folder, const char *weights, enum needs needs,
                                struct plm_ops *ops, uint32_t batch_tokens,
                                struct plm_inference **inference, struct plm_hash *identity,
                                struct plm_error *error)
{
  struct plm_model_folder found;
  struct plm_inference *opened;
  const char *file;
  PLM_TRY(plm_model_folder_check(folder, &found, NULL, error));
  PLM_TRY(plm_model_folder_choose(&found, weights, &file, error));
  PLM_TRY(inference_open(found.directory, needs, ops, batch_tokens, &opened, error));
  opened->folder = found;
  opened->file = file;
  plm_status status =
      inference_load(opened, found.directory, file, needs == NEEDS_TRUNK, NULL, error);
  if (status == PLM_OK && identity != NULL)
    status = plm_model_folder_hash(&found, file, identity, error);
  if (status != PLM_OK) {
    plm_inference_close(opened);
    return status;
  }
  *inference = opened;
  return PLM_OK;
}

plm_status plm_inference_open_verified(const char *folder, const char *weights, struct plm_ops *ops,
                                       uint32_t batch_tokens, struct plm_inference **inference,
                                       struct plm_hash *identity, struct plm_error *error)
{
  return open_verified(folder, weights, NEEDS_TOKENS, ops, batch_tokens, inference, identity,
                       error);
}

plm_status plm_inference_open_trunk(const char *folder, const char *weights, struct plm_ops *ops,
                                    uint32_t batch_tokens, struct plm_inference **inference,
                                    struct plm_hash *identity, struct plm_error *error)
{
  return open_verified(folder, weights, NEEDS_TRUNK, ops, batch_tokens, inference, identity, error);
}

plm_status plm_inference_open_predictor(const char *folder, const char *weights,
                                        struct plm_ops *ops, uint32_t batch_tokens,
                                        struct plm_inference **inference, struct plm_hash *identity,
                                        struct plm_error *error)
{
  return open_verified(folder, weights, NEEDS_LABELS, ops, batch_tokens, inference, identity,
                       error);
}

plm_status plm_inference_limit(const struct plm_model_config *config, uint32_t asked,
                               uint32_t *limit, struct plm_error *error)
{
  const uint32_t longest = plm_architecture_longest(config);
  const bool published = plm_architecture_rules(config->architecture)->published;
  *limit = asked != 0 ? asked : published ? longest : config->max_length;
  if (asked == 0 || (asked >= LEAST_TOKENS && asked <= longest)) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "--max-length %u: this model takes sequences of %d to %u tokens",
                asked, LEAST_TOKENS, longest);
  if (longest == PLM_MODEL_MAX_LENGTH) return PLM_USAGE;
  return plm_error_hint(error, "the levels of this patch_unet follow from its max_length");
}

plm_status plm_inference_set_limit(struct plm_inference *inference, uint32_t asked,
                                   struct plm_error *error)
{
  return plm_inference_limit(&inference->config, asked, &inference->limit, error);
}

uint32_t plm_inference_most(const struct plm_inference *inference)
{
  return inference->limit != 0 ? inference->limit : inference->config.max_length;
}

uint32_t plm_inference_slice(const struct plm_inference *inference)
{
  const uint32_t most = plm_inference_most(inference);
  return most < inference->config.max_length ? most : inference->config.max_length;
}

void plm_inference_note_length(struct plm_inference *inference, uint32_t tokens)
{
  if (tokens > inference->trained_length && !inference->warned)
    plm_warning("a sequence of %u tokens is longer than those that the model was trained with, "
                "which have at most %u",
                tokens, inference->trained_length);
  inference->warned |= tokens > inference->trained_length;
}

plm_status plm_inference_make_room(struct plm_inference *inference, uint32_t tokens,
                                   struct plm_error *error)
{
  const uint32_t group = plm_architecture_group(&inference->config);
  const uint32_t length = (tokens + group - 1) / group * group;
  plm_inference_note_length(inference, tokens);
  if (length <= inference->config.max_length) return PLM_OK;
  const uint32_t chunks = chunks_of(inference->batch_tokens, length);
  PLM_TRY(plm_model_make_room(inference->model, chunks, length, error));
  inference->config.max_length = length;
  inference->max_chunks = chunks;
  plm_masks_close(inference->masks);
  inference->masks = NULL;
  return plm_masks_open(&inference->config, inference->ops, chunks, &inference->masks, error);
}

plm_status plm_inference_run(struct plm_inference *inference, const struct plm_batch *batch,
                             const int32_t *inputs, const int32_t *positions, uint32_t rows,
                             float *hidden, float *logits, struct plm_error *error)
{
  plm_model_attention_masks(inference->model, batch, inference->window, inference->masks);
  return plm_model_infer(inference->model, &(struct plm_masked_batch){batch, inference->masks},
                         inputs, positions, rows, hidden, logits, error);
}

plm_status plm_inference_run_states(struct plm_inference *inference, const struct plm_batch *batch,
                                    const int32_t *inputs, const struct plm_state_taps *taps,
                                    struct plm_error *error)
{
  plm_model_attention_masks(inference->model, batch, inference->window, inference->masks);
  return plm_model_infer_states(
      inference->model, &(struct plm_masked_batch){batch, inference->masks}, inputs, taps, error);
}

plm_status plm_inference_predict(struct plm_inference *inference, const struct plm_batch *batch,
                                 const struct plm_label_targets *targets, float *outputs,
                                 struct plm_error *error)
{
  plm_model_attention_masks(inference->model, batch, inference->window, inference->masks);
  return plm_model_predict(inference->model, &(struct plm_masked_batch){batch, inference->masks},
                           targets, outputs, error);
}
