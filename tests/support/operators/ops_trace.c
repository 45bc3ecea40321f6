/* Replaces the operators of a backend by ones that measure them; see ops_trace.h. */
#include "tests/support/operators/ops_trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/support/harness/must.h"

enum { MOST_ROWS = 256 };
static struct plm_ops inner; /* the original operators */
static struct ops_trace_row rows[MOST_ROWS];
static unsigned row_count, depth;
static uint64_t began_ns;
static double took_s;
static double wait_s; /* shortest time of a small launch and the wait for it */

static void begin(struct plm_ops *ops)
{
  if (depth++ > 0) return;
  (void)ops->synchronize(ops, NULL);
  began_ns = plm_clock_ns();
}

static struct ops_trace_row *row_of(const char *name)
{
  for (unsigned i = 0; i < row_count; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  PLM_ASSERT(row_count < MOST_ROWS);
  struct ops_trace_row *row = &rows[row_count++];
  *row = (struct ops_trace_row){0};
  (void)snprintf(row->name, sizeof row->name, "%s", name);
  return row;
}

static void stop(struct plm_ops *ops)
{
  if (--depth > 0) return;
  (void)ops->synchronize(ops, NULL);
  took_s = 1e-9 * (double)(plm_clock_ns() - began_ns) - wait_s;
}

static void tally(const char *name, double bytes, double flops)
{
  if (depth > 0) return;
  struct ops_trace_row *row = row_of(name);
  row->calls++;
  row->seconds += took_s > 0 ? took_s : 0;
  row->bytes += bytes;
  row->flops += flops;
}

static const char *shaped(const char *name, int64_t a, int64_t b, int64_t c)
{
  static char text[96];
  (void)snprintf(text, sizeof text, "%s %lld x %lld x %lld", name, (long long)a, (long long)b,
                 (long long)c);
  return text;
}

/* The number of pairs that a mask in the device's memory allows. Remembers its last answer. */
static double pairs_of(struct plm_ops *ops, const struct plm_interval_mask *mask)
{
  static const int32_t *known;
  static double pairs;
  if (known == mask->key_begin) return pairs;
  const size_t n = (size_t)mask->B * (size_t)mask->L;
  int32_t *ends = must(malloc(2 * n * sizeof *ends));
  ops->download(ops, ends, mask->key_begin, n * sizeof *ends);
  ops->download(ops, ends + n, mask->key_end, n * sizeof *ends);
  pairs = 0;
  for (size_t i = 0; i < n; i++) pairs += ends[n + i] - ends[i];
  free(ends);
  known = mask->key_begin;
  return pairs;
}

static double qkv_elements(const struct plm_qkv *in)
{
  return (double)(in->B * in->L * in->H * in->K);
}

#define A ((double)inner.act_bytes)
#define ND ((double)N * (double)D)

/* TRACED(operator, parameters, arguments, name, bytes, operations) */
#define TRACED(operator_, parameters, arguments, name_, bytes_, flops_) \
  static void traced_##operator_ parameters                             \
  {                                                                     \
    begin(ops);                                                         \
    inner.operator_ arguments;                                          \
    stop(ops);                                                          \
    tally(name_, bytes_, flops_);                                       \
  }

TRACED(zero, (struct plm_ops * ops, void *buffer, size_t bytes), (ops, buffer, bytes), "zero",
       (double)bytes, 0)
TRACED(copy, (struct plm_ops * ops, void *to, const void *from, size_t bytes),
       (ops, to, from, bytes), "copy", 2.0 * (double)bytes, 0)
TRACED(upload, (struct plm_ops * ops, void *device, const void *host, size_t bytes),
       (ops, device, host, bytes), "upload", (double)bytes, 0)
TRACED(round_weights, (struct plm_ops * ops, act *out, const float *in, size_t n),
       (ops, out, in, n), "round_weights", (double)n *(4 + A), 0)
TRACED(linear_forward,
       (struct plm_ops * ops, act *y, const act *x, const act *w, const act *residual, int64_t N,
        int64_t I, int64_t O),
       (ops, y, x, w, residual, N, I, O), shaped("linear_forward", N, I, O),
       A *((double)(N *I + O * I) + (residual != NULL ? 2.0 : 1.0) * (double)(N * O)),
       2.0 * (double)N * (double)I * (double)O)
TRACED(linear_backward_input,
       (struct plm_ops * ops, act *dx, const act *dy, const act *w, int64_t N, int64_t I, int64_t O,
        bool accumulate),
       (ops, dx, dy, w, N, I, O, accumulate), shaped("linear_backward_input", N, I, O),
       A *((double)(N *O + O * I) + (accumulate ? 2.0 : 1.0) * (double)(N * I)),
       2.0 * (double)N * (double)I * (double)O)
TRACED(linear_relu2_forward,
       (struct plm_ops * ops, act *hidden, const act *x, const act *w, int64_t N, int64_t I,
        int64_t O),
       (ops, hidden, x, w, N, I, O), shaped("linear_relu2_forward", N, I, O),
       A *(double)(N *I + O * I + N * O), 2.0 * (double)N * (double)I * (double)O)
TRACED(linear_relu2_backward_input,
       (struct plm_ops * ops, act *dup, const act *dy, const act *w, const act *hidden, int64_t N,
        int64_t I, int64_t O),
       (ops, dup, dy, w, hidden, N, I, O), shaped("linear_relu2_backward_input", N, I, O),
       A *(double)(N *O + O * I + 2 * N * I), 2.0 * (double)N * (double)I * (double)O)
TRACED(linear_backward_weight,
       (struct plm_ops * ops, float *dw, const act *dy, const act *x, int64_t N, int64_t I,
        int64_t O),
       (ops, dw, dy, x, N, I, O), shaped("linear_backward_weight", N, I, O),
       A *(double)(N *O + N * I) + 8.0 * (double)(O * I), 2.0 * (double)N * (double)I * (double)O)
#define PRODUCT (2.0 * (double)N * (double)I * (double)O)
TRACED(linear_bias_forward,
       (struct plm_ops * ops, act *y, const act *x, const struct plm_biased_linear *layer,
        const act *residual, int64_t N, int64_t I, int64_t O),
       (ops, y, x, layer, residual, N, I, O), shaped("linear_bias_forward", N, I, O),
       A *((double)(N *I + O * I) + (residual != NULL ? 2.0 : 1.0) * (double)(N * O)), PRODUCT)
TRACED(linear_bias_gelu_forward,
       (struct plm_ops * ops, act *hidden, act *before, const act *x,
        const struct plm_biased_linear *layer, int64_t N, int64_t I, int64_t O),
       (ops, hidden, before, x, layer, N, I, O), shaped("linear_bias_gelu_forward", N, I, O),
       A *((double)(N *I + O * I) + (before != NULL ? 2.0 : 1.0) * (double)(N * O)), PRODUCT)
TRACED(linear_gelu_backward_input,
       (struct plm_ops * ops, act *dbefore, const act *dy, const act *w, const act *before,
        int64_t N, int64_t I, int64_t O),
       (ops, dbefore, dy, w, before, N, I, O), shaped("linear_gelu_backward_input", N, I, O),
       A *(double)(N *O + O * I + 2 * N * I), PRODUCT)
#undef PRODUCT
TRACED(bias_backward, (struct plm_ops * ops, float *dbias, const act *dy, int64_t N, int64_t O),
       (ops, dbias, dy, N, O), "bias_backward", A *(double)(N *O), 0)
TRACED(layer_norm_forward,
       (struct plm_ops * ops, act *out, const act *x, const struct plm_layer_norm *norm, int64_t N,
        int64_t D),
       (ops, out, x, norm, N, D), "layer_norm_forward", 2 * A * ND, 0)
TRACED(layer_norm_backward,
       (struct plm_ops * ops, act *dx, const struct plm_layer_norm_gradients *to, const act *dh,
        const act *x, const struct plm_layer_norm *norm, int64_t N, int64_t D),
       (ops, dx, to, dh, x, norm, N, D), "layer_norm_backward", 4 * A * ND, 0)
TRACED(swiglu_forward,
       (struct plm_ops * ops, act *hidden, const act *gate_up, int64_t N, int64_t F),
       (ops, hidden, gate_up, N, F), "swiglu_forward", 3 * A * (double)(N * F), 0)
TRACED(swiglu_backward,
       (struct plm_ops * ops, act *dgate_up, const act *dhidden, const act *gate_up, int64_t N,
        int64_t F),
       (ops, dgate_up, dhidden, gate_up, N, F), "swiglu_backward", 5 * A * (double)(N * F), 0)
TRACED(gelu_backward, (struct plm_ops * ops, act *dx, const act *dy, const act *x, int64_t n),
       (ops, dx, dy, x, n), "gelu_backward", 3 * A * (double)n, 0)
TRACED(scale_rows, (struct plm_ops * ops, act *x, const float *factors, int64_t N, int64_t D),
       (ops, x, factors, N, D), "scale_rows", 2 * A * ND, 0)
TRACED(norm_forward, (struct plm_ops * ops, act *out, const act *x, int64_t N, int64_t D),
       (ops, out, x, N, D), "norm_forward", 2 * A * ND, 0)
TRACED(norm_backward,
       (struct plm_ops * ops, act *dx, const act *dh, const act *x, int64_t N, int64_t D),
       (ops, dx, dh, x, N, D), "norm_backward", 4 * A * ND, 0)
TRACED(mix_norm_forward,
       (struct plm_ops * ops, act *mixed, act *h, const struct plm_mix *mix, int64_t N, int64_t D),
       (ops, mixed, h, mix, N, D), "mix_norm_forward",
       (3 + (mix->p_rows == NULL ? 1 : 0) + (mix->skip != NULL ? 1 : 0)) * A * ND, 0)
TRACED(mix_norm_backward,
       (struct plm_ops * ops, const struct plm_mix_gradients *to, act *dmixed, const act *dh,
        const struct plm_mix *mix, int64_t N, int64_t D),
       (ops, to, dmixed, dh, mix, N, D), "mix_norm_backward",
       (6 + (mix->p_rows == NULL ? 1 : 0) + (mix->skip != NULL ? 2 : 0) +
        (to->more != NULL && to->more != to->dskip ? 1 : 0)) *
           A * ND,
       0)
TRACED(token_mean_forward,
       (struct plm_ops * ops, act *out, const float *table, const int32_t *tokens, int64_t N,
        int64_t D, int64_t V, int level),
       (ops, out, table, tokens, N, D, V, level), "token_mean_forward",
       A *ND + 4.0 * (double)(N << level), 0)
TRACED(token_mean_backward,
       (struct plm_ops * ops, float *dtable, const act *dout, const int32_t *tokens, int64_t N,
        int64_t D, int64_t V, int level),
       (ops, dtable, dout, tokens, N, D, V, level), "token_mean_backward",
       A *ND + 4.0 * (double)(N << level), 0)
TRACED(qkv_prepare_forward, (struct plm_ops * ops, act *out, const struct plm_qkv *in),
       (ops, out, in), "qkv_prepare_forward", qkv_elements(in) * A * (in->vi != NULL ? 7 : 6), 0)
TRACED(qkv_prepare_backward,
       (struct plm_ops * ops, act *dqkv_raw, act *dvi, float *da, const act *dqkv,
        const struct plm_qkv *in),
       (ops, dqkv_raw, dvi, da, dqkv, in), "qkv_prepare_backward",
       qkv_elements(in) * A * (in->vi != NULL ? 11 : 8), 0)
TRACED(qkv_value_forward,
       (struct plm_ops * ops, act *out, const struct plm_qkv *in,
        const struct plm_value_table *value),
       (ops, out, in, value), "qkv_value_forward", 6 * A * qkv_elements(in), 0)
TRACED(qkv_value_backward,
       (struct plm_ops * ops, act *dqkv_raw, float *dtable, float *da, const act *dqkv,
        const struct plm_qkv *in, const struct plm_value_table *value),
       (ops, dqkv_raw, dtable, da, dqkv, in, value), "qkv_value_backward", 9 * A * qkv_elements(in),
       0)
TRACED(attention_forward,
       (struct plm_ops * ops, act *out, float *lse, const struct plm_attention_inputs *in,
        const struct plm_interval_mask *mask, const struct plm_attention_shape *shape),
       (ops, out, lse, in, mask, shape), shaped("attention_forward", shape->L, shape->H, shape->K),
       4 * A * (double)shape->B * shape->L * shape->H * shape->K,
       4.0 * pairs_of(ops, mask) * shape->H * shape->K)
TRACED(attention_backward,
       (struct plm_ops * ops, const struct plm_attention_gradients *to, const act *dout,
        const act *out, const float *lse, const struct plm_attention_inputs *in,
        const struct plm_interval_mask *mask, const struct plm_attention_shape *shape),
       (ops, to, dout, out, lse, in, mask, shape),
       shaped("attention_backward", shape->L, shape->H, shape->K),
       8 * A * (double)shape->B * shape->L * shape->H * shape->K,
       10.0 * pairs_of(ops, mask) * shape->H * shape->K)
TRACED(gelu_forward, (struct plm_ops * ops, act *out, const act *x, int64_t n), (ops, out, x, n),
       "gelu_forward", 2 * A * (double)n, 0)
TRACED(add, (struct plm_ops * ops, act *x, const act *y, int64_t n), (ops, x, y, n), "add",
       3 * A * (double)n, 0)
TRACED(gather_rows,
       (struct plm_ops * ops, act *out, const act *x, const int32_t *from, int64_t N, int64_t D),
       (ops, out, x, from, N, D), "gather_rows", 2 * A * ND, 0)
TRACED(scatter_rows,
       (struct plm_ops * ops, act *out, const act *x, const int32_t *to, int64_t N, int64_t D),
       (ops, out, x, to, N, D), "scatter_rows", 3 * A * ND, 0)
TRACED(logits_forward,
       (struct plm_ops * ops, float *logits, const act *h, const act *w, const float *bias,
        int64_t N, int64_t D, int64_t V),
       (ops, logits, h, w, bias, N, D, V), "logits_forward", A *ND + 4.0 * (double)(N * V),
       2.0 * ND * (double)V)
TRACED(soft_cap_forward, (struct plm_ops * ops, float *logits, int64_t n, float cap),
       (ops, logits, n, cap), "soft_cap_forward", 8.0 * (double)n, 0)
TRACED(cross_entropy,
       (struct plm_ops * ops, float *row_loss, const float *logits, const int32_t *labels,
        const float *weights, const struct plm_loss_options *options, int64_t N, int64_t V),
       (ops, row_loss, logits, labels, weights, options, N, V), "cross_entropy",
       4.0 * (double)(N * V), 0)
TRACED(head_train,
       (struct plm_ops * ops, float *row_loss, act *ddense, float *dw, float *dbias,
        const struct plm_head_rows *head, float loss_scale, const struct plm_loss_options *options),
       (ops, row_loss, ddense, dw, dbias, head, loss_scale, options), "head_train",
       2 * A * (double)(head->N * head->D), 6.0 * (double)(head->N * head->D * head->V))
TRACED(sum_parts,
       (struct plm_ops * ops, float *to, const float *const *parts, uint32_t count, size_t n),
       (ops, to, parts, count, n), "sum_parts", 4.0 * (count + 1) * (double)n, 0)
TRACED(float_to_bf16, (struct plm_ops * ops, bf16 *out, const float *in, size_t n),
       (ops, out, in, n), "float_to_bf16", 6.0 * (double)n, 0)
TRACED(bf16_to_float, (struct plm_ops * ops, float *out, const bf16 *in, size_t n),
       (ops, out, in, n), "bf16_to_float", 6.0 * (double)n, 0)
TRACED(adam_step,
       (struct plm_ops * ops, const struct plm_adam_tensor *tensors, size_t count,
        const struct plm_adam_options *options, const struct plm_update *update),
       (ops, tensors, count, options, update), "adam_step", 0, 0)

/* Counts a read of the gradient, and a read and a write of momentum and weights, in fp32. Each of
 * the five steps has three products. */
static void traced_muon_step(struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                             size_t count, float *scratch, const struct plm_update *update)
{
  double bytes = 0, flops = 0;
  for (size_t i = 0; i < count; i++) {
    const double m = (double)matrices[i].rows, n = (double)matrices[i].cols;
    const double low = fmin(m, n), high = fmax(m, n);
    bytes += 20 * m * n;
    flops += 5 * (2 * low * low * high + 2 * low * low * low + 2 * low * low * high);
  }
  begin(ops);
  inner.muon_step(ops, matrices, count, scratch, update);
  stop(ops);
  tally("muon_step", bytes, flops);
}

static void traced_sum_squares(struct plm_ops *ops, double *sums, const struct plm_array *vectors,
                               size_t count)
{
  double bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += 4.0 * (double)vectors[i].n;
  begin(ops);
  inner.sum_squares(ops, sums, vectors, count);
  stop(ops);
  tally("sum_squares", bytes, 0);
}

static void measure_waits(struct plm_ops *ops)
{
  enum { ROUNDS = 16 };
  void *buffer;
  wait_s = INFINITY;
  if (ops->allocate(ops, 256, &buffer, NULL) != PLM_OK) exit(1);
  for (int i = 0; i < ROUNDS; i++) {
    (void)ops->synchronize(ops, NULL);
    const uint64_t began = plm_clock_ns();
    ops->zero(ops, buffer, 256);
    (void)ops->synchronize(ops, NULL);
    wait_s = fmin(wait_s, 1e-9 * (double)(plm_clock_ns() - began));
  }
  ops->release(ops, buffer);
}

void ops_trace_begin(struct plm_ops *ops)
{
  row_count = depth = 0;
  measure_waits(ops);
  inner = *ops;
#define PUT(name) ops->name = traced_##name
  PUT(zero);
  PUT(copy);
  PUT(upload);
  PUT(round_weights);
  PUT(linear_forward);
  PUT(linear_backward_input);
  PUT(linear_backward_weight);
  PUT(linear_bias_forward);
  PUT(linear_bias_gelu_forward);
  PUT(linear_gelu_backward_input);
  PUT(bias_backward);
  PUT(layer_norm_forward);
  PUT(layer_norm_backward);
  PUT(swiglu_forward);
  PUT(swiglu_backward);
  PUT(gelu_backward);
  PUT(scale_rows);
  PUT(norm_forward);
  PUT(norm_backward);
  PUT(mix_norm_forward);
  PUT(mix_norm_backward);
  PUT(token_mean_forward);
  PUT(token_mean_backward);
  PUT(qkv_prepare_forward);
  PUT(qkv_prepare_backward);
  PUT(qkv_value_forward);
  PUT(qkv_value_backward);
  PUT(attention_forward);
  PUT(attention_backward);
  PUT(linear_relu2_forward);
  PUT(linear_relu2_backward_input);
  PUT(gelu_forward);
  PUT(add);
  PUT(gather_rows);
  PUT(scatter_rows);
  PUT(logits_forward);
  PUT(soft_cap_forward);
  PUT(cross_entropy);
  PUT(head_train);
  PUT(sum_squares);
  PUT(sum_parts);
  PUT(float_to_bf16);
  PUT(bf16_to_float);
  PUT(adam_step);
  PUT(muon_step);
#undef PUT
}

static int longer(const void *a, const void *b)
{
  const struct ops_trace_row *x = a, *y = b;
  return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

const struct ops_trace_row *ops_trace_end(struct plm_ops *ops, unsigned *count)
{
  *ops = inner;
  qsort(rows, row_count, sizeof *rows, longer);
  *count = row_count;
  return rows;
}
