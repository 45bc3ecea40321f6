/* Operands of the operators in ops.h, whose conventions on sizes, shapes and memory hold here. */
#ifndef PLM_COMMON_OPS_OPERANDS_H
#define PLM_COMMON_OPS_OPERANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void act;      /* activations: float if ops->act_bytes is 4, bf16 if it is 2 */
typedef uint16_t bf16; /* bit pattern */

/* One attention mask on one level (doc/model.md#attention-masks). Each query sees one interval
 * [begin, end) of keys. The intervals of queries let a kernel start from the keys; they may include
 * queries that do not see the key. begin and end are positions within the chunk at this level. An
 * empty interval has begin == end == 0. */
struct plm_interval_mask {
  int32_t B, L;
  const int32_t *key_begin, *key_end;     /* (B, L): keys that each query sees */
  const int32_t *query_begin, *query_end; /* (B, L): covers the queries that see each key */
  /* (B, tiles) each. For each tile of PLM_MASK_TILE queries, tile_key_* is the interval of keys
   * that any of its queries sees, [min begin, max end), and tile_full_* the interval that all of
   * them see, [max begin, min end). For each tile of keys, tile_query_* is the interval of queries
   * that may see any of them. */
  const int32_t *tile_key_begin, *tile_key_end, *tile_full_begin, *tile_full_end;
  const int32_t *tile_query_begin, *tile_query_end;
};
enum { PLM_MASK_TILE = 64 };

struct plm_attention_shape {
  int32_t B, L, H, K;
  int32_t row_stride; /* elements between consecutive rows of q, k, v (3*H*K when packed) */
  float scale;        /* 1/sqrt(K) */
  float soft_cap;     /* 0 for no cap */
};

/* Prepared queries, keys and values of one attention call: (B, L, H, K) each, rows row_stride
 * elements apart. */
struct plm_attention_inputs {
  const act *q, *k, *v;
};

/* Gradients of plm_attention_inputs, in the same layout. */
struct plm_attention_gradients {
  act *dq, *dk, *dv;
};

/* Pointers into rows that hold q, k and v side by side. `part` is the size in bytes of each of the
 * three within a row. */
static inline struct plm_attention_inputs plm_attention_inputs_of(const act *qkv, size_t part)
{
  const char *q = (const char *)qkv;
  return (struct plm_attention_inputs){q, q + part, q + 2 * part};
}

static inline struct plm_attention_gradients plm_attention_gradients_of(act *dqkv, size_t part)
{
  char *dq = (char *)dqkv;
  return (struct plm_attention_gradients){dq, dq + part, dq + 2 * part};
}

/* The parameters of a Linear (I, O) with a bias. */
struct plm_biased_linear {
  const act *w;      /* (O, I), rounded to act */
  const float *bias; /* (O) */
};

/* How q and k are normalised before they are rotated. */
enum plm_qk_norm {
  PLM_QK_NORM_HEAD,  /* RMSNorm over the K elements of each head, no weight, eps 1e-6 */
  PLM_QK_NORM_NONE,  /* not at all */
  PLM_QK_NORM_WIDTH, /* LayerNorm over all H K elements, with a weight and no bias */
};

/* Inputs of the preparation of queries, keys and values. */
struct plm_qkv {
  const act *qkv; /* (B, L, 3 H K): the raw products */
  const act *vi;  /* (B, L, H K): value embeddings; NULL if there are none */
  const float *a; /* (2): weights of v and vi; not read without value embeddings */
  /* (L, K/2). The elements i and i + K/2 of a head become cosine x_i + sine x_{i+K/2} and cosine
   * x_{i+K/2} - sine x_i. For the other direction of rotation, negate the sines. */
  const float *cosine, *sine;
  int64_t B, L, H, K;
  /* The fields below are read only as `norm` says. */
  enum plm_qk_norm norm;
  float eps;                        /* with PLM_QK_NORM_WIDTH, as are the rest */
  const float *q_weight, *k_weight; /* (H K) each */
  float *dq_weight, *dk_weight;     /* (H K) each: their gradients, += by the backward operators */
};

/* LayerNorm (Ba, Kiros and Hinton 2016): (x - mean) / sqrt(variance + eps) weight + bias, with the
 * mean and the variance of each row. */
struct plm_layer_norm {
  const float *weight; /* (D) */
  const float *bias;   /* (D), or NULL if there is none */
  float eps;
};

struct plm_layer_norm_gradients {
  float *dweight, *dbias; /* (D) each; dbias is not used without a bias */
};

/* The share of tokens that were not <mask> when ESM-2 was trained. */
#define PLM_TOKEN_DROPOUT_KEPT (1 - 0.15f * 0.8f)

/* What ESM-2's token dropout scales the rows of a batch by (Lin et al. 2023; EsmEmbeddings of
 * transformers). Row n belongs to the document of positions [begin[n], end[n]) of its chunk. */
struct plm_token_dropout {
  const int32_t *tokens;      /* (B, L), device */
  const int32_t *begin, *end; /* (B, L), device; begin == end: the row belongs to no document */
  int64_t B, L;
  int32_t mask_token;
};

/* Rows of incremental decoding. Row n is the token at positions[n] of the sequence whose keys and
 * values are in slot slots[n] of the cache. The arrays are on the device and have `rows` elements
 * each. */
struct plm_cached_rows {
  int64_t rows, H, K;
  int64_t row_stride; /* elements between consecutive rows of q, k, v (3*H*K when packed) */
  int64_t capacity;   /* positions in a slot */
  float scale;        /* 1/sqrt(K) */
  const int32_t *slots, *positions, *key_begin;
};

/* Input of a block, x' = b0 (x + s skip) + b1 p. The arrays are (N, D), but with p_rows p is a
 * table of rows, of which row n uses number p_rows[n]. */
struct plm_mix {
  const act *x, *p;
  const float *b;        /* (2) */
  const act *skip;       /* NULL if there is no skip connection; may equal x */
  const float *s;        /* (1); read only if there is a skip connection */
  const int32_t *p_rows; /* (N), device, or NULL */
};

/* Gradients of plm_mix. G is the gradient of x', and g = b0 G that of x + s skip. dskip and ds are
 * used only if there is a skip connection. */
struct plm_mix_gradients {
  act *dx;         /* = g + more; may equal dmixed */
  act *dp;         /* += b1 G */
  float *db;       /* (2): += sum G (x + s skip), sum G p */
  act *dskip;      /* = s g; may equal x or skip */
  float *ds;       /* (1): += sum g skip */
  const act *more; /* added to dx, or NULL; if it equals dskip, the new value s g is added */
};

/* What value embeddings come from: each is the mean of the table's rows for a group of 2^level
 * tokens. All pointers are to device memory. room and room_gradient are scratch, (N, HK) each,
 * which the backend may overwrite. */
struct plm_value_table {
  const float *table;    /* (V, HK) */
  const int32_t *tokens; /* (N * 2^level) */
  int64_t V;
  int level;
  act *room, *room_gradient; /* room_gradient is used only by the backward operator */
};

/* Options of the loss and of the logits it is computed from. */
struct plm_loss_options {
  float soft_cap; /* c of the head; 0 for no cap */
  float label_smoothing;
  float z_loss;
};

/* The part of the head that follows its dense product, for N labelled rows. All pointers are to
 * device memory. */
struct plm_head_rows {
  const act *dense;      /* (N, D): input of GELU, or of the decoder if `activated` */
  const act *w;          /* (V, D): the decoder's weight */
  const float *bias;     /* (V) */
  const int32_t *labels; /* (N), in [0, V) */
  const float *weights;  /* (N); a row of weight 0 does not count */
  int64_t N, D, V;
  float *hits; /* (N), an output: 1 if no token has a larger logit than the label of the row and the
                * row counts, else 0. NULL: not wanted */
  bool activated; /* `dense` goes to the decoder as it is, without GELU */
};

/* Gradients of the operands of logits_forward: of h, w and bias. */
struct plm_logits_gradients {
  act *dh;
  float *dw, *dbias;
};

/* n numbers in fp32: x, or x - minus, rounded to fp32, unless minus is NULL. */
struct plm_array {
  const float *x;
  size_t n;
  const float *minus;
};
enum { PLM_SUM_PARTS_MAX = 64 };

struct plm_adam_options {
  float beta1, beta2, eps;
};

struct plm_adam_tensor {
  float *w, *m, *v; /* (n) each */
  const float *g;
  size_t n;
  float weight_decay;
  int32_t rate; /* index into plm_update_inputs.rate */
};

struct plm_muon_matrix {
  float *w, *momentum; /* (rows, cols) each */
  const float *g;
  int64_t rows, cols;
  float weight_decay;
  float update_scale; /* 0.2*sqrt(max(rows, cols)) or sqrt(max(1, rows/cols)) */
  int32_t rate;
};

#endif
