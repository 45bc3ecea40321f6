/* Plots of the terminal, compared as a whole with tests/stages/views/plot/. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stages/views/plot.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/captured.h"

static const double x[] = {0, 10, 20, 30, 40}, rising[] = {1, 2, 3, 4, 5},
                    bent[] = {5, 1, NAN, 2, 2.5}, flat[] = {3, 3, 3, 3, 3};
static const struct plm_series series[] = {
    {"rising", x, rising, 5}, {"a \033[31mbent one", x, bent, 5}, {"none", x, flat, 0}};

static const struct plm_plot usual = {
    .title = "loss", .series = series, .count = 3, .level = NAN, .columns = 50, .rows = 12};

static void draw(const char *what, struct plm_plot plot)
{
  printf("%s\n", what);
  plm_plot_draw(stdout, &plot);
}

static void curves_have_axes_and_a_legend(void **state)
{
  (void)state;
  struct plm_plot plot = usual;
  captured_begin(STDOUT_FILENO);
  draw("three series", plot);
  plot.color = true;
  plot.level = 4.5;
  plot.level_label = "baseline";
  draw("in color, with a level", plot);
  plot.color = false;
  plot.level = 8;
  draw("a level above all", plot);
  plot.level = -1;
  draw("a level below all", plot);
  plot = usual;
  plot.count = 1;
  plot.series = &(struct plm_series){"flat", x, flat, 5};
  draw("without an extent of values", plot);
  plot.series = &(struct plm_series){"one", &x[2], flat, 1};
  draw("one point", plot);
  plot.series = &(struct plm_series){"none", x, &bent[2], 1};
  draw("no finite value", plot);
  static const double wide[] = {-1.2345e-05, 0, 0, 0, 1.2345e-05};
  plot.series = &(struct plm_series){"long labels", x, wide, 5};
  draw("long labels", plot);
  static const double decades[] = {-6, -4.5, -3, -1.5, 0};
  plot.series = &(struct plm_series){"logarithmic", decades, rising, 5};
  plot.logarithmic = true;
  draw("a logarithmic axis", plot);
  plot.logarithmic = false;
  plot.count = 0;
  draw("no series", plot);
  expected_file("stages/views/plot/curves", captured_end());
}

static void small_terminals_get_a_least_size(void **state)
{
  (void)state;
  static const int columns[] = {1, 30, 31, 32}, rows[] = {1, 8, 9, 10};
  struct plm_plot plot = usual;
  plot.count = 1;
  captured_begin(STDOUT_FILENO);
  for (size_t i = 0; i < 4; i++) {
    plot.columns = columns[i];
    plot.rows = rows[i];
    draw("another size", plot);
  }
  expected_file("stages/views/plot/sizes", captured_end());
}

/* The seventh series has the color of the first. */
static void colors_come_again(void **state)
{
  (void)state;
  struct plm_series seven[7];
  double y[7];
  for (size_t i = 0; i < 7; i++) {
    y[i] = (double)i;
    seven[i] = (struct plm_series){"s", x, &y[i], 1};
  }
  const struct plm_plot plot = {.title = "t",
                                .series = seven,
                                .count = 7,
                                .level = NAN,
                                .columns = 40,
                                .rows = 10,
                                .color = true};
  captured_begin(STDOUT_FILENO);
  plm_plot_draw(stdout, &plot);
  expected_file("stages/views/plot/colors", captured_end());
}

/* A point at either end that is not finite changes nothing. */
static void only_finite_points_are_drawn(void **state)
{
  (void)state;
  static const struct {
    double x, y;
  } left_out[] = {{NAN, 3}, {INFINITY, 3}, {-INFINITY, 3}, {20, NAN}, {20, INFINITY}};
  double xs[6] = {0, 10, 20, 30, 40}, ys[6] = {1, 2, 3, 4, 5};
  const struct plm_series points = {"a", xs, ys, 5}, more = {"a", xs, ys, 6};
  struct plm_plot plot = usual;
  char expected[1 << 14];
  plot.count = 1;
  plot.series = &points;
  captured_begin(STDOUT_FILENO);
  plm_plot_draw(stdout, &plot);
  snprintf(expected, sizeof expected, "%s", captured_end());
  plot.series = &more;
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
    xs[5] = left_out[i].x;
    ys[5] = left_out[i].y;
    captured_begin(STDOUT_FILENO);
    plm_plot_draw(stdout, &plot);
    assert_string_equal(captured_end(), expected);
  }
}

/* Whatever lies between the largest numbers, each dot is in the canvas. */
static void the_largest_numbers_are_drawn(void **state)
{
  (void)state;
  static const double ends[] = {-1.7e308, 0, 1.7e308}, tiny[] = {0, 5e-324, 1e-323};
  const struct plm_series largest[] = {
      {"a", ends, ends, 3}, {"b", tiny, ends, 3}, {"c", ends, tiny, 3}, {"d", tiny, tiny, 3}};
  struct plm_plot plot = usual;
  plot.count = 1;
  for (size_t i = 0; i < 4; i++) {
    plot.series = &largest[i];
    plot.level = ends[i % 3];
    plot.level_label = "level";
    captured_begin(STDOUT_FILENO);
    plm_plot_draw(stdout, &plot);
    assert_memory_equal(captured_end(), "          loss  - ", 17);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(curves_have_axes_and_a_legend),
      cmocka_unit_test(small_terminals_get_a_least_size),
      cmocka_unit_test(colors_come_again),
      cmocka_unit_test(only_finite_points_are_drawn),
      cmocka_unit_test(the_largest_numbers_are_drawn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
