/* A checkpoint opened for inference: its model with weights, masks for a batch, its tokenizer and
 * the window in force. The evaluator, embed, score and generate share it. */
#ifndef PLM_COMMON_INFERENCE_INFERENCE_H
#define PLM_COMMON_INFERENCE_INFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/checkpoint/parameter_file.h"
#include "common/corpus/tokenizer.h"
#include "common/huggingface/model_folder.h"
#include "common/model/model.h"
#include "common/model/model_config.h"
#include "common/ops/ops.h"

/* The tokens of a batch, unless the user says otherwise. On a CPU, twice as many are not faster,
 * but need twice the memory, which the system has to clear first. */
enum { PLM_INFERENCE_BATCH_TOKENS = 4096 };

/* The chunks of a batch of PLM_INFERENCE_BATCH_TOKENS, at least one. */
uint32_t plm_inference_batch_chunks(uint32_t max_length);

struct plm_inference {
  struct plm_model_config config;
  enum plm_objective objective;
  const struct plm_tokenizer *tokenizer;
  uint32_t window;                /* the window in force, in tokens */
  uint32_t batch_tokens;          /* of a batch, unless one chunk has more */
  uint32_t max_chunks;            /* the largest batch, in chunks of config.max_length tokens */
  uint32_t limit;                 /* plm_inference_limit; 0: config.max_length */
  uint32_t trained_length;        /* tokens; longer sequences were never seen in training */
  bool warned;                    /* about a longer one */
  const char *weights;            /* "ema" or "model", once loaded */
  struct plm_model_folder folder; /* with plm_inference_open_verified or _trunk: what was opened, */
  const char *file;               /* and the weights file in it */
  enum plm_weights_head head;     /* the head that the weights have */
  struct plm_ops *ops;            /* borrowed */
  struct plm_model *model;
  struct plm_masks *masks;
};

/* Opens the model that a folder's config.json describes, with its head (config.head) but without
 * weights, for batches of at most batch_tokens tokens, but at least one chunk. ops is borrowed.
 * PLM_CONFIG, PLM_FORMAT: something is wrong with config.json. */
plm_status plm_inference_open(const char *folder, struct plm_ops *ops, uint32_t batch_tokens,
                              struct plm_inference **inference, struct plm_error *error);
void plm_inference_close(struct plm_inference *inference); /* NULL is fine */

/* Loads the weights and the window of a verified folder with the same configuration: the EMA
 * weights if it has them. advance (may be NULL): told of the bytes that are read. */
plm_status plm_inference_load(struct plm_inference *inference, const char *folder,
                              struct plm_advance *advance, struct plm_error *error);

/* Opens and loads a checkpoint, which is verified first, or a Hugging Face folder of our model,
 * which has no MANIFEST, as `export` and transformers write it. weights is the user's choice as
 * plm_model_folder_choose takes it, or NULL. identity (may be NULL) receives the XXH3-128 of the
 * weights file. */
plm_status plm_inference_open_verified(const char *folder, const char *weights, struct plm_ops *ops,
                                       uint32_t batch_tokens, struct plm_inference **inference,
                                       struct plm_hash *identity, struct plm_error *error);

/* The same for hidden states only: logits mean nothing unless `head` is the language model's. It
 * also accepts a model that was fine-tuned to predict labels (transformers'
 * AutoModelForSequenceClassification and AutoModelForTokenClassification), whose classifier is not
 * read, and one that AutoModel saved, which has no head. */
plm_status plm_inference_open_trunk(const char *folder, const char *weights, struct plm_ops *ops,
                                    uint32_t batch_tokens, struct plm_inference **inference,
                                    struct plm_hash *identity, struct plm_error *error);

/* As plm_inference_open_verified, for a model that predicts labels, with its head. PLM_CONFIG also:
 * it predicts none. */
plm_status plm_inference_open_predictor(const char *folder, const char *weights,
                                        struct plm_ops *ops, uint32_t batch_tokens,
                                        struct plm_inference **inference, struct plm_hash *identity,
                                        struct plm_error *error);

/* The most tokens of a sequence that a model is to see: `asked` (--max-length) or, if that is 0,
 * the configuration's max_length, or for published weights whatever the model can take. PLM_USAGE:
 * the model cannot take so many, or `asked` is below 3. */
plm_status plm_inference_limit(const struct plm_model_config *config, uint32_t asked,
                               uint32_t *limit, struct plm_error *error);
/* Sets that limit for an open model. */
plm_status plm_inference_set_limit(struct plm_inference *inference, uint32_t asked,
                                   struct plm_error *error);
uint32_t plm_inference_most(const struct plm_inference *inference); /* the limit in force */
/* The longest part of a sequence that fits into the limit and into a chunk of the buffers. */
uint32_t plm_inference_slice(const struct plm_inference *inference);
/* Warns once if the model was trained with sequences of fewer tokens than this. */
void plm_inference_note_length(struct plm_inference *inference, uint32_t tokens);
/* Makes room for sequences of `tokens` tokens (at most plm_architecture_longest()): if they are
 * longer than config.max_length, that grows, and batches have fewer chunks. Weights stay loaded.
 * Also does plm_inference_note_length. After an error, the inference may only be closed. */
plm_status plm_inference_make_room(struct plm_inference *inference, uint32_t tokens,
                                   struct plm_error *error);

/* Builds the masks of the batch and runs the model over inputs (B, L). hidden (B, L, D) and logits
 * (rows, V) are fp32 on the host; either may be NULL. logits are for `positions` (rows), which
 * ascend in B * L; NULL: for all. */
plm_status plm_inference_run(struct plm_inference *inference, const struct plm_batch *batch,
                             const int32_t *inputs, const int32_t *positions, uint32_t rows,
                             float *hidden, float *logits, struct plm_error *error);

/* The same for hidden states of inner blocks. */
plm_status plm_inference_run_states(struct plm_inference *inference, const struct plm_batch *batch,
                                    const int32_t *inputs, const struct plm_state_taps *taps,
                                    struct plm_error *error);

/* The outputs (rows, outputs) of a model that predicts labels (plm_model_predict). */
plm_status plm_inference_predict(struct plm_inference *inference, const struct plm_batch *batch,
                                 const struct plm_label_targets *targets, float *outputs,
                                 struct plm_error *error);

#endif
