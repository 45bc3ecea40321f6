/* Charts of `report`: where points lie, what is drawn as a mean with a band, and foreign text. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stages/views/chart.h"
#include "tests/support/expected/expected_file.h"

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
  return text;
}

static size_t occurrences(const char *text, const char *word)
{
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) count++;
  return count;
}

/* A label needs room; a mark outside of the chart is not drawn. */
static void marks_stand_at_their_steps(void **state)
{
  (void)state;
  static const double x[] = {0, 100}, y[] = {0, 4};
  static const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = 2};
  static const struct plm_chart_mark marks[] = {{-1, "before", "0", 1},
                                                {50, "half", "<at> 50", 1},
                                                {52, "near", "at 52", 2},
                                                {53, "apart", "at 53", 3},
                                                {101, "behind", "9", 1}};
  const struct plm_chart chart = {.title = "t",
                                  .lines = &line,
                                  .count = 1,
                                  .marks = marks,
                                  .mark_count = sizeof marks / sizeof *marks,
                                  .scale = 1,
                                  .level = NAN,
                                  .range = {0, 100},
                                  .value_max = INFINITY};
  struct plm_text text = {0};
  plm_chart_draw(&text, &chart);
  assert_int_equal(occurrences(text.data, "class=\"mark"), 3);
  assert_non_null(strstr(text.data, "<g><title>&lt;at&gt; 50</title><line class=\"mark c1\" "
                                    "x1=\"249.0\" x2=\"249.0\" y1=\"10\" y2=\"214\"/><text "
                                    "class=\"label b1\" transform=\"translate(252.0 12) "
                                    "rotate(90)\">half</text></g>"));
  assert_non_null(strstr(text.data, "at 52"));
  assert_null(strstr(text.data, "near"));
  assert_non_null(strstr(text.data, ">apart<"));
  plm_text_deinit(&text);
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

/* The corners of the first path of a class. */
static size_t corners_of(const char *text, const char *class)
{
  const char *at = strstr(strstr(text, class), " d=\"") + 4;
  size_t count = 0;
  for (; *at != '"'; at++) count += *at == 'M' || *at == 'L';
  return count;
}

/* Two lines of means with bands, of which one has groups without a point, and one point by point.
 */
static void lines_with_bands_are_drawn_below_others(void **state)
{
  (void)state;
  double x[200], y[200], others[200];
  for (int i = 0; i < 200; i++) {
    x[i] = i < 121 ? 0.25 * i : i;
    y[i] = 10 + i % 7;
    others[i] = i == 3 ? NAN : 20 - 0.05 * i + i % 3;
  }
  const struct plm_chart_line lines[] = {
      {.label = "a", .x = x, .y = y, .count = 200, .color = 3, .dash = 1},
      {.label = "b", .x = x, .y = others, .count = 120, .color = 2, .dash = 3},
      {.label = "c", .x = x, .y = others, .count = 121, .color = 4, .dash = 2}};
  struct plm_text text = draw(lines, 3, 190, false, NAN);
  expected_file("stages/views/chart/bands.svg", text.data);
  plm_text_deinit(&text);
}

/* Also of a group with a single point. */
static void a_band_has_the_corners_of_its_line_twice(void **state)
{
  (void)state;
  double x[122], y[122];
  for (int i = 0; i < 122; i++) {
    x[i] = i < 121 ? 0.1 * i : 100;
    y[i] = i % 3;
  }
  const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = 122};
  struct plm_text text = draw(&line, 1, 100, false, NAN);
  const size_t corners = corners_of(text.data, "class=\"line");
  assert_true(corners > 2);
  assert_int_equal(corners_of(text.data, "class=\"band"), 2 * corners);
  plm_text_deinit(&text);
}

/* A line where y is 10 but for one 1000. */
static struct plm_text draw_outlier(int points, int where, bool from_zero)
{
  static double x[200], y[200];
  for (int i = 0; i < points; i++) {
    x[i] = i;
    y[i] = i == where ? 1000 : 10;
  }
  const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = (size_t)points};
  return draw(&line, 1, 120, from_zero, NAN);
}

static void how_a_line_is_drawn_depends_on_its_points(void **state)
{
  (void)state;
  static const struct {
    int points;
    size_t circles, bands, corners;
  } cases[] = {{40, 40, 0, 40}, {41, 0, 0, 41}, {120, 0, 0, 120}, {121, 0, 1, 60}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_text text = draw_outlier(cases[i].points, 7, false);
    assert_int_equal(occurrences(text.data, "<circle"), cases[i].circles);
    assert_int_equal(occurrences(text.data, "class=\"band b0\""), cases[i].bands);
    char *line = strstr(text.data, "class=\"line");
    assert_non_null(line);
    *strchr(strstr(line, " d=\"") + 4, '"') = '\0';
    assert_int_equal(occurrences(line, "L") + 1, cases[i].corners);
    plm_text_deinit(&text);
  }
  /* an axis from zero holds each of few points, but not the outlier of a band */
  struct plm_text text = draw_outlier(120, 7, true);
  assert_non_null(strstr(text.data, ">1000</text>"));
  assert_null(strstr(text.data, ">up to "));
  plm_text_deinit(&text);
  static const struct {
    int where;
    const char *most;
  } outliers[] = {{0, ">700</text>"}, {7, ">700</text>"}, {120, ">500</text>"}};
  for (size_t i = 0; i < 3; i++) { /* the highest mean is 505, or 340 */
    text = draw_outlier(121, outliers[i].where, true);
    assert_non_null(strstr(text.data, outliers[i].most));
    assert_null(strstr(text.data, ">1000</text>"));
    assert_non_null(strstr(text.data, ">up to 1000</text>"));
    plm_text_deinit(&text);
  }
  text = draw_outlier(121, 7, false);
  assert_non_null(strstr(text.data, ">1000</text>"));
  plm_text_deinit(&text);
}

/* Adds the chart of two values, the second at the last step. */
static void add_chart(struct plm_text *text, double first, double second, struct plm_chart chart)
{
  const double x[] = {chart.range[0], chart.range[1]}, y[] = {first, second};
  const struct plm_chart_line line = {.label = "a", .x = x, .y = y, .count = 2};
  chart.title = "A chart";
  chart.lines = &line;
  chart.count = 1;
  plm_chart_draw(text, &chart);
}

static void axes_have_round_numbers(void **state)
{
  (void)state;
  struct plm_text text = {0};
  const struct plm_chart usual = {
      .scale = 1, .level = NAN, .range = {0, 100}, .value_max = INFINITY};
  struct plm_chart chart = usual;
  add_chart(&text, 1, 7.5, chart); /* ticks of 1, 2, 5 and 10 */
  add_chart(&text, 0, 9, chart);
  add_chart(&text, -3, 20, chart);
  add_chart(&text, 0.25, 0.6, chart);
  add_chart(&text, 5, 5, chart); /* without an extent */
  add_chart(&text, 0, 0, chart);
  add_chart(&text, -2, -2, chart);
  chart.range[1] = 9999;
  add_chart(&text, 9999.4, 10000.6, chart);
  chart.range[1] = 2e6;
  add_chart(&text, 999900, 1e6, chart);
  chart.range[0] = 13;
  chart.range[1] = 13;
  add_chart(&text, 1, 2, chart);
  chart = usual;
  chart.from_zero = true;
  add_chart(&text, 3, 4, chart);
  add_chart(&text, -1, 4, chart);
  chart.scale = 100;
  chart.value_max = 100;
  add_chart(&text, 0.25, 0.97, chart); /* ends at 100 anyway */
  add_chart(&text, 1, 1, chart);
  chart.from_zero = false;
  add_chart(&text, 0.97, 0.97, chart); /* would end at 108 */
  add_chart(&text, 1, 1, chart);       /* its axis begins at the limit */
  chart = usual;
  chart.scale = 10;
  chart.level = 3;
  add_chart(&text, 1, 2, chart);
  chart.level = 0.5;
  add_chart(&text, 1, 2, chart);
  chart.value_max = 3; /* below all values: not obeyed */
  add_chart(&text, 1, 2, chart);
  expected_file("stages/views/chart/axes.svg", text.data);
  plm_text_deinit(&text);
}

static void several_lines_share_the_values_under_the_pointer(void **state)
{
  (void)state;
  static const double x[] = {-5, 0, 1, 2, 59, 60, 70}, y[] = {1, 2, 4, 3, 5, 6, 7}, few[] = {1, 30};
  const struct plm_chart_line lines[] = {
      {.label = "<a>", .x = x, .y = y, .count = 7, .color = 1, .dash = 2},
      {.label = "none", .x = x, .y = y, .count = 0, .color = 5},
      {.label = "b", .x = few, .y = few, .count = 2, .color = 7}};
  struct plm_text text = draw(lines, 3, 60, false, 6.5);
  expected_file("stages/views/chart/lines.svg", text.data);
  plm_text_deinit(&text);
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
      cmocka_unit_test(marks_stand_at_their_steps),
      cmocka_unit_test(points_that_are_not_finite_are_left_out),
      cmocka_unit_test(many_steps_become_means_with_a_band),
      cmocka_unit_test(lines_with_bands_are_drawn_below_others),
      cmocka_unit_test(a_band_has_the_corners_of_its_line_twice),
      cmocka_unit_test(how_a_line_is_drawn_depends_on_its_points),
      cmocka_unit_test(axes_have_round_numbers),
      cmocka_unit_test(several_lines_share_the_values_under_the_pointer),
      cmocka_unit_test(equal_values_and_a_level_are_drawn),
      cmocka_unit_test(foreign_text_is_never_markup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
