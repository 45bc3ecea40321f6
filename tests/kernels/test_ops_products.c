/* Compares products, the head and the loss with the reference in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/ops/device.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/device_case.h"
#include "tests/support/operators/head_case.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/operators/tensor_sum.h"
#include "tests/support/reference/reference_ops.h"

/* ---- linear ---- */
static void linear_shape(struct ops_case *c, int64_t N, int64_t I, int64_t O)
{
  double *x = ops_case_values(c, N * I, 1), *w = ops_case_values(c, O * I, 1 / sqrt((double)I));
  double *residual = ops_case_values(c, N * O, 1), *exact = ops_case_zeros(c, N * O);
  const void *x_act = ops_case_act(c, x, N * I), *w_act = ops_case_act(c, w, O * I);
  void *residual_act = ops_case_act(c, residual, N * O), *y = ops_case_empty_act(c, N * O);
  reference_linear(exact, x, w, N, I, O);
  c->ops->linear_forward(c->ops, y, x_act, w_act, NULL, N, I, O);
  const double sum = fmax(8, sqrt((double)I)); /* each element is a sum of I products */
  ops_case_check_act(c, "linear", y, exact, N * O, sum);
  for (int64_t i = 0; i < N * O; i++) exact[i] += residual[i];
  c->ops->linear_forward(c->ops, y, x_act, w_act, residual_act, N, I, O);
  ops_case_check_act(c, "linear + residual", y, exact, N * O, sum);
  c->ops->linear_forward(c->ops, residual_act, x_act, w_act, residual_act, N, I, O);
  ops_case_check_same(c, residual_act, y, (size_t)(N * O) * c->ops->act_bytes);

  double *dy = ops_case_values(c, N * O, 1), *dx = ops_case_zeros(c, N * I);
  const void *dy_act = ops_case_act(c, dy, N * O);
  void *dx_act = ops_case_empty_act(c, N * I);
  const double slack = fmax(8, sqrt((double)O)); /* each element is a sum of O products */
  reference_linear_backward_input(dx, dy, w, N, I, O);
  c->ops->linear_backward_input(c->ops, dx_act, dy_act, w_act, N, I, O, false);
  ops_case_check_act(c, "dx", dx_act, dx, N * I, slack);
  const double *stored = ops_case_read(c, dx_act, N * I);
  for (int64_t i = 0; i < N * I; i++) dx[i] += stored[i];
  c->ops->linear_backward_input(c->ops, dx_act, dy_act, w_act, N, I, O, true);
  ops_case_check_act(c, "dx accumulated", dx_act, dx, N * I, slack);

  double *before = ops_case_values(c, O * I, 1), *dw = ops_case_zeros(c, O * I);
  float *dw_float = ops_case_float(c, before, O * I);
  reference_linear_backward_weight(dw, dy, x, N, I, O);
  for (int64_t i = 0; i < O * I; i++) dw[i] += before[i];
  c->ops->linear_backward_weight(c->ops, dw_float, dy_act, x_act, N, I, O);
  /* Each element is a sum of N products, whose order the library chooses. In fp32 products,
   * oneDNN's kernels for AVX2 choose it by the height and width of a thread's share. */
  const bool cut_off = c->ops->act_bytes == 2 && device_case_is_real();
  const bool by_fp32 = c->ops->bf16_products != NULL && strcmp(c->ops->bf16_products, "fp32") == 0;
  const double dw_slack = fmax(16 + 4 * sqrt((double)N), cut_off ? tensor_sum_slack(N) : 0);
  if (c->ops->act_bytes == 2 && !by_fp32)
    ops_case_check_float(c, "dw", dw_float, dw, O * I, dw_slack);
  else
    ops_case_check_loose(c, "dw", dw_float, dw, O * I, dw_slack);
}

/* The gradient of the bias comes with that of the weights, which stays the same. */
static void bias_shape(struct ops_case *c, int64_t N, int64_t I, int64_t O)
{
  double *dy = ops_case_values(c, N * O, 1), *before = ops_case_values(c, O, 1);
  double *exact = ops_case_zeros(c, O), *weights = ops_case_values(c, O * I, 1);
  const void *dy_act = ops_case_act(c, dy, N * O);
  const void *x_act = ops_case_act(c, ops_case_values(c, N * I, 1), N * I);
  float *dbias = ops_case_float(c, before, O);
  float *dw[2] = {ops_case_float(c, weights, O * I), ops_case_float(c, weights, O * I)};
  for (int64_t i = 0; i < O; i++) exact[i] = before[i];
  for (int64_t i = 0; i < N * O; i++) exact[i % O] += dy[i];
  c->ops->linear_backward_weight(c->ops, dw[0], dy_act, x_act, N, I, O);
  c->ops->linear_bias_backward_weight(c->ops, dw[1], dbias, dy_act, x_act, N, I, O);
  ops_case_check_float(c, "dbias", dbias, exact, O, 32);
  ops_case_check_same(c, dw[1], dw[0], (size_t)(O * I) * sizeof(float));
}

static void bias_case(struct ops_case *c)
{
  bias_shape(c, 1, 1, 1);
  bias_shape(c, 3, 17, 33);
  bias_shape(c, 64, 64, 512);
  bias_shape(c, 65, 600, 520); /* a row more than a sum; more columns than rows of dw */
  bias_shape(c, 1000, 40, 24); /* several strips of tokens */
  bias_shape(c, 70, 8, 2100);  /* two panels of dy */
}

static void gradients_of_biases_match(void **state)
{
  (void)state;
  ops_case_each(bias_case);
}

/* The two fused operators of the MLP: hidden = relu(x w^T)^2, and the gradient back through the
 * next linear layer and relu^2. */
static void relu2_shape(struct ops_case *c, int64_t N, int64_t I, int64_t O)
{
  double *x = ops_case_values(c, N * I, 1), *w = ops_case_values(c, O * I, 1 / sqrt((double)I));
  double *exact = ops_case_zeros(c, N * O);
  const void *x_act = ops_case_act(c, x, N * I), *w_act = ops_case_act(c, w, O * I);
  void *hidden = ops_case_empty_act(c, N * O), *dup = ops_case_empty_act(c, N * O);
  reference_linear(exact, x, w, N, I, O);
  for (int64_t i = 0; i < N * O; i++) exact[i] = reference_relu2(exact[i]);
  c->ops->linear_relu2_forward(c->ops, hidden, x_act, w_act, N, I, O);
  /* in bf16 the product may be rounded as well, by up to 2^-8, which the square doubles */
  ops_case_check_act(c, "relu2", hidden, exact, N * O, c->ops->act_bytes == 2 ? 0x1p17 : 16);

  double *dy = ops_case_values(c, N * I, 1), *v = ops_case_values(c, I * O, 1);
  double *exact_dup = ops_case_zeros(c, N * O);
  const void *dy_act = ops_case_act(c, dy, N * I), *v_act = ops_case_act(c, v, I * O);
  const double *stored = ops_case_read(c, hidden, N * O);
  reference_linear_backward_input(exact_dup, dy, v, N, O, I);
  for (int64_t i = 0; i < N * O; i++) exact_dup[i] *= 2 * sqrt(stored[i]);
  c->ops->linear_relu2_backward_input(c->ops, dup, dy_act, v_act, hidden, N, O, I);
  ops_case_check_act(c, "through relu2", dup, exact_dup, N * O,
                     (c->ops->act_bytes == 2 ? 0x1p16 : 0) + fmax(16, 2 * sqrt((double)I)));
}

static void relu2_case(struct ops_case *c)
{
  relu2_shape(c, 1, 1, 1);
  relu2_shape(c, 3, 33, 5);
  relu2_shape(c, 33, 64, 48);
  relu2_shape(c, 300, 40, 72);
}

/* Shapes whose rows or columns the CPU backend splits. */
static void cut_relu2_case(struct ops_case *c)
{
  relu2_shape(c, 1, 24, 700);
  relu2_shape(c, 33, 16, 513);
  relu2_shape(c, 250, 300, 24);
  relu2_shape(c, 4129, 16, 8);
}

static void relu2_matches(void **state)
{
  (void)state;
  ops_case_each(relu2_case);
  ops_case_each_cpu(cut_relu2_case);
}

static void small_linear_case(struct ops_case *c)
{
  linear_shape(c, 1, 8, 8);
  linear_shape(c, 3, 33, 5);
  linear_shape(c, 33, 64, 48);
}

static void tall_linear_case(struct ops_case *c)
{
  linear_shape(c, 300, 40, 72);  /* a full tile of rows and a partial one */
  linear_shape(c, 1160, 24, 40); /* the sum over rows, for dw, is split */
  linear_shape(c, 4129, 16, 8);  /* enough rows for the taller tiles */
}

/* From one row to one full tile of rows. The columns are split in the forward pass, the backward
 * pass or both. */
static void wide_linear_case(struct ops_case *c)
{
  linear_shape(c, 1, 24, 700);
  linear_shape(c, 7, 96, 257);
  linear_shape(c, 32, 16, 512);
  linear_shape(c, 64, 40, 300);
  linear_shape(c, 200, 300, 16);
  if (ops_case_quick()) {
    linear_shape(c, 40, 264, 260);
    linear_shape(c, 256, 16, 264);
    return;
  }
  linear_shape(c, 256, 264, 520);
  /* for dw, threads may share the columns; their rows are cut into panels */
  linear_shape(c, 5, 560, 520);
}

static void linears_match(void **state)
{
  (void)state;
  ops_case_each_cpu(wide_linear_case);
  ops_case_each(small_linear_case);
  ops_case_each(tall_linear_case);
}

/* ---- on CPUs the bits of a row must not depend on the other rows, so that all batchings agree.
 * Linear layers on a card promise this only up to rounding (doc/cuda.md). ---- */
struct rows_operands {
  int64_t N, I, O;
  const char *x, *dy, *w, *residual, *before;
};

/* Forward, forward with a residual, backward, and backward that accumulates. */
static void rows_run(struct ops_case *c, const struct rows_operands *o, int64_t begin,
                     int64_t count, char *const out[4])
{
  const int64_t in = o->I * (int64_t)c->ops->act_bytes, width = o->O * (int64_t)c->ops->act_bytes;
  const char *x = o->x + begin * in, *dy = o->dy + begin * width;
  c->ops->linear_forward(c->ops, out[0], x, o->w, NULL, count, o->I, o->O);
  c->ops->linear_forward(c->ops, out[1], x, o->w, o->residual + begin * width, count, o->I, o->O);
  c->ops->linear_backward_input(c->ops, out[2], dy, o->w, count, o->I, o->O, false);
  c->ops->copy(c->ops, out[3], o->before + begin * in, (size_t)(count * in));
  c->ops->linear_backward_input(c->ops, out[3], dy, o->w, count, o->I, o->O, true);
}

static void rows_alone(struct ops_case *c, int64_t N, int64_t I, int64_t O)
{
  static const struct {
    int64_t begin, count;
  } parts[] = {{0, 1}, {299, 1}, {17, 7}, {31, 33}, {128, 160}, {40, 256}};
  double *x = ops_case_values(c, N * I, 1), *dy = ops_case_values(c, N * O, 1);
  double *w = ops_case_values(c, O * I, 0.1), *before = ops_case_values(c, N * I, 1);
  double *residual = ops_case_values(c, N * O, 1);
  const struct rows_operands o = {.N = N,
                                  .I = I,
                                  .O = O,
                                  .x = ops_case_act(c, x, N * I),
                                  .dy = ops_case_act(c, dy, N * O),
                                  .w = ops_case_act(c, w, O * I),
                                  .residual = ops_case_act(c, residual, N * O),
                                  .before = ops_case_act(c, before, N * I)};
  char *whole[4], *part[4];
  for (int i = 0; i < 4; i++) {
    whole[i] = ops_case_empty_act(c, N * (i < 2 ? O : I));
    part[i] = ops_case_empty_act(c, N * (i < 2 ? O : I));
  }
  rows_run(c, &o, 0, N, whole);
  for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
    if (parts[p].begin + parts[p].count > N) continue;
    rows_run(c, &o, parts[p].begin, parts[p].count, part);
    for (int i = 0; i < 4; i++) {
      const size_t row = (size_t)(i < 2 ? O : I) * c->ops->act_bytes;
      ops_case_check_same(c, part[i], whole[i] + (size_t)parts[p].begin * row,
                          (size_t)parts[p].count * row);
    }
  }
}

static void rows_alone_case(struct ops_case *c)
{
  rows_alone(c, 300, 48, 40);
}

/* Shapes at which libraries switch kernels: split columns, depths of more than one block of the
 * library, widths that are not aligned, and widths below the smallest tile. */
static void cut_rows_alone_case(struct ops_case *c)
{
  if (ops_case_quick()) {
    rows_alone(c, 300, 520, 24);
    rows_alone(c, 300, 24, 520);
  } else {
    rows_alone(c, 300, 520, 776);
    rows_alone(c, 300, 136, 1352);
    rows_alone(c, 1030, 1024, 128); /* with AVX-512, transposed weights have other bits */
  }
  rows_alone(c, 1030, 40, 24); /* enough rows to transpose the weights */
  rows_alone(c, 530, 49, 28);
  rows_alone(c, 300, 14, 16);
  rows_alone(c, 300, 200, 8);
}

static void rows_are_the_same_alone(void **state)
{
  (void)state;
  ops_case_each_cpu(rows_alone_case);
  ops_case_each_cpu(cut_rows_alone_case);
}

static void logits_alone(struct ops_case *c, int64_t N, int64_t D, int64_t V)
{
  double *h = ops_case_values(c, N * D, 1), *w = ops_case_values(c, V * D, 0.1);
  double *bias = ops_case_values(c, V, 1);
  const char *h_act = ops_case_act(c, h, N * D), *w_act = ops_case_act(c, w, V * D);
  const float *bias_float = ops_case_float(c, bias, V);
  float *whole = ops_case_empty_float(c, N * V), *part = ops_case_empty_float(c, N * V);
  c->ops->logits_forward(c->ops, whole, h_act, w_act, bias_float, N, D, V);
  for (int64_t begin = 0, count = 1; begin + count <= N; begin += count, count += 5) {
    const char *rows = h_act + (size_t)(begin * D) * c->ops->act_bytes;
    c->ops->logits_forward(c->ops, part, rows, w_act, bias_float, count, D, V);
    ops_case_check_same(c, part, whole + begin * V, (size_t)(count * V) * sizeof *part);
  }
}

static void logits_alone_case(struct ops_case *c)
{
  logits_alone(c, 200, 72, 33);
  logits_alone(c, 131, 200, 260);
}

static void logits_are_the_same_alone(void **state)
{
  (void)state;
  ops_case_each(logits_alone_case);
}

/* ---- head ---- */
static void logits_case(struct ops_case *c)
{
  head_case_logits(c, 1, 8, 33);
  head_case_logits(c, 67, 100, 33);
  head_case_logits(c, 300, 72, 260);
}

static void logits_match(void **state)
{
  (void)state;
  ops_case_each(logits_case);
}

static const struct plm_loss_options options[] = {
    {0, 0, 0}, {30, 0, 0}, {5, 0.1f, 0}, {15, 0.05f, 1e-3f}};

static void loss_case(struct ops_case *c)
{
  for (size_t i = 0; i < 4; i++) {
    head_case_loss(c, 67, 33, &options[i], 3);
    head_case_loss(c, 300, 5, &options[i], 0.1);
    head_case_loss(c, 3, 260, &options[i], 8);
  }
}

static void losses_match(void **state)
{
  (void)state;
  ops_case_each(loss_case);
}

static void train_case(struct ops_case *c)
{
  for (size_t i = 0; i < 4; i++)
    head_case_train(c, &(struct head_case){67, 72, 33, 2, options[i], false});
  head_case_train(c, &(struct head_case){0, 16, 33, 1, options[3], false});
  head_case_train(c, &(struct head_case){1, 8, 33, 1, options[3], false});
  head_case_train(c, &(struct head_case){130, 100, 261, 1, options[3], false});
  head_case_train(c, &(struct head_case){31, 37, 5, 3, options[3], false});
}

static void activated_case(struct ops_case *c)
{
  head_case_train(c, &(struct head_case){67, 72, 33, 2, options[0], true});
  head_case_train(c, &(struct head_case){130, 100, 64, 1, options[3], true});
}

/* More rows than the CPU backend processes at a time (4,096), the last tile a partial one. */
static void many_rows_case(struct ops_case *c)
{
  head_case_train(c, &(struct head_case){4096 + 300, 24, 33, 1, options[3], false});
  head_case_train(c, &(struct head_case){4096 + 300, 24, 33, 1, options[3], true});
}

static void training_matches(void **state)
{
  (void)state;
  ops_case_each(train_case);
  ops_case_each(activated_case);
  ops_case_each_cpu(many_rows_case);
}

/* `auto` must choose a precision that the product library can multiply. */
static void auto_multiplies(void **state)
{
  (void)state;
  enum { SIDE = 32 };
  struct plm_ops *ops;
  void *buffers[3];
  struct plm_error error = {0};
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_AUTO, 1, NULL, &ops, &error), PLM_OK);
  for (int i = 0; i < 3; i++) {
    const size_t bytes = SIDE * SIDE * ops->act_bytes;
    assert_int_equal(ops->allocate(ops, bytes, &buffers[i], &error), PLM_OK);
    ops->zero(ops, buffers[i], bytes);
  }
  ops->linear_forward(ops, buffers[0], buffers[1], buffers[2], NULL, SIDE, SIDE, SIDE);
  assert_int_equal(ops->synchronize(ops, &error), PLM_OK);
  for (int i = 0; i < 3; i++) ops->release(ops, buffers[i]);
  ops->close(ops);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linears_match),
      cmocka_unit_test(gradients_of_biases_match),
      cmocka_unit_test(relu2_matches),
      cmocka_unit_test(rows_are_the_same_alone),
      cmocka_unit_test(logits_are_the_same_alone),
      cmocka_unit_test(logits_match),
      cmocka_unit_test(losses_match),
      cmocka_unit_test(training_matches),
      cmocka_unit_test(auto_multiplies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
