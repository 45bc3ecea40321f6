/* What `metrics --plot` draws: one curve for each split, one point for each step, from its last
 * line. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "common/base/file.h"
#include "stages/views/metrics_curves.h"
#include "tests/support/scratch.h"

static void the_last_line_of_a_step_counts(void **state)
{
  (void)state;
  static const char lines[] =
      "{\"step\":0,\"split\":\"valid\",\"loss\":3,\"baseline_entropy\":2.9}\n"
      "{\"step\":0,\"split\":\"test\",\"loss\":3.5}\n"
      "{\"step\":8,\"split\":\"valid\",\"loss\":2}\n"
      "{\"step\":12,\"split\":\"valid\",\"loss\":1}\n"
      "{\"step\":8,\"split\":\"valid\",\"loss\":2.5}\n"
      "{\"step\":4,\"split\":\"valid\",\"loss\":2.75}\n"
      "{\"step\":16,\"skipped\":\"why\"}\n";
  static const double x[] = {0, 4, 8, 12}, y[] = {3, 2.75, 2.5, 1};
  const char *path = scratch_path("curves.jsonl");
  struct plm_curves curves;
  assert_int_equal(plm_file_write(path, lines, sizeof lines - 1, 0644, NULL), PLM_OK);
  assert_int_equal(plm_curves_read(path, "loss", &curves, NULL), PLM_OK);
  assert_int_equal(curves.count, 2);
  assert_true(curves.baseline == 2.9);
  assert_string_equal(curves.list[0].split, "valid");
  assert_int_equal(curves.list[0].count, 4);
  for (size_t i = 0; i < 4; i++)
    assert_true(curves.list[0].x[i] == x[i] && curves.list[0].y[i] == y[i]);
  assert_int_equal(curves.list[1].count, 1);
  plm_curves_deinit(&curves);
  assert_int_equal(plm_curves_read("/nonexistent/file", "loss", &curves, NULL), PLM_OK);
  assert_true(curves.count == 0 && isnan(curves.baseline));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_line_of_a_step_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
