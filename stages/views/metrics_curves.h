/* Metrics over steps, read from a metrics file for `metrics --plot` and `report`. */
#ifndef PLM_STAGES_VIEWS_METRICS_CURVES_H
#define PLM_STAGES_VIEWS_METRICS_CURVES_H

#include <stddef.h>

#include "common/base/status.h"

enum { PLM_CURVE_SPLITS = 48 }; /* more splits and sets than a run has */

/* One point for each step, in ascending order. */
struct plm_curve {
  /* The split, with the set's name unless it is the run's corpus, and then the part of an object:
   * "refseq valid", "valid <64". "" if there is none of them, as in most of the trainer's. */
  char split[128];
  double *x, *y;
  size_t count, capacity;
};

/* Caller-owned; {0} is empty. */
struct plm_curves {
  struct plm_curve list[PLM_CURVE_SPLITS];
  size_t count;
  double baseline; /* baseline_entropy of the last line that has it, else NAN */
};

/* Reads one curve for each split and set. Of an object, norms by layer become the root of the sum
 * of their squares, and tokens by source their sum; any other has a curve for each of its parts,
 * and so has every object with the key "NAME/" followed by an asterisk. If a step has several
 * lines, because its checkpoint was published again, the last one counts. A missing file gives no
 * curves. The caller deinits *curves, also after an error. */
plm_status plm_curves_read(const char *path, const char *key, struct plm_curves *curves,
                           struct plm_error *error);
/* The same for several keys in one pass over the file: curves (count) receives those of keys
 * (count). The caller deinits all of them, also after an error. */
plm_status plm_curves_read_keys(const char *path, const char *const *keys, size_t count,
                                struct plm_curves *curves, struct plm_error *error);
void plm_curves_deinit(struct plm_curves *curves);

#endif
