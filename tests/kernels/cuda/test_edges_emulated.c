/* Operators of the CUDA backend at the edges where kernels may go wrong: sizes around a vector, a
 * warp, a block or a slab of rows; more work than a grid has threads, so that each takes several
 * turns; values near overflow. All are compared with double precision, in several orders of
 * threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/head_case.h"
#include "tests/support/operators/mix_case.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/reference/reference_ops.h"

/* ---- elements: the tail after the last vector and the last block ---- */
static void element_sizes(struct ops_case *c, int64_t n)
{
  double *x = ops_case_values(c, n, 2), *y = ops_case_values(c, n, 1);
  const void *y_act = ops_case_act(c, y, n);
  void *x_act = ops_case_act(c, x, n);
  void *out = ops_case_empty_act(c, n);
  float *wide = ops_case_empty_float(c, n);
  const float *x_float = ops_case_float(c, x, n);
  double *exact = ops_case_zeros(c, n);
  c->ops->round_weights(c->ops, out, x_float, (size_t)n);
  ops_case_check_act(c, "round", out, x, n, 0);
  c->ops->act_to_float(c->ops, wide, x_act, (size_t)n);
  ops_case_check_float(c, "widen", wide, x, n, 0);
  const void *one = ops_case_act(c, (double[]){1}, 1);
  for (int64_t i = 0; i < n; i++) exact[i] = reference_relu2(x[i]);
  c->ops->linear_relu2_forward(c->ops, out, x_act, one, n, 1, 1);
  ops_case_check_act(c, "relu2", out, exact, n, 1);
  for (int64_t i = 0; i < n; i++) exact[i] = reference_gelu(x[i]);
  c->ops->gelu_forward(c->ops, out, x_act, n);
  ops_case_check_act(c, "gelu", out, exact, n,
                     64); /* in its far tail, where roundings grow with x^2 */
  for (int64_t i = 0; i < n; i++) exact[i] = x[i] + y[i];
  c->ops->add(c->ops, x_act, y_act, n);
  ops_case_check_act(c, "add", x_act, exact, n, 1);
}

static void elements_case(struct ops_case *c)
{
  for (int64_t n = 1; n <= 17; n++) element_sizes(c, n);
  static const int64_t around_blocks[] = {1023, 1024, 1025, 2047, 2048, 2049};
  for (size_t i = 0; i < sizeof around_blocks / sizeof *around_blocks; i++)
    element_sizes(c, around_blocks[i]);
}

static void tails_of_vectors(void **state)
{
  (void)state;
  ops_case_each_cuda(elements_case);
}

/* ---- rows ---- */
static void move_rows(struct ops_case *c, int32_t N, int64_t D)
{
  int32_t *order = ops_case_integers(c, N, 1);
  for (int32_t i = 0; i < N; i++) order[i] = N - 1 - i;
  const int32_t *rows = ops_case_device(c, order, (size_t)N * sizeof *order);
  double *x = ops_case_values(c, N * D, 1), *turned = ops_case_zeros(c, N * D);
  void *x_act = ops_case_act(c, x, N * D), *out = ops_case_empty_act(c, N * D);
  for (int32_t i = 0; i < N; i++) memcpy(turned + i * D, x + order[i] * D, (size_t)D * sizeof *x);
  c->ops->gather_rows(c->ops, out, x_act, rows, N, D);
  ops_case_check_act(c, "gather", out, turned, N * D, 0);
  c->ops->scatter_rows(c->ops, x_act, out, rows, N, D);
  for (int64_t i = 0; i < N * D; i++) x[i] *= 2;
  ops_case_check_act(c, "scatter", x_act, x, N * D, 0);
}

static void rows_case(struct ops_case *c)
{
  static const int64_t widths[] = {1, 2, 3, 7, 127, 128, 129, 264};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    move_rows(c, 1, widths[i]);
    move_rows(c, 5, widths[i]);
  }
}

static void rows_of_any_width(void **state)
{
  (void)state;
  ops_case_each_cuda(rows_case);
}

static void norm_shape(struct ops_case *c, int64_t N, int64_t D, double deviation)
{
  const int64_t n = N * D;
  double *x = ops_case_values(c, n, deviation), *dh = ops_case_values(c, n, 1);
  double *before = ops_case_values(c, n, 1), *exact = ops_case_zeros(c, n);
  const void *x_act = ops_case_act(c, x, n), *dh_act = ops_case_act(c, dh, n);
  void *dx_act = ops_case_act(c, before, n), *out = ops_case_empty_act(c, n);
  reference_norm(exact, x, N, D);
  c->ops->norm_forward(c->ops, out, x_act, N, D);
  ops_case_check_act(c, "norm", out, exact, n, 8);
  reference_norm_backward(exact, dh, x, N, D);
  for (int64_t i = 0; i < n; i++) exact[i] += before[i];
  c->ops->norm_backward(c->ops, dx_act, dh_act, x_act, N, D);
  /* with few elements, one may be far below 1, and the gradient a difference of large terms */
  ops_case_check_act(c, "norm backward", dx_act, exact, n, D < 8 ? 1000 : 16);
}

static void norm_case(struct ops_case *c)
{
  static const int64_t widths[] = {1, 3, 4, 5, 8, 9, 31, 32, 33, 127, 128, 129, 255, 256, 264, 513};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    norm_shape(c, 1, widths[i], 1);
    norm_shape(c, 9, widths[i], 1);
  }
  /* rows of 1, 2, 3, 4, 6 and 8 vectors for each lane, and longer ones */
  static const int64_t held[] = {384, 392, 640, 1024, 1028, 1032, 2048, 2056};
  for (size_t i = 0; i < sizeof held / sizeof *held; i++) norm_shape(c, 2, held[i], 1);
  norm_shape(c, 3, 40, 1e15); /* squares near the limit of fp32 */
  norm_shape(c, 3, 40, 1e-3); /* eps matters */
  norm_shape(c, 8, 24, 0);    /* rows of padding: only eps */
}

static void norms_of_any_width(void **state)
{
  (void)state;
  ops_case_each_cuda(norm_case);
}

/* Three blocks of 8 rows are one round of the sums. */
static void mix_case(struct ops_case *c)
{
  static const int64_t held[] = {128, 256, 264, 384, 512, 520, 768, 1024, 1032};
  for (int i = 0; i < MIX_KINDS; i++) {
    const enum mix_case_kind kind = (enum mix_case_kind)i;
    for (int64_t N = 7; N <= 9; N++) mix_case_run(c, N, 33, kind);
    mix_case_run(c, 1, 1, kind);
    for (size_t k = 0; k < sizeof held / sizeof *held; k++) mix_case_run(c, 2, held[k], kind);
    mix_case_run(c, 53, 8, kind);
    mix_case_run(c, 30, 9, kind);
  }
}

static void mixes_of_more_rows_than_a_grid(void **state)
{
  (void)state;
  ops_case_each_cuda(mix_case);
}

/* ---- QKV prepare ---- */
static void qkv_shape(struct ops_case *c, int64_t B, int64_t L, int64_t H, int64_t K, double size)
{
  const int64_t D = H * K, N = B * L, half = K / 2;
  double *qkv = ops_case_values(c, N * 3 * D, size), *vi = ops_case_values(c, N * D, 1);
  double *cosine = ops_case_values(c, L * half, 1), *sine = ops_case_values(c, L * half, 1);
  for (int64_t i = 0; i < L * half; i++) {
    const double angle = (double)(i / half) * pow(10000, -2 * (double)(i % half) / (double)K);
    cosine[i] = cos(angle), sine[i] = sin(angle);
  }
  double a[2] = {0.6, -0.4}, da[2], none[2] = {0, 0};
  const void *qkv_act = ops_case_act(c, qkv, N * 3 * D), *vi_act = ops_case_act(c, vi, N * D);
  const float *cosine_float = ops_case_float(c, cosine, L * half);
  const float *sine_float = ops_case_float(c, sine, L * half), *a_float = ops_case_float(c, a, 2);
  const struct reference_qkv in = {.qkv = qkv,
                                   .vi = vi,
                                   .a = {a[0], a[1]},
                                   .cosine = cosine,
                                   .sine = sine,
                                   .B = B,
                                   .L = L,
                                   .H = H,
                                   .K = K};
  void *out = ops_case_empty_act(c, N * 3 * D), *dvi_act = ops_case_empty_act(c, N * D);
  double *exact = ops_case_zeros(c, N * 3 * D);
  reference_qkv_prepare(exact, &in);
  const struct plm_qkv given = {.qkv = qkv_act,
                                .vi = vi_act,
                                .a = a_float,
                                .cosine = cosine_float,
                                .sine = sine_float,
                                .B = B,
                                .L = L,
                                .H = H,
                                .K = K};
  c->ops->qkv_prepare_forward(c->ops, out, &given);
  ops_case_check_act(c, "qkv", out, exact, N * 3 * D, 8);
  double *dqkv = ops_case_values(c, N * 3 * D, 1), *dvi = ops_case_zeros(c, N * D);
  void *dqkv_act = ops_case_act(c, dqkv, N * 3 * D);
  float *da_float = ops_case_float(c, none, 2);
  reference_qkv_prepare_backward(exact, dvi, da, dqkv, &in);
  c->ops->qkv_prepare_backward(c->ops, dqkv_act, dvi_act, da_float, dqkv_act, &given);
  ops_case_check_act(c, "dqkv", dqkv_act, exact, N * 3 * D, 16);
  ops_case_check_act(c, "dvi", dvi_act, dvi, N * D, 2);
  ops_case_check_float(c, "da", da_float, da, 2, 10 * sqrt((double)(N * D)));
}

/* With three blocks, some of these take several rounds. */
static void qkv_case(struct ops_case *c)
{
  for (int64_t K = 16; K <= 128; K += 8) qkv_shape(c, 2, 3, 3, K, 1);
  for (int64_t K = 20; K <= 124; K += 52)
    qkv_shape(c, 1, 3, 5, K, 1);   /* halves that are not whole vectors */
  qkv_shape(c, 1, 7, 2, 40, 1e-3); /* eps matters */
  qkv_shape(c, 1, 300, 3, 16, 1);
  qkv_shape(c, 2, 33, 3, 128, 1);
  qkv_shape(c, 1, 25, 2, 28, 1);
}

static void heads_of_every_width(void **state)
{
  (void)state;
  ops_case_each_cuda(qkv_case);
}

/* ---- token tables ---- */
static void table_shape(struct ops_case *c, int64_t N, int64_t D, int32_t V, int level)
{
  double *table = ops_case_values(c, V * D, 1), *dout = ops_case_values(c, N * D, 1);
  double *dtable = ops_case_zeros(c, V * D), *exact = ops_case_zeros(c, (N + V) * D);
  int32_t *tokens = ops_case_integers(c, N << level, V);
  tokens[0] = V - 1; /* so that the last token always occurs */
  const int32_t *tokens_device = ops_case_device(c, tokens, (size_t)(N << level) * sizeof *tokens);
  const float *table_float = ops_case_float(c, table, V * D);
  const void *dout_act = ops_case_act(c, dout, N * D);
  void *out = ops_case_empty_act(c, N * D);
  float *dtable_float = ops_case_float(c, dtable, V * D);
  reference_token_mean(exact, table, tokens, N, D, level);
  c->ops->token_mean_forward(c->ops, out, table_float, tokens_device, N, D, V, level);
  ops_case_check_act(c, "token mean", out, exact, N * D, 8);
  reference_token_mean_backward(exact, dout, tokens, N, D, V, level);
  c->ops->token_mean_backward(c->ops, dtable_float, dout_act, tokens_device, N, D, V, level);
  ops_case_check_float(c, "dtable", dtable_float, exact, V * D, 16 + sqrt((double)N));
}

static void tables_case(struct ops_case *c)
{
  for (int level = 0; level <= 5; level++) table_shape(c, 3, 65, 33, level);
  table_shape(c, 2, 7, 261, 2);
  table_shape(c, 1, 1, 33, 10);
  for (int64_t N = 511; N <= 513; N++) table_shape(c, N, 3, 5, 0);
  table_shape(c, 1030, 64, 33, 1); /* five slabs of 256 rows */
  table_shape(c, 1700, 5, 33, 0); /* the emulation has at most three slabs, which are longer here */
  table_shape(c, 20, 131, 7, 0);  /* more columns than a block has */
  table_shape(c, 3, 8, 200, 0);   /* more shared memory than a kernel has without asking … */
  table_shape(c, 3, 8, 260, 0);   /* … and more than this kernel has asked for so far */
}

static void tables_of_every_level(void **state)
{
  (void)state;
  ops_case_each_cuda(tables_case);
}

/* ---- head and loss ---- */
static void head_case(struct ops_case *c)
{
  static const int64_t rows[] = {1, 2, 11, 12, 13}, widths[] = {1, 31, 32, 33, 65, 264};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t j = 0; j < sizeof widths / sizeof *widths; j++)
      head_case_logits(c, rows[i], widths[j], 33);
  static const int64_t tokens[] = {1, 5, 31, 32, 34, 36, 37, 72, 73, 261};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) head_case_logits(c, 3, 40, tokens[i]);
}

static void heads_of_any_shape(void **state)
{
  (void)state;
  ops_case_each_cuda(head_case);
}

static void loss_case(struct ops_case *c)
{
  static const int64_t widths[] = {2, 31, 32, 33, 64, 65, 261};
  const struct plm_loss_options plain = {0, 0, 0}, capped = {15, 0.1f, 1e-4f};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    head_case_loss(c, 7, widths[i], &plain, 2);
    head_case_loss(c, 9, widths[i], &capped, 2);
  }
  head_case_loss(c, 8, 33, &plain, 100);  /* exp of a logit overflows */
  head_case_loss(c, 17, 33, &capped, 40); /* most logits are at the cap */
}

static void losses_of_any_width(void **state)
{
  (void)state;
  ops_case_each_cuda(loss_case);
}

/* Rows: around the two of a warp, a group of 6, a round of 12 and a tile (12 to 48), and more tiles
 * than the emulation's three blocks. Columns: around a vector, a round of a warp and a pass of 768.
 * Tokens: around the sums that a lane holds, and so many that tiles are shorter. */
static void train_case(struct ops_case *c)
{
  const struct plm_loss_options plain = {0, 0, 0}, capped = {15, 0.1f, 1e-3f};
  static const int64_t rows[] = {1, 2, 5, 6, 7, 12, 13, 24, 25, 47, 48, 49, 150};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    head_case_train(c, &(struct head_case){rows[i], 16, 33, 2, i % 2 == 0 ? plain : capped, false});
  static const int64_t widths[] = {1, 3, 4, 5, 8, 63, 256, 257, 264, 768, 769, 776};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    head_case_train(c, &(struct head_case){3, widths[i], 33, 1, capped, false});
  static const int64_t tokens[] = {2, 12, 13, 32, 36, 37, 72, 73, 261};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
    head_case_train(c, &(struct head_case){26, 24, tokens[i], 1, capped, false});
  head_case_train(c, &(struct head_case){9, 24, 33, 6, plain, false});
}

static void training_of_any_shape(void **state)
{
  (void)state;
  ops_case_each_cuda(train_case);
}

/* A row of weight 0 does not count, whatever its values are. */
static void no_weight_case(struct ops_case *c)
{
  enum { N = 9, V = 33 };
  double *raw = ops_case_values(c, N * V, 1), weights[N] = {0};
  const struct plm_loss_options options = {0, 0.1f, 1e-3f};
  raw[3] = NAN, raw[V] = INFINITY, raw[2 * V] = -INFINITY;
  int32_t *labels = ops_case_integers(c, N, V);
  const int32_t *labels_device = ops_case_device(c, labels, N * sizeof *labels);
  float *logits = ops_case_float(c, raw, N * V), *got = ops_case_empty_float(c, N);
  const float *weights_float = ops_case_float(c, weights, N);
  const double *zeros = ops_case_zeros(c, N * V);
  c->ops->cross_entropy(c->ops, got, logits, labels_device, weights_float, &options, N, V);
  ops_case_check_float(c, "loss without weight", got, zeros, N, 0);
}

static void rows_without_weight(void **state)
{
  (void)state;
  ops_case_each_cuda(no_weight_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tails_of_vectors),      cmocka_unit_test(rows_of_any_width),
      cmocka_unit_test(norms_of_any_width),    cmocka_unit_test(mixes_of_more_rows_than_a_grid),
      cmocka_unit_test(heads_of_every_width),  cmocka_unit_test(tables_of_every_level),

      cmocka_unit_test(heads_of_any_shape),    cmocka_unit_test(losses_of_any_width),
      cmocka_unit_test(training_of_any_shape), cmocka_unit_test(rows_without_weight),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
