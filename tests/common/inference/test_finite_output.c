/* Outputs that are not finite are refused, wherever they are, with the name that the caller gives.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/inference/finite_output.h"
#include "tests/support/harness/cmocka_all.h"

enum { COUNT = 100 };

static void each_value_is_looked_at(void **state)
{
  float values[COUNT];
  struct plm_error error = {0};
  (void)state;
  for (int i = 0; i < COUNT; i++) values[i] = (float)i;
  assert_int_equal(plm_finite_output(values, COUNT, &error, "nothing"), PLM_OK);
  assert_int_equal(plm_finite_output(values, 0, &error, "nothing"), PLM_OK);
  assert_string_equal(error.what, "");
  for (int i = 0; i < COUNT; i++) {
    values[i] = i % 2 == 0 ? INFINITY : NAN;
    assert_int_equal(plm_finite_output(values, COUNT, &error, "value %d of %s", i, "x"),
                     PLM_NOT_FINITE);
    char expected[80];
    snprintf(expected, sizeof expected, "the model computes %s for value %d of x",
             i % 2 == 0 ? "inf" : "nan", i);
    assert_string_equal(error.what, expected);
    assert_non_null(strstr(error.hint, "a checkpoint of an earlier step"));
    if (i > 0) assert_int_equal(plm_finite_output(values, (size_t)i, &error, "less"), PLM_OK);
    values[i] = 0;
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_value_is_looked_at),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
