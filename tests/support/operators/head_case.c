/* Runs the head's operators on seeded operands and checks the results; see head_case.h. */
#include "tests/support/operators/head_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/reference/reference_ops.h"

static double *weights_of(struct ops_case *c, int64_t N)
{
  double *weights = ops_case_values(c, N, 1);
  for (int64_t n = 0; n < N; n++) weights[n] = n % 3 == 1 ? 0 : fabs(weights[n]);
  return weights;
}

static int32_t *labels_of(struct ops_case *c, int64_t N, int64_t V)
{
  int32_t *labels = ops_case_integers(c, N, (int32_t)V);
  if (N > 0) labels[0] = (int32_t)V - 1; /* so that the last label always occurs */
  return labels;
}

void head_case_logits(struct ops_case *c, int64_t N, int64_t D, int64_t V)
{
  double *h = ops_case_values(c, N * D, 1), *w = ops_case_values(c, V * D, 1 / sqrt((double)D));
  double *bias = ops_case_values(c, V, 1), *exact = ops_case_zeros(c, N * V);
  const void *h_act = ops_case_act(c, h, N * D), *w_act = ops_case_act(c, w, V * D);
  const float *bias_float = ops_case_float(c, bias, V);
  float *logits = ops_case_empty_float(c, N * V);
  reference_linear(exact, h, w, N, D, V);
  for (int64_t i = 0; i < N * V; i++) exact[i] += bias[i % V];
  c->ops->logits_forward(c->ops, logits, h_act, w_act, bias_float, N, D, V);
  ops_case_check_float(c, "logits", logits, exact, N * V, 8);
}

void head_case_loss(struct ops_case *c, int64_t N, int64_t V, const struct plm_loss_options *o,
                    double deviation)
{
  double *raw = ops_case_values(c, N * V, deviation), *weights = weights_of(c, N);
  int32_t *labels = labels_of(c, N, V);
  const int32_t *labels_device = ops_case_device(c, labels, (size_t)N * sizeof *labels);
  float *logits = ops_case_float(c, raw, N * V), *got = ops_case_empty_float(c, N);
  const float *weights_float = ops_case_float(c, weights, N);
  const struct reference_loss loss = {
      labels, weights, 1, (double)o->soft_cap, (double)o->label_smoothing, (double)o->z_loss, N, V};
  double *row_loss = ops_case_zeros(c, N), *unused = ops_case_zeros(c, N * V);
  reference_cross_entropy(row_loss, unused, raw, &loss);
  c->ops->soft_cap_forward(c->ops, logits, N * V, o->soft_cap);
  c->ops->cross_entropy(c->ops, got, logits, labels_device, weights_float, o, N, V);
  ops_case_check_float(c, "loss", got, row_loss, N, 16);
}

/* The operands of head_train on the host, and its expected results. */
struct expected {
  double *dense, *w, *bias, *weights;
  int32_t *labels;
  double *row_loss, *ddense, *dw, *dbias;
};

/* Whether no logit is larger than the label's, by the device's own logits: they are the same bits.
 */
static void check_hits(struct ops_case *c, const float *device_hits, const float *device_logits,
                       const struct expected *e, int64_t N, int64_t V)
{
  float *logits = calloc((size_t)(N * V), sizeof *logits), *hits = calloc((size_t)N, sizeof *hits);
  assert_true(logits != NULL && hits != NULL);
  c->ops->download(c->ops, logits, device_logits, (size_t)(N * V) * sizeof *logits);
  c->ops->download(c->ops, hits, device_hits, (size_t)N * sizeof *hits);
  assert_int_equal(c->ops->synchronize(c->ops, NULL), PLM_OK);
  for (int64_t n = 0; n < N; n++) {
    bool hit = e->weights[n] != 0;
    for (int64_t v = 0; v < V; v++) hit = hit && logits[n * V + v] <= logits[n * V + e->labels[n]];
    assert_true(hits[n] == (hit ? 1.0F : 0.0F));
  }
  free(logits);
  free(hits);
}

static const float SCALE = 0.25f;

/* Computes the expected results from the decoder's input, which is GELU's rounded output. */
static void expect(struct ops_case *c, const struct head_case *head, const double *gelu,
                   struct expected *e)
{
  const int64_t N = head->N, D = head->D, V = head->V;
  const struct plm_loss_options *o = &head->options;
  const struct reference_loss loss = {e->labels,
                                      e->weights,
                                      (double)SCALE,
                                      (double)o->soft_cap,
                                      (double)o->label_smoothing,
                                      (double)o->z_loss,
                                      N,
                                      V};
  double *logits = ops_case_zeros(c, N * V), *dlogits = ops_case_zeros(c, N * V);
  double *dw = ops_case_zeros(c, V * D);
  reference_linear(logits, gelu, e->w, N, D, V);
  for (int64_t i = 0; i < N * V; i++) logits[i] += e->bias[i % V];
  e->row_loss = ops_case_zeros(c, N);
  e->ddense = ops_case_zeros(c, N * D);
  reference_cross_entropy(e->row_loss, dlogits, logits, &loss);
  reference_linear_backward_input(e->ddense, dlogits, e->w, N, D, V);
  reference_linear_backward_weight(dw, dlogits, gelu, N, D, V);
  for (int64_t i = 0; i < N * D && !head->activated; i++)
    e->ddense[i] *= reference_gelu_slope(e->dense[i]);
  for (int64_t i = 0; i < V * D; i++) e->dw[i] += dw[i];
  for (int64_t i = 0; i < N * V; i++) e->dbias[i % V] += dlogits[i];
}

void head_case_train(struct ops_case *c, const struct head_case *head)
{
  const int64_t N = head->N, D = head->D, V = head->V;
  const struct plm_loss_options *o = &head->options;
  struct expected e = {.dense = ops_case_values(c, N * D, head->deviation),
                       .w = ops_case_values(c, V * D, 1 / sqrt((double)D)),
                       .bias = ops_case_values(c, V, 1),
                       .weights = weights_of(c, N),
                       .labels = labels_of(c, N, V),
                       .dw = ops_case_values(c, V * D, 1),
                       .dbias = ops_case_values(c, V, 1)};
  const struct plm_head_rows rows = {.dense = ops_case_act(c, e.dense, N * D),
                                     .w = ops_case_act(c, e.w, V * D),
                                     .bias = ops_case_float(c, e.bias, V),
                                     .labels =
                                         ops_case_device(c, e.labels, (size_t)N * sizeof *e.labels),
                                     .weights = ops_case_float(c, e.weights, N),
                                     .N = N,
                                     .D = D,
                                     .V = V,
                                     .hits = ops_case_empty_float(c, N),
                                     .activated = head->activated};
  float *dw = ops_case_float(c, e.dw, V * D), *dbias = ops_case_float(c, e.dbias, V);
  float *row_loss = ops_case_empty_float(c, N), *alone = ops_case_empty_float(c, N);
  float *logits = ops_case_empty_float(c, N * V);
  void *ddense = ops_case_empty_act(c, N * D), *gelu = ops_case_empty_act(c, N * D);
  if (head->activated)
    c->ops->copy(c->ops, gelu, rows.dense, (size_t)(N * D) * c->ops->act_bytes);
  else
    c->ops->gelu_forward(c->ops, gelu, rows.dense, N * D);
  c->ops->logits_forward(c->ops, logits, gelu, rows.w, rows.bias, N, D, V);
  c->ops->soft_cap_forward(c->ops, logits, N * V, o->soft_cap);
  c->ops->cross_entropy(c->ops, alone, logits, rows.labels, rows.weights, o, N, V);
  expect(c, head, ops_case_read(c, gelu, N * D), &e);

  c->ops->head_train(c->ops, row_loss, ddense, dw, dbias, &rows, SCALE, o);
  ops_case_check_same(c, row_loss, alone, (size_t)N * sizeof *row_loss);
  check_hits(c, rows.hits, logits, &e, N, V);
  ops_case_check_float(c, "loss in training", row_loss, e.row_loss, N, 16);
  /* the rounding error of a logit becomes an absolute error of the gradient */
  ops_case_check_act(c, "ddense", ddense, e.ddense, N * D, 64);
  ops_case_check_float(c, "dw of the head", dw, e.dw, V * D, 64);
  ops_case_check_float(c, "dbias", dbias, e.dbias, V, 64);
}
