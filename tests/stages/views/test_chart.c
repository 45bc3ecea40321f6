/* Charts of `report`: where points lie, what is drawn as a mean with a band, and foreign text. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stages/views/chart.h"

static struct plm_text draw(const struct plm_chart_line *lines, size_t count, double last_step,
                            bool from_zero, double level)
{
  struct plm_text text = {0};
  const struct plm_chart chart = {.title = "A <title>",
                                  .lines = lines,
                                  .count = count,
                                  .scale = 1,
                                  .level = level,
                                  .range = {0, last_step},
                                  .from_zero = from_zero,
                                  .value_max = INFINITY};
  plm_chart_draw(&text, &chart);
  assert_false(text.failed);
  return text;
}

static size_t occurrences(const char *text, const char *word)
{
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) count++;
  return count;
}

/* The drawing area is x 50 to 448 and y 214 (the least value) to 10. */
static void points_lie_where_their_values_are(void **state)
{
  (void)state;
  static const double x[] = {0, 50, 100}, y[] = {0, 1, 4};
  const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = 3, .color = 2};
  struct plm_text text = draw(&line, 1, 100, true, NAN);
  assert_non_null(
      strstr(text.data, "class=\"line c2 d0\" d=\"M50.0 214.0L249.0 163.0L448.0 10.0\""));
  assert_int_equal(occurrences(text.data, "<circle"), 3);
  assert_int_equal(occurrences(text.data, "class=\"band"), 0);
  assert_null(strstr(text.data, "class=\"level\""));
  assert_non_null(strstr(text.data, "<title>step 50\na: 1</title>"));
  plm_text_deinit(&text);
}

static void points_that_are_not_finite_are_left_out(void **state)
{
  (void)state;
  static const double x[] = {0, 50, 75, 100};
  const double y[] = {0, NAN, INFINITY, 4};
  const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = 4};
  struct plm_text text = draw(&line, 1, 100, true, NAN);
  assert_non_null(strstr(text.data, "d=\"M50.0 214.0L448.0 10.0\""));
  assert_null(strstr(text.data, "nan"));
  assert_null(strstr(text.data, "inf"));
  plm_text_deinit(&text);
  const struct plm_chart_line nothing = {.label = "a", .x = x, .y = &y[1], .count = 2};
  text = draw(&nothing, 1, 100, true, 3);
  assert_non_null(strstr(text.data, "no values yet"));
  plm_text_deinit(&text);
  text = draw(NULL, 0, 0, false, NAN);
  assert_non_null(strstr(text.data, "no values yet"));
  plm_text_deinit(&text);
}

/* A line of 6000 steps that alternates between 1 and 3 is a straight line at 2, within a band. */
static void many_steps_become_means_with_a_band(void **state)
{
  (void)state;
  enum { STEPS = 6000 };
  double *x = calloc(STEPS, sizeof *x), *y = calloc(STEPS, sizeof *y);
  assert_non_null(x);
  assert_non_null(y);
  for (int i = 0; i < STEPS; i++) {
    x[i] = i;
    y[i] = i % 2 == 0 ? 1 : 3;
  }
  const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = STEPS, .color = 1};
  struct plm_text text = draw(&line, 1, STEPS, false, NAN);
  assert_int_equal(occurrences(text.data, "class=\"band b1\""), 1);
  assert_int_equal(occurrences(text.data, " 112.0"), 60);
  assert_non_null(strstr(text.data, "<title>steps 0 to 99\na: 2 (1 to 3)</title>"));
  plm_text_deinit(&text);
  free(x);
  free(y);
}

static void equal_values_and_a_level_are_drawn(void **state)
{
  (void)state;
  static const double x[] = {1, 2}, y[] = {7, 7};
  const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = 2};
  struct plm_text text = draw(&line, 1, 2, false, 8);
  assert_int_equal(occurrences(text.data, "class=\"level\""), 1);
  assert_non_null(strstr(text.data, "d=\"M249.0 214.0L448.0 214.0\""));
  plm_text_deinit(&text);
  text = draw(&line, 1, 2, false, NAN); /* an axis without an extent */
  assert_null(strstr(text.data, "nan"));
  assert_non_null(strstr(text.data, "class=\"line"));
  plm_text_deinit(&text);
}

static void foreign_text_is_never_markup(void **state)
{
  (void)state;
  static const double x[] = {1}, y[] = {1};
  const struct plm_chart_line line = {
      .label = "</title><script>&'\"\x1b[31m", .x = x, .y = y, .count = 1};
  struct plm_text text = draw(&line, 1, 2, false, NAN);
  assert_null(strstr(text.data, "<script>"));
  assert_null(strchr(text.data, '\x1b'));
  assert_non_null(strstr(text.data, "&lt;/title&gt;&lt;script&gt;&amp;&#39;&quot;\\x1b[31m"));
  assert_non_null(strstr(text.data, "aria-label=\"A &lt;title&gt;\""));
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(points_lie_where_their_values_are),
      cmocka_unit_test(points_that_are_not_finite_are_left_out),
      cmocka_unit_test(many_steps_become_means_with_a_band),
      cmocka_unit_test(equal_values_and_a_level_are_drawn),
      cmocka_unit_test(foreign_text_is_never_markup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
