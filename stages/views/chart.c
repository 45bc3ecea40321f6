/* Draws charts as SVG. */
#include "stages/views/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/printable.h"

/* In units of the view box; the page scales it. GROUPS: of steps, each with a mean. */
enum { WIDTH = 460, HEIGHT = 250, LEFT = 50, RIGHT = 12, TOP = 10, BOTTOM = 36, GROUPS = 60 };
/* A line with fewer points is drawn point by point, and one with very few has dots. */
enum { FEW = 2 * GROUPS, VERY_FEW = 40 };
enum { MARK_ROOM = 11 }; /* between two labels of marks */

struct group {
  double x, first, last; /* mean, least and largest step */
  double y, low, high;
  size_t count;
};

struct drawing {
  struct plm_text *text;
  const struct plm_chart *chart;
  struct group *groups; /* (chart->count, GROUPS) */
  double x0, x1, y0, y1;
  double tick; /* between two values on the axis */
};

void plm_text_put_html(struct plm_text *text, const char *string)
{
  struct plm_text safe = {0};
  plm_text_put_printable(&safe, string, strlen(string), PLM_PRINTABLE_LINE);
  for (const char *c = safe.data; c != NULL && *c != '\0'; c++) {
    switch (*c) {
    case '&': plm_text_puts(text, "&amp;"); break;
    case '<': plm_text_puts(text, "&lt;"); break;
    case '>': plm_text_puts(text, "&gt;"); break;
    case '"': plm_text_puts(text, "&quot;"); break;
    case '\'': plm_text_puts(text, "&#39;"); break;
    default: plm_text_append(text, c, 1);
    }
  }
  plm_text_deinit(&safe);
}

/* ---- groups and axes ------------------------------------------------------------------------ */

static bool chart_usable(const struct plm_chart_line *line, size_t i)
{
  return isfinite(line->x[i]) && isfinite(line->y[i]);
}

static size_t group_of(const struct drawing *drawing, double x)
{
  const double place = (x - drawing->x0) / (drawing->x1 - drawing->x0) * GROUPS;
  return place < 0 ? 0 : place >= GROUPS ? GROUPS - 1 : (size_t)place;
}

static void make_groups(struct drawing *drawing, size_t index)
{
  const struct plm_chart_line *line = &drawing->chart->lines[index];
  struct group *groups = &drawing->groups[index * GROUPS];
  for (size_t i = 0; i < line->count; i++) {
    if (!chart_usable(line, i)) continue;
    struct group *group = &groups[group_of(drawing, line->x[i])];
    const double y = line->y[i] * drawing->chart->scale;
    if (group->count++ == 0) *group = (struct group){0, line->x[i], line->x[i], 0, y, y, 1};
    group->x += line->x[i];
    group->y += y;
    group->last = line->x[i];
    group->low = fmin(group->low, y);
    group->high = fmax(group->high, y);
  }
  for (size_t g = 0; g < GROUPS; g++) {
    if (groups[g].count == 0) continue;
    groups[g].x /= (double)groups[g].count;
    groups[g].y /= (double)groups[g].count;
  }
}

/* A round distance (1, 2 or 5 times a power of ten) that divides the span into about `parts`. */
static double round_tick(double span, double parts)
{
  const double power = pow(10, floor(log10(span / parts))), rest = span / parts / power;
  return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

/* The range of values that are drawn, extended to round numbers. An axis from zero holds the bands
 * up to a quarter above the means only: one slow step would flatten the line. Returns false if
 * there are no values. */
static bool find_range(struct drawing *drawing)
{
  const struct plm_chart *chart = drawing->chart;
  double low = INFINITY, high = -INFINITY, highest_mean = -INFINITY;
  for (size_t i = 0; i < chart->count * GROUPS; i++)
    if (drawing->groups[i].count > 0) highest_mean = fmax(highest_mean, drawing->groups[i].y);
  for (size_t i = 0; i < chart->count * GROUPS; i++) {
    const struct group *group = &drawing->groups[i];
    if (group->count == 0) continue;
    const bool each = chart->lines[i / GROUPS].count <= FEW || !chart->from_zero;
    low = fmin(low, each ? group->low : group->y);
    high = fmax(high, each ? group->high : fmin(group->high, 1.25 * highest_mean));
  }
  if (!isfinite(low) || !isfinite(high)) return false;
  if (isfinite(chart->level)) {
    low = fmin(low, chart->level * chart->scale);
    high = fmax(high, chart->level * chart->scale);
  }
  if (chart->from_zero) low = fmin(low, 0);
  if (high <= low) high = low + (low != 0 ? 0.1 * fabs(low) : 1);
  drawing->tick = round_tick(high - low, 4.5);
  drawing->y0 = floor(low / drawing->tick + 1e-6) * drawing->tick;
  drawing->y1 = ceil(high / drawing->tick - 1e-6) * drawing->tick;
  if (drawing->y1 > chart->value_max && drawing->y0 < chart->value_max)
    drawing->y1 = chart->value_max;
  return true;
}

static double place_x(const struct drawing *drawing, double x)
{
  return LEFT + (x - drawing->x0) / (drawing->x1 - drawing->x0) * (WIDTH - LEFT - RIGHT);
}

/* What lies outside of the axis is drawn at its end. */
static double place_y(const struct drawing *drawing, double y)
{
  const double part = (y - drawing->y0) / (drawing->y1 - drawing->y0);
  return HEIGHT - BOTTOM - fmin(fmax(part, 0), 1) * (HEIGHT - TOP - BOTTOM);
}

static void put_number(struct plm_text *text, double value)
{
  if (fabs(value) >= 999950)
    plm_text_printf(text, "%.4gM", 1e-6 * value);
  else if (fabs(value) >= 9999.5)
    plm_text_printf(text, "%.4gk", 1e-3 * value);
  else
    plm_text_printf(text, "%.4g", value);
}

static const char *axis_of(const struct drawing *drawing)
{
  return drawing->chart->axis != NULL ? drawing->chart->axis : "step";
}

static void draw_axes(const struct drawing *drawing)
{
  struct plm_text *text = drawing->text;
  const double tick = round_tick(drawing->x1 - drawing->x0, 5);
  const int lines = (int)lround((drawing->y1 - drawing->y0) / drawing->tick);
  for (int i = 0; i <= lines; i++) {
    double value = drawing->y0 + i * drawing->tick;
    if (fabs(value) < 1e-9 * drawing->tick) value = 0;
    const double y = place_y(drawing, value);
    plm_text_printf(text, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>",
                    LEFT, WIDTH - RIGHT, y, y);
    plm_text_printf(text, "<text class=\"value\" x=\"%d\" y=\"%.1f\">", LEFT - 7, y + 4);
    put_number(text, value);
    plm_text_puts(text, "</text>");
  }
  for (double x = ceil(drawing->x0 / tick) * tick; x <= drawing->x1 + 1e-9 * tick; x += tick) {
    plm_text_printf(text, "<text class=\"step\" x=\"%.1f\" y=\"%d\">", place_x(drawing, x),
                    HEIGHT - BOTTOM + 17);
    put_number(text, x);
    plm_text_puts(text, "</text>");
  }
  plm_text_printf(text, "<text class=\"step\" x=\"%d\" y=\"%d\">%s</text>",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 3, axis_of(drawing));
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void put_point(const struct drawing *drawing, double x, double y, bool *begun)
{
  plm_text_printf(drawing->text, "%c%.1f %.1f", *begun ? 'L' : 'M', place_x(drawing, x),
                  place_y(drawing, y));
  *begun = true;
}

static void draw_band(const struct drawing *drawing, size_t index)
{
  const struct group *groups = &drawing->groups[index * GROUPS];
  bool begun = false;
  plm_text_printf(drawing->text, "<path class=\"band b%u\" d=\"",
                  drawing->chart->lines[index].color);
  for (size_t g = 0; g < GROUPS; g++)
    if (groups[g].count > 0) put_point(drawing, groups[g].x, groups[g].high, &begun);
  for (size_t g = GROUPS; g-- > 0;)
    if (groups[g].count > 0) put_point(drawing, groups[g].x, groups[g].low, &begun);
  plm_text_puts(drawing->text, "Z\"/>");
}

static void draw_line(const struct drawing *drawing, size_t index)
{
  const struct plm_chart_line *line = &drawing->chart->lines[index];
  const struct group *groups = &drawing->groups[index * GROUPS];
  bool begun = false;
  plm_text_printf(drawing->text, "<path class=\"line c%u d%u\" d=\"", line->color, line->dash);
  for (size_t i = 0; line->count <= FEW && i < line->count; i++)
    if (chart_usable(line, i))
      put_point(drawing, line->x[i], line->y[i] * drawing->chart->scale, &begun);
  for (size_t g = 0; line->count > FEW && g < GROUPS; g++)
    if (groups[g].count > 0) put_point(drawing, groups[g].x, groups[g].y, &begun);
  plm_text_puts(drawing->text, begun ? "\"/>" : "M0 0\"/>");
  for (size_t i = 0; line->count <= VERY_FEW && i < line->count; i++)
    if (chart_usable(line, i))
      plm_text_printf(drawing->text, "<circle class=\"b%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\"/>",
                      line->color, place_x(drawing, line->x[i]),
                      place_y(drawing, line->y[i] * drawing->chart->scale));
}

/* ---- the values under the pointer ----------------------------------------------------------- */

static void put_steps(const struct drawing *drawing, double first, double last)
{
  if (drawing->chart->axis != NULL)
    plm_text_printf(drawing->text, first < last ? "%s %.4g to %.4g" : "%s %.4g",
                    drawing->chart->axis, first, last);
  else
    plm_text_printf(drawing->text, first < last ? "steps %.0f to %.0f" : "step %.0f", first, last);
}

static void draw_values(const struct drawing *drawing, size_t g)
{
  const double width = (double)(WIDTH - LEFT - RIGHT) / GROUPS;
  double first = INFINITY, last = -INFINITY;
  for (size_t i = 0; i < drawing->chart->count; i++) {
    const struct group *group = &drawing->groups[i * GROUPS + g];
    if (group->count == 0) continue;
    first = fmin(first, group->first);
    last = fmax(last, group->last);
  }
  if (!isfinite(first)) return;
  plm_text_printf(drawing->text, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>",
                  LEFT + (double)g * width, TOP, width, HEIGHT - TOP - BOTTOM);
  put_steps(drawing, first, last);
  for (size_t i = 0; i < drawing->chart->count; i++) {
    const struct group *group = &drawing->groups[i * GROUPS + g];
    if (group->count == 0) continue;
    plm_text_puts(drawing->text, "\n");
    plm_text_put_html(drawing->text, drawing->chart->lines[i].label);
    plm_text_printf(drawing->text, ": %.5g", group->y);
    if (group->low < group->high)
      plm_text_printf(drawing->text, " (%.5g to %.5g)", group->low, group->high);
  }
  plm_text_puts(drawing->text, "</title></rect>");
}

/* Labels stand upright on the right of their lines. */
static void draw_marks(const struct drawing *drawing)
{
  const struct plm_chart *chart = drawing->chart;
  double last = -INFINITY;
  for (size_t i = 0; i < chart->mark_count; i++) {
    const struct plm_chart_mark *mark = &chart->marks[i];
    if (!(mark->x >= drawing->x0 && mark->x <= drawing->x1)) continue;
    const double x = place_x(drawing, mark->x);
    plm_text_printf(drawing->text, "<g><title>");
    plm_text_put_html(drawing->text, mark->title);
    plm_text_printf(drawing->text,
                    "</title><line class=\"mark c%u\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" "
                    "y2=\"%d\"/>",
                    mark->color, x, x, TOP, HEIGHT - BOTTOM);
    if (x - last >= MARK_ROOM) {
      plm_text_printf(drawing->text,
                      "<text class=\"label b%u\" transform=\"translate(%.1f %d) rotate(90)\">",
                      mark->color, x + 3, TOP + 2);
      plm_text_put_html(drawing->text, mark->label);
      plm_text_puts(drawing->text, "</text>");
      last = x;
    }
    plm_text_puts(drawing->text, "</g>");
  }
}

/* Says how far the bands reach if the axis does not hold them, since they are cut there. */
static void draw_highest(const struct drawing *drawing)
{
  double high = -INFINITY;
  for (size_t i = 0; i < drawing->chart->count * GROUPS; i++)
    if (drawing->groups[i].count > 0) high = fmax(high, drawing->groups[i].high);
  if (!(high > drawing->y1)) return;
  plm_text_printf(drawing->text, "<text class=\"value label\" x=\"%d\" y=\"%d\">up to %.4g</text>",
                  WIDTH - RIGHT, TOP + 10, high);
}

static void draw_all(const struct drawing *drawing)
{
  const struct plm_chart *chart = drawing->chart;
  draw_axes(drawing);
  for (size_t i = 0; i < chart->count; i++)
    if (chart->lines[i].count > FEW) draw_band(drawing, i);
  if (isfinite(chart->level)) {
    const double y = place_y(drawing, chart->level * chart->scale);
    plm_text_printf(drawing->text,
                    "<line class=\"level\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                    WIDTH - RIGHT, y, y);
  }
  for (size_t i = 0; i < chart->count; i++)
    if (chart->lines[i].count > 0) draw_line(drawing, i);
  plm_text_puts(drawing->text, "<g class=\"values\">");
  for (size_t g = 0; g < GROUPS; g++) draw_values(drawing, g);
  plm_text_puts(drawing->text, "</g>");
  draw_highest(drawing);
  draw_marks(drawing);
}

void plm_chart_draw(struct plm_text *text, const struct plm_chart *chart)
{
  struct drawing drawing = {
      .text = text, .chart = chart, .x0 = chart->range[0], .x1 = chart->range[1]};
  if (!(drawing.x1 > drawing.x0)) drawing.x1 = drawing.x0 + 1;
  drawing.groups = plm_alloc_zeroed((chart->count + 1) * GROUPS, sizeof *drawing.groups);
  for (size_t i = 0; i < chart->count; i++) make_groups(&drawing, i);
  plm_text_printf(text, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
  plm_text_put_html(text, chart->title);
  plm_text_puts(text, "\">");
  if (find_range(&drawing))
    draw_all(&drawing);
  else
    plm_text_printf(text, "<text class=\"step\" x=\"%d\" y=\"%d\">no values yet</text>", WIDTH / 2,
                    HEIGHT / 2);
  plm_text_puts(text, "</svg>\n");
  free(drawing.groups);
}
