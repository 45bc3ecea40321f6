/* Curves in a terminal: points over an axis of steps, drawn with braille dots, a mark and colour a
 * series. */
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

/* Draws all series on common axes, `columns` wide and `rows` high (labels included). Points that
 * are not finite are left out; a horizontal line is drawn at `level` when it is finite. */
void plm_plot_draw(FILE *out, const char *title, const struct plm_series *series, size_t count,
                   double level, const char *level_label, int columns, int rows, bool color);

#endif
