/* The inside of struct plm_model, private to common/model: where the parameters lie, what each
 * block keeps for its backward pass, and the buffers that all blocks share. Which norms, biases and
 * activations there are is data: struct plm_block_traits and struct plm_architecture_rules.
 *
 * The forward pass of one block, with the names of struct model_block's fields. A plain block has
 * no mix, so its mixed is x. In the others y is written over mixed, which the backward pass
 * computes again. A bottleneck has no attention, so its y is mixed.
 *
 *   mixed   = b0 (x + s skip) + b1 p      without a skip: b0 x + b1 p; p is x0, or P x0. On level 0
 *                                         x0 is read from the rounded embedding
 *   h       = norm(mixed)
 *   qkv_raw = [Wq; Wk; Wv] h
 *   qkv     = prepare(qkv_raw, value embedding)
 *   y       = mixed + Wo attention(qkv)
 *   h2      = norm(y)
 *   hidden  = relu(Wup h2)^2              GELU: before = Wup h2 + b, hidden = gelu(before)
 *                                         SwiGLU: before = [Wgate; Wup] h2
 *   out     = y + Wdown hidden
 */
#ifndef PLM_COMMON_MODEL_MODEL_STATE_H
#define PLM_COMMON_MODEL_MODEL_STATE_H

#include "common/model/architecture.h"
#include "common/model/model.h"

enum { PLM_MODEL_MAX_LEVELS = 32 };

/* A norm: offsets of its parameters in the arenas, in elements. */
struct model_norm {
  enum plm_norm_kind kind;
  size_t weight, bias; /* of a LayerNorm, if its kind has them */
  double eps;          /* of a LayerNorm */
};

/* An adapter: offsets of A and B in the arenas, in elements, and its place for dropout. */
struct model_adapter {
  bool present;
  size_t a, b;
  uint32_t place;
};

/* Those of a product, which may compute several layers of (out, in) side by side. */
struct model_adapters {
  int parts; /* how many layers; 0: no adapter */
  struct model_adapter of[3];
  int level; /* of its rows */
  int64_t in, out;
};

/* A Linear: offsets of its parameters in the arenas, in elements. */
struct model_product {
  size_t weight, bias;
  bool biased;
  bool frozen;
  struct model_adapters adapters;
};

/* How far the backward pass goes into a block: up to the first part, in the order of the forward
 * pass, that has something to train. Nothing needs the gradient of what that part reads. */
enum model_reach {
  REACH_BEFORE, /* something before the block is trained */
  REACH_INPUT,  /* its resampling, mix or norm */
  REACH_QKV,
  REACH_OUTPUT,
  REACH_UP,
  REACH_DOWN
};

/* The part of a block that a parameter of it belongs to. */
enum model_reach model_reach_of(const struct plm_parameter *parameter);

/* What a block computes with. */
struct block_places {
  struct model_norm norm, mlp_norm;
  struct model_product qkv, output;
  struct model_product up; /* for SwiGLU of gate and up, whose weights are adjacent */
  struct model_product down;
  size_t q_norm, k_norm; /* with PLM_QK_NORM_WIDTH */
  size_t projection;     /* P */
  size_t resample;       /* of the merge or expand before the block */
  size_t value_mix, input_mix, skip_weight;
};

struct model_block {
  struct plm_block_shape shape;
  struct block_places places;
  int table;      /* index of its value table in model->tables, -1 if it has none */
  int skipped_by; /* the block that adds this block's output as its skip, -1 if none */
  bool projects;  /* p = P x0 */
  bool frozen;    /* no parameter of it is trained, except those of adapters */
  bool keeps;     /* its backward pass runs, so it keeps what that reads */
  enum model_reach reach;
  act *input; /* the previous block's output */
  act *x;     /* its input, without the skip; the backward pass stores the skip's gradient here */
  act *p;     /* P x0, if it projects */
  act *mixed, *h, *qkv_raw, *qkv, *attended, *y;
  float *lse;
  act *h2, *hidden;
  act *before; /* (N, F) what GELU is applied to; (N, 2 F) gate and up of SwiGLU; NULL: not kept */
  act *out;
};

/* A table of token vectors: table 0 is the embedding, the others are value embeddings. */
struct token_table {
  size_t place; /* the offset of its parameter in the arenas, in elements */
  int64_t width;
  float *vectors; /* (V, width), as the passes read them: the embedding's rows are normalised, those
                     of a value embedding are the parameter's; with token_dropout the row of <mask>
                     is 0 */
  act *rounded;   /* vectors as activations, if a block's mix reads them; else NULL */
  float *gradient; /* of vectors; for a value embedding this is the parameter's gradient */
};

/* The rotary tables of one level, (L >> level, K/2) each. */
struct rotary {
  float *cosine, *sine;
};

/* What the first block computes before its attention, for each token of the vocabulary
 * (token_rows.c). */
struct token_rows {
  bool in_use;     /* by the current pass, from its forward part to the end of its backward part */
  int32_t *tokens; /* (V + 1): 0, 1, ..., V. NULL: this model's first block takes all rows */
  float *factors;  /* (V): as dropout_factors, and NULL where that is */
  act *before;     /* (V, D): as `embedded`, and NULL where that is */
  act *x, *mixed, *h; /* (V, D): as the block's. A plain block has no mixed */
  act *qkv;           /* (V, 3 D): as its qkv_raw, and then the gradient of that */
  act *dx, *dh, *dp;  /* (V, D): gradients of x, h and p; NULL unless it is trained */
};

struct plm_arena {
  uintptr_t base; /* 0 while sizes are being counted */
  size_t used_bytes;
};

struct plm_model {
  struct plm_model_config config;
  struct plm_model_options options;
  struct plm_ops *ops; /* NULL if the model was made only to know its sizes */
  size_t act_bytes;

  struct plm_parameter *table;
  size_t table_count, arena_elements;
  size_t trained_elements; /* of the parameters that are not frozen, which come first */
  size_t *order;           /* the numbers of the parameters in the order of their places */
  float *parameters;       /* fp32: those that are kept, one after another */
  size_t kept_elements;
  size_t *kept_at; /* by parameter: its place in `parameters`, or NOT_KEPT; NULL: all are kept, and
                      have the layout of the other arenas */
  bool keeps_trained; /* all that are trained are kept, and have the layout of the other arenas */
  act *weights; /* as the products read them; in fp32 the same memory as parameters, and with int8
                   its matrices */
  struct int8_matrices *int8; /* of the products that are int8; NULL: none are */
  float *gradients; /* of what is trained, and behind that what passes write for frozen vectors and
                       tables, which nobody reads */
  size_t discarded_elements;
  uint32_t trained_from; /* no block before this one needs a backward pass */
  bool trains_embeddings;
  bool trains_trunk; /* the head's backward pass is not the end */

  struct model_block *blocks;
  uint32_t block_count;
  int levels;
  struct token_table *tables;
  uint32_t table_total;
  const struct plm_architecture_rules *rules;
  struct model_norm embedding_norm; /* used with emb_layer_norm_before */
  struct model_norm final_norm, head_norm_after;
  struct model_product dense;
  size_t decoder, bias; /* offsets of the head; decoder is the embedding's if tied */
  /* Of a head that predicts labels, where the ones above are not used. */
  struct model_product label_hidden, label_output;

  struct plm_arena activations, workspace;
  int32_t *tokens;                        /* device (B, L) */
  act *x0[PLM_MODEL_MAX_LEVELS];          /* normalised embeddings, mean over the group */
  act *x0_gradient[PLM_MODEL_MAX_LEVELS]; /* NULL if no block reads x0 */
  struct rotary rotary[PLM_MODEL_MAX_LEVELS];
  float *dropout_factors; /* (B, L): what token_dropout scales x0 by; NULL: it scales nothing */
  act *embedded;          /* x0 before emb_layer_norm_before; else NULL */
  struct token_rows token_rows;

  /* the head's, for R labelled rows */
  int32_t *positions, *labels;
  float *label_weights, *row_loss, *hits;
  /* These rows of the last hidden state, or of the last block's mixed if that block is narrowed. */
  act *head_x;
  act *head_attended; /* if the last block is narrowed, these rows of its attended (at most half) */
  int32_t *narrow_begin, *narrow_end; /* (B, L) */
  struct plm_interval_mask narrow;    /* of that block's attention, with these */
  act *head_norm, *head_dense;
  act *head_gelu; /* in training only used if a norm follows it, because head_train needs none */
  act *head_activated; /* the norm after GELU; NULL: there is none */
  float *logits;       /* not used in training */
  /* of a head that predicts labels */
  int32_t *label_end; /* begin is `positions`, classes are `labels` */
  uint64_t *label_keys;
  float *label_values;
  act *label_tanh, *label_kept; /* (R, H): the hidden layer, and what dropout leaves of it */
  /* Of adapters; NULL if there are none. */
  act *adapter_rank[2];        /* (N, rank) */
  act *adapter_wide[2];        /* (N, in or out); [1] only with dropout */
  int32_t *adapter_rows[2][3]; /* (N): n P + p for part p of P = 2 or 3 */
  uint64_t *adapter_keys;      /* of dropout: (B, L >> level) of each level, one after another */
  float *host_row_loss;
  int32_t *host_positions; /* (B L): positions or tokens, while they are copied */

  /* backward */
  act *stream[2]; /* the gradient of the residual stream, and a buffer to make the next one in */
  act *row_gradient[2];
  act *hidden_gradient, *norm_gradient, *attended_gradient, *qkv_gradient;
  act *projection_gradient;
  act *value_embedding, *value_gradient;
  float *rows_fp32; /* (B, L, D): the last hidden state that plm_model_infer hands out */
};

/* What the attention of incrementally decoded rows needs, besides the buffers of the blocks. */
struct decode_pass {
  struct plm_cached_rows rows; /* key_begin: of pattern entry 0; the other entries follow it */
  const float *cosine, *sine;  /* (rows, K/2), device: the rotary angles of each row's position */
  char *cache;                 /* device: (block, keys | values, slot, capacity, H * K) */
  size_t part_bytes;           /* the keys, or the values, of one block */
};

/* The inputs of one pass. */
struct model_pass {
  int32_t B, L;
  const struct plm_masks *masks;
  const struct decode_pass *decode; /* incremental decoding (L is 1, no masks), else NULL */
  /* What the head reads, set by plm_model_pass_reads. */
  const int32_t *positions; /* (R) rows of the last hidden state, device; -1: no row; NULL: all */
  int64_t R;
  int64_t label_rows; /* of a head that predicts labels: its rows; R counts those that it reads */
  const struct plm_label_options *dropped; /* how its dropout is drawn; NULL: nothing is dropped */
  const uint64_t *dropout_seed; /* of adapters, whose keys lie on the device; NULL: none drops */
  const struct plm_state_taps *taps;  /* states to hand out, or NULL */
  const struct model_block *narrowed; /* the last block, if it computes only these rows after its
                                         attention, so that y, h2, hidden and out have R rows */
  bool narrows_attention;             /* then its attention also leaves out other queries */
};

static inline int64_t pass_rows(const struct model_pass *pass, int level)
{
  return (int64_t)pass->B * (pass->L >> level);
}

/* The number of rows that a block computes after its attention. */
static inline int64_t block_rows(const struct model_pass *pass, const struct model_block *block)
{
  return block == pass->narrowed ? pass->R : pass_rows(pass, block->shape.level);
}

#define NOT_KEPT SIZE_MAX

/* The fp32 value at a place of the arenas. It must be kept. */
const float *model_value(const struct plm_model *model, size_t place);

/* int8 (model_int8.c): finds the matrices (PLM_UNSUPPORTED: a layer has too many inputs), and frees
 * what this allocates; the bytes of all of them; whether a parameter is among them; takes the
 * values of parameter i, which is; the weights of a product. */
plm_status plm_model_plan_int8(struct plm_model *model, struct plm_error *error);
void plm_model_forget_int8(struct plm_model *model);
size_t plm_model_int8_bytes(const struct plm_model *model);
bool plm_model_is_int8(const struct plm_model *model, const struct plm_parameter *parameter);
void plm_model_load_int8(struct plm_model *model, size_t i, const float *values);
const void *model_int8_weight(const struct plm_model *model, size_t place);

/* Decides which parameters are kept. */
void plm_model_keep(struct plm_model *model);

/* The weights of a product that is not int8. */
static inline const act *model_weight(const struct plm_model *model, size_t place)
{
  if (model->int8 != NULL) return model_value(model, place);
  return (const char *)model->weights + place * model->act_bytes;
}

/* Element i of a buffer of activations. */
static inline act *act_at(const struct plm_model *model, act *buffer, int64_t i)
{
  return (char *)buffer + (size_t)i * model->act_bytes;
}

/* The inputs and outputs of the product of a merge or expand, by which a block's input comes from
 * another level. It has as many rows as the deeper level: two rows of the shallower level are
 * viewed as one row of twice the width. */
void model_resample_sizes(const struct plm_model *model, const struct plm_block_shape *shape,
                          int64_t *I, int64_t *O);

/* Norms and products with their parameters (model_layers.c). dx += and gradients of parameters +=;
 * the backward function of a product leaves out its input's gradient. */
void model_norm_forward(const struct plm_model *model, const struct model_norm *norm, act *out,
                        const act *x, int64_t N, int64_t D);
void model_norm_backward(const struct plm_model *model, const struct model_norm *norm, act *dx,
                         const act *dh, const act *x, int64_t N, int64_t D);
void model_product_forward(const struct plm_model *model, const struct model_product *product,
                           act *y, const act *x, const act *residual, int64_t N, int64_t I,
                           int64_t O);
/* The same for a product of a block, which may be int8: y = W x + bias + residual. */
void model_block_product(const struct plm_model *model, const struct model_product *product, act *y,
                         const act *x, const act *residual, int64_t N, int64_t I, int64_t O);
void model_product_backward(const struct plm_model *model, const struct model_product *product,
                            const act *dy, const act *x, int64_t N, int64_t I, int64_t O);
/* h2 -> hidden for N rows, and back: d out (model->stream[0]) -> d h2 (model->norm_gradient), as
 * far as the block's reach. */
void model_mlp_forward(const struct plm_model *model, const struct model_pass *pass,
                       const struct model_block *block, int64_t N);
void model_mlp_backward(const struct plm_model *model, const struct model_pass *pass,
                        const struct model_block *block, int64_t N);

/* Adapters of a product (model_adapters.c): y += what they add to W x, dx += what they add to the
 * gradient of x (NULL: nobody needs it), and the gradients of A and B +=. */
void model_adapters_forward(const struct plm_model *model, const struct model_pass *pass,
                            const struct model_adapters *adapters, act *y, const act *x, int64_t N);
void model_adapters_backward(const struct plm_model *model, const struct model_pass *pass,
                             const struct model_adapters *adapters, act *dx, const act *dy,
                             const act *x, int64_t N);
/* Finds them in the table, whose places are known. */
void plm_model_resolve_adapters(struct plm_model *model);
/* Fills the numbers of rows, which never change. */
plm_status plm_model_upload_adapter_rows(struct plm_model *model, struct plm_error *error);

/* Whether token_dropout scales the rows of a document. */
static inline bool model_scales_dropout(const struct plm_model *model)
{
  return model->config.token_dropout && model->rules->scales_dropout;
}

static inline float *model_gradient(const struct plm_model *model, size_t place)
{
  return model->gradients + (place < model->trained_elements ? place : model->trained_elements);
}

/* Lays out all buffers: counts the bytes of the two arenas and sets the pointers from their bases.
 * As long as the bases are NULL, the pointers mean nothing. */
void plm_model_lay_out(struct plm_model *model);

/* Sets what the head will read: R rows of the last hidden state, at `positions` (device memory;
 * NULL: all rows). After the last block's attention, rows are independent of each other; if at most
 * half of them are read, that block continues with only those. */
void plm_model_pass_reads(const struct plm_model *model, struct model_pass *pass,
                          const int32_t *positions, int64_t R);
/* The same for positions on the host: uploads them to model->positions, padded with -1 to
 * plm_model_rows elements. */
void plm_model_pass_asks(struct plm_model *model, struct model_pass *pass, const int32_t *positions,
                         size_t rows);

/* The inputs of a block's mix; the block is not a plain one. */
struct plm_mix plm_model_mix(const struct plm_model *model, const struct model_block *block);

/* Rows of x0, and where the documents of (B, L) tokens are. */
struct embedded_rows {
  const int32_t *tokens, *begin, *end;
  int64_t B, L;
  float *factors; /* (B, L) */
  act *before;    /* before emb_layer_norm_before; NULL without it */
  act *x;
};
/* tokens -> x */
void plm_model_embed(struct plm_model *model, const struct embedded_rows *rows);
/* The gradient of x, (B L, D) -> += that of the embedding's vectors. `dx` is changed, and so is
 * `spare`, which is as large. */
void plm_model_embed_backward(struct plm_model *model, const struct embedded_rows *rows, act *dx,
                              act *spare);
/* Those of a whole batch, and those of the V tokens. */
struct embedded_rows plm_model_embedded_batch(const struct plm_model *model,
                                              const struct model_pass *pass);
struct embedded_rows plm_model_embedded_tokens(const struct plm_model *model);

/* Whether the first block of this model can be computed by token. */
bool plm_model_has_token_rows(const struct plm_model *model);
/* Fills token_rows.tokens, which never change. PLM_NO_MEMORY. */
plm_status plm_model_upload_token_rows(struct plm_model *model, struct plm_error *error);
/* Decides whether the pass computes its first block by token. */
void plm_model_choose_token_rows(struct plm_model *model, const struct model_pass *pass);
/* Whether the current pass computes this block by token. The next four functions then take the
 * place of a part of it. */
bool plm_model_by_token(const struct plm_model *model, const struct model_block *block);
/* Embeddings of the V tokens -> h of each; and mixed of all rows, unless the block is plain. */
void plm_model_token_rows_mix(struct plm_model *model, const struct model_pass *pass);
/* h of each token -> qkv_raw of all rows */
void plm_model_token_rows_qkv(struct plm_model *model, const struct model_pass *pass);
/* dqkv (B L, 3 D) -> the gradients of the product's parameters, and dh of each token */
void plm_model_token_rows_qkv_backward(struct plm_model *model, const struct model_pass *pass,
                                       const act *dqkv);
/* dh of each token, and the stream's gradient of all rows unless the block is plain -> dx and dp of
 * each token, and the gradients of the norm's or the mix's parameters */
void plm_model_token_rows_mix_backward(struct plm_model *model, const struct model_pass *pass);

/* The parts of a block, which recomputation runs again in the backward pass. */
void plm_model_block_mix(struct plm_model *model, const struct model_pass *pass,
                         const struct model_block *block);
void plm_model_block_attention(struct plm_model *model, const struct model_pass *pass,
                               const struct model_block *block);
void plm_model_block_hidden(struct plm_model *model, const struct model_pass *pass,
                            const struct model_block *block);
/* What a block's value embeddings come from; the block has a value table. */
struct plm_value_table plm_model_value_table(const struct plm_model *model,
                                             const struct model_block *block);
/* The inputs for preparing the block's queries, keys and values, for whole chunks and without value
 * embeddings. */
struct plm_qkv plm_model_qkv(const struct plm_model *model, const struct model_pass *pass,
                             const struct model_block *block);
/* All blocks: model->tokens -> the last hidden state. */
void plm_model_blocks_forward(struct plm_model *model, const struct model_pass *pass);
/* The output of the last block, or of the embeddings when there is no block. */
const act *plm_model_last_hidden(const struct plm_model *model);
/* The rows that the head reads, after plm_model_head_dense has run. */
const act *plm_model_head_input(const struct plm_model *model, const struct model_pass *pass);
/* Computes the logits of the rows that the head reads, capped softly unless cap is 0. */
void plm_model_head_forward(struct plm_model *model, const struct model_pass *pass, float cap);
/* The last hidden state as it is handed out, (B, L, D): for published weights after its norm, which
 * this computes in model->head_norm. */
const act *plm_model_state_after(const struct plm_model *model, const struct model_pass *pass);
/* Computes what the logits are computed from, or what GELU is applied to before that. */
void plm_model_head_dense(struct plm_model *model, const struct model_pass *pass);
/* The beginning of training on a batch: forward, and backward through the head. Leaves the losses
 * of the rows that the head reads, at least one, in model->row_loss. */
void plm_model_train_head(struct plm_model *model, const struct model_pass *pass,
                          const struct plm_loss_options *loss, float loss_scale);
/* Checks the shape and the tokens of a batch, and uploads them. */
plm_status plm_model_check_batch(const struct plm_model *model, const struct plm_batch *batch,
                                 const int32_t *inputs, struct plm_error *error);
struct model_pass plm_model_start_pass(struct plm_model *model,
                                       const struct plm_masked_batch *input, const int32_t *inputs);
/* Downloads the losses of R rows, and adds them up in double. */
plm_status plm_model_fetch_loss(struct plm_model *model, size_t R, struct plm_loss_result *result,
                                float *row_loss, struct plm_error *error);
/* The same for a head that predicts labels, before and after the blocks (label_head.c): its outputs
 * in model->logits, and the losses of its rows with the gradient of the last block's output. */
void plm_model_label_outputs(struct plm_model *model, const struct model_pass *pass);
void plm_model_train_labels(struct plm_model *model, const struct model_pass *pass,
                            const struct plm_label_options *options, float loss_scale);
/* Sets what such a head will read of `rows` rows, whose places are in device memory. */
void plm_model_pass_labels(const struct plm_model *model, struct model_pass *pass, int64_t rows);
/* The forward pass of training, and what a backward pass begins with. */
void plm_model_train_forward(struct plm_model *model, const struct model_pass *pass);
/* Turns stream[0], the gradient of the rows that the head reads, into that of all rows. */
void plm_model_widen_stream(struct plm_model *model, const struct model_pass *pass, int64_t D);
/* Continues with the backward pass of the blocks [part.first, part.end), and ends the pass if the
 * first one is among them. */
void plm_model_train_blocks(struct plm_model *model, const struct model_pass *pass,
                            struct plm_backward_part part);
struct plm_attention_shape plm_model_attention_shape(const struct plm_model *model,
                                                     const struct model_pass *pass,
                                                     const struct model_block *block);
/* The mask of a block's attention; if the pass narrows it, after that block's forward pass. */
const struct plm_interval_mask *plm_model_mask(const struct plm_model *model,
                                               const struct model_pass *pass,
                                               const struct model_block *block);

#endif
