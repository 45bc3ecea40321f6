/* A metric over steps, read from a metrics file for `metrics --plot`. */
#ifndef PLM_STAGES_VIEWS_METRICS_CURVES_H
#define PLM_STAGES_VIEWS_METRICS_CURVES_H

#include <stddef.h>

#include "common/base/status.h"

enum { PLM_CURVE_SPLITS = 4 }; /* more than a corpus has */

/* One point for each step, in ascending order. */
struct plm_curve {
  char split[16]; /* "" if the lines have none, as the trainer's */
  double *x, *y;
  size_t count, capacity;
};

/* Caller-owned; {0} is empty. */
struct plm_curves {
  struct plm_curve list[PLM_CURVE_SPLITS];
  size_t count;
  double baseline; /* baseline_entropy of the last line that has it, else NAN */
};

/* Reads one curve for each split. If a step has several lines, because its checkpoint was published
 * again, the last one counts. A missing file gives no curves. PLM_NO_MEMORY. */
plm_status plm_curves_read(const char *path, const char *key, struct plm_curves *curves,
                           struct plm_error *error);
void plm_curves_deinit(struct plm_curves *curves);

#endif
