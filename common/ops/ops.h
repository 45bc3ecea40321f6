/* struct plm_ops: the operator table. A backend (kernels/cpu, kernels/cuda) fills it; the model is
 * written once against it.
 *
 * Conventions
 * - `act` is a buffer of activations in the backend's precision: float or bf16, fixed when the
 *   backend is opened (ops->act_bytes). Everything else is fp32 unless said otherwise. Each
 *   operator computes in fp32 and rounds once.
 * - N rows (B * L_k), D width, F MLP width, V vocabulary, H heads, K head width, all row-major.
 * - Buffers come from ops->allocate and live on the device; parameters and scalars (a, b, s) are
 *   device pointers too, so that a captured graph stays valid.
 * - Gradients of parameters accumulate (+=) in fp32. Gradients of activations are written (=)
 *   unless the comment says accumulate.
 * - Reductions have a fixed order for a given backend, shape, precision and thread count: the same
 *   inputs give the same bits.
 * - An operator may allocate memory when it first meets a shape, and never again for that shape.
 * - Operators return no status. One that fails (no memory, an error of the device or of a library)
 *   leaves its results undefined; ops->synchronize reports the first such error from then on.
 */
#ifndef PLM_COMMON_OPS_OPS_H
#define PLM_COMMON_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/device.h"
#include "common/ops/target_rule.h"
#include "common/ops/update.h"

typedef void act;      /* activations: float or bf16 by ops->act_bytes */
typedef uint16_t bf16; /* bit pattern */

struct plm_ops;
struct plm_recording; /* the backend's own */

/* One attention mask on one level: each query sees an interval of keys, and each key is seen by an
 * interval of queries (doc/model.md#attention-masks). begin and end are positions in the chunk's
 * level. An empty interval has begin == end == 0. */
struct plm_interval_mask {
  int32_t B, L;
  const int32_t *key_begin, *key_end;     /* (B, L) for query q */
  const int32_t *query_begin, *query_end; /* (B, L) for key k: the superset run of its queries */
  /* per tile of PLM_MASK_TILE queries: [min begin, max end) touched, [max begin, min end) full;
   * and the same from the keys' side. (B, tiles) each. */
  const int32_t *tile_key_begin, *tile_key_end, *tile_full_begin, *tile_full_end;
  const int32_t *tile_query_begin, *tile_query_end;
};
enum { PLM_MASK_TILE = 64 };

struct plm_attention_shape {
  int32_t B, L, H, K;
  int32_t row_stride; /* elements between consecutive rows of q, k, v (3*H*K when packed) */
  float scale;        /* 1/sqrt(K) */
  float soft_cap;     /* 0: none */
};

/* Prepared queries, keys and values of one attention call: (B, L, H, K) each, rows row_stride
 * elements apart. */
struct plm_attention_inputs {
  const act *q, *k, *v;
};

/* The gradients of these, rows row_stride elements apart as well. */
struct plm_attention_gradients {
  act *dq, *dk, *dv;
};

/* Of a row that holds q, k and v side by side, `part` bytes each. */
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

/* What the preparation of queries, keys and values reads. */
struct plm_qkv {
  const act *qkv;             /* (B, L, 3 H K) raw products */
  const act *vi;              /* (B, L, H K) value embeddings; NULL: none */
  const float *a;             /* 2: weights of v and of vi; unread without value embeddings */
  const float *cosine, *sine; /* (L, K/2) */
  int64_t B, L, H, K;
};

/* Rows of incremental decoding: row n is one token at positions[n] of the sequence whose keys and
 * values lie in slot slots[n] of a cache. Device pointers, (rows) each. */
struct plm_cached_rows {
  int64_t rows, H, K;
  int64_t row_stride; /* elements between consecutive rows of q, k, v (3*H*K when packed) */
  int64_t capacity;   /* positions of a slot */
  float scale;        /* 1/sqrt(K) */
  const int32_t *slots, *positions, *key_begin;
};

/* A block's input, of rows (N, D). */
struct plm_mix {
  const act *x, *p;
  const float *b;  /* 2 */
  const act *skip; /* NULL: no skip; may be x */
  const float *s;  /* 1; with a skip */
};

/* Of G, the gradient of x', and g = b0 G, that of x + s skip. */
struct plm_mix_gradients {
  act *dx;         /* = g + more; may be dmixed */
  act *dp;         /* += b1 G */
  float *db;       /* += sum G (x + s skip), sum G p */
  act *dskip;      /* = s g; may be x or skip. It and ds: with a skip */
  float *ds;       /* += sum g skip */
  const act *more; /* what else x's gradient has, NULL: nothing; may be dskip, as written here */
};

/* Where value embeddings come from: the mean over groups of 2^level tokens of a table's rows. All
 * on the device. The rooms, (N, HK) each, are the backend's to write. */
struct plm_value_table {
  const float *table;    /* (V, HK) */
  const int32_t *tokens; /* N * 2^level */
  int64_t V;
  int level;
  act *room, *room_gradient; /* the second: backward alone */
};

/* How labels of the objective enter the loss. */
struct plm_loss_options {
  float soft_cap; /* c of the head, 0: none */
  float label_smoothing;
  float z_loss;
};

/* The head behind its dense product, of N labelled rows. All on the device. */
struct plm_head_rows {
  const act *dense;      /* (N, D), before GELU */
  const act *w;          /* (V, D) the decoder */
  const float *bias;     /* (V) */
  const int32_t *labels; /* (N) in [0, V) */
  const float *weights;  /* (N); 0: the row does not count */
  int64_t N, D, V;
};

struct plm_adam_options {
  float beta1, beta2, eps;
};

struct plm_adam_tensor {
  float *w, *m, *v; /* n each */
  const float *g;
  size_t n;
  float weight_decay;
  int32_t rate; /* which of plm_update_inputs.rate */
};

struct plm_muon_matrix {
  float *w, *momentum; /* (rows, cols) each */
  const float *g;
  int64_t rows, cols;
  float weight_decay;
  float update_scale; /* 0.2*sqrt(max(rows, cols)) or sqrt(max(1, rows/cols)) */
  int32_t rate;
};

/* What tuning has done since the backend was opened. */
struct plm_ops_tuned {
  uint32_t products; /* shapes of products measured */
  double seconds;
};

struct plm_ops {
  const char *name; /* "cpu", "cuda" */
  const char
      *isa; /* "avx512", "avx2", "portable", "sm_90a": resolved choice, kept in trainer.json */
  const char *products;  /* the library of products and its version; NULL: the algorithms name it */
  const char *processor; /* model name of the device; NULL: the machine's processor */
  size_t act_bytes;      /* 4 or 2 */
  uint32_t threads;
  void *context; /* the backend's own */

  /* ---- memory ---- */
  plm_status (*allocate)(struct plm_ops *ops, size_t bytes, void **buffer, struct plm_error *error);
  void (*release)(struct plm_ops *ops, void *buffer);
  /* The host's memory is the caller's again at once. */
  void (*upload)(struct plm_ops *ops, void *device, const void *host, size_t bytes);
  /* Waits for what was computed so far, and for the bytes. */
  void (*download)(struct plm_ops *ops, void *host, const void *device, size_t bytes);
  void (*zero)(struct plm_ops *ops, void *buffer, size_t bytes);
  void (*copy)(struct plm_ops *ops, void *to, const void *from, size_t bytes);
  plm_status (*synchronize)(struct plm_ops *ops, struct plm_error *error);
  /* Bytes of the device's memory, free now and in all; for the CPU the machine's. 0: unknown. */
  void (*memory_size)(struct plm_ops *ops, uint64_t *free_bytes, uint64_t *total_bytes);
  void (*close)(struct plm_ops *ops);

  /* ---- a second queue: copies beside the computation ---- */
  /* Host memory that copies beside the computation reach (pinned on CUDA). */
  plm_status (*allocate_host)(struct plm_ops *ops, size_t bytes, void **buffer,
                              struct plm_error *error);
  void (*release_host)(struct plm_ops *ops, void *buffer);
  /* Copies done beside the computation, in the order of the calls, some time between the call and
   * the wait. Host memory from allocate_host. Both ends belong to the copy until it was waited for.
   * What is copied must have been computed before: after a synchronize, or a copies_follow. */
  void (*upload_beside)(struct plm_ops *ops, void *device, const void *host, size_t bytes);
  void (*download_beside)(struct plm_ops *ops, void *host, const void *device, size_t bytes);
  /* What is computed from here on begins when the copies so far are done. The host does not wait.
   */
  void (*compute_follows)(struct plm_ops *ops);
  /* Copies from here on begin when what was computed so far is done. The host does not wait. */
  void (*copies_follow)(struct plm_ops *ops);
  /* The host waits for the copies beside (synchronize waits for the computation). */
  plm_status (*wait_copies)(struct plm_ops *ops, struct plm_error *error);

  /* ---- recordings (CUDA graphs) ---- */
  /* Operators called between record_begin and record_end are kept instead of done; replay does them
   * with what then lies in device memory, pointers and scalars being what they were. In between no
   * allocation, release, upload, download, copy beside, replay or wait, and no second record_begin:
   * record_end reports such a call, and there is no recording then. It reports what an operator
   * reported meanwhile, too. Operators of the recorded shapes have run before (the first run of a
   * shape prepares it). All four NULL where the backend has none (the CPU). */
  plm_status (*record_begin)(struct plm_ops *ops, struct plm_error *error);
  plm_status (*record_end)(struct plm_ops *ops, struct plm_recording **recording,
                           struct plm_error *error);
  void (*replay)(struct plm_ops *ops, struct plm_recording *recording);
  void (*release_recording)(struct plm_ops *ops, struct plm_recording *recording);

  /* ---- precision ---- */
  /* weights as used: fp32 -> act (a plain copy in fp32), n elements */
  void (*round_weights)(struct plm_ops *ops, act *out, const float *in, size_t n);
  void (*act_to_float)(struct plm_ops *ops, float *out, const act *in, size_t n);

  /* ---- products: Linear without bias, weight (out, in) as used (act) ---- */
  /* y_NO = x_NI w_OI^T, plus residual_NO when not NULL (y may be residual) */
  void (*linear_forward)(struct plm_ops *ops, act *y, const act *x, const act *w,
                         const act *residual, int64_t N, int64_t I, int64_t O);
  /* dx_NI = dy_NO w_OI; accumulate: dx += */
  void (*linear_backward_input)(struct plm_ops *ops, act *dx, const act *dy, const act *w,
                                int64_t N, int64_t I, int64_t O, bool accumulate);
  /* hidden_NO = relu(x_NI w_OI^T)^2 (So et al. 2021, Primer). bf16: rounded once, or the product,
   * too, where the backend has a pass of its own for it. */
  void (*linear_relu2_forward)(struct plm_ops *ops, act *hidden, const act *x, const act *w,
                               int64_t N, int64_t I, int64_t O);
  /* dup_NI = (dy_NO w_OI) 2 sqrt(hidden_NI): through a Linear (O, I) and the relu2 before it. The
   * root of what relu2 gave is its argument again (in fp32 to the bit, in bf16 nearer than the
   * argument rounded would be), so nobody keeps that. */
  void (*linear_relu2_backward_input)(struct plm_ops *ops, act *dup, const act *dy, const act *w,
                                      const act *hidden, int64_t N, int64_t I, int64_t O);
  /* dw_OI += dy_NO^T x_NI */
  void (*linear_backward_weight)(struct plm_ops *ops, float *dw, const act *dy, const act *x,
                                 int64_t N, int64_t I, int64_t O);

  /* ---- norm: RMSNorm, no weight, eps 1e-6 (Zhang & Sennrich 2019) ---- */
  void (*norm_forward)(struct plm_ops *ops, act *out, const act *x, int64_t N, int64_t D);
  /* dx += d norm(x) dh ; the norm's own statistics are recomputed */
  void (*norm_backward)(struct plm_ops *ops, act *dx, const act *dh, const act *x, int64_t N,
                        int64_t D);
  /* the same on fp32 rows: the embedding table. dx += */
  void (*norm_rows_forward)(struct plm_ops *ops, float *out, const float *x, int64_t N, int64_t D);
  void (*norm_rows_backward)(struct plm_ops *ops, float *dx, const float *dh, const float *x,
                             int64_t N, int64_t D);

  /* ---- block input: x' = b0 (x + s skip) + b1 p, h = norm(x') ---- */
  void (*mix_norm_forward)(struct plm_ops *ops, act *mixed, act *h, const struct plm_mix *mix,
                           int64_t N, int64_t D);
  /* G = dmixed (through the residual; what lies there afterwards is the backend's affair) + d
   * norm(x') dh. */
  void (*mix_norm_backward)(struct plm_ops *ops, const struct plm_mix_gradients *to, act *dmixed,
                            const act *dh, const act *mixed, const struct plm_mix *mix, int64_t N,
                            int64_t D);

  /* ---- token tables: mean over groups of 2^level consecutive tokens of table rows ----
   * out_ND[n] = mean_{j < 2^level} table[tokens[n*2^level + j]]; table fp32 (V, D).
   * tokens int32, N*2^level of them. Used for x0 (normalised embeddings) and value embeddings. */
  void (*token_mean_forward)(struct plm_ops *ops, act *out, const float *table,
                             const int32_t *tokens, int64_t N, int64_t D, int64_t V, int level);
  /* dtable += ; fixed order, no atomics */
  void (*token_mean_backward)(struct plm_ops *ops, float *dtable, const act *dout,
                              const int32_t *tokens, int64_t N, int64_t D, int64_t V, int level);

  /* ---- attention ---- */
  /* rotary tables (L, K/2) cos and sin, fp32, base 10000, computed in double and rounded once */
  /* qkv_N3D raw products -> prepared qkv (N, 3D): q, k: norm over K, then rotary; v: a0 v + a1 vi
   * when vi is not NULL. out may not alias in. */
  void (*qkv_prepare_forward)(struct plm_ops *ops, act *out, const struct plm_qkv *in);
  /* dqkv_raw from dqkv (prepared); dvi = a1 dv, da += (sum dv v_raw, sum dv vi). dqkv_raw may be
   * dqkv. in->vi NULL: no da, no dvi. */
  void (*qkv_prepare_backward)(struct plm_ops *ops, act *dqkv_raw, act *dvi, float *da,
                               const act *dqkv, const struct plm_qkv *in);
  /* The same with vi from its table (in->vi is not read): token_mean_forward, then qkv_prepare;
   * backward the other way, dtable += what token_mean_backward makes of dvi. The bits are those of
   * these operators. */
  void (*qkv_value_forward)(struct plm_ops *ops, act *out, const struct plm_qkv *in,
                            const struct plm_value_table *value);
  void (*qkv_value_backward)(struct plm_ops *ops, act *dqkv_raw, float *dtable, float *da,
                             const act *dqkv, const struct plm_qkv *in,
                             const struct plm_value_table *value);
  /* out_N(HK), lse (B, H, L): +inf for a query with an empty run, whose output is exactly 0. */
  void (*attention_forward)(struct plm_ops *ops, act *out, float *lse,
                            const struct plm_attention_inputs *in,
                            const struct plm_interval_mask *mask,
                            const struct plm_attention_shape *shape);
  /* *to is written, where its pointers lead. dout, and out and lse of the forward: as there. */
  void (*attention_backward)(struct plm_ops *ops, const struct plm_attention_gradients *to,
                             const act *dout, const act *out, const float *lse,
                             const struct plm_attention_inputs *in,
                             const struct plm_interval_mask *mask,
                             const struct plm_attention_shape *shape);

  /* The same for rows of sequences that grow: each row's k and v go to its position in the caches
   * (slots, H, capacity, K), then its query sees the keys [key_begin, position] of its slot. So
   * rows of one sequence may come together (a prompt); no position twice. out (rows, HK). */
  void (*attention_cached)(struct plm_ops *ops, act *out, act *key_cache, act *value_cache,
                           const act *q, const act *k, const act *v,
                           const struct plm_cached_rows *rows);

  /* ---- the head's activation: backward, dx may be dout ---- */
  void (*gelu_forward)(struct plm_ops *ops, act *out, const act *x, int64_t n); /* exact, erf */

  /* ---- residual stream ---- */
  /* x += y, n elements */
  void (*add)(struct plm_ops *ops, act *x, const act *y, int64_t n);
  /* A row -1 is no row: gathered as zeros, scattered nowhere. */
  void (*gather_rows)(struct plm_ops *ops, act *out, const act *x, const int32_t *rows, int64_t N,
                      int64_t D);
  /* out[rows[i]] += x[i]; rows are distinct */
  void (*scatter_rows)(struct plm_ops *ops, act *out, const act *x, const int32_t *rows, int64_t N,
                       int64_t D);

  /* ---- head ---- */
  /* logits_NV (fp32, before the cap) = h_ND w_VD^T + bias */
  void (*logits_forward)(struct plm_ops *ops, float *logits, const act *h, const act *w,
                         const float *bias, int64_t N, int64_t D, int64_t V);
  /* soft cap in place */
  void (*soft_cap_forward)(struct plm_ops *ops, float *logits, int64_t n, float cap);
  /* Per row: capped logits -> cross-entropy with label (smoothing, z-loss) times weight, into
   * row_loss (fp32, N; weighted). labels int32 in [0, V); weights fp32, 0: the row does not count.
   */
  void (*cross_entropy)(struct plm_ops *ops, float *row_loss, const float *logits,
                        const int32_t *labels, const float *weights,
                        const struct plm_loss_options *options, int64_t N, int64_t V);
  /* The head for training, and back, at once: row_loss has the bits that gelu_forward,
   * logits_forward, soft_cap_forward and cross_entropy make; ddense_ND, dw_VD += and dbias_V += are
   * the gradients of loss_scale * the sum of row_loss. Neither GELU nor logits leave the operator;
   * with GELU rounded to activations, and logits and their gradient fp32. ddense is not dense. */
  void (*head_train)(struct plm_ops *ops, float *row_loss, act *ddense, float *dw, float *dbias,
                     const struct plm_head_rows *rows, float loss_scale,
                     const struct plm_loss_options *options);

  /* ---- targets ---- */
  /* Chooses the inputs and the labelled positions of a micro-batch (plm_masking_targets of
   * target_rule.h), all on the device. The host has counted the labelled rows beforehand, so they
   * fit. The rows that remain up to to->capacity get position -1, label 0 and weight 0 and so do
   * not count. */
  void (*choose_targets)(struct plm_ops *ops, const struct plm_target_rows *to,
                         const struct plm_target_tokens *from, const struct plm_masking *masking);

  /* ---- optimizer, fp32; `update` and sums lie on the device ---- */
  void (*sum_squares)(struct plm_ops *ops, double *sum, const float *x, size_t n); /* sum = */
  void (*add_sum)(struct plm_ops *ops, double *sum, const float *x, size_t n);     /* sum += */
  /* plan and sums -> decision; everything below reads it, and changes nothing where it says
   * skipped. */
  void (*decide_update)(struct plm_ops *ops, struct plm_update *update);
  void (*adam_step)(struct plm_ops *ops, const struct plm_adam_tensor *tensors, size_t count,
                    const struct plm_adam_options *options, const struct plm_update *update);
  /* Of each matrix: momentum EMA, Nesterov, five Newton-Schulz steps, decay and update. Matrices
   * share no memory; which others are in the call does not change a matrix's bits, but where the
   * backend multiplies equal shapes as one batch and the library has other kernels for it (CUDA).
   * scratch: muon_scratch floats. */
  void (*muon_step)(struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count,
                    float *scratch, const struct plm_update *update);
  /* Floats of scratch that muon_step needs for these matrices, of which rows and cols are read. */
  size_t (*muon_scratch)(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                         size_t count);
  void (*average_step)(struct plm_ops *ops, float *average, const float *w, size_t n,
                       const struct plm_update *update);

  /* ---- algorithms of products; NULL if the backend has none (the CPU) ---- */
  /* on: a shape of a product that is met from here on is measured, once, and keeps the fastest
   * algorithm found; never while recording. off, as opened: a new shape gets the library's own
   * proposal, the same each time. so_far may be NULL. */
  void (*tune)(struct plm_ops *ops, bool on, struct plm_ops_tuned *so_far);
  /* The measured algorithms as text: a line that names library, version, card and precision, then
   * a line for each algorithm. The caller frees *text. */
  plm_status (*export_algorithms)(struct plm_ops *ops, char **text, struct plm_error *error);
  /* Takes algorithms from such a text; their shapes are not measured again. PLM_UNSUPPORTED: they
   * are for another library or card; PLM_FORMAT: not such a text. Algorithms before the fault stay
   * taken. */
  plm_status (*import_algorithms)(struct plm_ops *ops, const char *text, struct plm_error *error);
};

/* The CPU backend (kernels/cpu). precision: PLM_PRECISION_FP32 or _BF16 (AUTO picks bf16
 * where the processor has it). threads 0: all. isa NULL: the best the processor has, else one of
 * "avx512", "avx2", "portable" (PLM_UNSUPPORTED when it lacks it). */
plm_status plm_ops_cpu_open(enum plm_precision precision, uint32_t threads, const char *isa,
                            struct plm_ops **ops, struct plm_error *error);

#endif
