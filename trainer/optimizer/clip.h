/* Gradient clipping: to a fixed norm, or to a percentile of the norms of the run's last steps.
 *
 * These norms are part of the run's state. Checkpoints contain them, oldest first.
 */
#ifndef PLM_TRAINER_OPTIMIZER_CLIP_H
#define PLM_TRAINER_OPTIMIZER_CLIP_H

#include <stddef.h>
#include <stdint.h>

#include "common/ops/update.h"

enum { PLM_CLIP_HISTORY = 1024, PLM_CLIP_FIRST_STEP = 10 };

/* Caller-owned; {0} is empty. */
struct plm_clip {
  double norms[PLM_CLIP_HISTORY]; /* a ring */
  uint32_t count;                 /* norms in the ring */
  uint32_t next;                  /* where the next one goes; the oldest once the ring is full */
  double scratch_[PLM_CLIP_HISTORY];
};

/* p-th percentile (0 to 100) of count > 0 values, interpolated linearly between the two values
 * beside rank p/100 (count - 1). Sorts values. */
double plm_percentile(double *values, size_t count, double p);

/* Adds the norm of step s (from 0) to the history if it is finite, and returns the norm to clip to,
 * or 0 for no clipping. If percentile is 0, that is fixed_norm. Otherwise it is this percentile of
 * the history, current norm included, from the 10th step of the run on, and fixed_norm before. */
double plm_clip_threshold(struct plm_clip *clip, double fixed_norm, double percentile, uint64_t s,
                          double norm);

/* The same for the device, before the norm of step s is known: from the result and the norm
 * plm_update_threshold computes what plm_clip_threshold will return. Does not change the history.
 */
struct plm_update_clip plm_clip_prepare(struct plm_clip *clip, double fixed_norm, double percentile,
                                        uint64_t s);

/* Copies the history, oldest first, to out (PLM_CLIP_HISTORY elements) and returns the count. */
uint32_t plm_clip_export(const struct plm_clip *clip, double *out);
/* Replaces the history. count is at most PLM_CLIP_HISTORY. */
void plm_clip_import(struct plm_clip *clip, const double *norms, uint32_t count);

#endif
