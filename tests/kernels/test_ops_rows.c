/* Compares the operators on rows and elements with the reference in double precision: norm, mix,
 * QKV prepare, token tables, activations, and addition to the residual stream. */
#include <math.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/mix_case.h"
#include "tests/support/operators/ops_case.h"
#include "tests/support/reference/reference_ops.h"

static const int64_t shapes[][2] = {{1, 1},   {1, 7},    {3, 16},   {5, 33},   {31, 64},
                                    {33, 48}, {65, 128}, {130, 72}, {257, 200}};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* ---- elementwise ---- */
static double largest(const double *x, int64_t n)
{
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
  return most;
}

static void gelu(struct ops_case *c, int64_t n)
{
  double *x = ops_case_values(c, n, 3), *exact = ops_case_zeros(c, n);
  const void *x_act = ops_case_act(c, x, n);
  void *out = ops_case_empty_act(c, n);
  for (int64_t i = 0; i < n; i++) exact[i] = reference_gelu(x[i]);
  c->ops->gelu_forward(c->ops, out, x_act, n);
  /* where GELU is near 0, only the error relative to its largest input is bounded */
  ops_case_check_act(c, "gelu", out, exact, n, 2 * fmax(1, largest(x, n) / largest(exact, n)));
}

static void gelu_case(struct ops_case *c)
{
  static const int64_t sizes[] = {1, 15, 16, 17, 1000, 40000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) gelu(c, sizes[i]);
}

static void gelu_matches(void **state)
{
  (void)state;
  ops_case_each(gelu_case);
}

/* Tiles of the CPU have 16384 elements. What is behind the last one stays. */
static void conversions(struct ops_case *c, int64_t n)
{
  double *x = ops_case_values(c, n + 1, 10);
  const float *x_float = ops_case_float(c, x, n + 1);
  x[n] = 0;
  void *out = ops_case_act(c, ops_case_zeros(c, n + 1), n + 1);
  float *back = ops_case_float(c, ops_case_zeros(c, n + 1), n + 1);
  c->ops->round_weights(c->ops, out, x_float, (size_t)n);
  const void *expected = ops_case_act(c, x, n + 1);
  /* both must round to nearest, with ties to even */
  ops_case_check_same(c, out, expected, (size_t)(n + 1) * c->ops->act_bytes);
  c->ops->act_to_float(c->ops, back, out, (size_t)n);
  ops_case_check_float(c, "act_to_float", back, x, n + 1, 0);
}

static void conversions_case(struct ops_case *c)
{
  static const int64_t sizes[] = {16383, 16384, 16385, 20011};
  for (int i = 0; i < 4; i++) conversions(c, sizes[i]);
}

static void conversions_round_once(void **state)
{
  (void)state;
  ops_case_each(conversions_case);
}

/* To nearest, with ties to even. */
static uint16_t rounded_to_bf16(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void bf16_case(struct ops_case *c)
{
  enum { N = 20011 }; /* not a multiple of any vector's length */
  static const float special[] = {1.00390625f, 1.01171875f, NAN,    INFINITY,
                                  -INFINITY,   -0.0f,       3.4e38f};
  enum { SPECIAL = sizeof special / sizeof *special };
  static float x[N], back[N];
  static uint16_t expected[N];
  const double *values = ops_case_values(c, N, 10);
  for (int i = 0; i < N; i++) x[i] = i < SPECIAL ? special[i] : (float)values[i];
  for (int i = 0; i < N; i++) expected[i] = rounded_to_bf16(x[i]);
  const float *in = ops_case_device(c, x, sizeof x);
  bf16 *narrow = ops_case_device(c, expected, sizeof expected);
  float *wide = ops_case_empty_float(c, N);
  c->ops->zero(c->ops, narrow, sizeof expected);
  c->ops->float_to_bf16(c->ops, narrow, in, N);
  c->ops->bf16_to_float(c->ops, wide, narrow, N);
  c->ops->download(c->ops, back, wide, sizeof back);
  assert_int_equal(c->ops->synchronize(c->ops, NULL), PLM_OK);
  for (int i = 0; i < N; i++) {
    uint32_t bits;
    memcpy(&bits, &back[i], sizeof bits);
    if (isnan(x[i]))
      assert_true(isnan(back[i]));
    else
      assert_int_equal(bits, (uint32_t)expected[i] << 16);
  }
}

static void bf16_is_made_in_every_precision(void **state)
{
  (void)state;
  ops_case_each(bf16_case);
}

static void special_values_case(struct ops_case *c)
{
  const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 3.4e38f, 1e-40f};
  enum { N = sizeof values / sizeof *values };
  const float *x = ops_case_device(c, values, sizeof values);
  void *out = ops_case_empty_act(c, N);
  c->ops->round_weights(c->ops, out, x, N);
  const double *got = ops_case_read(c, out, N);
  assert_true(isnan(got[0]));
  assert_true(isinf(got[1]) && got[1] > 0);
  assert_true(isinf(got[2]) && got[2] < 0);
  assert_true(got[3] == 0 && signbit(got[3]));
  /* NaN and infinity must survive, so that the step's check for finite sums sees them */
  void *relu = ops_case_empty_act(c, N), *gelu = ops_case_empty_act(c, N);
  const void *one = ops_case_act(c, (double[]){1}, 1);
  c->ops->linear_relu2_forward(c->ops, relu, out, one, N, 1, 1);
  c->ops->gelu_forward(c->ops, gelu, out, N);
  assert_true(isnan(ops_case_read(c, relu, N)[0]) && isinf(ops_case_read(c, relu, N)[1]));
  void *slope = ops_case_empty_act(c, N);
  c->ops->linear_relu2_backward_input(
      c->ops, slope, ops_case_act(c, (double[N]){1, 1, 1, 1, 1, 1}, N), one, relu, N, 1, 1);
  assert_true(isnan(ops_case_read(c, slope, N)[0]) && isinf(ops_case_read(c, slope, N)[1]));
  assert_true(isnan(ops_case_read(c, gelu, N)[0]) && isinf(ops_case_read(c, gelu, N)[1]));
  double *sums = ops_case_device(c, (const double[]){0, 0}, 2 * sizeof(double)), got_sums[2];
  const struct plm_array vectors[2] = {{.x = x, .n = N}, {.x = x + 1, .n = N - 1}};
  c->ops->sum_squares(c->ops, sums, vectors, 2);
  c->ops->download(c->ops, got_sums, sums, sizeof got_sums);
  assert_true(isnan(got_sums[0]) && isinf(got_sums[1]));
}

static void special_values_pass(void **state)
{
  (void)state;
  ops_case_each(special_values_case);
}

static void add_case(struct ops_case *c)
{
  static const int64_t sizes[] = {1, 17, 36120};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    const int64_t n = sizes[k];
    double *x = ops_case_values(c, n, 1), *y = ops_case_values(c, n, 1);
    void *x_act = ops_case_act(c, x, n);
    const void *y_act = ops_case_act(c, y, n);
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
    c->ops->add(c->ops, x_act, y_act, n);
    ops_case_check_act(c, "add", x_act, x, n, 1);
  }
}

static void additions_match(void **state)
{
  (void)state;
  ops_case_each(add_case);
}

/* Rows are those of x but for its first one, at which a row of -1 would be. */
static void rows_case(struct ops_case *c)
{
  const int64_t N = 150, D = 40;
  int32_t rows[70];
  for (int i = 0; i < 70; i++) rows[i] = i % 9 == 4 ? -1 : (i * 37 + 5) % 149; /* distinct */
  const int32_t *rows_device = ops_case_device(c, rows, sizeof rows);
  double *x = ops_case_values(c, N * D, 1), *part = ops_case_zeros(c, 70 * D);
  void *x_act = ops_case_act(c, x, N * D), *out = ops_case_empty_act(c, 70 * D);
  char *from_1 = (char *)x_act + (size_t)D * c->ops->act_bytes;
  for (int i = 0; i < 70; i++)
    if (rows[i] >= 0) memcpy(part + i * D, x + (rows[i] + 1) * D, (size_t)D * sizeof *part);
  c->ops->gather_rows(c->ops, out, from_1, rows_device, 70, D);
  ops_case_check_act(c, "gather", out, part, 70 * D, 0);
  double *more = ops_case_values(c, 70 * D, 1);
  const void *more_act = ops_case_act(c, more, 70 * D);
  for (int i = 0; i < 70; i++)
    for (int64_t j = 0; j < D && rows[i] >= 0; j++) x[(rows[i] + 1) * D + j] += more[i * D + j];
  c->ops->scatter_rows(c->ops, from_1, more_act, rows_device, 70, D);
  ops_case_check_act(c, "scatter", x_act, x, N * D, 0);
}

static void rows_are_gathered_and_scattered(void **state)
{
  (void)state;
  ops_case_each(rows_case);
}

/* ---- norms ---- */
static void norm_shape(struct ops_case *c, int64_t N, int64_t D)
{
  const int64_t n = N * D;
  double *x = ops_case_values(c, n, 2), *dh = ops_case_values(c, n, 1);
  double *before = ops_case_values(c, n, 1);
  const void *x_act = ops_case_act(c, x, n), *dh_act = ops_case_act(c, dh, n);
  void *dx_act = ops_case_act(c, before, n), *out = ops_case_empty_act(c, n);
  double *exact = ops_case_zeros(c, n);
  reference_norm(exact, x, N, D);
  c->ops->norm_forward(c->ops, out, x_act, N, D);
  ops_case_check_act(c, "norm", out, exact, n, 4);
  reference_norm_backward(exact, dh, x, N, D);
  for (int64_t i = 0; i < n; i++) exact[i] += before[i];
  c->ops->norm_backward(c->ops, dx_act, dh_act, x_act, N, D);
  ops_case_check_act(c, "norm backward", dx_act, exact, n, 8);
}

static void norm_rows_shape(struct ops_case *c, int64_t N, int64_t D)
{
  const int64_t n = N * D;
  double *x = ops_case_values(c, n, 1), *dh = ops_case_values(c, n, 1);
  double *before = ops_case_values(c, n, 1), *exact = ops_case_zeros(c, n);
  const float *x_float = ops_case_float(c, x, n), *dh_float = ops_case_float(c, dh, n);
  float *dx = ops_case_float(c, before, n), *out = ops_case_empty_float(c, n);
  reference_norm(exact, x, N, D);
  c->ops->norm_rows_forward(c->ops, out, x_float, N, D);
  ops_case_check_float(c, "norm of rows", out, exact, n, 4);
  reference_norm_backward(exact, dh, x, N, D);
  for (int64_t i = 0; i < n; i++) exact[i] += before[i];
  c->ops->norm_rows_backward(c->ops, dx, dh_float, x_float, N, D);
  ops_case_check_float(c, "norm of rows backward", dx, exact, n, 8);
}

static void norm_case(struct ops_case *c)
{
  for (size_t i = 0; i < 5; i++) norm_shape(c, shapes[i][0], shapes[i][1]);
  for (size_t i = 0; i < 5; i++) norm_rows_shape(c, shapes[i][0], shapes[i][1]);
}

static void wide_norm_case(struct ops_case *c)
{
  for (size_t i = 5; i < SHAPES; i++) norm_shape(c, shapes[i][0], shapes[i][1]);
  norm_rows_shape(c, 33, 129);
}

/* The CUDA backend keeps a row in a warp's registers, with a kernel for each range of widths. Tests
 * all these kernels, rows that are not whole vectors, and rows too wide for registers. */
static void held_norm_case(struct ops_case *c)
{
  static const int64_t widths[] = {8, 256, 264, 500, 768, 1024, 1536, 2048, 2056};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) norm_shape(c, 11, widths[i]);
}

static void norms_match(void **state)
{
  (void)state;
  ops_case_each_cuda(held_norm_case);
  ops_case_each(norm_case);
  ops_case_each(wide_norm_case);
}

static void mix_case(struct ops_case *c)
{
  for (int kind = 0; kind < MIX_KINDS; kind++) {
    mix_case_run(c, 0, 16, (enum mix_case_kind)kind);
    mix_case_run(c, 1, 7, (enum mix_case_kind)kind);
    mix_case_run(c, 65, 128, (enum mix_case_kind)kind);
    mix_case_run(c, 130, 72, (enum mix_case_kind)kind);
  }
}

static void held_mix_case(struct ops_case *c)
{
  static const int64_t widths[] = {256, 512, 768, 1020, 1536, 2048};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    for (int kind = 0; kind < MIX_KINDS; kind++)
      mix_case_run(c, 9, widths[i], (enum mix_case_kind)kind);
}

static void mixes_match(void **state)
{
  (void)state;
  ops_case_each_cuda(held_mix_case);
  ops_case_each(mix_case);
}

/* ---- QKV prepare ---- */
static void qkv_shape(struct ops_case *c, int64_t B, int64_t L, int64_t H, int64_t K, bool mix)
{
  const int64_t D = H * K, N = B * L, half = K / 2;
  double *qkv = ops_case_values(c, N * 3 * D, 1), *vi = ops_case_values(c, N * D, 1);
  double *cosine = ops_case_zeros(c, L * half), *sine = ops_case_zeros(c, L * half);
  for (int64_t i = 0; i < L * half; i++) {
    const double angle = (double)(i / half) * pow(10000, -2 * (double)(i % half) / (double)K);
    cosine[i] = cos(angle);
    sine[i] = sin(angle);
  }
  double a[2] = {0.6, 0.4}, none[2] = {0, 0};
  const void *qkv_act = ops_case_act(c, qkv, N * 3 * D), *vi_act = ops_case_act(c, vi, N * D);
  const float *cosine_float = ops_case_float(c, cosine, L * half);
  const float *sine_float = ops_case_float(c, sine, L * half), *a_float = ops_case_float(c, a, 2);
  const struct reference_qkv in = {.qkv = qkv,
                                   .vi = mix ? vi : NULL,
                                   .a = {a[0], a[1]},
                                   .cosine = cosine,
                                   .sine = sine,
                                   .B = B,
                                   .L = L,
                                   .H = H,
                                   .K = K};
  void *out = ops_case_empty_act(c, N * 3 * D);
  double *exact = ops_case_zeros(c, N * 3 * D);
  reference_qkv_prepare(exact, &in);
  const struct plm_qkv given = {.qkv = qkv_act,
                                .vi = mix ? vi_act : NULL,
                                .a = a_float,
                                .cosine = cosine_float,
                                .sine = sine_float,
                                .B = B,
                                .L = L,
                                .H = H,
                                .K = K};
  c->ops->qkv_prepare_forward(c->ops, out, &given);
  ops_case_check_act(c, "qkv", out, exact, N * 3 * D, 4);

  double *dqkv = ops_case_values(c, N * 3 * D, 1), *dvi = ops_case_zeros(c, N * D), da[2];
  void *dqkv_act = ops_case_act(c, dqkv, N * 3 * D), *dvi_act = ops_case_empty_act(c, N * D);
  float *da_float = ops_case_float(c, none, 2);
  reference_qkv_prepare_backward(exact, dvi, da, dqkv, &in);
  c->ops->qkv_prepare_backward(c->ops, dqkv_act, mix ? dvi_act : NULL, da_float, dqkv_act, &given);
  ops_case_check_act(c, "dqkv", dqkv_act, exact, N * 3 * D, 8);
  if (!mix) return;
  ops_case_check_act(c, "dvi", dvi_act, dvi, N * D, 1);
  ops_case_check_float(c, "da", da_float, da, 2, 10 * sqrt((double)(N * D)));
}

static void qkv_case(struct ops_case *c)
{
  qkv_shape(c, 1, 1, 1, 16, true);
  qkv_shape(c, 2, 50, 3, 24, true);
  qkv_shape(c, 1, 37, 2, 64, false);
  qkv_shape(c, 3, 32, 1, 128, true);
}

/* On CUDA, 1 to 16 lanes share a head, depending on its width, or else a whole warp. */
static void qkv_widths_case(struct ops_case *c)
{
  static const int64_t widths[] = {8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    qkv_shape(c, 2, 7, 3, widths[i], i % 3 != 0);
}

static void qkv_matches(void **state)
{
  (void)state;
  ops_case_each_cuda(qkv_widths_case);
  ops_case_each(qkv_case);
}

/* qkv_value_* read the value embedding from its table. They must give the same bits as the separate
 * operators (token_mean_* and qkv_prepare_*) that they replace. Only da is summed in another order.
 */
static void value_shape(struct ops_case *c, int64_t L, int64_t K, int32_t V, int level)
{
  enum { B = 2, H = 3 };
  const int64_t D = H * K, N = B * L, half = K / 2;
  const size_t bytes = c->ops->act_bytes;
  const int32_t *host = ops_case_integers(c, N << level, V);
  const int32_t *tokens = ops_case_device(c, host, (size_t)(N << level) * sizeof *host);
  double *table = ops_case_values(c, V * D, 1), *before = ops_case_values(c, V * D, 1);
  double *qkv = ops_case_values(c, N * 3 * D, 1), *upper = ops_case_values(c, N * 3 * D, 1);
  double *turn = ops_case_values(c, L * half, 1), a[2] = {0.7, 0.3}, da[2] = {1, 2};
  const float *table_float = ops_case_float(c, table, V * D), *a_float = ops_case_float(c, a, 2);
  const float *turns = ops_case_float(c, turn, L * half);
  const void *qkv_act = ops_case_act(c, qkv, N * 3 * D);
  void *vi = ops_case_empty_act(c, N * D), *dvi = ops_case_empty_act(c, N * D);
  const struct plm_value_table value = {
      table_float, tokens, V, level, ops_case_empty_act(c, N * D), ops_case_empty_act(c, N * D)};
  void *out[2], *d[2];
  float *dtable[2], *mixes[2];
  for (int i = 0; i < 2; i++) {
    out[i] = ops_case_empty_act(c, N * 3 * D);
    d[i] = ops_case_act(c, upper, N * 3 * D);
    dtable[i] = ops_case_float(c, before, V * D);
    mixes[i] = ops_case_float(c, da, 2);
  }
  c->ops->token_mean_forward(c->ops, vi, table_float, tokens, N, D, V, level);
  const struct plm_qkv in = {.qkv = qkv_act,
                             .vi = vi,
                             .a = a_float,
                             .cosine = turns,
                             .sine = turns,
                             .B = B,
                             .L = L,
                             .H = H,
                             .K = K};
  c->ops->qkv_prepare_forward(c->ops, out[0], &in);
  c->ops->qkv_prepare_backward(c->ops, d[0], dvi, mixes[0], d[0], &in);
  c->ops->token_mean_backward(c->ops, dtable[0], dvi, tokens, N, D, V, level);
  const struct plm_qkv without = {
      .qkv = qkv_act, .a = a_float, .cosine = turns, .sine = turns, .B = B, .L = L, .H = H, .K = K};
  c->ops->qkv_value_forward(c->ops, out[1], &without, &value);
  c->ops->qkv_value_backward(c->ops, d[1], dtable[1], mixes[1], d[1], &without, &value);
  ops_case_check_same(c, out[0], out[1], (size_t)(N * 3 * D) * bytes);
  ops_case_check_same(c, d[0], d[1], (size_t)(N * 3 * D) * bytes);
  ops_case_check_same(c, dtable[0], dtable[1], (size_t)(V * D) * sizeof(float));
  float parts[2];
  c->ops->download(c->ops, parts, mixes[0], sizeof parts);
  for (int i = 0; i < 2; i++) da[i] = (double)parts[i];
  ops_case_check_float(c, "da of a table", mixes[1], da, 2, 10 * sqrt((double)(N * D)));
}

static void value_case(struct ops_case *c)
{
  value_shape(c, 37, 64, 33, 0);
  value_shape(c, 150, 64, 33, 0); /* more rows than a slab of CUDA's has */
  value_shape(c, 5, 128, 33, 0);
  value_shape(c, 5, 128, 260, 0); /* more sums than its blocks have shared memory for */
  value_shape(c, 9, 24, 33, 0);
  value_shape(c, 16, 16, 33, 1);
  value_shape(c, 3, 40, 33, 3);
}

static void values_come_from_their_table(void **state)
{
  (void)state;
  ops_case_each(value_case);
}

/* ---- token tables ---- */
static void table_shape(struct ops_case *c, int64_t N, int64_t D, int32_t V, int level)
{
  double *table = ops_case_values(c, V * D, 1), *dout = ops_case_values(c, N * D, 1);
  double *before = ops_case_values(c, V * D, 1), *exact = ops_case_zeros(c, (N + V) * D);
  const int32_t *tokens = ops_case_integers(c, N << level, V);
  const int32_t *tokens_device = ops_case_device(c, tokens, (size_t)(N << level) * sizeof *tokens);
  const float *table_float = ops_case_float(c, table, V * D);
  void *out = ops_case_empty_act(c, N * D);
  reference_token_mean(exact, table, tokens, N, D, level);
  c->ops->token_mean_forward(c->ops, out, table_float, tokens_device, N, D, V, level);
  ops_case_check_act(c, "token mean", out, exact, N * D, 4);

  const void *dout_act = ops_case_act(c, dout, N * D);
  float *dtable = ops_case_float(c, before, V * D);
  reference_token_mean_backward(exact, dout, tokens, N, D, V, level);
  for (int64_t i = 0; i < V * D; i++) exact[i] += before[i];
  c->ops->token_mean_backward(c->ops, dtable, dout_act, tokens_device, N, D, V, level);
  ops_case_check_float(c, "dtable", dtable, exact, V * D, 16);
}

static void table_case(struct ops_case *c)
{
  table_shape(c, 1, 8, 33, 0);
  table_shape(c, 500, 72, 33, 0);
  table_shape(c, 129, 130, 33, 1);
  table_shape(c, 40, 64, 260, 3);
  table_shape(c, 7, 24, 33, 7);
}

static void tables_match(void **state)
{
  (void)state;
  ops_case_each(table_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gelu_matches),
      cmocka_unit_test(conversions_round_once),
      cmocka_unit_test(bf16_is_made_in_every_precision),
      cmocka_unit_test(special_values_pass),
      cmocka_unit_test(additions_match),
      cmocka_unit_test(rows_are_gathered_and_scattered),
      cmocka_unit_test(norms_match),
      cmocka_unit_test(mixes_match),
      cmocka_unit_test(qkv_matches),
      cmocka_unit_test(values_come_from_their_table),
      cmocka_unit_test(tables_match),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
