/* A checkpoint opened for use: its model with its weights, masks for a batch, its tokenizer and the
 * window in force. What evaluation, embed, score and generate have in common. */
#ifndef PLM_COMMON_INFERENCE_INFERENCE_H
#define PLM_COMMON_INFERENCE_INFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/config/config.h"
#include "common/corpus/tokenizer.h"
#include "common/model/model.h"
#include "common/ops/ops.h"

struct plm_inference {
  struct plm_model_config config;
  enum plm_objective objective;
  const struct plm_tokenizer *tokenizer;
  uint32_t window;            /* in force, tokens */
  uint32_t max_chunks;        /* of max_length tokens that a batch may have */
  const char *weights;        /* "ema" or "model", once loaded */
  enum plm_weights_head head; /* that the weights have */
  struct plm_ops *ops;        /* borrowed */
  struct plm_model *model;
  struct plm_masks *masks;
};

/* The model that config.json of a folder describes, for batches of at most batch_tokens tokens (one
 * chunk at least), without weights. PLM_CONFIG, PLM_FORMAT: its config.json. */
plm_status plm_inference_open(const char *folder, struct plm_ops *ops, uint32_t batch_tokens,
                              struct plm_inference **inference, struct plm_error *error);
void plm_inference_close(struct plm_inference *inference); /* NULL is fine */

/* Weights and window of a (verified) folder of the same configuration: EMA weights where there are
 * any. */
plm_status plm_inference_load(struct plm_inference *inference, const char *folder,
                              struct plm_error *error);

/* _open and _load of a checkpoint (verified first) or of a Hugging Face folder of our model without
 * a MANIFEST, as `export` and transformers write it. weights: NULL, or the user's choice
 * as plm_model_folder_choose takes it. identity (may be NULL) receives the XXH3-128
 * of the weights file that is used. */
plm_status plm_inference_open_verified(const char *folder, const char *weights, struct plm_ops *ops,
                                       uint32_t batch_tokens, struct plm_inference **inference,
                                       struct plm_hash *identity, struct plm_error *error);

/* The same for hidden states only: logits mean nothing unless `head` is the language model's. It
 * also takes a model that was fine-tuned to labels (transformers'
 * AutoModelForSequenceClassification and AutoModelForTokenClassification), whose classifier is not
 * read, and AutoModel's, which has no head. */
plm_status plm_inference_open_trunk(const char *folder, const char *weights, struct plm_ops *ops,
                                    uint32_t batch_tokens, struct plm_inference **inference,
                                    struct plm_hash *identity, struct plm_error *error);

/* Masks of the batch, then the forward pass over inputs (B, L). hidden (B, L, D) and logits (rows,
 * V) are fp32 on the host, either may be NULL; positions (rows) ascending into B * L, NULL: all. */
plm_status plm_inference_run(struct plm_inference *inference, const struct plm_batch *batch,
                             const int32_t *inputs, const int32_t *positions, uint32_t rows,
                             float *hidden, float *logits, struct plm_error *error);

#endif
