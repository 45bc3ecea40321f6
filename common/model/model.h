/* The model: transformer, unet, patch_unet, written once against struct plm_ops.
 *
 *   plm_model_attention_masks(model, batch, window, masks)   once per batch, all levels
 *   plm_model_forward(model, batch, masks, ...)               never builds a mask
 *
 * All buffers are planned and taken in plm_model_open. Names, shapes and formulas: model.md.
 */
#ifndef PLM_COMMON_MODEL_MODEL_H
#define PLM_COMMON_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/masks.h"
#include "common/ops/ops.h"
#include "common/plan/chunk.h"

/* Which optimizer group a parameter belongs to, by name and rank. */
enum plm_parameter_group {
  PLM_GROUP_HIDDEN, /* matrices that are neither embedding nor head: Muon, weight decay */
  PLM_GROUP_EMBED,  /* embeddings and value embeddings */
  PLM_GROUP_HEAD,   /* lm_head.* */
  PLM_GROUP_SCALAR, /* a, b, s */
  PLM_GROUP_COUNT
};

enum plm_initialiser {
  PLM_INIT_ZERO,
  PLM_INIT_ONE,     /* skip weights */
  PLM_INIT_UNIFORM, /* U(-1/sqrt(in), 1/sqrt(in)), in = cols */
  PLM_INIT_NORMAL,  /* N(0, 1) */
  PLM_INIT_HALF,    /* value_mix: [0.5, 0.5] */
  PLM_INIT_ONE_ZERO /* input_mix: [1, 0] */
};

struct plm_parameter {
  char name[96];      /* as in model.safetensors */
  int64_t rows, cols; /* (out, in); a vector has rows 1 and ndim 1 */
  int ndim;           /* 1 or 2 */
  enum plm_parameter_group group;
  enum plm_initialiser initialiser;
  bool decay;    /* matrices only */
  size_t offset; /* elements, into the parameter, gradient and weight arenas */
  size_t count;  /* rows * cols */
};

/* The table of a configuration, in the order of the file; parameters of one fused product (query,
 * key, value) are adjacent. offset is aligned to 16 elements. Caller frees *table. PLM_CONFIG when
 * plm_model_config_check finds fault. */
plm_status plm_model_parameters(const struct plm_model_config *config, struct plm_parameter **table,
                                size_t *count, size_t *arena_elements, struct plm_error *error);

/* Initial weights on the host by the Philox counters of model.md, purpose 3: all of `values`
 * (arena_elements floats, gaps zero). */
void plm_model_initialise(const struct plm_parameter *table, size_t count, uint64_t seed,
                          float *values);

struct plm_model;

struct plm_model_options {
  uint32_t max_chunks; /* B at most in one forward pass (a micro-batch) */
  bool training;       /* keep what backward needs, hold gradients */
  enum plm_recompute recompute;
};

/* Takes parameters (fp32), weights as used, gradients, activations and workspace from ops. */
plm_status plm_model_open(const struct plm_model_config *config, struct plm_ops *ops,
                          const struct plm_model_options *options, struct plm_model **model,
                          struct plm_error *error);
void plm_model_close(struct plm_model *model);

/* Bytes by purpose, without taking anything: for --dry-run. */
struct plm_model_memory {
  uint64_t parameters, weights, gradients, activations, workspace;
};
plm_status plm_model_memory(const struct plm_model_config *config, size_t act_bytes,
                            const struct plm_model_options *options,
                            struct plm_model_memory *memory, struct plm_error *error);

const struct plm_model_config *plm_model_config(const struct plm_model *model);
struct plm_ops *plm_model_ops(struct plm_model *model);
const struct plm_parameter *plm_model_table(const struct plm_model *model, size_t *count);
size_t plm_model_arena_elements(const struct plm_model *model);
float *plm_model_parameter_arena(struct plm_model *model); /* device, fp32 master */
float *plm_model_gradient_arena(struct plm_model *model);  /* device, fp32, accumulated */
/* After the parameter arena changed: rounds the weights as used, normalises tables. */
void plm_model_weights_changed(struct plm_model *model);
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

/* What the objective wants of a batch, on the host (trainer/objective.c, evaluator). */
struct plm_targets {
  const int32_t *inputs;    /* (B, L) token ids after masking */
  uint32_t rows;            /* positions with a label: the head runs on these alone, and where
                               they are at most half of all, the last block behind its attention */
  const int32_t *positions; /* (rows) ascending, into B * L */
  const int32_t *labels;    /* (rows) in [0, V) */
  const float *weights;     /* (rows) */
};

/* The rows that a pass over `positions` positions runs on for `rows` labelled ones: where the
 * backend records passes, up to the next sixteenth of the positions, so that few shapes are met.
 * Those above `rows` have position -1, and count for nothing. */
uint32_t plm_model_rows(const struct plm_ops *ops, uint64_t positions, uint64_t rows);

struct plm_loss_result {
  double loss; /* sum over rows of weight * cross-entropy (with smoothing and z-loss) */
  uint64_t rows;
};

/* Forward; with a loss (and row_loss, host, may be NULL).
 *
 * A batch has at most max_chunks chunks of at most config.max_length tokens, a multiple of
 * plm_architecture_group(): else PLM_LIMIT. Inputs and labels outside the vocabulary, positions
 * out of order or range: PLM_CORRUPT. Without rows, the loss and all gradients are 0. `masks` were
 * filled for this batch. Rows of padding are computed like others (model.md); the head runs on
 * labelled rows alone. A model serves one thread at a time. */
plm_status plm_model_forward(struct plm_model *model, const struct plm_masked_batch *input,
                             const struct plm_targets *targets, const struct plm_loss_options *loss,
                             struct plm_loss_result *result, float *row_loss,
                             struct plm_error *error);
/* Forward and backward, of a model open for training: the same loss, bit for bit, and d (loss_scale
 * * its sum) added to the gradient arena. Errors as plm_model_forward's; then nothing is added. */
plm_status plm_model_gradients(struct plm_model *model, const struct plm_masked_batch *input,
                               const struct plm_targets *targets,
                               const struct plm_loss_options *loss, float loss_scale,
                               struct plm_loss_result *result, float *row_loss,
                               struct plm_error *error);

/* A training pass over what already lies on the device: where ops->choose_targets puts the targets
 * of a batch of `chunks` chunks of `length` tokens. */
struct plm_device_targets {
  int32_t *inputs;             /* (B, L) */
  int32_t *positions, *labels; /* (rows), room for B L */
  float *weights;
};
struct plm_device_targets plm_model_device_targets(struct plm_model *model);
/* Forward and backward: the gradient of the summed loss is added to the gradient arena, the loss to
 * *loss_sum (device). The head runs on `rows` rows, of which those with position -1 count for
 * nothing. Shapes must be as plm_model_forward checks them. Asynchronous: errors show when ops is
 * synchronised; it can be recorded (ops.h). */
void plm_model_train(struct plm_model *model, uint32_t chunks, uint32_t length,
                     const struct plm_masks *masks, uint32_t rows,
                     const struct plm_loss_options *loss, double *loss_sum);

/* Inference: x after the last block, (B, L, D) as fp32 on the host; and capped logits
 * (rows, V) of the given positions (NULL positions: all). Either output may be NULL. Errors as
 * plm_model_forward's; the model need not be open for training. */
plm_status plm_model_infer(struct plm_model *model, const struct plm_masked_batch *input,
                           const int32_t *inputs, const int32_t *positions, uint32_t rows,
                           float *hidden, float *logits, struct plm_error *error);

/* Model FLOPs of a batch, forward and backward, as model.md counts them: tokens real tokens. */
double plm_model_flops(const struct plm_model *model, const struct plm_masks *masks,
                       uint64_t tokens);

#endif
