/* Curves in a terminal, drawn with braille dots over an axis of steps, each series in its own
 * colour. */
#ifndef PLM_STAGES_VIEWS_PLOT_H
#define PLM_STAGES_VIEWS_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct plm_series {
  const char *label;
  const double *x, *y;
  size_t count;
};

struct plm_plot {
  const char *title;
  const struct plm_series *series;
  size_t count;            /* of the series */
  double level;            /* a dotted horizontal line; NAN for none */
  const char *level_label; /* in the heading */
  int columns, rows;       /* of the whole drawing, labels included */
  bool logarithmic;        /* x is the logarithm to base 10 of what the axis shows */
  bool color;
};

/* Draws all series on common axes, under a heading with their labels. Points that are not finite
 * are left out. */
void plm_plot_draw(FILE *out, const struct plm_plot *plot);

#endif
