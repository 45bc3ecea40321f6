/* Products of int8: the integers and their sums are those of a plain reference, and so are the bits
 * of the results, with each kernel of this machine and any number of threads. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/ops/open.h"
#include "kernels/cpu/int8_products.h"
#include "kernels/cpu/processor.h"
#include "tests/support/harness/cmocka_all.h"

/* ---- a plain reference ---- */

/* Quantises a row and returns its scale. */
static float quantise(int8_t *to, const float *x, int64_t n)
{
  float most = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; i++) {
    finite = finite && isfinite(x[i]);
    if (fabsf(x[i]) > most) most = fabsf(x[i]);
  }
  const bool zeros = !finite || most < 0x1p-100f;
  const float factor = zeros ? 0 : 127.0f / most;
  for (int64_t i = 0; i < n; i++) to[i] = zeros ? 0 : (int8_t)lrintf(x[i] * factor);
  return !finite ? NAN : zeros ? 0 : most / 127.0f;
}

/* y_NO = x_NI w_OI^T + bias_O + residual_NO, the last two of which may be NULL. */
static void reference(float *y, const float *x, const float *w, const float *bias,
                      const float *residual, int64_t N, int64_t I, int64_t O)
{
  int8_t *a = calloc((size_t)(N * I), 1), *b = calloc((size_t)(O * I), 1);
  float *a_scales = calloc((size_t)N, sizeof *a_scales);
  float *b_scales = calloc((size_t)O, sizeof *b_scales);
  for (int64_t n = 0; n < N; n++) a_scales[n] = quantise(a + n * I, x + n * I, I);
  for (int64_t o = 0; o < O; o++) b_scales[o] = quantise(b + o * I, w + o * I, I);
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++) {
      int64_t sum = 0;
      for (int64_t i = 0; i < I; i++) sum += a[n * I + i] * b[o * I + i];
      const float factor = b_scales[o] * a_scales[n];
      float value = (float)sum * factor;
      if (bias != NULL) value += bias[o];
      if (residual != NULL) value += residual[n * O + o];
      y[n * O + o] = value;
    }
  free(a);
  free(b);
  free(a_scales);
  free(b_scales);
}

/* ---- operands ---- */
static uint64_t drawn;

/* Values around 0 whose magnitudes vary. */
static float *values_of(int64_t n)
{
  float *values = malloc((size_t)(n + 1) * sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < n; i++) {
    const uint32_t bits = plm_philox(77, 0, drawn++, 0).w[0];
    values[i] = ((float)(bits >> 8) * 0x1p-23f - 1.0f) * (bits % 8 == 0 ? 4.0f : 0.5f);
  }
  return values;
}

static struct plm_ops *open_int8(const char *isa, uint32_t threads)
{
  const struct plm_cpu_request request = {
      .precision = PLM_PRECISION_INT8, .threads = threads, .isa = isa};
  struct plm_ops *ops;
  struct plm_error error = {0};
  if (plm_ops_cpu_open_as(&request, &ops, &error) != PLM_OK) fail_msg("%s", error.what);
  return ops;
}

/* A matrix on the backend, filled in two parts. */
static void *matrix_of(struct plm_ops *ops, const float *w, int64_t I, int64_t O)
{
  void *matrix;
  const size_t bytes = plm_int8_matrix_bytes(O, I);
  assert_int_equal(ops->allocate(ops, bytes, &matrix, NULL), PLM_OK);
  ops->zero(ops, matrix, bytes);
  ops->quantise_rows(ops, matrix, w + O / 3 * I, O / 3, O - O / 3, I, O);
  ops->quantise_rows(ops, matrix, w, 0, O / 3, I, O);
  return matrix;
}

/* ---- the operator ---- */
struct shape {
  int64_t N, I, O;
};

static const struct shape shapes[] = {
    {1, 1, 1},      {2, 4, 16},    {3, 15, 17},   {5, 16, 40},   {6, 17, 33},
    {7, 31, 16},    {12, 64, 48},  {13, 40, 130}, {25, 100, 15}, {120, 8, 16},
    {121, 96, 129}, {250, 33, 20}, {40, 320, 64}, {9, 1280, 96}, {2, 5120, 16},
};

static void check_shape(struct plm_ops *ops, const struct shape *shape)
{
  const int64_t N = shape->N, I = shape->I, O = shape->O;
  const size_t bytes = (size_t)(N * O) * sizeof(float);
  float *x = values_of(N * I), *w = values_of(O * I), *bias = values_of(O),
        *more = values_of(N * O);
  float *wanted = malloc(bytes), *got = malloc(bytes), *gelu = malloc(bytes);
  void *matrix = matrix_of(ops, w, I, O);
  for (int parts = 0; parts < 4; parts++) {
    const struct plm_int8_linear layer = {.w = matrix, .bias = parts % 2 != 0 ? bias : NULL};
    const float *residual = parts / 2 != 0 ? more : NULL;
    reference(wanted, x, w, layer.bias, residual, N, I, O);
    ops->linear_int8_forward(ops, got, x, &layer, residual, N, I, O);
    assert_memory_equal(got, wanted, bytes);
  }
  memcpy(got, more, bytes); /* y is the residual */
  ops->linear_int8_forward(ops, got, x, &(struct plm_int8_linear){matrix, bias, PLM_INT8_LINEAR},
                           got, N, I, O);
  assert_memory_equal(got, wanted, bytes);

  const struct plm_int8_linear relu2 = {matrix, bias, PLM_INT8_RELU2};
  ops->linear_int8_forward(ops, got, x, &relu2, NULL, N, I, O);
  reference(wanted, x, w, bias, NULL, N, I, O);
  ops->gelu_forward(ops, gelu, wanted, N * O);
  for (int64_t i = 0; i < N * O; i++) wanted[i] = wanted[i] > 0 ? wanted[i] * wanted[i] : 0;
  assert_memory_equal(got, wanted, bytes);
  ops->linear_int8_forward(ops, got, x, &(struct plm_int8_linear){matrix, bias, PLM_INT8_GELU},
                           NULL, N, I, O);
  assert_memory_equal(got, gelu, bytes);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  ops->release(ops, matrix);
  free(x);
  free(w);
  free(bias);
  free(more);
  free(wanted);
  free(got);
  free(gelu);
}

static const char *const isas[] = {"portable", "avx2", "avx512"};

static bool opens(const char *isa)
{
  struct plm_ops *ops;
  if (plm_ops_cpu_open(PLM_PRECISION_FP32, 1, isa, &ops, NULL) != PLM_OK) return false;
  ops->close(ops);
  return true;
}

static void results_are_the_references(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
    for (uint32_t threads = 1; threads <= 3 && opens(isas[i]); threads += 2) {
      struct plm_ops *ops = open_int8(isas[i], threads);
      drawn = 0;
      for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) check_shape(ops, &shapes[s]);
      ops->close(ops);
    }
}

/* Rows that have nothing finite, nothing but zeros or nothing but the largest magnitudes. */
static void rows_of_extremes(void **state)
{
  (void)state;
  enum { N = 7, I = 66000, O = 17 };
  struct plm_ops *ops = open_int8(NULL, 2);
  float *x = values_of(N * I), *w = values_of(O * I);
  float *wanted = calloc(N * O, sizeof *wanted), *got = calloc(N * O, sizeof *got);
  for (int64_t i = 0; i < I; i++) {
    x[i] = 3.0f; /* the largest sums that there are */
    x[I + i] = -3.0f;
    x[2 * I + i] = 0.0f;
    x[3 * I + i] *= 0x1p-120f;
    x[4 * I + i] = i % 2 == 0 ? FLT_MAX : -FLT_MAX;
    w[i] = 1e-3f;
    w[I + i] = -1e-3f;
    w[2 * I + i] = 0.0f;
  }
  x[5 * I + 40] = NAN;
  x[6 * I + I - 1] = -INFINITY;
  w[5 * I + 3] = INFINITY;
  void *matrix = matrix_of(ops, w, I, O);
  reference(wanted, x, w, NULL, NULL, N, I, O);
  ops->linear_int8_forward(ops, got, x, &(struct plm_int8_linear){.w = matrix}, NULL, N, I, O);
  for (int n = 0; n < N; n++)
    for (int o = 0; o < O; o++) {
      const float value = got[n * O + o];
      assert_int_equal(isnan(value), n >= 5 || o == 5);
      if (!isnan(value)) assert_memory_equal(&value, &wanted[n * O + o], sizeof value);
    }
  assert_true(fabsf(got[0] / (3e-3f * I) - 1) < 1e-6f);
  assert_true(fabsf(got[O] / (-3e-3f * I) - 1) < 1e-6f);
  assert_true(got[2] == 0 && got[2 * O] == 0 && got[3 * O] == 0);
  ops->release(ops, matrix);
  ops->close(ops);
  free(x);
  free(w);
  free(wanted);
  free(got);
}

/* ---- the kernels ---- */

enum { KERNEL_ROWS = 29, KERNEL_I = 68, KERNEL_PADDED = 80 };

/* Sums of `rows` rows of a (rows, KERNEL_PADDED), stored with `shift` added, and of a panel. */
static void check_sums(const int32_t *sums, const int8_t *a, int64_t rows, const int8_t *panel,
                       int32_t shift)
{
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < 16; column++) {
      int32_t wanted = 0;
      for (int64_t i = 0; i < KERNEL_PADDED; i++)
        wanted += (a[row * KERNEL_PADDED + i] + shift) * panel[i / 4 * 64 + column * 4 + i % 4];
      assert_int_equal(sums[row * 16 + column], wanted);
    }
}

/* Sums of rows that begin at each row of a few, so that every way of cutting rows is taken, by each
 * number of panels. */
static void check_kernel(const struct plm_int8_kernel *kernel)
{
  enum { PANEL = 16 * KERNEL_PADDED, MOST = PLM_INT8_PANELS_MOST };
  const int64_t steps = KERNEL_PADDED / kernel->in_word;
  float *x = values_of(KERNEL_ROWS * KERNEL_I);
  int8_t *a = calloc(KERNEL_ROWS * KERNEL_PADDED, 1);
  int8_t panels[MOST * PANEL] __attribute__((aligned(64)));
  int32_t *words = calloc((size_t)(KERNEL_ROWS * steps), sizeof *words);
  int32_t *widened = calloc((size_t)(16 * steps), sizeof *widened);
  assert_int_equal(plm_int8_padded(KERNEL_I), KERNEL_PADDED);
  for (int64_t row = 0; row < KERNEL_ROWS; row++) {
    const float scale = quantise(a + row * KERNEL_PADDED, x + row * KERNEL_I, KERNEL_I);
    assert_true(kernel->quantise(words + row * steps, x + row * KERNEL_I, KERNEL_I) == scale);
  }
  for (size_t i = 0; i < sizeof panels; i++)
    panels[i] = (int8_t)((int)(plm_philox(5, 0, i, 0).w[0] % 255) - 127);
  const void *b = panels;
  if (kernel->widen != NULL) {
    assert_int_equal(kernel->panels, 1);
    kernel->widen(widened, panels, steps);
    b = widened;
  }
  assert_in_range(kernel->panels, 1, MOST);
  for (int64_t count = 1; count <= kernel->panels; count++)
    for (int64_t rows = 1; rows <= KERNEL_ROWS; rows++) {
      int32_t sums[MOST * KERNEL_ROWS * 16];
      const int64_t first = KERNEL_ROWS - rows;
      kernel->multiply(sums, words + first * steps, rows, b, count, steps);
      for (int64_t panel = 0; panel < count; panel++)
        check_sums(sums + panel * rows * 16, a + first * KERNEL_PADDED, rows,
                   panels + panel * PANEL, kernel->in_word == 4 ? 128 : 0);
    }
  free(x);
  free(a);
  free(words);
  free(widened);
}

/* Also those that a better one replaces on this machine. */
static void kernels_sum_exactly(void **state)
{
  (void)state;
  check_kernel(&plm_int8_kernel_portable);
#if defined(__x86_64__)
  const struct plm_int8_machine machine = plm_int8_machine();
  if (plm_processor_level() >= PLM_PROCESSOR_AVX2) check_kernel(&plm_int8_kernel_avx2);
  if (machine.avx_vnni) check_kernel(&plm_int8_kernel_avx_vnni);
  if (machine.avx512_vnni) check_kernel(&plm_int8_kernel_avx512_vnni);
#endif
}

/* ---- choosing ---- */
static void check_choice(enum plm_isa isa, const struct plm_int8_machine *machine,
                         const struct plm_int8_kernel *wanted)
{
  bool faster;
  const bool slow = wanted->in_word == 2 && (isa == PLM_ISA_PORTABLE || isa == PLM_ISA_AVX512);
  assert_ptr_equal(plm_int8_kernel_of(isa, machine), wanted);
  const char *gain = plm_int8_gain(isa, machine, &faster);
  assert_int_equal(faster, !slow);
  assert_int_equal(strncmp(gain, "int8 saves memory but perhaps no time here", 42) == 0, slow);
  if (isa > PLM_ISA_PORTABLE) assert_non_null(strstr(gain, wanted->name));
}

static void the_processor_decides(void **state)
{
  (void)state;
#if defined(__x86_64__)
  static const struct plm_int8_machine machines[] = {
      {false, false}, {false, true}, {true, false}, {true, true}};
  static const struct plm_int8_kernel *const wanted[4][PLM_ISA_COUNT] = {
      {&plm_int8_kernel_portable, &plm_int8_kernel_avx2, &plm_int8_kernel_avx2},
      {&plm_int8_kernel_portable, &plm_int8_kernel_avx_vnni, &plm_int8_kernel_avx_vnni},
      {&plm_int8_kernel_portable, &plm_int8_kernel_avx2, &plm_int8_kernel_avx512_vnni},
      {&plm_int8_kernel_portable, &plm_int8_kernel_avx_vnni, &plm_int8_kernel_avx512_vnni},
  };
  for (int m = 0; m < 4; m++)
    for (int isa = 0; isa < PLM_ISA_COUNT; isa++)
      check_choice((enum plm_isa)isa, &machines[m], wanted[m][isa]);
#else
  check_choice(PLM_ISA_PORTABLE, &(struct plm_int8_machine){0}, &plm_int8_kernel_portable);
#endif
  const struct plm_int8_machine machine = plm_int8_machine();
  bool faster, same;
  assert_string_equal(plm_ops_cpu_int8_gain(&faster),
                      plm_int8_gain(plm_cpu_best_isa(), &machine, &same));
  assert_int_equal(faster, same);
}

static void backends_are_opened(void **state)
{
  (void)state;
  struct plm_ops *ops = open_int8(NULL, 1);
  struct plm_error error = {0};
  assert_true(ops->int8 && ops->act_bytes == sizeof(float));
  assert_string_equal(plm_ops_precision(ops), "int8");
  ops->close(ops);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  assert_true(!ops->int8 && ops->linear_int8_forward == NULL && ops->quantise_rows == NULL);
  assert_string_equal(plm_ops_precision(ops), "fp32");
  ops->close(ops);
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_BF16, 1, NULL, &ops, NULL), PLM_OK);
  assert_string_equal(plm_ops_precision(ops), "bf16");
  ops->close(ops);

  struct plm_ops_request request = {.device = PLM_DEVICE_CUDA, .precision = PLM_PRECISION_INT8};
  assert_int_equal(plm_ops_open(&request, &ops, &error), PLM_CONFIG);
  assert_string_equal(error.what, "the CUDA backend has no int8 products");
  assert_string_equal(error.hint, "choose the CPU (--device cpu), or bf16 (--precision bf16)");
  request.device = PLM_DEVICE_AUTO;
  assert_int_equal(plm_ops_open(&request, &ops, &error), PLM_OK);
  assert_string_equal(ops->name, "cpu");
  assert_true(ops->int8);
  ops->close(ops);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_are_the_references), cmocka_unit_test(rows_of_extremes),
      cmocka_unit_test(kernels_sum_exactly),        cmocka_unit_test(the_processor_decides),
      cmocka_unit_test(backends_are_opened),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
