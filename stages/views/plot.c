/* Plots with braille characters (U+2800 + bits): each cell has 2 x 4 dots. */
#include "stages/views/plot.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text/printable.h"

enum { MARGIN = 10, SERIES_COLORS = 6 };

struct canvas {
  int columns, rows;
  int margin;     /* columns of the labels on the left */
  uint8_t *dots;  /* (rows, columns) braille bits */
  uint8_t *owner; /* (rows, columns) the series that drew last in the cell, from 1 */
  double x0, x1, y0, y1;
};

static const int colors[SERIES_COLORS] = {36, 33, 35, 32, 34, 31};

static void put_dot(struct canvas *canvas, int x, int y, int owner)
{
  static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  PLM_ASSERT(x >= 0 && y >= 0 && x < 2 * canvas->columns && y < 4 * canvas->rows);
  const int cell = (y / 4) * canvas->columns + x / 2;
  canvas->dots[cell] |= bits[y % 4][x % 2];
  canvas->owner[cell] = (uint8_t)owner;
}

static int dot_x(const struct canvas *canvas, double x)
{
  return (int)lround((x - canvas->x0) / (canvas->x1 - canvas->x0) * (2 * canvas->columns - 1));
}

static int dot_y(const struct canvas *canvas, double y)
{
  return (int)lround((canvas->y1 - y) / (canvas->y1 - canvas->y0) * (4 * canvas->rows - 1));
}

static void plot_put_line(struct canvas *canvas, int x0, int y0, int x1, int y1, int owner)
{
  const int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
  for (int i = 0; i <= steps; i++)
    put_dot(canvas, x0 + (steps > 0 ? (x1 - x0) * i / steps : 0),
            y0 + (steps > 0 ? (y1 - y0) * i / steps : 0), owner);
}

static bool plot_usable(const struct plm_series *series, size_t i)
{
  return isfinite(series->x[i]) && isfinite(series->y[i]);
}

static void plot_widen(double value, double *low, double *high)
{
  if (value < *low) *low = value;
  if (value > *high) *high = value;
}

static bool find_range(struct canvas *canvas, const struct plm_plot *plot)
{
  const struct plm_series *series = plot->series;
  canvas->x0 = canvas->y0 = INFINITY;
  canvas->x1 = canvas->y1 = -INFINITY;
  for (size_t s = 0; s < plot->count; s++) {
    for (size_t i = 0; i < series[s].count; i++) {
      if (!plot_usable(&series[s], i)) continue;
      plot_widen(series[s].x[i], &canvas->x0, &canvas->x1);
      plot_widen(series[s].y[i], &canvas->y0, &canvas->y1);
    }
  }
  if (!isfinite(canvas->x0)) return false;
  if (isfinite(plot->level)) plot_widen(plot->level, &canvas->y0, &canvas->y1);
  if (canvas->x1 == canvas->x0) canvas->x1 = canvas->x0 + 1;
  if (canvas->y1 == canvas->y0) canvas->y1 = canvas->y0 + 1e-9 + fabs(canvas->y0) * 1e-3;
  return true;
}

static void draw_series(struct canvas *canvas, const struct plm_series *series, int owner)
{
  bool drawn = false;
  int last_x = 0, last_y = 0;
  for (size_t i = 0; i < series->count; i++) {
    if (!plot_usable(series, i)) continue;
    const int x = dot_x(canvas, series->x[i]), y = dot_y(canvas, series->y[i]);
    if (drawn)
      plot_put_line(canvas, last_x, last_y, x, y, owner);
    else
      put_dot(canvas, x, y, owner);
    drawn = true;
    last_x = x;
    last_y = y;
  }
}

static void print_cell(FILE *out, unsigned dots, unsigned owner, bool color)
{
  const unsigned code = 0x2800u + dots;
  const char text[4] = {(char)(0xE0 | code >> 12), (char)(0x80 | (code >> 6 & 0x3F)),
                        (char)(0x80 | (code & 0x3F)), 0};
  if (dots == 0)
    fputc(' ', out);
  else if (color && owner != 0)
    fprintf(out, "\x1b[%dm%s\x1b[0m", colors[(owner - 1) % SERIES_COLORS], text);
  else
    fputs(text, out);
}

/* The value in the middle of a row of cells. */
static double value_of(const struct canvas *canvas, int row)
{
  return canvas->y1 - (canvas->y1 - canvas->y0) * (row + 0.5) / (double)canvas->rows;
}

static bool has_label(const struct canvas *canvas, int row)
{
  return row % 3 == 0 || row == canvas->rows - 1;
}

/* A margin that holds the longest label. */
static void find_margin(struct canvas *canvas)
{
  for (int row = 0; row < canvas->rows; row++) {
    const int length = snprintf(NULL, 0, "%.4g", value_of(canvas, row)) + 2;
    if (has_label(canvas, row) && length > canvas->margin) canvas->margin = length;
  }
}

static void print_canvas(FILE *out, const struct canvas *canvas, const struct plm_plot *plot)
{
  const bool color = plot->color;
  for (int row = 0; row < canvas->rows; row++) {
    if (has_label(canvas, row))
      fprintf(out, "%*.4g |", canvas->margin - 2, value_of(canvas, row));
    else
      fprintf(out, "%*s |", canvas->margin - 2, "");
    for (int column = 0; column < canvas->columns; column++) {
      const int cell = row * canvas->columns + column;
      print_cell(out, canvas->dots[cell], canvas->owner[cell], color);
    }
    fputc('\n', out);
  }
  char first[32], last[32];
  const int first_length =
      snprintf(first, sizeof first, "%g", plot->logarithmic ? pow(10, canvas->x0) : canvas->x0);
  snprintf(last, sizeof last, "%g", plot->logarithmic ? pow(10, canvas->x1) : canvas->x1);
  fprintf(out, "%*s%s%*s\n", canvas->margin, "", first, canvas->columns - first_length, last);
}

static void print_heading(FILE *out, const struct plm_plot *plot)
{
  plm_print(out, "%*s%s", MARGIN, "", plot->title);
  for (size_t s = 0; s < plot->count; s++) {
    char label[256];
    plm_printable(label, sizeof label, plot->series[s].label, PLM_PRINTABLE_LINE);
    if (plot->color)
      fprintf(out, "  \x1b[%dm\xE2\x94\x80 %s\x1b[0m", colors[s % SERIES_COLORS], label);
    else
      fprintf(out, "  - %s", label);
  }
  if (isfinite(plot->level)) fprintf(out, "  (.. %s %.4g)", plot->level_label, plot->level);
  fputc('\n', out);
}

void plm_plot_draw(FILE *out, const struct plm_plot *plot)
{
  struct canvas canvas = {.rows = plot->rows > 8 ? plot->rows - 3 : 5, .margin = MARGIN};
  const bool any = find_range(&canvas, plot);
  if (any) find_margin(&canvas);
  canvas.columns = plot->columns > canvas.margin + 20 ? plot->columns - canvas.margin : 20;
  const size_t cells = (size_t)canvas.columns * (size_t)canvas.rows;
  canvas.dots = plm_alloc_zeroed(cells, 1);
  canvas.owner = plm_alloc_zeroed(cells, 1);
  print_heading(out, plot);
  if (any) {
    if (isfinite(plot->level))
      for (int x = 0; x < 2 * canvas.columns; x += 4)
        put_dot(&canvas, x, dot_y(&canvas, plot->level), 0);
    for (size_t s = 0; s < plot->count; s++) draw_series(&canvas, &plot->series[s], (int)s + 1);
    print_canvas(out, &canvas, plot);
  } else {
    fprintf(out, "%*sno values yet\n", MARGIN, "");
  }
  free(canvas.dots);
  free(canvas.owner);
}
