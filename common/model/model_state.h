/* The inside of struct plm_model, shared by the files of common/model alone: where parameters lie,
 * what each block keeps for its backward pass, and the buffers that all blocks share.
 *
 * One block, forward (names as the fields below; plain blocks have mixed = x, bottlenecks y =
 * mixed):
 *
 *   mixed = b0 (x + s skip) + b1 p, without a skip b0 x + b1 p; p = x0, or P x0
 *   h = norm(mixed)
 *   qkv_raw = [Wq; Wk; Wv] h     qkv = prepare(qkv_raw, vi)
 *   y = mixed + Wo attention(qkv)
 *   h2 = norm(y)    hidden = relu(Wup h2)^2
 *   out = y + Wdown hidden
 */
#ifndef PLM_COMMON_MODEL_MODEL_STATE_H
#define PLM_COMMON_MODEL_MODEL_STATE_H

#include "common/model/architecture.h"
#include "common/model/model.h"

enum { PLM_MODEL_MAX_LEVELS = 32 };

/* Places of a block's parameters in the arenas, in elements. */
struct block_places {
  size_t qkv, output, up, down;
  size_t projection; /* P */
  size_t resample;   /* merge or expand before the block */
  size_t value_mix, input_mix, skip_weight;
};

struct model_block {
  struct plm_block_shape shape;
  struct block_places places;
  int table;      /* its value table among model->tables, -1: none */
  int skipped_by; /* the block that adds this one's output, -1: none */
  bool projects;  /* p = P x0 */
  act *source;    /* output of the block before */
  act *x;         /* input without the skip; backward leaves the skip's gradient here */
  act *p;         /* only where the block projects */
  act *mixed, *h, *qkv_raw, *qkv, *attended, *y;
  float *lse;
  act *h2, *hidden;
  act *out;
};

/* A table of token vectors: 0 is the embedding, the others are value embeddings. */
struct token_table {
  size_t place; /* in the arenas, elements */
  int64_t width;
  float *vectors;  /* (V, width): the embedding's rows normalised, value rows as they are; the row
                      of <mask> 0 under token_dropout */
  float *gradient; /* of the above; for value embeddings the parameter's own */
};

/* Rotary tables of one level: (L >> level, K/2) each. */
struct rotary {
  float *cosine, *sine;
};

struct plm_arena {
  uintptr_t base; /* 0 while sizes are being counted */
  size_t used_bytes;
};

struct plm_model {
  struct plm_model_config config;
  struct plm_model_options options;
  struct plm_ops *ops; /* NULL while only sizes are wanted */
  size_t act_bytes;

  struct plm_parameter *table;
  size_t table_count, arena_elements;
  float *parameters; /* fp32 master */
  act *weights;      /* as used; the same memory as parameters in fp32 */
  float *gradients;

  struct model_block *blocks;
  uint32_t block_count;
  int levels;
  struct token_table *tables;
  uint32_t table_total;
  size_t dense, decoder, bias; /* places of the head; decoder is the embedding where tied */

  struct plm_arena activations, workspace;
  int32_t *tokens;                        /* device (B, L) */
  act *x0[PLM_MODEL_MAX_LEVELS];          /* normalised embeddings, mean over the group */
  act *x0_gradient[PLM_MODEL_MAX_LEVELS]; /* NULL where no block reads x0 */
  struct rotary rotary[PLM_MODEL_MAX_LEVELS];

  /* of the head, R labelled rows */
  int32_t *positions, *labels;
  float *label_weights, *row_loss;
  act *head_x; /* the rows of the last hidden state; of `mixed`, where the last block is narrowed */
  act *head_attended; /* of `attended`, where the last block is narrowed; room for half the rows */
  act *head_norm, *head_dense;
  act *head_gelu; /* this and logits: not in training, whose head keeps neither */
  float *logits;
  float *host_row_loss;
  int32_t *host_positions;

  /* backward */
  act *stream[2]; /* gradient of the residual stream, and the other level's */
  act *row_gradient[2];
  act *hidden_gradient, *norm_gradient, *attended_gradient, *qkv_gradient;
  act *projection_gradient;
  act *value_embedding, *value_gradient;
  float *rows_fp32; /* (B, L, D), infer's output in bf16 */
};

/* What the attention of incrementally decoded rows needs, besides the buffers of the blocks. */
struct decode_pass {
  struct plm_cached_rows rows; /* key_begin: of pattern entry 0; the other entries follow it */
  const float *cosine, *sine;  /* (rows, K/2), device: the rotary angles of each row's position */
  char *cache;                 /* device: (block, keys | values, slot, capacity, H * K) */
  size_t part_bytes;           /* the keys, or the values, of one block */
};

/* What one pass works on. */
struct model_pass {
  int32_t B, L;
  const struct plm_masks *masks;
  const struct decode_pass *decode; /* incremental decoding (L is 1, no masks), else NULL */
  /* What the head reads (plm_model_pass_reads). */
  const int32_t *positions; /* (R) device, rows of the last hidden state, -1: none; NULL: all */
  int64_t R;
  const struct model_block *narrowed; /* the last block, where it works on these rows alone behind
                                         its attention: y, h2, hidden and out are (R, D); or NULL */
};

static inline int64_t pass_rows(const struct model_pass *pass, int level)
{
  return (int64_t)pass->B * (pass->L >> level);
}

/* Rows of a block behind its attention. */
static inline int64_t block_rows(const struct model_pass *pass, const struct model_block *block)
{
  return block == pass->narrowed ? pass->R : pass_rows(pass, block->shape.level);
}

static inline const act *model_weight(const struct plm_model *model, size_t place)
{
  return (const char *)model->weights + place * model->act_bytes;
}

/* Element i of a buffer of activations. */
static inline act *act_at(const struct plm_model *model, act *buffer, int64_t i)
{
  return (char *)buffer + (size_t)i * model->act_bytes;
}

/* Lays out all buffers: sizes are counted in the two arenas, and pointers set from their bases
 * (from NULL they are meaningless). */
void plm_model_plan(struct plm_model *model);

/* Says what the head will read: R rows of the last hidden state (positions on the device, NULL:
 * all). Behind the last block's attention no row needs another, so where they are at most half of
 * all, that block goes on with these alone. */
void plm_model_pass_reads(const struct plm_model *model, struct model_pass *pass,
                          const int32_t *positions, int64_t R);
/* The same of positions on the host, which go to model->positions, and to plm_model_rows of them.
 */
void plm_model_pass_asks(struct plm_model *model, struct model_pass *pass, const int32_t *positions,
                         size_t rows);

/* What a block's input is mixed of; no plain block. */
struct plm_mix plm_model_mix(const struct plm_model *model, const struct model_block *block);
/* The parts of a block that recomputation runs again. */
void plm_model_block_mix(struct plm_model *model, const struct model_pass *pass,
                         const struct model_block *block);
void plm_model_block_attention(struct plm_model *model, const struct model_pass *pass,
                               const struct model_block *block);
void plm_model_block_hidden(struct plm_model *model, const struct model_pass *pass,
                            const struct model_block *block);
/* Where a block's value embeddings come from; it has a table. */
struct plm_value_table plm_model_value_table(const struct plm_model *model,
                                             const struct model_block *block);
/* All blocks: model->tokens -> the last hidden state. */
void plm_model_blocks_forward(struct plm_model *model, const struct model_pass *pass);
/* The output of the last block, or of the embeddings when there is no block. */
const act *plm_model_last_hidden(const struct plm_model *model);
/* Where the rows that the head reads lie, once plm_model_head_dense has run. */
const act *plm_model_head_input(const struct plm_model *model, const struct model_pass *pass);
/* Capped logits of the rows that the pass reads. */
void plm_model_head_forward(struct plm_model *model, const struct model_pass *pass, float cap);
/* The same rows up to the head's dense product, in model->head_dense. */
void plm_model_head_dense(struct plm_model *model, const struct model_pass *pass);
/* Forward and backward: losses of the rows that the pass reads in model->row_loss, gradients added.
 * None: nothing. */
void plm_model_train_rows(struct plm_model *model, const struct model_pass *pass,
                          const struct plm_loss_options *loss, float loss_scale);
struct plm_attention_shape plm_model_attention_shape(const struct plm_model *model,
                                                     const struct model_pass *pass,
                                                     const struct model_block *block);

#endif
