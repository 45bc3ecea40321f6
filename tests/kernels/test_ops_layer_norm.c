/* Compares LayerNorm, the gradients of biases, and the kinds of norm of q and k with the reference
 * in double precision. */
#include <math.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/reference/reference_ops.h"

/* exact += before, for gradients that an operator accumulates */
static void add_to(double *exact, const double *before, int64_t n)
{
  for (int64_t i = 0; i < n; i++) exact[i] += before[i];
}

/* ---- LayerNorm ---- */
struct layer {
  int64_t N, D;
  double mean; /* of the elements; their deviation is 1 */
  bool bias;
};

static void layer_norm_shape(struct ops_case *c, const struct layer *layer)
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
  c->ops->layer_norm_backward(c->ops, dx, dweight_float, layer->bias ? dbias_float : NULL, dh_act,
                              x_act, &norm, N, D);
  ops_case_check_act(c, "LayerNorm backward", dx, exact, n, 2 * slack);
  ops_case_check_float(c, "LayerNorm dweight", dweight_float, dweight, D, 2 * slack);
  ops_case_check_float(c, "LayerNorm dbias", dbias_float, dbias, D, 2 * slack);
  c->ops->layer_norm_forward(c->ops, x_act, x_act, &norm, N, D); /* in place */
  ops_case_check_same(c, x_act, out, (size_t)n * c->ops->act_bytes);
}

static void layer_norm_case(struct ops_case *c)
{
  static const struct layer layers[] = {{1, 8, 0, true},    {3, 16, 0, false}, {5, 33, 1, true},
                                        {31, 64, 0, false}, {65, 48, 3, true}, {130, 72, 0, true}};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) layer_norm_shape(c, &layers[i]);
}

/* The widths of the published models. A mean of many deviations costs accuracy only as far as x is
 * itself rounded. */
static void wide_layer_norm_case(struct ops_case *c)
{
  layer_norm_shape(c, &(struct layer){67, 320, 0, true});
  layer_norm_shape(c, &(struct layer){9, 480, 20, true});
  layer_norm_shape(c, &(struct layer){3, 960, 0, false});
}

static void layer_norms_match(void **state)
{
  (void)state;
  ops_case_each_cpu(layer_norm_case);
  ops_case_each_cpu(wide_layer_norm_case);
}

/* A row of equal elements has no variance: its result is the bias, and nothing is infinite. */
static void equal_elements_case(struct ops_case *c)
{
  enum { N = 2, D = 24 };
  double *x = ops_case_zeros(c, N * D), *ones = ops_case_zeros(c, D);
  double *bias = ops_case_values(c, D, 1), *exact = ops_case_zeros(c, N * D);
  for (int64_t i = 0; i < N * D; i++) x[i] = 3;
  for (int64_t i = 0; i < D; i++) ones[i] = 1;
  const void *x_act = ops_case_act(c, x, N * D);
  void *out = ops_case_empty_act(c, N * D);
  const struct plm_layer_norm norm = {ops_case_float(c, ones, D), ops_case_float(c, bias, D),
                                      1e-5F};
  for (int64_t i = 0; i < N * D; i++) exact[i] = bias[i % D];
  c->ops->layer_norm_forward(c->ops, out, x_act, &norm, N, D);
  ops_case_check_act(c, "LayerNorm of equal elements", out, exact, N * D, 0);
}

static void equal_elements_give_the_bias(void **state)
{
  (void)state;
  ops_case_each_cpu(equal_elements_case);
}

/* ---- gradients of biases ---- */
static void bias_shape(struct ops_case *c, int64_t N, int64_t O)
{
  double *dy = ops_case_values(c, N * O, 1), *before = ops_case_values(c, O, 1);
  double *exact = ops_case_zeros(c, O);
  const void *dy_act = ops_case_act(c, dy, N * O);
  float *dbias = ops_case_float(c, before, O);
  for (int64_t i = 0; i < N * O; i++) exact[i % O] += dy[i];
  add_to(exact, before, O);
  c->ops->bias_backward(c->ops, dbias, dy_act, N, O);
  ops_case_check_float(c, "dbias", dbias, exact, O, 32);
}

static void bias_case(struct ops_case *c)
{
  bias_shape(c, 1, 1);
  bias_shape(c, 3, 33);
  bias_shape(c, 64, 512);
  bias_shape(c, 65, 520); /* a part of a tile, in rows and columns */
  bias_shape(c, 1000, 24);
}

static void gradients_of_biases_match(void **state)
{
  (void)state;
  ops_case_each_cpu(bias_case);
}

/* ---- q and k ---- */
struct qkv_case {
  int64_t B, L, H, K;
  enum plm_qk_norm norm;
  bool mix;
};

static void qkv_shape(struct ops_case *c, const struct qkv_case *of)
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

static void qkv_case(struct ops_case *c)
{
  static const int64_t shapes[][4] = {
      {1, 1, 1, 16}, {2, 37, 20, 16}, {1, 33, 5, 24}, {3, 20, 2, 64}, {1, 5, 15, 64}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int norm = PLM_QK_NORM_NONE; norm <= PLM_QK_NORM_WIDTH; norm++)
      qkv_shape(c, &(struct qkv_case){shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3],
                                      (enum plm_qk_norm)norm, i == 3});
}

static void kinds_of_norm_match(void **state)
{
  (void)state;
  ops_case_each_cpu(qkv_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layer_norms_match),
      cmocka_unit_test(equal_elements_give_the_bias),
      cmocka_unit_test(gradients_of_biases_match),
      cmocka_unit_test(kinds_of_norm_match),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
