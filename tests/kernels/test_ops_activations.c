/* Compares products with a bias, GELU and SwiGLU, and the scaling of rows with the reference in
 * double precision. */
#include <math.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/reference/reference_ops.h"

/* In bf16 an intermediate result may be rounded as well, by up to 2^-9 of its value, which is at
 * most a few times the largest exact one. */
static double rounded_twice(const struct ops_case *c, double slack)
{
  return slack + (c->ops->act_bytes == 2 ? 0x1p17 : 0);
}

/* ---- products with a bias ---- */
static void bias_shape(struct ops_case *c, int64_t N, int64_t I, int64_t O)
{
  double *x = ops_case_values(c, N * I, 1), *w = ops_case_values(c, O * I, 1 / sqrt((double)I));
  double *bias = ops_case_values(c, O, 1), *residual = ops_case_values(c, N * O, 1);
  double *exact = ops_case_zeros(c, N * O);
  const void *x_act = ops_case_act(c, x, N * I), *w_act = ops_case_act(c, w, O * I);
  void *residual_act = ops_case_act(c, residual, N * O), *y = ops_case_empty_act(c, N * O);
  const struct plm_biased_linear layer = {w_act, ops_case_float(c, bias, O)};
  const double slack = rounded_twice(c, fmax(16, 2 * sqrt((double)I)));
  reference_linear(exact, x, w, N, I, O);
  for (int64_t i = 0; i < N * O; i++) exact[i] += bias[i % O];
  c->ops->linear_bias_forward(c->ops, y, x_act, &layer, NULL, N, I, O);
  ops_case_check_act(c, "linear + bias", y, exact, N * O, slack);
  for (int64_t i = 0; i < N * O; i++) exact[i] += residual[i];
  c->ops->linear_bias_forward(c->ops, y, x_act, &layer, residual_act, N, I, O);
  ops_case_check_act(c, "linear + bias + residual", y, exact, N * O, slack);
  c->ops->linear_bias_forward(c->ops, residual_act, x_act, &layer, residual_act, N, I, O);
  ops_case_check_same(c, residual_act, y, (size_t)(N * O) * c->ops->act_bytes);
}

/* The two fused operators of the MLP: hidden = gelu(x w^T + bias), and the gradient back through
 * the next linear layer and GELU. */
static void gelu_shape(struct ops_case *c, int64_t N, int64_t I, int64_t O)
{
  double *x = ops_case_values(c, N * I, 1), *w = ops_case_values(c, O * I, 1 / sqrt((double)I));
  double *bias = ops_case_values(c, O, 1), *exact = ops_case_zeros(c, N * O);
  const void *x_act = ops_case_act(c, x, N * I), *w_act = ops_case_act(c, w, O * I);
  const struct plm_biased_linear layer = {w_act, ops_case_float(c, bias, O)};
  const size_t bytes = (size_t)(N * O) * c->ops->act_bytes;
  void *hidden = ops_case_empty_act(c, N * O), *before = ops_case_empty_act(c, N * O);
  void *alone = ops_case_empty_act(c, N * O), *dbefore = ops_case_empty_act(c, N * O);
  reference_linear(exact, x, w, N, I, O);
  for (int64_t i = 0; i < N * O; i++) exact[i] += bias[i % O];
  c->ops->linear_bias_gelu_forward(c->ops, hidden, before, x_act, &layer, N, I, O);
  ops_case_check_act(c, "before GELU", before, exact, N * O,
                     rounded_twice(c, fmax(16, 2 * sqrt((double)I))));
  const double *stored = ops_case_read(c, before, N * O);
  for (int64_t i = 0; i < N * O; i++) exact[i] = reference_gelu(stored[i]);
  ops_case_check_act(c, "after GELU", hidden, exact, N * O, 16);
  c->ops->linear_bias_gelu_forward(c->ops, alone, NULL, x_act, &layer, N, I, O);
  ops_case_check_same(c, alone, hidden, bytes);
  c->ops->linear_bias_gelu_forward(c->ops, alone, alone, x_act, &layer, N, I, O);
  ops_case_check_same(c, alone, hidden, bytes);

  double *dy = ops_case_values(c, N * I, 1), *v = ops_case_values(c, I * O, 1);
  const void *dy_act = ops_case_act(c, dy, N * I), *v_act = ops_case_act(c, v, I * O);
  reference_linear_backward_input(exact, dy, v, N, O, I);
  for (int64_t i = 0; i < N * O; i++) exact[i] *= reference_gelu_slope(stored[i]);
  c->ops->linear_gelu_backward_input(c->ops, dbefore, dy_act, v_act, before, N, O, I);
  ops_case_check_act(c, "through GELU", dbefore, exact, N * O,
                     rounded_twice(c, fmax(32, 4 * sqrt((double)I))));
}

static void products_case(struct ops_case *c)
{
  static const int64_t shapes[][3] = {{1, 1, 1}, {3, 33, 5}, {33, 64, 48}, {300, 40, 72}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    bias_shape(c, shapes[i][0], shapes[i][1], shapes[i][2]);
    gelu_shape(c, shapes[i][0], shapes[i][1], shapes[i][2]);
  }
}

/* Shapes whose rows or columns the CPU backend splits. */
static void cut_products_case(struct ops_case *c)
{
  static const int64_t shapes[][3] = {{1, 24, 700}, {33, 16, 513}, {250, 300, 24}, {4129, 16, 8}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    bias_shape(c, shapes[i][0], shapes[i][1], shapes[i][2]);
    gelu_shape(c, shapes[i][0], shapes[i][1], shapes[i][2]);
  }
}

static void products_match(void **state)
{
  (void)state;
  ops_case_each(products_case);
  ops_case_each_cpu(cut_products_case);
}

/* ---- activations ---- */
static void gelu_backward(struct ops_case *c, int64_t n)
{
  double *x = ops_case_values(c, n, 2), *dy = ops_case_values(c, n, 1);
  double *exact = ops_case_zeros(c, n);
  const void *x_act = ops_case_act(c, x, n);
  void *dy_act = ops_case_act(c, dy, n), *dx = ops_case_empty_act(c, n);
  for (int64_t i = 0; i < n; i++) exact[i] = dy[i] * reference_gelu_slope(x[i]);
  c->ops->gelu_backward(c->ops, dx, dy_act, x_act, n);
  ops_case_check_act(c, "GELU backward", dx, exact, n, 32);
  c->ops->gelu_backward(c->ops, dy_act, dy_act, x_act, n);
  ops_case_check_same(c, dy_act, dx, (size_t)n * c->ops->act_bytes);
}

static void relu2(struct ops_case *c, int64_t n)
{
  double *x = ops_case_values(c, n, 2), *dy = ops_case_values(c, n, 1);
  double *exact = ops_case_zeros(c, n);
  void *x_act = ops_case_act(c, x, n), *dx = ops_case_act(c, dy, n);
  for (int64_t i = 0; i < n; i++) exact[i] = reference_relu2(x[i]);
  c->ops->relu2_forward(c->ops, x_act, n);
  ops_case_check_act(c, "relu2", x_act, exact, n, 8);
  const double *stored = ops_case_read(c, x_act, n);
  for (int64_t i = 0; i < n; i++) exact[i] = dy[i] * 2 * sqrt(stored[i]);
  c->ops->relu2_backward(c->ops, dx, x_act, n);
  ops_case_check_act(c, "relu2, backward", dx, exact, n, 8);
}

static void swiglu(struct ops_case *c, int64_t N, int64_t F)
{
  double *gate_up = ops_case_values(c, 2 * N * F, 2), *dhidden = ops_case_values(c, N * F, 1);
  double *exact = ops_case_zeros(c, 2 * N * F);
  void *gate_up_act = ops_case_act(c, gate_up, 2 * N * F), *hidden = ops_case_empty_act(c, N * F);
  const void *dhidden_act = ops_case_act(c, dhidden, N * F);
  void *dgate_up = ops_case_empty_act(c, 2 * N * F);
  reference_swiglu(exact, gate_up, N, F);
  c->ops->swiglu_forward(c->ops, hidden, gate_up_act, N, F);
  ops_case_check_act(c, "SwiGLU", hidden, exact, N * F, 8);
  reference_swiglu_backward(exact, dhidden, gate_up, N, F);
  c->ops->swiglu_backward(c->ops, dgate_up, dhidden_act, gate_up_act, N, F);
  ops_case_check_act(c, "SwiGLU backward", dgate_up, exact, 2 * N * F, 16);
  c->ops->swiglu_backward(c->ops, gate_up_act, dhidden_act, gate_up_act, N, F);
  ops_case_check_same(c, gate_up_act, dgate_up, (size_t)(2 * N * F) * c->ops->act_bytes);
}

static void activations_case(struct ops_case *c)
{
  static const int64_t shapes[][2] = {{1, 1}, {1, 17}, {5, 33}, {65, 64}, {19, 200}};
  gelu_backward(c, 1);
  gelu_backward(c, 1000);
  gelu_backward(c, 40001);
  relu2(c, 1);
  relu2(c, 1000);
  relu2(c, 40001);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) swiglu(c, shapes[i][0], shapes[i][1]);
}

static void activations_match(void **state)
{
  (void)state;
  ops_case_each(activations_case);
}

/* Gates so large that e^x overflows: the sigmoid is then 0 or 1, and nothing is NaN. */
static void large_gates_case(struct ops_case *c)
{
  enum { F = 4 };
  double gate_up[2 * F] = {-1000, -100, 100, 1000, 1, 1, 2, 2}, exact[F] = {0, 0, 200, 2000};
  double dexact[2 * F] = {0, 0, 2, 2, 0, 0, 100, 1000}, ones[F] = {1, 1, 1, 1};
  const void *gate_up_act = ops_case_act(c, gate_up, 2 * F), *one = ops_case_act(c, ones, F);
  void *hidden = ops_case_empty_act(c, F), *dgate_up = ops_case_empty_act(c, 2 * F);
  c->ops->swiglu_forward(c->ops, hidden, gate_up_act, 1, F);
  ops_case_check_act(c, "SwiGLU of large gates", hidden, exact, F, 1);
  c->ops->swiglu_backward(c->ops, dgate_up, one, gate_up_act, 1, F);
  ops_case_check_act(c, "SwiGLU backward of large gates", dgate_up, dexact, 2 * F, 1);
}

static void large_gates_do_not_overflow(void **state)
{
  (void)state;
  ops_case_each(large_gates_case);
}

/* ---- scaling ---- */
static void scale_case(struct ops_case *c)
{
  static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {130, 40}, {600, 61}};
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    const int64_t N = shapes[k][0], D = shapes[k][1], n = N * D;
    double *x = ops_case_values(c, n, 1), *factors = ops_case_values(c, N, 1);
    for (int64_t i = 0; i < N; i += 3) factors[i] = 0;
    const float *factors_float = ops_case_float(c, factors, N);
    void *x_act = ops_case_act(c, x, n), *rows = ops_case_act(c, x, n);
    /* zeros, whatever x is: row 0 is NaN */
    c->ops->copy(c->ops, rows, ops_case_empty_act(c, D), (size_t)D * c->ops->act_bytes);
    double *exact = ops_case_zeros(c, n);
    for (int64_t i = 0; i < n; i++) exact[i] = x[i] * factors[i / D];
    c->ops->scale_rows(c->ops, rows, factors_float, N, D);
    ops_case_check_act(c, "scaled rows", rows, exact, n, 0);
    for (int64_t i = 0; i < n; i++) exact[i] = x[i] * 0.75;
    c->ops->scale(c->ops, x_act, 0.75F, n);
    ops_case_check_act(c, "scaled", x_act, exact, n, 0);
  }
}

static void scaling_matches(void **state)
{
  (void)state;
  ops_case_each(scale_case);
}

/* ---- token dropout ---- */
enum { CHUNKS = 3, LENGTH = 200, MASK = 32, LAST = CHUNKS * LENGTH };

/* Documents of 1 to 70 tokens and, at the end of a chunk, rows that belong to none. */
static void make_documents(int32_t *begin, int32_t *end)
{
  for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
    int32_t at = 0;
    for (int32_t length = 1; at + length <= LENGTH; length = length * 2 + 7 * (int32_t)chunk) {
      for (int32_t i = at; i < at + length; i++) {
        begin[chunk * LENGTH + i] = at;
        end[chunk * LENGTH + i] = at + length;
      }
      at += length;
    }
    for (int32_t i = at; i < LENGTH; i++) begin[chunk * LENGTH + i] = end[chunk * LENGTH + i] = 0;
  }
}

static double expected_factor(const int32_t *tokens, int64_t row, int32_t begin, int32_t end)
{
  const int64_t chunk = row / LENGTH * LENGTH;
  double masks = 0;
  for (int32_t i = begin; i < end; i++) masks += tokens[chunk + i] == MASK;
  if (begin == end || tokens[row] == MASK) return 0;
  return (1 - 0.15 * 0.8) / (1 - masks / (end - begin));
}

static void dropout_case(struct ops_case *c)
{
  int32_t tokens[LAST], begin[LAST], end[LAST];
  double factors[LAST];
  const int32_t *drawn = ops_case_integers(c, LAST, 4);
  /* the second chunk has no mask at all, and the first document of the third only a mask */
  for (int64_t i = 0; i < LAST; i++)
    tokens[i] = drawn[i] == 0 && i / LENGTH != 1 ? MASK : 4 + drawn[i];
  tokens[2 * LENGTH] = MASK;
  make_documents(begin, end);
  for (int64_t i = 0; i < LAST; i++) factors[i] = expected_factor(tokens, i, begin[i], end[i]);
  const struct plm_token_dropout of = {.tokens = ops_case_device(c, tokens, sizeof tokens),
                                       .begin = ops_case_device(c, begin, sizeof begin),
                                       .end = ops_case_device(c, end, sizeof end),
                                       .B = CHUNKS,
                                       .L = LENGTH,
                                       .mask_token = MASK};
  float *got = ops_case_empty_float(c, LAST);
  c->ops->token_dropout(c->ops, got, &of);
  ops_case_check_float(c, "factors of token dropout", got, factors, LAST, 2);
}

static void token_dropout_matches(void **state)
{
  (void)state;
  ops_case_each(dropout_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_match),
      cmocka_unit_test(activations_match),
      cmocka_unit_test(large_gates_do_not_overflow),
      cmocka_unit_test(scaling_matches),
      cmocka_unit_test(token_dropout_matches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
