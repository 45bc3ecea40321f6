/* The vector kernels: the arithmetic of one tile, for one instruction set and one precision of the
 * activations. Formulas and shapes are those of common/ops/ops.h. Scalars (a, b, s) are passed by
 * value, and a reduction returns the sum of its tile only. void pointers point to activations
 * (float or bf16).
 */
#ifndef PLM_KERNELS_CPU_CPU_VECTOR_H
#define PLM_KERNELS_CPU_CPU_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ops/ops.h"

/* Adam's constants for one tensor and step. */
struct plm_cpu_adam {
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2, gradient_scale;
};

/* Most rows of a token table (a byte vocabulary has 260), and the largest width of a head. */
enum { PLM_TABLE_ROWS_LIMIT = 4096, PLM_HEAD_WIDTH_LIMIT = 256 };

struct plm_qkv_rows { /* rows [begin, end) of (B * L, 3 H K) */
  int64_t begin, end, L, H, K;
  const float *cosine, *sine; /* (L, K/2) */
  float a0, a1;
  enum plm_qk_norm norm;
  float eps;
  const float *qk_weight[2]; /* of q and of k, (H K) each */
};

struct plm_mix_rows { /* the rows of a struct plm_mix that belong to a tile */
  const void *x, *p, *skip;
  const int32_t *p_rows;
  float b[2], s;
};

struct plm_mix_row_gradients { /* the same of plm_mix_gradients, without the sums db and ds */
  void *dx, *dp, *dskip;
  const void *more, *dmixed, *dh;
};

struct plm_token_groups { /* N groups of 2^level tokens */
  const int32_t *tokens;
  int64_t N, D, V;
  int level;
};

struct plm_attended_keys { /* of one head: keys and values are (count, K) */
  const void *q, *keys, *values;
  float *scores; /* (count), scratch */
  int64_t count, K;
  float scale;
};

struct plm_loss_rows {
  const float *logits; /* (N, V), after the soft cap */
  const int32_t *labels;
  const float *weights;
  float loss_scale;
  const struct plm_loss_options *options;
  int64_t N, V;
  float *hits; /* (N), as in struct plm_head_rows; NULL: not wanted */
};

struct plm_cpu_vector {
  /* ---- elementwise, n elements ---- */
  void (*from_float)(void *out, const float *in, int64_t n);
  void (*to_float)(float *out, const void *in, int64_t n);
  void (*add_to_float)(float *sums, const void *x, int64_t n); /* sums_n += x_n */
  /* the same for bf16, whatever activations are */
  void (*bf16_from_float)(void *out, const float *in, int64_t n);
  void (*bf16_to_float)(float *out, const void *in, int64_t n);
  void (*round_to_bf16)(float *x, int64_t n); /* in place, to values that bf16 has */
  void (*relu2_forward)(void *x, int64_t n);  /* x = relu(x)^2 */
  void (*relu2_backward)(void *dx, const void *out, int64_t n); /* dx *= 2 sqrt(out) */
  void (*gelu_forward)(void *out, const void *x, int64_t n);
  /* dx may be dout if activations are floats */
  void (*gelu_backward)(void *dx, const float *dout, const void *x, int64_t n);
  void (*add)(void *x, const void *y, int64_t n);
  void (*scale)(void *x, float factor, int64_t n); /* x *= factor */
  /* dx = dy gelu'(x), all of them activations; dx may equal dy */
  void (*gelu_backward_act)(void *dx, const void *dy, const void *x, int64_t n);
  void (*bias)(void *x, const float *bias, int64_t n); /* x += bias */
  /* before += bias, hidden = gelu(before); hidden may equal before */
  void (*bias_gelu)(void *hidden, void *before, const float *bias, int64_t n);
  /* one row of F elements each */
  void (*swiglu_forward)(void *hidden, const void *gate_up, int64_t F);
  void (*swiglu_backward)(void *dgate_up, const void *dhidden, const void *gate_up, int64_t F);

  /* ---- rows of width D ---- */
  void (*norm_forward)(void *out, const void *x, int64_t N, int64_t D);
  void (*norm_backward)(void *dx, const void *dh, const void *x, int64_t N, int64_t D);
  void (*norm_rows_forward)(float *out, const float *x, int64_t N, int64_t D);
  void (*norm_rows_backward)(float *dx, const float *dh, const float *x, int64_t N, int64_t D);
  void (*mix_norm_forward)(void *mixed, void *h, const struct plm_mix_rows *mix, int64_t N,
                           int64_t D);
  void (*mix_norm_backward)(float sums[3], const struct plm_mix_rows *mix,
                            const struct plm_mix_row_gradients *to, int64_t N, int64_t D);
  void (*layer_norm_forward)(void *out, const void *x, const struct plm_layer_norm *norm, int64_t N,
                             int64_t D);
  /* dweight_D and dbias_D are those of the tile (=); dbias is NULL without a bias */
  void (*layer_norm_backward)(void *dx, float *dweight, float *dbias, const void *dh, const void *x,
                              const struct plm_layer_norm *norm, int64_t N, int64_t D);
  void (*qkv_forward)(void *out, const void *qkv, const void *vi, const struct plm_qkv_rows *rows);
  /* qk_dweight (2 H K) is that of the tile (=), of q and then of k; only with PLM_QK_NORM_WIDTH */
  void (*qkv_backward)(void *dqkv_raw, void *dvi, float da[2], float *qk_dweight, const void *dqkv,
                       const void *qkv, const void *vi, const struct plm_qkv_rows *rows);

  /* out_K = softmax(scale q keys^T) values, for one query */
  void (*attend)(void *out, const struct plm_attended_keys *keys);

  /* ---- token tables ---- */
  /* groups [begin, end) */
  void (*token_mean_forward)(void *out, const float *table, const struct plm_token_groups *groups,
                             int64_t begin, int64_t end);
  /* columns [begin, end) of all groups, in the order of the groups */
  void (*token_mean_backward)(float *dtable, const void *dout,
                              const struct plm_token_groups *groups, int64_t begin, int64_t end);

  /* ---- head, fp32 ---- */
  void (*add_bias)(float *x, const float *bias, int64_t N, int64_t V);   /* x_NV += bias_V */
  void (*column_sums)(float *out, const float *x, int64_t N, int64_t V); /* out_V = */
  void (*soft_cap)(float *x, int64_t n, float cap);
  void (*cross_entropy)(float *row_loss, float *dlogits, const struct plm_loss_rows *rows);

  /* ---- heads for labels ---- */
  void (*pool)(void *out, const void *x, int64_t N, int64_t D); /* the mean of N rows, N > 0 */
  /* N rows of dx += dout / N */
  void (*pool_backward)(void *dx, const void *dout, int64_t N, int64_t D);
  void (*tanh_forward)(void *out, const void *x, int64_t n);
  void (*tanh_backward)(void *dx, const void *dy, const void *y, int64_t n);
  void (*dropout)(void *out, const void *x, const struct plm_dropout *dropout, uint64_t key,
                  int64_t D);
  /* One row; dlogits may be NULL. squared_error and binary_losses are NaN-safe: a NaN target is
   * left out. weights (O) may be NULL. */
  float (*squared_error)(float *dlogits, const float *outputs, const float *targets,
                         const float *weights, float scale, int64_t O);
  float (*binary_losses)(float *dlogits, const float *outputs, const float *targets,
                         const float *weights, float scale, int64_t O);

  /* ---- optimizer, fp32 ---- */
  double (*sum_squares)(const float *x, int64_t n);
  /* elements [begin, begin + n) of ops->sum_parts */
  void (*sum_parts)(float *to, const float *const *parts, uint32_t count, int64_t begin, int64_t n);
  void (*adam)(float *w, float *m, float *v, const float *g, int64_t n,
               const struct plm_cpu_adam *options);
  void (*ema)(float *average, const float *w, float decay, int64_t n);
  /* buf = lerp(buf, scale g, 1 - m); out = lerp(scale g, buf, m) */
  void (*nesterov)(float *out, float *buffer, const float *g, float scale, float m, int64_t n);
  /* out = x factor, as activations: the iterates of Newton-Schulz */
  void (*scale_to)(void *out, const float *x, float factor, int64_t n);
  /* out = a x + c y; x and out are activations, y is fp32 */
  void (*combine)(void *out, const void *x, const float *y, float a, float c, int64_t n);
  /* out (cols, rows) = in (rows, cols)^T; strides are elements between rows */
  void (*transpose)(void *out, int64_t out_stride, const void *in, int64_t in_stride, int64_t rows,
                    int64_t cols);
  /* w = w (1 - decay) - rate u */
  void (*decay_update)(float *w, const void *u, float decay, float rate, int64_t n);
};

/* Each function, defined in isa/, sets one part of the kernels for one instruction set. */
#define PLM_CPU_VECTOR_FILLS(X) \
  X(elementwise) X(norm) X(layer_norm) X(qkv) X(attend) X(table) X(loss) X(labels) X(optimizer)
#define PLM_CPU_DECLARE_FILL(part, isa) \
  void plm_cpu_fill_##part##_##isa(struct plm_cpu_vector *vector, bool is_bf16);
#define PLM_CPU_DECLARE_FILLS(part)    \
  PLM_CPU_DECLARE_FILL(part, portable) \
  PLM_CPU_DECLARE_FILL(part, avx2)     \
  PLM_CPU_DECLARE_FILL(part, avx512)
PLM_CPU_VECTOR_FILLS(PLM_CPU_DECLARE_FILLS)

#endif
