/* Compares the operators of heads for labels with the reference in double precision: pooling, tanh,
 * dropout, losses, and the gradients of a decoder. */
#include <math.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/reference/reference_ops.h"

/* ---- pooling ---- */

/* Groups of 0, 1, 2, ... rows with gaps of one row between them. Returns the number of groups. */
static int64_t make_groups(int32_t *begin, int32_t *end, int64_t N)
{
  int32_t r = 0;
  for (int32_t at = 0; at + r <= (int32_t)N; at += r + 1, r++) {
    begin[r] = at;
    end[r] = at + r;
  }
  return r;
}

static void pool_shape(struct ops_case *c, int64_t N, int64_t D)
{
  int32_t begin[64], end[64];
  const int64_t R = make_groups(begin, end, N);
  double *x = ops_case_values(c, N * D, 1), *dout = ops_case_values(c, R * D, 1);
  double *exact = ops_case_zeros(c, N * D);
  const struct plm_row_groups groups = {ops_case_device(c, begin, (size_t)R * sizeof *begin),
                                        ops_case_device(c, end, (size_t)R * sizeof *end), R};
  void *x_act = ops_case_act(c, x, N * D), *out = ops_case_empty_act(c, R * D);
  reference_pool(exact, x, begin, end, R, D);
  c->ops->pool_rows(c->ops, out, x_act, &groups, D);
  ops_case_check_act(c, "pooled rows", out, exact, R * D, 16);
  const void *dout_act = ops_case_act(c, dout, R * D);
  reference_pool_backward(exact, dout, begin, end, R, N, D);
  for (int64_t i = 0; i < N * D; i++) exact[i] += x[i]; /* it adds */
  c->ops->pool_rows_backward(c->ops, x_act, dout_act, &groups, D);
  ops_case_check_act(c, "gradient of pooled rows", x_act, exact, N * D, 8);
}

static void pool_case(struct ops_case *c)
{
  pool_shape(c, 1, 1);
  pool_shape(c, 40, 17);
  pool_shape(c, 300, 64);
  pool_shape(c, 700, 200);
}

static void pooling_matches(void **state)
{
  (void)state;
  ops_case_each(pool_case);
}

/* ---- tanh ---- */
static void tanh_case(struct ops_case *c)
{
  static const int64_t sizes[] = {1, 1000, 40001};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    const int64_t n = sizes[k];
    double *x = ops_case_values(c, n, 2), *dy = ops_case_values(c, n, 1);
    double *exact = ops_case_zeros(c, n);
    x[0] = 0.25; /* so that the largest slope is not that of a flat place, where digits cancel */
    if (n > 2) x[1] = 200, x[2] = -200;
    const void *x_act = ops_case_act(c, x, n);
    void *y = ops_case_empty_act(c, n), *dx = ops_case_empty_act(c, n);
    void *dy_act = ops_case_act(c, dy, n);
    for (int64_t i = 0; i < n; i++) exact[i] = tanh(x[i]);
    c->ops->tanh_forward(c->ops, y, x_act, n);
    ops_case_check_act(c, "tanh", y, exact, n, 8);
    const double *stored = ops_case_read(c, y, n);
    for (int64_t i = 0; i < n; i++) exact[i] = dy[i] * (1 - stored[i] * stored[i]);
    c->ops->tanh_backward(c->ops, dx, dy_act, y, n);
    ops_case_check_act(c, "tanh backward", dx, exact, n, 8);
    c->ops->tanh_backward(c->ops, dy_act, dy_act, y, n);
    ops_case_check_same(c, dy_act, dx, (size_t)n * c->ops->act_bytes);
  }
}

static void tanh_matches(void **state)
{
  (void)state;
  ops_case_each(tanh_case);
}

/* ---- dropout ---- */
enum { DROPPED_ROWS = 40, DROPPED_WIDTH = 61, PLACE = 3 };
static const uint64_t SEED = 0x123456789abcdefULL;

/* The rule as the documentation gives it: word j mod 4 of draw j / 4. */
static double kept_share(uint64_t key, int64_t j, double rate)
{
  const struct plm_philox_words draw =
      plm_philox(SEED, (uint32_t)(j / 4), key, PLM_PURPOSE_DROPOUT + 256 * PLACE);
  return plm_philox_unit(draw.w[j % 4]) < rate ? 0 : 1 / (1 - rate);
}

static void dropout_rate(struct ops_case *c, double rate)
{
  enum { ALL = DROPPED_ROWS * DROPPED_WIDTH };
  uint64_t keys[DROPPED_ROWS];
  double *x = ops_case_values(c, ALL, 1), *exact = ops_case_zeros(c, ALL);
  for (uint32_t n = 0; n < DROPPED_ROWS; n++) keys[n] = plm_dropout_key(7 + n / 9, 1000 * (n % 9));
  void *x_act = ops_case_act(c, x, ALL), *out = ops_case_empty_act(c, ALL);
  const struct plm_dropout dropout =
      plm_dropout_of(SEED, PLACE, rate, ops_case_device(c, keys, sizeof keys));
  double kept = 0;
  for (int64_t i = 0; i < ALL; i++) {
    const double share = kept_share(keys[i / DROPPED_WIDTH], i % DROPPED_WIDTH, rate);
    exact[i] = x[i] * share;
    kept += share > 0;
  }
  assert_true(fabs(kept / ALL - (1 - rate)) < 0.05); /* drawn with a fixed seed */
  c->ops->dropout(c->ops, out, x_act, &dropout, DROPPED_ROWS, DROPPED_WIDTH);
  ops_case_check_act(c, "dropout", out, exact, ALL, 0);
  c->ops->dropout(c->ops, x_act, x_act, &dropout, DROPPED_ROWS, DROPPED_WIDTH);
  ops_case_check_same(c, x_act, out, ALL * c->ops->act_bytes);
}

static void dropout_case(struct ops_case *c)
{
  dropout_rate(c, 0);
  dropout_rate(c, 0.25);
  dropout_rate(c, 0.875);
}

static void dropout_matches(void **state)
{
  (void)state;
  ops_case_each(dropout_case);
}

/* ---- losses ---- */
static void check_hits(struct ops_case *c, const float *hits, const double *outputs,
                       const struct reference_labels *labels)
{
  const int64_t N = labels->N, O = labels->O;
  double *exact = ops_case_zeros(c, N);
  for (int64_t n = 0; n < N && labels->kind == PLM_LOSS_CLASS; n++) {
    exact[n] = labels->classes[n] >= 0;
    for (int64_t o = 0; o < O && exact[n] > 0; o++)
      exact[n] = outputs[n * O + o] <= outputs[n * O + labels->classes[n]];
  }
  ops_case_check_float(c, "hits", hits, exact, N, 0);
}

/* The slack of results that are differences of numbers of this size, which may all be small. */
static double cancelled(const double *exact, int64_t n, double slack, double size)
{
  double largest = 1e-6;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(exact[i]));
  return slack * fmax(1, size / largest);
}

static void loss_shape(struct ops_case *c, enum plm_label_loss kind, int64_t N, int64_t O,
                       bool weighted)
{
  const float scale = 0.5f;
  double *outputs = ops_case_values(c, N * O, 3), *targets = ops_case_values(c, N * O, 2);
  double *weights = ops_case_values(c, O, 1);
  int32_t *classes = ops_case_integers(c, N, (int32_t)O);
  for (int64_t i = 0; i < N * O; i++) {
    if (kind == PLM_LOSS_CLASSES) targets[i] = targets[i] > 0;
    if (i % 5 == 3) targets[i] = NAN;
  }
  for (int64_t n = 2; n < N; n += 3) classes[n] = -1;
  for (int64_t o = 0; o < O; o++) weights[o] = 0.25 + fabs(weights[o]);
  float *at = ops_case_float(c, outputs, N * O), *row_loss = ops_case_empty_float(c, N);
  float *dlogits = ops_case_empty_float(c, N * O), *hits = ops_case_empty_float(c, N);
  const struct plm_label_rows rows = {.kind = kind,
                                      .N = N,
                                      .O = O,
                                      .classes =
                                          ops_case_device(c, classes, (size_t)N * sizeof *classes),
                                      .targets = ops_case_float(c, targets, N * O),
                                      .weights = weighted ? ops_case_float(c, weights, O) : NULL,
                                      .hits = hits};
  const struct reference_labels labels = {
      kind, classes, targets, weighted ? weights : NULL, (double)scale, N, O};
  double *exact = ops_case_zeros(c, N), *slopes = ops_case_zeros(c, N * O);
  reference_label_loss(exact, slopes, outputs, &labels);
  c->ops->label_loss(c->ops, row_loss, dlogits, at, &rows, scale);
  ops_case_check_float(c, "label loss", row_loss, exact, N, cancelled(exact, N, 32, 8));
  ops_case_check_float(c, "gradient of the label loss", dlogits, slopes, N * O,
                       cancelled(slopes, N * O, 16, 2));
  check_hits(c, hits, outputs, &labels);
  float *alone = ops_case_empty_float(c, N);
  c->ops->label_loss(c->ops, alone, NULL, at, &rows, scale);
  ops_case_check_same(c, alone, row_loss, (size_t)N * sizeof *alone);
  c->ops->label_loss(c->ops, alone, at, at, &rows, scale);
  ops_case_check_same(c, at, dlogits, (size_t)(N * O) * sizeof *at);
}

static void loss_case(struct ops_case *c)
{
  static const int64_t shapes[][2] = {{1, 1}, {3, 2}, {35, 17}, {20, 300}};
  for (int kind = PLM_LOSS_SQUARES; kind <= PLM_LOSS_CLASSES; kind++)
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++)
      loss_shape(c, (enum plm_label_loss)kind, shapes[i / 2][0], shapes[i / 2][1], i % 2 == 1);
}

static void losses_match(void **state)
{
  (void)state;
  ops_case_each(loss_case);
}

/* Outputs so far from 0 that e^z overflows: losses and slopes are the limits, and nothing is NaN.
 */
static void far_case(struct ops_case *c)
{
  double outputs[4] = {-1000, 1000, -1000, 1000}, targets[4] = {0, 1, 1, 0};
  double exact[2] = {0, 2000}, slopes[4] = {0, 0, -1, 1};
  const struct plm_label_rows rows = {
      .kind = PLM_LOSS_CLASSES, .N = 2, .O = 2, .targets = ops_case_float(c, targets, 4)};
  float *at = ops_case_float(c, outputs, 4), *row_loss = ops_case_empty_float(c, 2);
  c->ops->label_loss(c->ops, row_loss, at, at, &rows, 1);
  ops_case_check_float(c, "loss of far outputs", row_loss, exact, 2, 1);
  ops_case_check_float(c, "slope of far outputs", at, slopes, 4, 1);
}

static void far_outputs_do_not_overflow(void **state)
{
  (void)state;
  ops_case_each(far_case);
}

/* ---- decoder ---- */
static void decoder_shape(struct ops_case *c, int64_t N, int64_t D, int64_t V)
{
  double *dlogits = ops_case_values(c, N * V, 1), *h = ops_case_values(c, N * D, 1);
  double *w = ops_case_values(c, V * D, 1 / sqrt((double)V));
  double *dw = ops_case_values(c, V * D, 1), *dbias = ops_case_values(c, V, 1);
  double *dh = ops_case_zeros(c, N * D), *more = ops_case_zeros(c, V * D);
  const float *dlogits_float = ops_case_float(c, dlogits, N * V);
  const void *h_act = ops_case_act(c, h, N * D), *w_act = ops_case_act(c, w, V * D);
  float *dw_float = ops_case_float(c, dw, V * D), *dbias_float = ops_case_float(c, dbias, V);
  void *dh_act = ops_case_empty_act(c, N * D);
  reference_linear_backward_input(dh, dlogits, w, N, D, V);
  reference_linear_backward_weight(more, dlogits, h, N, D, V);
  for (int64_t i = 0; i < V * D; i++) dw[i] += more[i];
  for (int64_t i = 0; i < N * V; i++) dbias[i % V] += dlogits[i];
  const struct plm_logits_gradients to = {dh_act, dw_float, dbias_float};
  c->ops->logits_backward(c->ops, &to, dlogits_float, h_act, w_act, N, D, V);
  const double slack = fmax(16, 2 * sqrt((double)N));
  ops_case_check_act(c, "gradient of h", dh_act, dh, N * D, fmax(16, 2 * sqrt((double)V)));
  ops_case_check_float(c, "gradient of w", dw_float, dw, V * D, slack);
  ops_case_check_float(c, "gradient of the bias", dbias_float, dbias, V, slack);
}

static void decoder_case(struct ops_case *c)
{
  static const int64_t shapes[][3] = {{1, 1, 1}, {3, 17, 2}, {70, 40, 33}, {700, 24, 5}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    decoder_shape(c, shapes[i][0], shapes[i][1], shapes[i][2]);
}

/* More outputs than the vocabulary of any tokenizer. */
static void many_outputs_case(struct ops_case *c)
{
  decoder_shape(c, 9, 16, 5000);
}

static void decoder_gradients_match(void **state)
{
  (void)state;
  ops_case_each(decoder_case);
  ops_case_each_cpu(many_outputs_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pooling_matches),
      cmocka_unit_test(tanh_matches),
      cmocka_unit_test(dropout_matches),
      cmocka_unit_test(losses_match),
      cmocka_unit_test(far_outputs_do_not_overflow),
      cmocka_unit_test(decoder_gradients_match),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
