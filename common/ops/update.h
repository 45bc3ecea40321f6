/* The values that differ from one update of the weights to the next. They are in device memory,
 * where operators read and write them, so that no part of a step waits for the host and one
 * recording (ops.h) can be replayed for every step.
 *
 *   inputs    written by the host before the step
 *   sums      added up by the step's operators
 *   decision  computed from both by ops->decide_update before any weight changes
 */
#ifndef PLM_COMMON_OPS_UPDATE_H
#define PLM_COMMON_OPS_UPDATE_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PLM_HOST_AND_DEVICE __host__ __device__
#else
#define PLM_HOST_AND_DEVICE
#endif

enum { PLM_UPDATE_RATES = 4 }; /* learning rates, one for each group of parameters */

/* The norm to clip to. If `automatic`, it is a percentile of the norms so far and of this step's
 * norm, which the host does not know yet. The percentile is interpolated between ranks k and k + 1
 * of these sorted values. Rank k of all values is the unknown norm clamped between the known values
 * of ranks k - 1 and k; rank k + 1 is found in the same way. Three known values are therefore
 * enough (trainer/optimizer/clip.h). */
struct plm_update_clip {
  double fixed; /* 0 for no clipping; used unless `automatic` */
  int32_t automatic;
  double below, at, above; /* known values of ranks k - 1, k, k + 1; -inf or inf beyond the ends */
  double fraction;         /* position between ranks k and k + 1 */
};

struct plm_update_inputs {
  double count; /* divisor of the step's sums; NaN skips the step, because no row was chosen */
  struct plm_update_clip clip;
  float rate[PLM_UPDATE_RATES];
  float momentum;                 /* of Muon */
  float correction1, correction2; /* of Adam: 1 - beta1^t and 1 - beta2^t */
  float average_decay;            /* of the running average of the weights */
};

struct plm_update_sums {
  double loss;    /* summed over rows */
  double hits;    /* rows whose label was predicted (struct plm_head_rows) */
  double squares; /* squared norm of the accumulated gradient */
};

struct plm_update_decision {
  double threshold;     /* norm to clip to; 0 for no clipping */
  float gradient_scale; /* factor of clipping divided by count */
  int32_t skipped;      /* loss or gradient norm is not finite, so nothing is updated */
};

struct plm_update {
  struct plm_update_inputs inputs;
  struct plm_update_sums sums;
  struct plm_update_decision decision;
};

/* The norm to clip to, given the gradient's norm. */
PLM_HOST_AND_DEVICE static inline double plm_update_threshold(const struct plm_update_clip *clip,
                                                              double norm)
{
  if (!clip->automatic) return clip->fixed;
  const double lower = fmax(clip->below, fmin(norm, clip->at));
  if (!(clip->fraction > 0)) return lower;
  const double upper = fmax(clip->at, fmin(norm, clip->above));
  return lower + (upper - lower) * clip->fraction;
}

/* min(1, threshold/(norm + 1e-6)), or 1 if threshold is 0 */
PLM_HOST_AND_DEVICE static inline double plm_update_clip_factor(double threshold, double norm)
{
  return threshold > 0 ? fmin(1.0, threshold / (norm + 1e-6)) : 1;
}

PLM_HOST_AND_DEVICE static inline void plm_update_decide(struct plm_update *update)
{
  const double count = update->inputs.count;
  const double norm = sqrt(update->sums.squares) / count, loss = update->sums.loss / count;
  struct plm_update_decision *decision = &update->decision;
  decision->skipped = !(fabs(norm) < INFINITY && fabs(loss) < INFINITY); /* NaN fails both */
  decision->threshold = plm_update_threshold(&update->inputs.clip, norm);
  decision->gradient_scale = (float)(plm_update_clip_factor(decision->threshold, norm) / count);
}

#endif
