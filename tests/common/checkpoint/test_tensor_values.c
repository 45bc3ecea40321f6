/* Tensors of other dtypes become fp32, part by part. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/tensor_values.h"

static void half_precision_is_converted_exactly(void **state)
{
  (void)state;
  uint16_t *halves = malloc(65536 * sizeof *halves);
  float *values = malloc(65536 * sizeof *values);
  for (uint32_t i = 0; i < 65536; i++) halves[i] = (uint16_t)i;
  struct plm_tensor_info tensor = {.name = "h", .dtype = PLM_F16, .data = halves};
  assert_int_equal(plm_tensor_to_float(&tensor, 65536, values, NULL, NULL), PLM_OK);
  for (uint32_t i = 0; i < 65536; i++) {
    const int exponent = (int)(i >> 10 & 31), fraction = (int)(i & 1023);
    const double sign = i & 0x8000 ? -1 : 1;
    const double magnitude =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31 && fraction != 0)
      assert_true(isnan(values[i]));
    else if (exponent == 31)
      assert_true(isinf(values[i]) && values[i] * sign > 0);
    else
      assert_true(values[i] == sign * magnitude && !signbit(values[i]) == !(i & 0x8000));
  }
  tensor.dtype = PLM_BF16;
  assert_int_equal(plm_tensor_to_float(&tensor, 65536, values, NULL, NULL), PLM_OK);
  for (uint32_t i = 0; i < 65536; i++)
    if (!isnan(values[i])) assert_int_equal(plm_float_to_bf16(values[i]), i);
  /* rounded to the nearest, ties to even; infinity beyond the largest */
  assert_int_equal(plm_float_to_bf16(0x1.01p0F), 0x3f80);
  assert_int_equal(plm_float_to_bf16(0x1.03p0F), 0x3f82);
  assert_int_equal(plm_float_to_bf16(0x1.010002p0F), 0x3f81);
  assert_int_equal(plm_float_to_bf16(-0x1.fffffep127F), 0xff80);
  /* what is no number stays so, whatever its bits are that are lost */
  static const uint32_t nans[][2] = {{0x7f800001, 0x7fc0},
                                     {0x7fffffff, 0x7fff},
                                     {0xff800001, 0xffc0},
                                     {0xffffffff, 0xffff},
                                     {0x7fa1ffff, 0x7fe1}};
  for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
    float nan;
    memcpy(&nan, &nans[i][0], sizeof nan);
    assert_int_equal(plm_float_to_bf16(nan), nans[i][1]);
  }
  free(halves);
  free(values);
}

static void types_have_the_names_of_torch(void **state)
{
  (void)state;
  static const struct {
    enum plm_dtype dtype;
    const char *name; /* NULL: it is no type of weights */
  } rows[] = {{PLM_F32, "float32"},
              {PLM_BF16, "bfloat16"},
              {PLM_F16, "float16"},
              {PLM_F64, "float64"},
              {PLM_U8, NULL}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *name = plm_dtype_name(rows[i].dtype);
    assert_true(name == rows[i].name || strcmp(name, rows[i].name) == 0);
  }
}

static void other_types_are_refused(void **state)
{
  (void)state;
  static const enum plm_dtype types[] = {PLM_I32, PLM_I64, PLM_U8, PLM_DTYPE_OTHER};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    const struct plm_tensor_info tensor = {.name = "t", .dtype = types[i]};
    struct plm_error error = {0};
    assert_int_equal(plm_tensor_to_float(&tensor, 0, NULL, NULL, &error), PLM_FORMAT);
    assert_string_equal(error.what, "tensor t does not hold floating-point numbers");
    assert_non_null(strstr(error.hint, "weights that are not quantized"));
  }
}

struct told {
  uint64_t done, most, total; /* most: bytes between two calls */
};

static void keep_told(void *context, uint64_t done, uint64_t total)
{
  struct told *told = context;
  assert_true(done >= told->done && done <= total);
  if (done - told->done > told->most) told->most = done - told->done;
  told->done = done;
  told->total = total;
}

/* A tensor may be so large that reading it takes minutes. */
static void a_large_tensor_is_told_part_by_part(void **state)
{
  (void)state;
  static const uint32_t single = 0x3fc00000;
  static const uint16_t brain = 0x3fc0, half = 0x3e00;
  static const double wide = 1.5;
  static const struct {
    enum plm_dtype dtype;
    size_t bytes;
    const void *last; /* 1.5 */
  } kinds[] = {
      {PLM_F32, 4, &single}, {PLM_BF16, 2, &brain}, {PLM_F16, 2, &half}, {PLM_F64, 8, &wide}};
  const size_t count = 3 * (size_t)PLM_ADVANCE_STEP / 2 + 5;
  unsigned char *bytes = calloc(count, 8);
  float *values = malloc(count * sizeof *values);
  assert_true(bytes != NULL && values != NULL);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct told told = {0};
    struct plm_advance advance = {.tell = keep_told, .context = &told};
    const struct plm_tensor_info tensor = {.name = "t", .dtype = kinds[k].dtype, .data = bytes};
    memset(values, 0xff, count * sizeof *values);
    memset(bytes, 0, count * 8);
    memcpy(bytes + (count - 1) * kinds[k].bytes, kinds[k].last, kinds[k].bytes);
    plm_advance_begin(&advance, count * kinds[k].bytes);
    assert_int_equal(plm_tensor_to_float(&tensor, count, values, &advance, NULL), PLM_OK);
    assert_true(told.total == count * kinds[k].bytes && told.done == told.total);
    assert_true(told.most > 0 && told.most <= PLM_ADVANCE_STEP);
    for (size_t i = 0; i + 1 < count; i++) assert_true(values[i] == 0);
    assert_true(values[count - 1] == 1.5F);
  }
  free(values);
  free(bytes);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(half_precision_is_converted_exactly),
      cmocka_unit_test(types_have_the_names_of_torch),
      cmocka_unit_test(other_types_are_refused),
      cmocka_unit_test(a_large_tensor_is_told_part_by_part),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
