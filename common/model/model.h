/* The model: transformer, unet, patch_unet, esm2 and esmc, written once against struct plm_ops.
 *
 *   plm_model_attention_masks(model, batch, window, masks)   once per batch, all levels
 *   plm_model_forward(model, {batch, masks}, targets, ...)   never builds a mask
 *
 * plm_model_open allocates all buffers. Names, shapes and formulas: doc/model.md
 */
#ifndef PLM_COMMON_MODEL_MODEL_H
#define PLM_COMMON_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/freeze.h"
#include "common/model/masks.h"
#include "common/model/model_config.h"
#include "common/ops/ops.h"
#include "common/plan/chunk.h"

/* The optimizer group of a parameter, which follows from its name and rank. */
enum plm_parameter_group {
  PLM_GROUP_HIDDEN, /* matrices that are neither embedding nor head: Muon, weight decay */
  PLM_GROUP_EMBED,  /* embeddings and value embeddings */
  PLM_GROUP_HEAD,   /* lm_head.*, or the head that predicts labels */
  PLM_GROUP_SCALAR, /* value_mix (a), input_mix (b), skip_weights (s); biases and LayerNorms that
                       are not the head's */
  PLM_GROUP_COUNT
};

enum plm_initialiser {
  PLM_INIT_ZERO,
  PLM_INIT_ONE,       /* skip weights, weights of LayerNorm */
  PLM_INIT_UNIFORM,   /* U(-1/sqrt(cols), 1/sqrt(cols)) */
  PLM_INIT_NORMAL,    /* N(0, 1) */
  PLM_INIT_SMALL,     /* N(0, 0.02), the initializer_range of transformers */
  PLM_INIT_SMALL_PAD, /* the same, except that row 1, that of <pad>, is 0 */
  PLM_INIT_HALF,      /* value_mix: [0.5, 0.5] */
  PLM_INIT_ONE_ZERO   /* input_mix: [1, 0] */
};

/* Where parameters belong that are of no block. */
enum plm_parameter_part {
  PLM_PART_EMBEDDINGS = -1, /* also the norm after the embedding, and value embeddings */
  PLM_PART_TRUNK = -2,      /* the norm after the last block, and skip_weights */
  PLM_PART_HEAD = -3        /* lm_head.* */
};

enum { PLM_PARAMETER_ALIGNMENT = 16 }; /* elements; of the offsets below */
struct plm_parameter {
  char name[96];      /* as in model.safetensors */
  int64_t rows, cols; /* (out, in); a vector has rows 1 and ndim 1 */
  int ndim;           /* 1 or 2 */
  enum plm_parameter_group group;
  enum plm_initialiser initialiser;
  bool decay;  /* whether weight decay applies: matrices of PLM_GROUP_HIDDEN */
  bool frozen; /* plm_parameters_freeze */
  /* Of an adapter: 1 + the enum plm_lora_target of its product, else 0. A is before B. */
  uint8_t adapter;
  int32_t part;  /* the number of its block, or an enum plm_parameter_part */
  size_t offset; /* elements, in the parameter and weight arenas, and unless frozen of gradients */
  size_t count;  /* rows * cols */
  /* Once the backward pass has run through this block, the gradient is final: the number of blocks
   * for the head, 0 for what only the end of the pass completes. */
  uint32_t final_at;
};

/* Lists the parameters of a configuration in the order of model.safetensors. Parameters of one
 * fused product (query, key, value) are adjacent. Offsets are multiples of 16 elements. The caller
 * frees *table. PLM_CONFIG: plm_model_config_check rejects the configuration. PLM_LIMIT: the sizes
 * overflow. */
plm_status plm_model_parameters(const struct plm_model_config *config, struct plm_parameter **table,
                                size_t *count, size_t *arena_elements, struct plm_error *error);

/* Marks the parameters that are frozen, and places them behind the others in the arenas, both in
 * the table's order. Returns the elements before the first frozen one: of the arena of gradients.
 */
size_t plm_parameters_freeze(struct plm_parameter *table, size_t count,
                             const struct plm_freeze *freeze);

/* Draws the initial weights on the host (doc/model.md#initialisation). Fills all arena_elements
 * floats of `values`; the gaps between parameters become 0. */
void plm_model_initialise(const struct plm_parameter *table, size_t count, uint64_t seed,
                          float *values);

struct plm_model;

struct plm_model_options {
  uint32_t max_chunks; /* the largest B of a pass (a micro-batch) */
  bool training;       /* keep what the backward pass reads, and hold gradients */
  bool int8; /* the weights of the blocks' products are int8; plm_model_open sets it as its ops say
              */
  enum plm_recompute recompute;
  /* By parameter: whether the fp32 values are kept here, because this process updates them. NULL:
   * when training, all that are not frozen are kept, otherwise none for this reason. Those of the
   * others are not kept if only products read them, and in another precision. Only for training.
   * Read only while the model is opened. */
  const bool *kept;
  struct plm_freeze freeze; /* only for training */
};

/* Allocates parameters (fp32), weights as used (bf16, unless the precision is fp32), gradients (for
 * training), activations and workspace through ops, which is borrowed. The parameters are 0. If ops
 * was opened for int8, weights are int8 where blocks multiply by them, and fp32 values are kept
 * only of the other parameters. PLM_LIMIT: a pass has more than INT32_MAX positions, or the sizes
 * overflow. PLM_UNSUPPORTED: training in int8, or a layer has more inputs than
 * PLM_INT8_INPUTS_MOST. */
plm_status plm_model_open(const struct plm_model_config *config, struct plm_ops *ops,
                          const struct plm_model_options *options, struct plm_model **model,
                          struct plm_error *error);
void plm_model_close(struct plm_model *model);
/* Gives a model that is not open for training new buffers: for batches of at most max_chunks chunks
 * of max_length tokens, which replaces the configuration's. max_length is a multiple of
 * plm_architecture_group() and at most plm_architecture_longest(). The parameters stay. PLM_LIMIT
 * as above. After an error, the model may only be closed, except that PLM_LIMIT for too many
 * positions changes nothing. */
plm_status plm_model_make_room(struct plm_model *model, uint32_t max_chunks, uint32_t max_length,
                               struct plm_error *error);

/* Bytes by purpose, computed without allocating them, for --dry-run. */
struct plm_model_memory {
  uint64_t parameters, weights, gradients, activations, workspace;
};
plm_status plm_model_memory(const struct plm_model_config *config, size_t act_bytes,
                            const struct plm_model_options *options,
                            struct plm_model_memory *memory, struct plm_error *error);
/* Bytes that the backend takes besides, for operands that it widens to fp32 or transposes in the
 * largest product of a pass of max_chunks chunks (ops->linear_scratch). */
uint64_t plm_model_widened(const struct plm_model_config *config, const struct plm_ops *ops,
                           uint32_t max_chunks);

const struct plm_model_config *plm_model_config(const struct plm_model *model);
struct plm_ops *plm_model_ops(struct plm_model *model);
const struct plm_parameter *plm_model_table(const struct plm_model *model, size_t *count);
size_t plm_model_arena_elements(const struct plm_model *model);
/* The parameters that are trained are the first elements of the arenas. */
size_t plm_model_trained_elements(const struct plm_model *model);
float *plm_model_gradient_arena(struct plm_model *model); /* device, fp32, accumulated */

/* ---- parameters (model_values.c) ---- */
/* The fp32 values on the device: of all parameters, laid out as plm_parameter.offset says (only if
 * all are kept), and of parameter i (NULL if it is not kept). */
float *plm_model_parameter_arena(struct plm_model *model);
float *plm_model_parameter(struct plm_model *model, size_t i);
bool plm_model_keeps_all(const struct plm_model *model);
/* The fp32 values of what is trained, which lie as in the arena of gradients; NULL unless all of
 * them are kept. */
float *plm_model_trained_arena(struct plm_model *model);
/* Call it after kept values have changed: it rounds them to the weights as used, and normalises the
 * embedding table. */
void plm_model_weights_changed(struct plm_model *model);

/* What a pass reads of a parameter: if only products do, the weights as used, else the fp32 values.
 * The device memory of parameter i, and its bytes. */
void *plm_model_used(struct plm_model *model, size_t i);
size_t plm_parameter_used_bytes(const struct plm_parameter *parameter, size_t act_bytes);

/* Takes the values of parameter i (host, count elements). Asynchronous, but `values` may be reused.
 * When all have been taken, the caller calls plm_model_weights_changed. No pass may be running. */
void plm_model_load_parameter(struct plm_model *model, size_t i, const float *values);
/* Allocates room on the host for the values of the largest parameter; the caller frees it.
 * PLM_NO_MEMORY */
plm_status plm_model_parameter_room(const struct plm_model *model, float **room,
                                    struct plm_error *error);
/* Takes the values of all parameters (host, in the layout of the arena). */
void plm_model_load(struct plm_model *model, const float *values);
void plm_model_zero_gradients(struct plm_model *model);

/* Fills masks, which were opened for the same configuration, for a batch (plm_masks_fill). window:
 * the window in force, in tokens. */
void plm_model_attention_masks(const struct plm_model *model, const struct plm_batch *batch,
                               uint32_t window, struct plm_masks *masks);

/* A batch, and masks that were filled for it. */
struct plm_masked_batch {
  const struct plm_batch *batch;
  const struct plm_masks *masks;
};

/* What a pass is to predict for a batch, on the host. */
struct plm_targets {
  const int32_t *inputs;    /* (B, L) token ids after masking */
  uint32_t rows;            /* positions with a label; the head runs only on these */
  const int32_t *positions; /* (rows) ascending, into B * L */
  const int32_t *labels;    /* (rows) in [0, V) */
  const float *weights;     /* (rows) */
};

/* The number of rows that the head runs on if `rows` of `positions` positions are labelled. For a
 * backend that records passes, it is rounded up to a multiple of a sixteenth of the positions, so
 * that there are few different shapes. The additional rows have position -1 and do not count. */
uint32_t plm_model_rows(const struct plm_ops *ops, uint64_t positions, uint64_t rows);

struct plm_loss_result {
  double loss; /* the sum over rows of weight * (cross-entropy, with smoothing and z-loss) */
  uint64_t rows;
};

/* Runs the model forward and computes the loss. row_loss (rows, host) may be NULL.
 *
 * PLM_LIMIT: the batch has more than max_chunks chunks, or chunks of more than config.max_length
 * tokens or not of a multiple of plm_architecture_group(). PLM_CORRUPT: inputs or labels outside
 * the vocabulary, positions out of range or not ascending. Without rows the loss is 0. Rows of
 * padding are computed like all others; the head runs only on labelled rows. Only one thread at a
 * time may use a model. */
plm_status plm_model_forward(struct plm_model *model, const struct plm_masked_batch *input,
                             const struct plm_targets *targets, const struct plm_loss_options *loss,
                             struct plm_loss_result *result, float *row_loss,
                             struct plm_error *error);
/* Runs a model that is open for training forward and backward: computes the same loss, bit for bit,
 * and adds the gradient of loss_scale * loss to the gradient arena. Errors are those of
 * plm_model_forward; nothing is added then. */
plm_status plm_model_gradients(struct plm_model *model, const struct plm_masked_batch *input,
                               const struct plm_targets *targets,
                               const struct plm_loss_options *loss, float loss_scale,
                               struct plm_loss_result *result, float *row_loss,
                               struct plm_error *error);

/* ---- labels: for a model with a head that predicts them (label_head.c) ---- */

/* What the head reads of a batch, and what it is to predict, on the host. Row r is a document or a
 * residue. */
struct plm_label_targets {
  const int32_t *inputs; /* (B, L) token ids */
  uint32_t rows;         /* at most plm_model_most_label_rows */
  /* (rows), into B * L, ascending and without overlap: the positions [begin, end) that are pooled
   * by mean; otherwise the head reads position begin, and end is not read. */
  const int32_t *begin, *end;
  const int32_t *classes; /* (rows); -1: missing. With PLM_LOSS_CLASS */
  const float *values;    /* (rows, outputs); NaN: missing. With the other losses */
  const uint64_t *keys;   /* (rows) of dropout: plm_dropout_key; NULL: nothing is dropped */
};
/* ---- dropout of adapters (model_adapters.c) ---- */

/* The number of keys of dropout for a batch of this shape: one for each row of each level; 0 if
 * nothing is dropped. */
size_t plm_model_adapter_keys(const struct plm_model_config *config, uint32_t chunks,
                              uint32_t length);
/* Writes them (host): the key of a row is that of its first position on level 0. */
void plm_model_adapter_keys_fill(const struct plm_model_config *config,
                                 const struct plm_batch *batch, uint64_t *keys);
/* Where a pass that drops reads them (device); NULL: it does not. */
uint64_t *plm_model_device_adapter_keys(struct plm_model *model);

/* How labels are trained. */
struct plm_label_options {
  uint64_t seed;        /* of dropout */
  const float *weights; /* (outputs), device: of classes or outputs; NULL: all are 1 */
};
/* The most rows of a batch with this number of positions, and how many the head computes for a
 * number of rows (as plm_model_rows). The additional rows do not count. */
uint32_t plm_model_most_label_rows(const struct plm_model_config *config, uint64_t positions);
uint32_t plm_model_label_rows(const struct plm_ops *ops, const struct plm_model_config *config,
                              uint64_t positions, uint64_t rows);

/* Outputs (rows, outputs) of the head, without dropout. Only inputs, rows, begin and end of the
 * targets are read. Errors are those of plm_model_infer. */
plm_status plm_model_predict(struct plm_model *model, const struct plm_masked_batch *input,
                             const struct plm_label_targets *targets, float *outputs,
                             struct plm_error *error);
/* As plm_model_gradients: the loss is the sum over rows, and row_loss (rows) may be NULL. */
plm_status plm_model_label_gradients(struct plm_model *model, const struct plm_masked_batch *input,
                                     const struct plm_label_targets *targets,
                                     const struct plm_label_options *options, float loss_scale,
                                     struct plm_loss_result *result, float *row_loss,
                                     struct plm_error *error);

/* Where labels of a pass lie on the device, with room for plm_model_most_label_rows. Rows that are
 * not used have begin and end -1, class -1, values NaN and key 0. classes or values is NULL if the
 * loss does not read it. */
struct plm_device_labels {
  int32_t *inputs; /* (B, L) */
  int32_t *begin, *end, *classes;
  float *values;
  uint64_t *keys;
};
struct plm_device_labels plm_model_device_labels(struct plm_model *model);

/* The model's buffers for targets on the device: ops->choose_targets writes them, and
 * plm_model_train reads them. */
struct plm_device_targets {
  int32_t *inputs;             /* (B, L) */
  int32_t *positions, *labels; /* (rows), room for B L */
  float *weights;
};
struct plm_device_targets plm_model_device_targets(struct plm_model *model);
/* A forward and backward pass over targets that lie on the device. The head runs on `rows` rows;
 * those with position -1 do not count. */
struct plm_train_pass {
  uint32_t chunks, length, rows;
  const struct plm_masks *masks;
  const struct plm_loss_options *loss;    /* of a language model */
  const struct plm_label_options *labels; /* of a model that predicts labels, whose rows are those
                                             of plm_model_device_labels */
  const uint64_t *dropout_seed;           /* of adapters; NULL: they drop nothing */
  double *loss_sum;                       /* device; receives += the loss */
  double *hit_sum;      /* device; receives += the rows whose label no logit exceeds; may be NULL */
  double *chunk_losses; /* device (chunks); receives = the loss of each chunk; may be NULL */
};
/* A part of such a pass: the backward pass of the blocks [first, end). The part that ends with the
 * last block begins with the forward pass, the loss and the head's backward pass; the one that
 * begins with block 0 goes on to the embeddings. */
struct plm_backward_part {
  uint32_t first, end;
};
struct plm_backward_part plm_model_whole_pass(const struct plm_model *model);
/* Runs a part, and adds the gradient of the summed loss to the gradient arena. The parts of a pass
 * run one after another, from the last block to the first, and no other pass runs between them.
 * After a part, the gradients of all parameters with final_at >= part.first are final. The caller
 * guarantees the limits that plm_model_forward checks. Asynchronous: errors are reported when ops
 * is synchronised. A part can be recorded (ops.h); either all parts of a pass are replayed, or none
 * is. */
void plm_model_train(struct plm_model *model, const struct plm_train_pass *pass,
                     struct plm_backward_part part);

/* Inference. hidden receives x after the last block, (B, L, D) fp32 on the host; logits receives
 * the capped logits (rows, V) of the given positions (NULL: of all). Either may be NULL. Errors are
 * those of plm_model_forward. The model need not be open for training. */
plm_status plm_model_infer(struct plm_model *model, const struct plm_masked_batch *input,
                           const int32_t *inputs, const int32_t *positions, uint32_t rows,
                           float *hidden, float *logits, struct plm_error *error);

/* Hidden states of inner blocks. State 0 is the embeddings, state i the output of block i - 1; on
 * level k of a patch_unet it has (B, L >> k, D_k). */
struct plm_state_taps {
  const uint32_t *states; /* (count) those wanted, in any order */
  uint32_t count;
  float *room; /* host, (B, L, D) floats: no state is larger. It holds a state during take */
  void (*on_state)(void *context, uint32_t state); /* called in the order in which the blocks run */
  /* NULL, or called for each block with attention. room, then (B, L, 3 D) floats, holds what the
   * block's attention reads: rows (B, L >> k) of queries, keys and values, (3, H, K) each. */
  void (*on_attention)(void *context, uint32_t block);
  void *context;
};
/* Runs the blocks and hands out the wanted states and the inputs of attention in fp32. Errors are
 * those of plm_model_forward. */
plm_status plm_model_infer_states(struct plm_model *model, const struct plm_masked_batch *input,
                                  const int32_t *inputs, const struct plm_state_taps *taps,
                                  struct plm_error *error);

/* The model FLOPs of a batch with `tokens` real tokens, forward and backward
 * (doc/model.md#flops). */
double plm_model_flops(const struct plm_model *model, const struct plm_masks *masks,
                       uint64_t tokens);

#endif
