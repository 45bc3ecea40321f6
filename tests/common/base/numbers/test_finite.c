/* The first value that is not finite, at each place of and around a block. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/base/numbers/finite.h"

enum { MOST = 600 };

static void the_first_one_is_found_at_each_place(void **state)
{
  (void)state;
  static const float others[] = {NAN, INFINITY, -INFINITY};
  float values[MOST];
  for (size_t i = 0; i < MOST; i++) values[i] = i % 2 == 0 ? 0x1.fffffep127F : -0x1p-149F;
  for (size_t count = 0; count <= MOST; count++)
    assert_int_equal(plm_first_not_finite(values, count), count);
  for (size_t i = 0; i < MOST; i++) {
    const float kept = values[i];
    values[i] = others[i % 3];
    assert_int_equal(plm_first_not_finite(values, MOST), i);
    assert_int_equal(plm_first_not_finite(values, i), i);
    assert_int_equal(plm_first_not_finite(values + 1, MOST - 1), i == 0 ? MOST - 1 : i - 1);
    values[i] = kept;
  }
  values[3] = values[MOST - 1] = NAN;
  assert_int_equal(plm_first_not_finite(values, MOST), 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_one_is_found_at_each_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
