/* Runs LayerNorm and the preparation of q, k and v on seeded operands; see layer_norm_case.h. */
#include "tests/support/operators/layer_norm_case.h"

#include <math.h>

#include "tests/support/reference/reference_ops.h"

/* exact += before, for gradients that an operator accumulates */
static void add_to(double *exact, const double *before, int64_t n)
{
  for (int64_t i = 0; i < n; i++) exact[i] += before[i];
}

void layer_norm_case_run(struct ops_case *c, const struct layer_norm_case *layer)
{
  const int64_t N = layer->N, D = layer->D, n = N * D;
  double *x = ops_case_values(c, n, 1), *dh = ops_case_values(c, n, 1);
  double *weight = ops_case_values(c, D, 1), *bias = ops_case_values(c, D, 1);
  double *before = ops_case_values(c, n, 1), *exact = ops_case_zeros(c, n);
  double *dweight = ops_case_zeros(c, D), *dbias = ops_case_zeros(c, D);
  double *weight_before = ops_case_values(c, D, 1), *bias_before = ops_case_values(c, D, 1);
  for (int64_t i = 0; i < n; i++) x[i] += layer->mean;
  void *x_act = ops_case_act(c, x, n), *out = ops_case_empty_act(c, n);
  const void *dh_act = ops_case_act(c, dh, n);
  void *dx = ops_case_act(c, before, n);
  float *dweight_float = ops_case_float(c, weight_before, D);
  float *dbias_float = ops_case_float(c, bias_before, D);
  const struct plm_layer_norm norm = {.weight = ops_case_float(c, weight, D),
                                      .bias = layer->bias ? ops_case_float(c, bias, D) : NULL,
                                      .eps = 1e-5F};
  const struct reference_layer_norm reference = {weight, layer->bias ? bias : NULL, 1e-5};
  const double slack = 16 * (1 + fabs(layer->mean));
  reference_layer_norm(exact, x, &reference, N, D);
  c->ops->layer_norm_forward(c->ops, out, x_act, &norm, N, D);
  ops_case_check_act(c, "LayerNorm", out, exact, n, slack);

  reference_layer_norm_backward(exact, dweight, layer->bias ? dbias : NULL, dh, x, &reference, N,
                                D);
  add_to(exact, before, n);
  add_to(dweight, weight_before, D);
  add_to(dbias, bias_before, D);
  const struct plm_layer_norm_gradients to = {dweight_float, layer->bias ? dbias_float : NULL};
  c->ops->layer_norm_backward(c->ops, dx, &to, dh_act, x_act, &norm, N, D);
  ops_case_check_act(c, "LayerNorm backward", dx, exact, n, 2 * slack);
  ops_case_check_float(c, "LayerNorm dweight", dweight_float, dweight, D, 2 * slack);
  ops_case_check_float(c, "LayerNorm dbias", dbias_float, dbias, D, 2 * slack);
  c->ops->layer_norm_forward(c->ops, x_act, x_act, &norm, N, D); /* in place */
  ops_case_check_same(c, x_act, out, (size_t)n * c->ops->act_bytes);
}

void layer_norm_case_qkv(struct ops_case *c, const struct layer_norm_qkv *of)
{
  const int64_t B = of->B, L = of->L, H = of->H, K = of->K;
  const int64_t D = H * K, N = B * L, half = K / 2;
  double *qkv = ops_case_values(c, N * 3 * D, 1), *vi = ops_case_values(c, N * D, 1);
  double *cosine = ops_case_values(c, L * half, 1), *sine = ops_case_values(c, L * half, 1);
  double *weights = ops_case_values(c, 2 * D, 1), *before = ops_case_values(c, 2 * D, 1);
  double *dweights = ops_case_zeros(c, 2 * D);
  double a[2] = {0.6, 0.4}, none[2] = {0, 0}, da[2];
  const void *qkv_act = ops_case_act(c, qkv, N * 3 * D), *vi_act = ops_case_act(c, vi, N * D);
  const float *weights_float = ops_case_float(c, weights, 2 * D);
  float *dweights_float = ops_case_float(c, before, 2 * D);
  const struct plm_qkv given = {.qkv = qkv_act,
                                .vi = of->mix ? vi_act : NULL,
                                .a = ops_case_float(c, a, 2),
                                .cosine = ops_case_float(c, cosine, L * half),
                                .sine = ops_case_float(c, sine, L * half),
                                .B = B,
                                .L = L,
                                .H = H,
                                .K = K,
                                .norm = of->norm,
                                .eps = 1e-5F,
                                .q_weight = weights_float,
                                .k_weight = weights_float + D,
                                .dq_weight = dweights_float,
                                .dk_weight = dweights_float + D};
  const struct reference_qkv in = {.qkv = qkv,
                                   .vi = of->mix ? vi : NULL,
                                   .a = {a[0], a[1]},
                                   .cosine = cosine,
                                   .sine = sine,
                                   .B = B,
                                   .L = L,
                                   .H = H,
                                   .K = K,
                                   .norm = of->norm,
                                   .eps = 1e-5,
                                   .q_weight = weights,
                                   .k_weight = weights + D,
                                   .dq_weight = dweights,
                                   .dk_weight = dweights + D};
  void *out = ops_case_empty_act(c, N * 3 * D);
  double *exact = ops_case_zeros(c, N * 3 * D);
  reference_qkv_prepare(exact, &in);
  c->ops->qkv_prepare_forward(c->ops, out, &given);
  ops_case_check_act(c, "qkv", out, exact, N * 3 * D, 16);

  double *dqkv = ops_case_values(c, N * 3 * D, 1), *dvi = ops_case_zeros(c, N * D);
  void *dqkv_act = ops_case_act(c, dqkv, N * 3 * D), *dvi_act = ops_case_empty_act(c, N * D);
  float *da_float = ops_case_float(c, none, 2);
  reference_qkv_prepare_backward(exact, dvi, da, dqkv, &in);
  add_to(dweights, before, 2 * D);
  c->ops->qkv_prepare_backward(c->ops, dqkv_act, of->mix ? dvi_act : NULL, da_float, dqkv_act,
                               &given);
  ops_case_check_act(c, "dqkv", dqkv_act, exact, N * 3 * D, 32);
  ops_case_check_float(c, "gradients of the norms", dweights_float, dweights, 2 * D, 32);
  if (!of->mix) return;
  ops_case_check_act(c, "dvi", dvi_act, dvi, N * D, 1);
  ops_case_check_float(c, "da", da_float, da, 2, 10 * sqrt((double)(N * D)));
}
