/* Checks the gradients of the reference operators, to which kernels are compared, by central
 * differences of the operators' own forward passes. */
#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/reference/reference_ops.h"

/* value(x) is a weighted sum of an operator's outputs; `gradient` comes from its backward pass. */
static void check(const char *what, double (*value)(const double *x), double *x,
                  const double *gradient, int64_t n)
{
  const double h = 1e-5;
  double largest = 1e-3;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(gradient[i]));
  for (int64_t i = 0; i < n; i++) {
    const double at = x[i];
    x[i] = at + h;
    const double above = value(x);
    x[i] = at - h;
    const double below = value(x);
    x[i] = at;
    const double difference = (above - below) / (2 * h);
    if (fabs(difference - gradient[i]) > 1e-7 * largest)
      fail_msg("%s: element %lld: %.12g by differences, %.12g", what, (long long)i, difference,
               gradient[i]);
  }
}

static void fill(double *values, int64_t n, uint64_t seed)
{
  for (int64_t i = 0; i < n; i++)
    values[i] = 4 * plm_philox_unit(plm_philox(seed, (uint32_t)i, 0, 99).w[0]) - 2;
}

static double weighted(const double *out, const double *upper, int64_t n)
{
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += out[i] * upper[i];
  return sum;
}

/* ---- linear: 3 x 5 by 4 x 5 ---- */
static double linear_x[15], linear_w[20], linear_dy[12];

static double linear_of_x(const double *x)
{
  double y[12];
  reference_linear(y, x, linear_w, 3, 5, 4);
  return weighted(y, linear_dy, 12);
}

static double linear_of_w(const double *w)
{
  double y[12];
  reference_linear(y, linear_x, w, 3, 5, 4);
  return weighted(y, linear_dy, 12);
}

static void linear_is_right(void **state)
{
  (void)state;
  double dx[15], dw[20];
  fill(linear_x, 15, 1);
  fill(linear_w, 20, 2);
  fill(linear_dy, 12, 3);
  reference_linear_backward_input(dx, linear_dy, linear_w, 3, 5, 4);
  reference_linear_backward_weight(dw, linear_dy, linear_x, 3, 5, 4);
  check("linear by x", linear_of_x, linear_x, dx, 15);
  check("linear by w", linear_of_w, linear_w, dw, 20);
}

/* ---- norm: 2 x 7 ---- */
static double norm_dh[14];

static double norm_of_x(const double *x)
{
  double out[14];
  reference_norm(out, x, 2, 7);
  return weighted(out, norm_dh, 14);
}

static void norm_is_right(void **state)
{
  (void)state;
  double x[14], dx[14];
  fill(x, 14, 4);
  fill(norm_dh, 14, 5);
  reference_norm_backward(dx, norm_dh, x, 2, 7);
  check("norm", norm_of_x, x, dx, 14);
}

/* ---- LayerNorm: 2 x 7, the weight and then the bias in one array ---- */
static double layer_x[14], layer_dh[14], layer_parameters[14];

static double layer_of(const double *x, const double *parameters)
{
  double out[14];
  const struct reference_layer_norm norm = {parameters, parameters + 7, 0.01};
  reference_layer_norm(out, x, &norm, 2, 7);
  return weighted(out, layer_dh, 14);
}

static double layer_of_x(const double *x)
{
  return layer_of(x, layer_parameters);
}

static double layer_of_parameters(const double *parameters)
{
  return layer_of(layer_x, parameters);
}

static void layer_norm_is_right(void **state)
{
  (void)state;
  double dx[14], dparameters[14];
  fill(layer_x, 14, 14);
  fill(layer_dh, 14, 15);
  fill(layer_parameters, 14, 16);
  const struct reference_layer_norm norm = {layer_parameters, layer_parameters + 7, 0.01};
  reference_layer_norm_backward(dx, dparameters, dparameters + 7, layer_dh, layer_x, &norm, 2, 7);
  check("LayerNorm", layer_of_x, layer_x, dx, 14);
  check("LayerNorm by its parameters", layer_of_parameters, layer_parameters, dparameters, 14);
}

/* ---- token mean: 3 groups of 4 tokens, a table of 5 x 3 ---- */
static const int32_t group_tokens[12] = {0, 1, 1, 4, 2, 2, 2, 2, 3, 0, 4, 1};
static double mean_dout[9];

static double mean_of_table(const double *table)
{
  double out[9];
  reference_token_mean(out, table, group_tokens, 3, 3, 2);
  return weighted(out, mean_dout, 9);
}

static void token_mean_is_right(void **state)
{
  (void)state;
  double table[15], dtable[15];
  fill(table, 15, 6);
  fill(mean_dout, 9, 7);
  reference_token_mean_backward(dtable, mean_dout, group_tokens, 3, 3, 5, 2);
  check("token mean", mean_of_table, table, dtable, 15);
}

/* ---- QKV prepare: B 1, L 3, H 2, K 4 ---- */
enum { L = 3, D = 8 };
static double qkv_values[L * 3 * D], qkv_vi[L * D], qkv_dout[L * 3 * D];
static double qkv_cosine[L * 2], qkv_sine[L * 2];
static double qkv_weights[2 * D], qkv_dweights[2 * D];
static struct reference_qkv qkv_in = {.qkv = qkv_values,
                                      .vi = qkv_vi,
                                      .a = {0.6, 0.4},
                                      .cosine = qkv_cosine,
                                      .sine = qkv_sine,
                                      .B = 1,
                                      .L = L,
                                      .H = 2,
                                      .K = 4,
                                      .eps = 1e-3,
                                      .q_weight = qkv_weights,
                                      .k_weight = qkv_weights + D,
                                      .dq_weight = qkv_dweights,
                                      .dk_weight = qkv_dweights + D};

static double qkv_value(const struct reference_qkv *in)
{
  double out[L * 3 * D];
  reference_qkv_prepare(out, in);
  return weighted(out, qkv_dout, L * 3 * D);
}

static double qkv_of_input(const double *x)
{
  struct reference_qkv in = qkv_in;
  in.qkv = x;
  return qkv_value(&in);
}

static double qkv_of_vi(const double *x)
{
  struct reference_qkv in = qkv_in;
  in.vi = x;
  return qkv_value(&in);
}

static double qkv_of_mix(const double *x)
{
  struct reference_qkv in = qkv_in;
  memcpy(in.a, x, sizeof in.a);
  return qkv_value(&in);
}

static double qkv_of_weights(const double *x)
{
  struct reference_qkv in = qkv_in;
  in.q_weight = x;
  in.k_weight = x + D;
  return qkv_value(&in);
}

static void qkv_is_right(void **state)
{
  (void)state;
  double dqkv[L * 3 * D], dvi[L * D], da[2], a[2] = {0.6, 0.4};
  fill(qkv_values, L * 3 * D, 8);
  fill(qkv_vi, L * D, 9);
  fill(qkv_dout, L * 3 * D, 10);
  for (int i = 0; i < L * 2; i++) {
    qkv_cosine[i] = cos(0.7 * i);
    qkv_sine[i] = sin(0.7 * i);
  }
  fill(qkv_weights, 2 * D, 13);
  for (int norm = PLM_QK_NORM_HEAD; norm <= PLM_QK_NORM_WIDTH; norm++) {
    qkv_in.norm = (enum plm_qk_norm)norm;
    reference_qkv_prepare_backward(dqkv, dvi, da, qkv_dout, &qkv_in);
    check("qkv", qkv_of_input, qkv_values, dqkv, L * 3 * D);
    check("qkv by vi", qkv_of_vi, qkv_vi, dvi, L * D);
    check("qkv by a", qkv_of_mix, a, da, 2);
  }
  check("qkv by weights", qkv_of_weights, qkv_weights, qkv_dweights, 2 * D);
}

/* ---- activations ---- */
static double gelu_sum(const double *x)
{
  double sum = 0;
  for (int i = 0; i < 50; i++) sum += reference_gelu(x[i]);
  return sum;
}

static double relu2_sum(const double *x)
{
  double sum = 0;
  for (int i = 0; i < 50; i++) sum += reference_relu2(x[i]);
  return sum;
}

/* two rows of 5 */
static double swiglu_dhidden[10];

static double swiglu_of(const double *gate_up)
{
  double hidden[10];
  reference_swiglu(hidden, gate_up, 2, 5);
  return weighted(hidden, swiglu_dhidden, 10);
}

static void swiglu_is_right(void **state)
{
  (void)state;
  double gate_up[20], dgate_up[20];
  fill(gate_up, 20, 17);
  fill(swiglu_dhidden, 10, 18);
  reference_swiglu_backward(dgate_up, swiglu_dhidden, gate_up, 2, 5);
  check("SwiGLU", swiglu_of, gate_up, dgate_up, 20);
}

static void activations_are_right(void **state)
{
  (void)state;
  double x[50], slope[50];
  fill(x, 50, 11);
  for (int i = 0; i < 50; i++) slope[i] = reference_gelu_slope(x[i]);
  check("gelu", gelu_sum, x, slope, 50);
  for (int i = 0; i < 50; i++) slope[i] = reference_relu2_slope(x[i]);
  check("relu2", relu2_sum, x, slope, 50);
}

/* ---- loss: 3 x 6, every option ---- */
static const int32_t loss_labels[3] = {0, 5, 2};
static const double loss_weights[3] = {1, 0, 0.3};
static struct reference_loss loss_options;

static double loss_of_logits(const double *logits)
{
  double rows[3], unused[18];
  reference_cross_entropy(rows, unused, logits, &loss_options);
  return loss_options.scale * (rows[0] + rows[1] + rows[2]);
}

static void loss_is_right(void **state)
{
  (void)state;
  static const double options[][3] = {{0, 0, 0}, {3, 0, 0}, {3, 0.1, 0.01}, {0, 0.2, 0.05}};
  for (int i = 0; i < 4; i++) {
    double logits[18], dlogits[18], rows[3];
    loss_options = (struct reference_loss){loss_labels,   loss_weights,  0.5, options[i][0],
                                           options[i][1], options[i][2], 3,   6};
    fill(logits, 18, 12);
    reference_cross_entropy(rows, dlogits, logits, &loss_options);
    check("loss", loss_of_logits, logits, dlogits, 18);
  }
}

/* ---- labels: 3 rows with 4 outputs, one of which is missing ---- */
static struct reference_labels labels;

static double labels_of_outputs(const double *outputs)
{
  double losses[3], unused[12];
  reference_label_loss(losses, unused, outputs, &labels);
  return losses[0] + losses[1] + losses[2];
}

static void label_losses_are_right(void **state)
{
  static const int32_t classes[3] = {3, -1, 0};
  double outputs[12], targets[12], weights[4] = {0.5, 2, 1, 0.25}, losses[3], dlogits[12];
  (void)state;
  fill(targets, 12, 21);
  targets[5] = NAN;
  for (int kind = PLM_LOSS_SQUARES; kind <= PLM_LOSS_CLASSES; kind++) {
    fill(outputs, 12, 20);
    labels =
        (struct reference_labels){(enum plm_label_loss)kind, classes, targets, weights, 1, 3, 4};
    reference_label_loss(losses, dlogits, outputs, &labels);
    check("label loss by outputs", labels_of_outputs, outputs, dlogits, 12);
  }
  /* by hand: log(1 + e^-2) with the weight of class 1, and (3 - 1)^2 */
  const double two[2] = {1, 3}, target[2] = {1, 1};
  const int32_t second = 1;
  labels = (struct reference_labels){PLM_LOSS_CLASS, &second, NULL, weights, 1, 1, 2};
  reference_label_loss(losses, dlogits, two, &labels);
  assert_true(fabs(losses[0] - 2 * log1p(exp(-2))) < 1e-12);
  labels = (struct reference_labels){PLM_LOSS_SQUARES, NULL, target, NULL, 1, 1, 2};
  reference_label_loss(losses, dlogits, two, &labels);
  assert_true(fabs(losses[0] - 4) < 1e-12);
}

/* ---- pooling: 6 x 3 in three groups, one of them empty ---- */
static const int32_t pool_begin[3] = {0, 2, 3}, pool_end[3] = {2, 2, 6};
static double pool_dout[9];

static double pool_of_x(const double *x)
{
  double out[9];
  reference_pool(out, x, pool_begin, pool_end, 3, 3);
  return weighted(out, pool_dout, 9);
}

static void pooling_is_right(void **state)
{
  double x[18], dx[18];
  (void)state;
  fill(x, 18, 30);
  fill(pool_dout, 9, 31);
  reference_pool_backward(dx, pool_dout, pool_begin, pool_end, 3, 6, 3);
  check("pooling by x", pool_of_x, x, dx, 18);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(label_losses_are_right), cmocka_unit_test(pooling_is_right),
      cmocka_unit_test(linear_is_right),        cmocka_unit_test(norm_is_right),
      cmocka_unit_test(token_mean_is_right),    cmocka_unit_test(qkv_is_right),
      cmocka_unit_test(activations_are_right),  cmocka_unit_test(loss_is_right),
      cmocka_unit_test(layer_norm_is_right),    cmocka_unit_test(swiglu_is_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
