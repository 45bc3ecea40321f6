/* A metric over steps, read from a metrics file: what `metrics --plot` draws. */
#ifndef PLM_STAGES_VIEWS_METRICS_CURVES_H
#define PLM_STAGES_VIEWS_METRICS_CURVES_H

#include <stddef.h>

#include "common/base/status.h"

enum { PLM_CURVE_SPLITS = 4 }; /* more than there are */

/* Ascending steps, one point each. */
struct plm_curve {
  char split[16]; /* "" where lines have none: the trainer's */
  double *x, *y;
  size_t count, capacity;
};

/* Caller-owned; {0} is empty. */
struct plm_curves {
  struct plm_curve list[PLM_CURVE_SPLITS];
  size_t count;
  double baseline; /* the last line's baseline_entropy; NAN: none has it */
};

/* A curve a split. Of several lines of one step the last counts: the checkpoint was published anew.
 * A missing file gives none. PLM_NO_MEMORY. */
plm_status plm_curves_read(const char *path, const char *key, struct plm_curves *curves,
                           struct plm_error *error);
void plm_curves_deinit(struct plm_curves *curves);

#endif
