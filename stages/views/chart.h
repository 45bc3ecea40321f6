/* Charts as inline SVG, for `report`: lines over steps. A line with many points is drawn as the
 * means of groups of steps, with a band from the least to the largest value of each group. */
#ifndef PLM_STAGES_VIEWS_CHART_H
#define PLM_STAGES_VIEWS_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/text/text.h"

/* Lines that differ in color or dash can be told apart. The page's style sheet colours the classes
 * c0 to c7 (lines) and b0 to b7 (bands and the labels of marks), and dashes d1 to d3. */
enum { PLM_CHART_COLORS = 8, PLM_CHART_DASHES = 4 };

struct plm_chart_line {
  const char *label;   /* in the values that appear under the pointer */
  const double *x, *y; /* (count), x ascending; points that are not finite are left out */
  size_t count;
  unsigned color, dash; /* below PLM_CHART_COLORS and PLM_CHART_DASHES */
};

/* A vertical line. Its label is left out if the one before it is too near. */
struct plm_chart_mark {
  double x;                  /* a step */
  const char *label, *title; /* title: what appears under the pointer */
  unsigned color;            /* below PLM_CHART_COLORS */
};

struct plm_chart {
  const char *title; /* what the chart is about, for readers who do not see it */
  const struct plm_chart_line *lines;
  size_t count;
  const struct plm_chart_mark *marks; /* (mark_count), x ascending */
  size_t mark_count;
  double scale;     /* values are multiplied by it: 100 for per cent */
  double level;     /* a horizontal line, scaled as well; NAN for none */
  double range[2];  /* of x, the same for all charts of a page with this axis */
  const char *axis; /* what x is: "step"; NULL: that */
  bool from_zero;   /* the axis of values begins at 0 */
  double value_max; /* the axis of values ends there at the latest; INFINITY for no limit */
};

/* Appends one <svg> element. Without any value it says so. */
void plm_chart_draw(struct plm_text *text, const struct plm_chart *chart);

/* Appends text to HTML or SVG as characters, never as markup. Unsafe characters become visible
 * (common/base/text/printable.h). */
void plm_text_put_html(struct plm_text *text, const char *string);

#endif
