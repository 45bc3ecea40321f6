/* Compares the optimizer's operators (Adam, Muon, the weight average, the sums and the decision of
 * a step) with their formulas in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/ops/device.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/device_case.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/reference/reference_ops.h"

enum { TENSORS = 130 }; /* more than fit into one launch on CUDA */

static void adam_case(struct ops_case *c)
{
  const int64_t n = 70001;
  double *w = ops_case_values(c, n, 1), *m = ops_case_values(c, n, 0.1);
  double *v = ops_case_values(c, n, 0.1), *g = ops_case_values(c, n, 1);
  for (int64_t i = 0; i < n; i++) v[i] *= v[i];
  float *w_float = ops_case_float(c, w, n), *m_float = ops_case_float(c, m, n);
  float *v_float = ops_case_float(c, v, n), *average = ops_case_float(c, w, n);
  const float *g_float = ops_case_float(c, g, n);
  const struct plm_update host = {.inputs = {.rate = {0, 0.01f},
                                             .correction1 = 0.36f,
                                             .correction2 = 0.0975f,
                                             .average_decay = 0.99f},
                                  .decision = {.gradient_scale = 0.5f}};
  const struct plm_adam_options o = {.beta1 = 0.8f, .beta2 = 0.95f, .eps = 1e-8f};
  const double lr = (double)host.inputs.rate[1], decay = (double)0.1f;
  double sum = 0, *ema = ops_case_zeros(c, n);
  for (int64_t i = 0; i < n; i++) {
    const double gradient = 0.5 * g[i], b1 = (double)o.beta1, b2 = (double)o.beta2;
    ema[i] = 0.99 * w[i];
    m[i] = b1 * m[i] + (1 - b1) * gradient;
    v[i] = b2 * v[i] + (1 - b2) * gradient * gradient;
    w[i] -= lr * decay * w[i];
    w[i] -= lr * (m[i] / (double)host.inputs.correction1) /
            (sqrt(v[i] / (double)host.inputs.correction2) + (double)o.eps);
    ema[i] += 0.01 * w[i];
    sum += w[i] * w[i];
  }
  /* many tensors in one call, of different sizes, some of them empty */
  struct plm_adam_tensor tensors[TENSORS];
  size_t at = 0;
  for (int i = 0; i < TENSORS; i++) {
    const size_t count = i == TENSORS - 1 ? (size_t)n - at : (size_t)(i % 3 * i);
    tensors[i] = (struct plm_adam_tensor){.w = w_float + at,
                                          .m = m_float + at,
                                          .v = v_float + at,
                                          .g = g_float + at,
                                          .n = count,
                                          .weight_decay = 0.1f,
                                          .rate = 1};
    at += count;
  }
  const struct plm_update *update = ops_case_device(c, &host, sizeof host);
  c->ops->adam_step(c->ops, tensors, TENSORS, &o, update);
  ops_case_check_float(c, "adam m", m_float, m, n, 2);
  ops_case_check_float(c, "adam v", v_float, v, n, 2);
  ops_case_check_float(c, "adam w", w_float, w, n, 2);
  c->ops->average_step(c->ops, average, w_float, (size_t)n, update);
  ops_case_check_float(c, "average", average, ema, n, 2);
  const double start = 3;
  double *sums = ops_case_device(c, (const double[]){start, start}, 2 * sizeof(double)), got[2];
  const struct plm_array w_vector = {.x = w_float, .n = (size_t)n};
  c->ops->sum_squares(c->ops, &sums[0], &w_vector, 1);
  c->ops->add_sum(c->ops, &sums[1], average, (size_t)n);
  c->ops->download(c->ops, got, sums, sizeof got);
  double total = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    total += ema[i];
    size += fabs(ema[i]);
  }
  assert_true(fabs(got[0] / sum - 1) < 1e-7);
  assert_true(fabs(got[1] - start - total) < 1e-7 * size);
}

/* A skipped step must not change any bit of weights or state, even if a gradient is NaN. */
static void skipped_case(struct ops_case *c)
{
  const int64_t n = 48 * 40;
  double *w = ops_case_values(c, n, 1), *g = ops_case_values(c, n, 1);
  float *w_float = ops_case_float(c, w, n), *before = ops_case_float(c, w, n);
  float *m = ops_case_float(c, w, n), *v = ops_case_float(c, w, n), *average = m;
  g[7] = NAN;
  const float *g_float = ops_case_float(c, g, n);
  const struct plm_update host = {
      .inputs = {.rate = {1, 1, 1, 1}, .correction1 = 1, .correction2 = 1},
      .decision = {.gradient_scale = 1, .skipped = 1}};
  const struct plm_update *update = ops_case_device(c, &host, sizeof host);
  const struct plm_adam_options options = {.beta1 = 0.8f, .beta2 = 0.9f, .eps = 1e-8f};
  const struct plm_adam_tensor tensor = {w_float, m, v, g_float, (size_t)n, 0.1f, 0};
  const struct plm_muon_matrix matrix = {.w = w_float,
                                         .momentum = m,
                                         .g = g_float,
                                         .rows = 48,
                                         .cols = 40,
                                         .weight_decay = 0.1f,
                                         .update_scale = 1};
  float *scratch = ops_case_empty_float(c, (int64_t)c->ops->muon_scratch(c->ops, &matrix, 1));
  c->ops->adam_step(c->ops, &tensor, 1, &options, update);
  c->ops->muon_step(c->ops, &matrix, 1, scratch, update);
  c->ops->average_step(c->ops, average, g_float, (size_t)n, update);
  ops_case_check_same(c, w_float, before, (size_t)n * sizeof(float));
  ops_case_check_same(c, m, before, (size_t)n * sizeof(float));
  ops_case_check_same(c, v, before, (size_t)n * sizeof(float));
}

static void a_skipped_step_changes_nothing(void **state)
{
  (void)state;
  ops_case_each(skipped_case);
}

static struct plm_update_decision decide(struct ops_case *c, struct plm_update host)
{
  struct plm_update *update = ops_case_device(c, &host, sizeof host);
  c->ops->decide_update(c->ops, update);
  c->ops->download(c->ops, &host, update, sizeof host);
  return host.decision;
}

static void decide_case(struct ops_case *c)
{
  struct plm_update update = {.inputs = {.count = 4}, .sums = {.loss = 2, .squares = 64}};
  struct plm_update_decision decision = decide(c, update); /* the norm is 2; nothing is clipped */
  assert_true(!decision.skipped && decision.threshold == 0 && decision.gradient_scale == 0.25f);
  update.inputs.clip.fixed = 0.5;
  decision = decide(c, update);
  assert_true(decision.threshold == 0.5);
  assert_true(decision.gradient_scale == (float)(0.5 / (2 + 1e-6) / 4));
  update.inputs.clip = (struct plm_update_clip){
      .automatic = 1, .below = -INFINITY, .at = 1, .above = 3, .fraction = 0.5};
  decision = decide(c, update); /* this norm, 2, lies between 1 and 3 */
  assert_true(decision.threshold == 1.5);
  const double bad[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    struct plm_update broken = update;
    broken.sums.loss = bad[i];
    assert_true(decide(c, broken).skipped);
    broken = update;
    broken.sums.squares = bad[i];
    assert_true(decide(c, broken).skipped);
  }
  update.inputs.count = NAN; /* no target was chosen */
  update.sums = (struct plm_update_sums){0};
  assert_true(decide(c, update).skipped);
}

static void decisions_are_made_on_the_device(void **state)
{
  (void)state;
  ops_case_each(decide_case);
}

static void adam_matches(void **state)
{
  (void)state;
  ops_case_each(adam_case);
}

/* With no elements, nothing may change, except that sum_squares gives 0. */
static void nothing_case(struct ops_case *c)
{
  double one[1] = {1};
  float *x = ops_case_float(c, one, 1), *before = ops_case_float(c, one, 1);
  double *sums = ops_case_device(c, (const double[]){3, 3}, 2 * sizeof(double)), got[2];
  const struct plm_update host = {.decision = {.gradient_scale = 1}};
  const struct plm_update *update = ops_case_device(c, &host, sizeof host);
  const struct plm_adam_options options = {.beta1 = 0.8f, .beta2 = 0.9f, .eps = 1e-8f};
  const struct plm_adam_tensor empty[2] = {{x, x, x, x, 0, 0.1f, 0}, {x, x, x, x, 0, 0.1f, 0}};
  c->ops->adam_step(c->ops, empty, 2, &options, update);
  c->ops->adam_step(c->ops, empty, 0, &options, update);
  c->ops->muon_step(c->ops, NULL, 0, x, update);
  c->ops->average_step(c->ops, x, x, 0, update);
  const struct plm_array no_vector = {.x = x};
  c->ops->sum_squares(c->ops, &sums[0], &no_vector, 1);
  c->ops->add_sum(c->ops, &sums[1], x, 0);
  c->ops->download(c->ops, got, sums, sizeof got);
  assert_true(got[0] == 0 && got[1] == 3);
  assert_int_equal(c->ops->muon_scratch(c->ops, NULL, 0), 0);
  ops_case_check_same(c, x, before, sizeof *x);
}

static void nothing_changes_nothing(void **state)
{
  (void)state;
  ops_case_each(nothing_case);
}

static struct plm_update muon_update(void)
{
  return (struct plm_update){.inputs = {.rate = {0.5f}, .momentum = 0.75f},
                             .decision = {.gradient_scale = 0.25f}};
}

static void muon_shape(struct ops_case *c, int64_t rows, int64_t cols)
{
  const int64_t n = rows * cols;
  double *w = ops_case_values(c, n, 0.1), *momentum = ops_case_values(c, n, 1);
  double *g = ops_case_values(c, n, 1);
  float *w_float = ops_case_float(c, w, n), *momentum_float = ops_case_float(c, momentum, n);
  const float *g_float = ops_case_float(c, g, n);
  const struct plm_muon_matrix matrix = {.w = w_float,
                                         .momentum = momentum_float,
                                         .g = g_float,
                                         .rows = rows,
                                         .cols = cols,
                                         .weight_decay = 0.1f,
                                         .update_scale = 1.25f};
  const struct plm_update host = muon_update();
  const struct reference_muon exact = {0.5, 0.75, (double)0.1f, 0.25, 1.25};
  float *scratch = ops_case_empty_float(c, (int64_t)c->ops->muon_scratch(c->ops, &matrix, 1));
  reference_muon_step(w, momentum, g, rows, cols, &exact);
  c->ops->muon_step(c->ops, &matrix, 1, scratch, ops_case_device(c, &host, sizeof host));
  ops_case_check_float(c, "momentum", momentum_float, momentum, n, 4);
  /* the five steps amplify the rounding errors of their products several hundred times */
  const double step = c->ops->act_bytes == 4 ? 1000 : 0x1p16 * 20;
  ops_case_check_float(c, "muon", w_float, w, n, step);
}

static void muon_case(struct ops_case *c)
{
  muon_shape(c, 16, 16);
  muon_shape(c, 24, 100);
  muon_shape(c, 130, 48);
  muon_shape(c, 33, 71);
  /* the symmetric products have several blocks in fp32 */
  if (ops_case_quick())
    muon_shape(c, 100, 130);
  else
    muon_shape(c, 150, 210);
}

/* The bits of a matrix do not depend on what is updated beside it, since other ranks own other
 * matrices. */
static void muon_company_case(struct ops_case *c)
{
  enum { COUNT = 37, ROWS = 24, COLS = 40, N = ROWS * COLS };
  const struct plm_update host = muon_update();
  const struct plm_update *update = ops_case_device(c, &host, sizeof host);
  double *w = ops_case_values(c, N, 0.1), *momentum = ops_case_values(c, N, 1);
  const float *g = ops_case_float(c, ops_case_values(c, N, 1), N);
  float *alone = NULL;
  for (int count = 1; count <= COUNT; count += count < 5 ? 1 : 16) {
    struct plm_muon_matrix matrices[COUNT];
    const int at = count - 1; /* the last one of the batch */
    for (int i = 0; i < count; i++)
      matrices[i] = (struct plm_muon_matrix){
          .w = ops_case_float(c, i == at ? w : ops_case_values(c, N, 1), N),
          .momentum = ops_case_float(c, i == at ? momentum : ops_case_values(c, N, 1), N),
          .g = i == at ? g : ops_case_float(c, ops_case_values(c, N, 1), N),
          .rows = ROWS,
          .cols = COLS,
          .update_scale = 1};
    float *scratch =
        ops_case_empty_float(c, (int64_t)c->ops->muon_scratch(c->ops, matrices, (size_t)count));
    c->ops->muon_step(c->ops, matrices, (size_t)count, scratch, update);
    if (count == 1)
      alone = matrices[0].w;
    else
      ops_case_check_same(c, matrices[at].w, alone, N * sizeof *alone);
  }
}

static void muon_does_not_depend_on_the_batch(void **state)
{
  (void)state;
  ops_case_each(muon_company_case);
}

/* Many matrices in one call, with three shapes in mixed order. 37 have the same shape, which is
 * more than a batch of the CUDA backend holds (32). Decay, scale and rate differ from matrix to
 * matrix, and one matrix has a zero gradient. */
static void muon_batch_case(struct ops_case *c)
{
  enum { COUNT = 49, SHAPES = 3, STILL = 15 };
  static const int64_t sizes[SHAPES][2] = {{6, 8}, {20, 8}, {6, 33}};
  double *w[COUNT], *momentum[COUNT];
  struct plm_muon_matrix matrices[COUNT];
  struct plm_update host = muon_update();
  host.inputs.rate[1] = 0.25f;
  for (int i = 0; i < COUNT; i++) {
    const int shape = i % 8 == 3 ? 1 : i % 8 == 5 ? 2 : 0;
    const int64_t rows = sizes[shape][0], cols = sizes[shape][1], n = rows * cols;
    double *g = ops_case_values(c, n, i == STILL ? 0 : 1);
    w[i] = ops_case_values(c, n, 0.1);
    momentum[i] = ops_case_values(c, n, i == STILL ? 0 : 1);
    matrices[i] = (struct plm_muon_matrix){.w = ops_case_float(c, w[i], n),
                                           .momentum = ops_case_float(c, momentum[i], n),
                                           .g = ops_case_float(c, g, n),
                                           .rows = rows,
                                           .cols = cols,
                                           .weight_decay = (float)i / 256,
                                           .update_scale = 1 + (float)i / 64,
                                           .rate = i % 2};
    const struct reference_muon exact = {(double)host.inputs.rate[i % 2], 0.75, i / 256.0, 0.25,
                                         1 + i / 64.0};
    reference_muon_step(w[i], momentum[i], g, rows, cols, &exact);
  }
  float *scratch = ops_case_empty_float(c, (int64_t)c->ops->muon_scratch(c->ops, matrices, COUNT));
  c->ops->muon_step(c->ops, matrices, COUNT, scratch, ops_case_device(c, &host, sizeof host));
  const double step = c->ops->act_bytes == 4 ? 1000 : 0x1p16 * 20;
  for (int i = 0; i < COUNT; i++) {
    const int64_t n = matrices[i].rows * matrices[i].cols;
    ops_case_check_float(c, "momentum of many", matrices[i].momentum, momentum[i], n, 4);
    ops_case_check_float(c, "muon of many", matrices[i].w, w[i], n, step);
  }
}

/* Here the symmetric products have several blocks in bf16 as well, the last of them smaller. The
 * third product has several blocks in both precisions; in fp32, a quick run tests only this. */
static void large_muon_case(struct ops_case *c)
{
  if (ops_case_quick() && c->ops->act_bytes == 4) {
    muon_shape(c, 260, 24);
    muon_shape(c, 24, 260);
    return;
  }
  muon_shape(c, 410, 205);
  muon_shape(c, 205, 410);
}

static void muon_matches(void **state)
{
  (void)state;
  ops_case_each(muon_case);
  ops_case_each(muon_batch_case);
  ops_case_each_cpu(large_muon_case);
}

/* Small matrices, which single threads update, and one so large that all threads share it. A quick
 * run has only the first of them. */
enum { MATRICES = 7, QUICK_MATRICES = 5, MATRIX_ELEMENTS = 850000 };
static const int64_t MATRIX_SIZES[MATRICES][2] = {{16, 16},    {24, 100}, {130, 48}, {100, 130},
                                                  {2, 300000}, {192, 64}, {410, 205}};

/* Updates the weights of all matrices, in one call or in one call for each. */
static void muon_weights(int precision, uint32_t threads, bool together, float *weights)
{
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(precision, threads, NULL, &ops, NULL), PLM_OK);
  float *momentum = calloc(MATRIX_ELEMENTS, sizeof *momentum);
  float *gradient = calloc(MATRIX_ELEMENTS, sizeof *gradient);
  assert_true(momentum != NULL && gradient != NULL);
  struct plm_muon_matrix matrices[MATRICES];
  const int count = ops_case_quick() ? QUICK_MATRICES : MATRICES;
  int64_t at = 0;
  for (int64_t i = 0; i < MATRIX_ELEMENTS; i++) {
    weights[i] = 0;
    gradient[i] = (float)(i * 7919 % 1013) / 1013.0f - 0.5f;
  }
  for (int i = 0; i < count; i++) {
    const int64_t rows = MATRIX_SIZES[i][0], cols = MATRIX_SIZES[i][1];
    matrices[i] = (struct plm_muon_matrix){.w = weights + at,
                                           .momentum = momentum + at,
                                           .g = gradient + at,
                                           .rows = rows,
                                           .cols = cols,
                                           .weight_decay = 0.1f,
                                           .update_scale = 1.25f};
    at += rows * cols;
  }
  assert_true(at <= MATRIX_ELEMENTS);
  float *scratch = calloc(ops->muon_scratch(ops, matrices, (size_t)count), sizeof *scratch);
  assert_non_null(scratch);
  const struct plm_update update = muon_update();
  if (together)
    ops->muon_step(ops, matrices, (size_t)count, scratch, &update);
  else
    for (int i = 0; i < count; i++) ops->muon_step(ops, &matrices[i], 1, scratch, &update);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  ops->close(ops);
  free(momentum);
  free(gradient);
  free(scratch);
}

static void matrices_are_the_same_together(void **state)
{
  (void)state;
  if (device_case_is_real())
    skip("it tests the emulation"); /* this test is about the CPU's threads */
  float *alone = calloc(2 * MATRIX_ELEMENTS, sizeof *alone), *other = alone + MATRIX_ELEMENTS;
  assert_non_null(alone);
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
    const int precision = is_bf16 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32;
    muon_weights(precision, 3, false, alone); /* all threads share each matrix */
    for (uint32_t threads = 1; threads <= 3; threads++) {
      muon_weights(precision, threads, true, other);
      assert_memory_equal(alone, other, MATRIX_ELEMENTS * sizeof *alone);
    }
  }
  free(alone);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adam_matches),
      cmocka_unit_test(nothing_changes_nothing),
      cmocka_unit_test(a_skipped_step_changes_nothing),
      cmocka_unit_test(decisions_are_made_on_the_device),
      cmocka_unit_test(muon_does_not_depend_on_the_batch),
      cmocka_unit_test(muon_matches),
      cmocka_unit_test(matrices_are_the_same_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
