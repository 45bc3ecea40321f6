/* A small reverse-mode tape of double-precision tensors, for the reference model. Every operation
 * is a few plain loops; nothing is shared with common/model or kernels/. Tensors are (rows, width),
 * row-major, and live until the tape is closed. */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_TAPE_H
#define PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_TAPE_H

#include <stdbool.h>
#include <stdint.h>

/* Backward paths that a test can leave out to check that its comparison fails. */
enum reference_fault {
  REFERENCE_NO_FAULT,
  REFERENCE_FAULT_X0,              /* no gradient into x0 */
  REFERENCE_FAULT_VALUE_EMBEDDING, /* … into the value embedding */
  REFERENCE_FAULT_QK_NORM,         /* the norm of q and k passes gradients unchanged */
  REFERENCE_FAULT_ROTARY,          /* rotary embedding passes gradients unchanged */
  REFERENCE_FAULT_SKIP,            /* no gradient into the skip connection's input */
  REFERENCE_FAULT_MERGE,           /* … through PatchMerge */
  REFERENCE_FAULT_EXPAND,          /* … through PatchExpand */
  REFERENCE_FAULT_COUNT
};

struct tape;
struct tensor {
  int64_t rows, width;
  double *value, *gradient;
};

struct tape *tape_open(void);
void tape_close(struct tape *tape);
/* Runs all operations backwards. The caller has set the gradient of the last one. */
void tape_backward(struct tape *tape);

/* A leaf. value is copied; the caller reads the gradient before the tape is closed. */
struct tensor *tape_leaf(struct tape *tape, const double *value, int64_t rows, int64_t width);
/* x w^T. With `blocked`, w gets a gradient, but x does not. */
struct tensor *tape_linear(struct tape *tape, struct tensor *x, struct tensor *w, bool blocked);
/* The same elements as (rows * width / to, to). */
struct tensor *tape_view(struct tape *tape, struct tensor *x, int64_t to);
/* RMSNorm over the last axis. With `transparent`, the gradient passes unchanged. */
struct tensor *tape_norm(struct tape *tape, struct tensor *x, bool transparent);
struct tensor *tape_add(struct tape *tape, struct tensor *x, struct tensor *y);
/* c[0] x + c[1] y. With `blocked`, y gets no gradient. */
struct tensor *tape_mix(struct tape *tape, struct tensor *x, struct tensor *y, struct tensor *c,
                        bool blocked);
/* x + c[i] y */
struct tensor *tape_add_scaled(struct tape *tape, struct tensor *x, struct tensor *y,
                               struct tensor *c, int64_t i, bool blocked);
/* weight (x - mean) / sqrt(variance + eps) + bias over the last axis. bias may be NULL. */
struct tensor *tape_layer_norm(struct tape *tape, struct tensor *x, struct tensor *weight,
                               struct tensor *bias, double eps);
/* Row n of x times factors[n], which are constants. */
struct tensor *tape_scale_rows(struct tape *tape, struct tensor *x, const double *factors);
/* gate / (1 + exp(-gate)) * up */
struct tensor *tape_swiglu(struct tape *tape, struct tensor *gate, struct tensor *up);
struct tensor *tape_relu2(struct tape *tape, struct tensor *x);
struct tensor *tape_gelu(struct tape *tape, struct tensor *x);
/* x + bias, the same in each row */
struct tensor *tape_bias(struct tape *tape, struct tensor *x, struct tensor *bias);
struct tensor *tape_cap(struct tape *tape, struct tensor *x, double cap); /* c tanh(x / c) */
/* x with one row set to 0 */
struct tensor *tape_zero_row(struct tape *tape, struct tensor *x, int64_t row);
/* row n: mean of table[tokens[n g .. n g + g - 1]] */
struct tensor *tape_group_mean(struct tape *tape, struct tensor *table, const int32_t *tokens,
                               int64_t rows, int64_t g);
struct tensor *tape_rows(struct tape *tape, struct tensor *x, const int32_t *rows, int64_t count);
/* Rotary on (B L, H K); position is the row mod L. sign 1: (a cos - b sin, b cos + a sin), as in
 * transformers; -1: by the opposite angle, as in ours. */
struct tensor *tape_rotary(struct tape *tape, struct tensor *x, int64_t L, int64_t H, int sign,
                           bool transparent);
/* Softmax attention on (B L, H K). allowed is (B, L, L); a query without keys gives 0. */
struct tensor *tape_attention(struct tape *tape, struct tensor *q, struct tensor *k,
                              struct tensor *v, const bool *allowed, int64_t B, int64_t L,
                              int64_t H);
/* Sum over rows of weight * ((1-s)(lse - x[label]) + s (lse - mean x) + z lse^2); one number. */
struct tensor *tape_cross_entropy(struct tape *tape, struct tensor *x, const int32_t *labels,
                                  const float *weights, double smoothing, double z_loss);

#endif
