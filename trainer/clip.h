/* Gradient clipping: a fixed norm, or a percentile of the norms that the run itself has shown.
 *
 * The history is part of the state of a run: it is saved in the checkpoint, in order of age.
 */
#ifndef PLM_TRAINER_CLIP_H
#define PLM_TRAINER_CLIP_H

#include <stddef.h>
#include <stdint.h>

#include "common/ops/update.h"

enum { PLM_CLIP_HISTORY = 1024, PLM_CLIP_FIRST_STEP = 10 };

/* Caller-owned; {0} is empty. */
struct plm_clip {
  double norms[PLM_CLIP_HISTORY]; /* a ring */
  uint32_t count;                 /* valid ones */
  uint32_t next;                  /* place of the next; the oldest once it is full */
  double scratch_[PLM_CLIP_HISTORY];
};

/* p-th percentile (0 to 100) of count > 0 values, linearly interpolated between the neighbours of
 * rank p/100 (count - 1). Sorts values. */
double plm_percentile(double *values, size_t count, double p);

/* Takes the norm of step s (from 0) into the history when it is finite, and returns the norm to
 * clip to; 0: do not clip. fixed_norm 0: none. percentile 0: not automatic; else it serves from
 * the 10th step of the run on, current norm included, and fixed_norm before. */
double plm_clip_threshold(struct plm_clip *clip, double fixed_norm, double percentile, uint64_t s,
                          double norm);

/* The same for the device, before the norm of step s is known: what plm_update_threshold makes of
 * it and the norm is what plm_clip_threshold will return. Changes nothing of the history. */
struct plm_update_clip plm_clip_plan(struct plm_clip *clip, double fixed_norm, double percentile,
                                     uint64_t s);

/* The history, oldest first, into out (PLM_CLIP_HISTORY places); returns the count. */
uint32_t plm_clip_export(const struct plm_clip *clip, double *out);
/* And back; count at most PLM_CLIP_HISTORY. */
void plm_clip_import(struct plm_clip *clip, const double *norms, uint32_t count);

#endif
