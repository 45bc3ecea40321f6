/* What `metrics --plot` draws: one curve for each split, one point for each step, from its last
 * line. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>

#include "common/base/files/file.h"
#include "stages/views/metrics_curves.h"
#include "tests/support/harness/scratch.h"

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

static void keys_and_sets_have_curves_of_their_own(void **state)
{
  (void)state;
  static const char lines[] =
      "{\"step\":1,\"split\":\"valid\",\"loss\":3,\"accuracy\":0.5,\"baseline_entropy\":2.5}\n"
      "{\"step\":1,\"set\":\"corpus\",\"split\":\"test\",\"loss\":4}\n"
      "{\"step\":1,\"set\":\"refseq\",\"split\":\"valid\",\"loss\":5,\"baseline_entropy\":9}\n"
      "{\"split\":\"valid\",\"loss\":7}\n"
      "{\"step\":2,\"split\":\"valid\",\"loss\":null,\"accuracy\":0.75}\n";
  static const char *const keys[] = {"loss", "accuracy", "mcc"};
  const char *path = scratch_path("sets.jsonl");
  struct plm_curves curves[3];
  scratch_write(path, lines, sizeof lines - 1);
  assert_int_equal(plm_curves_read_keys(path, keys, 3, curves, NULL), PLM_OK);
  assert_int_equal(curves[0].count, 3);
  assert_string_equal(curves[0].list[0].split, "valid");
  assert_string_equal(curves[0].list[1].split, "test");
  assert_string_equal(curves[0].list[2].split, "refseq valid");
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(curves[0].list[i].count, 1);
    assert_true(curves[0].list[i].x[0] == 1);
    assert_true(curves[0].list[i].y[0] == 3.0 + (double)i);
  }
  assert_int_equal(curves[1].count, 1);
  assert_int_equal(curves[1].list[0].count, 2);
  assert_true(curves[1].list[0].x[1] == 2 && curves[1].list[0].y[1] == 0.75);
  assert_int_equal(curves[2].count, 0);
  for (size_t i = 0; i < 3; i++) {
    assert_true(curves[i].baseline == 2.5);
    plm_curves_deinit(&curves[i]);
  }
}

/* 600 points in reverse order, and more subjects than there is room for. */
static void many_points_and_many_splits(void **state)
{
  (void)state;
  const char *path = scratch_path("many.jsonl");
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int step = 600; step > 0; step--)
    fprintf(file, "{\"step\":%d,\"loss\":%d}\n", step, 10 * step);
  for (int i = 1; i <= PLM_CURVE_SPLITS; i++)
    fprintf(file, "{\"step\":1,\"split\":\"s%d\",\"loss\":1}\n", i);
  fprintf(file, "{\"step\":601,\"loss\":6010}\n");
  fclose(file);
  struct plm_curves curves;
  assert_int_equal(plm_curves_read(path, "loss", &curves, NULL), PLM_OK);
  assert_int_equal(curves.count, PLM_CURVE_SPLITS);
  assert_int_equal(curves.list[0].count, 601);
  for (size_t i = 0; i < 601; i++) {
    assert_true(curves.list[0].x[i] == (double)(i + 1));
    assert_true(curves.list[0].y[i] == 10.0 * (double)(i + 1));
  }
  assert_int_equal(curves.list[PLM_CURVE_SPLITS - 1].count, 1);
  plm_curves_deinit(&curves);
  assert_int_equal(curves.count, 0);
}

/* Tokens by source add up, and each part is a curve of its own. */
static void parts_of_a_field_have_curves(void **state)
{
  (void)state;
  static const struct {
    const char *key;
    double y;
  } cases[] = {{"tokens_by_source", 100}, {"tokens_by_source/b", 30}, {"tokens_by_source/c", NAN}};
  static const char text[] = "{\"step\":1,\"tokens_by_source\":{\"a\":70,\"b\":30}}\n";
  scratch_write(scratch_path("sources"), text, sizeof text - 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_curves curves;
    assert_int_equal(plm_curves_read(scratch_path("sources"), cases[i].key, &curves, NULL), PLM_OK);
    assert_int_equal(curves.count, isnan(cases[i].y) ? 0 : 1);
    if (curves.count > 0) assert_true(curves.list[0].y[0] == cases[i].y);
    plm_curves_deinit(&curves);
  }
}

static void assert_curve(const struct plm_curve *curve, const char *name, size_t count, double last)
{
  assert_string_equal(curve->split, name);
  assert_int_equal(curve->count, count);
  assert_true(curve->y[count - 1] == last);
}

/* Losses do not add up, so each part is a curve, for each split if there are any. */
static void parts_that_do_not_add_up_stay_apart(void **state)
{
  (void)state;
  static const char text[] = "{\"step\":1,\"tokens_by_source\":{\"a\":70,\"b\":30},\"loss_by_"
                             "source\":{\"a\":3,\"b\":null}}\n"
                             "{\"step\":2,\"loss_by_source\":{\"a\":2.5,\"b\":2}}\n"
                             "{\"step\":2,\"split\":\"valid\",\"loss_by_length\":{\"<64\":4}}\n"
                             "{\"step\":2,\"split\":\"test\",\"loss_by_length\":{\"<64\":5}}\n";
  static const char *const keys[] = {"loss_by_source", "loss_by_source/b", "tokens_by_source/*",
                                     "loss_by_length", "none/*"};
  struct plm_curves curves[5];
  scratch_write(scratch_path("apart"), text, sizeof text - 1);
  assert_int_equal(plm_curves_read_keys(scratch_path("apart"), keys, 5, curves, NULL), PLM_OK);
  assert_int_equal(curves[0].count, 2);
  assert_curve(&curves[0].list[0], "a", 2, 2.5);
  assert_curve(&curves[0].list[1], "b", 1, 2);
  assert_int_equal(curves[1].count, 1);
  assert_curve(&curves[1].list[0], "", 1, 2);
  assert_int_equal(curves[2].count, 2);
  assert_curve(&curves[2].list[0], "a", 1, 70);
  assert_curve(&curves[2].list[1], "b", 1, 30);
  assert_int_equal(curves[3].count, 2);
  assert_curve(&curves[3].list[0], "valid <64", 1, 4);
  assert_curve(&curves[3].list[1], "test <64", 1, 5);
  assert_int_equal(curves[4].count, 0);
  for (size_t i = 0; i < 5; i++) plm_curves_deinit(&curves[i]);
}

/* The norms of the layers become one: the root of the sum of their squares. */
static void norms_by_layer_are_added(void **state)
{
  (void)state;
  static const char text[] =
      "{\"step\":1,\"weight_norms\":{\"a\":3,\"b\":4}}\n{\"step\":2,\"loss\":1}\n"
      "{\"step\":3,\"weight_norms\":{\"a\":2}}\n";
  struct plm_curves curves;
  scratch_write(scratch_path("norms"), text, sizeof text - 1);
  assert_int_equal(plm_curves_read(scratch_path("norms"), "weight_norms", &curves, NULL), PLM_OK);
  assert_int_equal(curves.count, 1);
  assert_int_equal(curves.list[0].count, 2);
  assert_true(curves.list[0].x[1] == 3 && curves.list[0].y[0] == 5 && curves.list[0].y[1] == 2);
  plm_curves_deinit(&curves);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_line_of_a_step_counts),
      cmocka_unit_test(keys_and_sets_have_curves_of_their_own),
      cmocka_unit_test(norms_by_layer_are_added),
      cmocka_unit_test(parts_of_a_field_have_curves),
      cmocka_unit_test(parts_that_do_not_add_up_stay_apart),
      cmocka_unit_test(many_points_and_many_splits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
