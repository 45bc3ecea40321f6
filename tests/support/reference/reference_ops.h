/* The operators of common/ops/ops.h in double precision: plain loops that share no code with the
 * kernels. Shapes and meanings are those of ops.h, but gradients are written, never added. */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_OPS_H
#define PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_OPS_H

#include <stdint.h>

#include "common/ops/label_operands.h"
#include "common/ops/operands.h"

void reference_linear(double *y, const double *x, const double *w, int64_t N, int64_t I, int64_t O);
void reference_linear_backward_input(double *dx, const double *dy, const double *w, int64_t N,
                                     int64_t I, int64_t O);
void reference_linear_backward_weight(double *dw, const double *dy, const double *x, int64_t N,
                                      int64_t I, int64_t O);

void reference_norm(double *out, const double *x, int64_t N, int64_t D);
void reference_norm_backward(double *dx, const double *dh, const double *x, int64_t N, int64_t D);

struct reference_layer_norm {
  const double *weight, *bias; /* bias is NULL if there is none */
  double eps;
};
void reference_layer_norm(double *out, const double *x, const struct reference_layer_norm *norm,
                          int64_t N, int64_t D);
void reference_layer_norm_backward(double *dx, double *dweight, double *dbias, const double *dh,
                                   const double *x, const struct reference_layer_norm *norm,
                                   int64_t N, int64_t D);

void reference_token_mean(double *out, const double *table, const int32_t *tokens, int64_t N,
                          int64_t D, int level);
void reference_token_mean_backward(double *dtable, const double *dout, const int32_t *tokens,
                                   int64_t N, int64_t D, int64_t V, int level);

struct reference_qkv {
  const double *qkv, *vi; /* vi is NULL if there is no mix */
  double a[2];
  const double *cosine, *sine;
  int64_t B, L, H, K;
  enum plm_qk_norm norm; /* the rest is read only with PLM_QK_NORM_WIDTH */
  double eps;
  const double *q_weight, *k_weight;
  double *dq_weight, *dk_weight;
};
void reference_qkv_prepare(double *out, const struct reference_qkv *in);
void reference_qkv_prepare_backward(double *dqkv_raw, double *dvi, double da[2], const double *dqkv,
                                    const struct reference_qkv *in);

/* Each row's query attends to keys and values [begin, end) of its slot. The caches (slots, H,
 * capacity, K) already contain the rows' own keys and values. out is (rows, HK). */
struct reference_cached {
  const double *q, *key_cache, *value_cache; /* q (rows, HK) */
  const int32_t *slots, *begin, *end;
  int64_t rows, H, K, capacity;
};
void reference_attention_cached(double *out, const struct reference_cached *in);

double reference_relu2(double x);
double reference_relu2_slope(double x);
double reference_gelu(double x);
double reference_gelu_slope(double x);
void reference_swiglu(double *hidden, const double *gate_up, int64_t N, int64_t F);
void reference_swiglu_backward(double *dgate_up, const double *dhidden, const double *gate_up,
                               int64_t N, int64_t F);

struct reference_loss {
  const int32_t *labels;
  const double *weights;
  double scale, soft_cap, label_smoothing, z_loss;
  int64_t N, V;
};
/* logits are those before the cap, and dlogits the gradient with respect to them */
void reference_cross_entropy(double *row_loss, double *dlogits, const double *logits,
                             const struct reference_loss *loss);

/* Labels for rows with O outputs each; the fields that `kind` does not read may be NULL. */
struct reference_labels {
  enum plm_label_loss kind;
  const int32_t *classes;
  const double *targets, *weights; /* weights: NULL: all are 1 */
  double scale;
  int64_t N, O;
};
void reference_label_loss(double *row_loss, double *dlogits, const double *outputs,
                          const struct reference_labels *labels);
/* out[r] = the mean of rows [begin[r], end[r]) of x, and the gradient of x (N rows) */
void reference_pool(double *out, const double *x, const int32_t *begin, const int32_t *end,
                    int64_t R, int64_t D);
void reference_pool_backward(double *dx, const double *dout, const int32_t *begin,
                             const int32_t *end, int64_t R, int64_t N, int64_t D);

struct reference_muon {
  double lr, momentum, weight_decay, gradient_scale, update_scale;
};
void reference_muon_step(double *w, double *momentum, const double *g, int64_t rows, int64_t cols,
                         const struct reference_muon *options);

#endif
