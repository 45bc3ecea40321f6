/* What differs from one update of the weights to the next. It is in device memory, where operators
 * read and write it, so that nothing inside a step waits for the host and a recording (ops.h) can
 * be replayed for every step.
 *
 *   inputs    written by the host before the step
 *   sums      added up by the step's operators
 *   decision  made from both by ops->decide_update, before any weight changes
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

enum { PLM_UPDATE_RATES = 4 }; /* learning rates: one a group of parameters */

/* The norm to clip to. If `automatic`, it is a percentile of the norms so far and this step's own
 * norm, which the host does not know yet. The percentile is interpolated between ranks k and k + 1
 * of these n sorted values. Rank k is the unknown norm clamped between the known values of ranks k
 * - 1 and k, and rank k + 1 likewise, so three known values are enough (trainer/clip.h). */
struct plm_update_clip {
  double fixed; /* 0: none */
  int32_t automatic;
  double below, at, above; /* known values of ranks k - 1, k, k + 1; -inf and inf beyond the ends */
  double fraction;         /* between ranks k and k + 1 */
};

struct plm_update_inputs {
  double
      count; /* divisor of the step's sums; NaN if nothing was chosen, then the step is skipped */
  struct plm_update_clip clip;
  float rate[PLM_UPDATE_RATES];
  float momentum;                 /* Muon's */
  float correction1, correction2; /* Adam's 1 - beta^t */
  float average_decay;            /* of the running average of the weights */
};

struct plm_update_sums {
  double loss;    /* over rows */
  double squares; /* of the accumulated gradient */
};

struct plm_update_decision {
  double threshold;     /* norm to clip to; 0 for no clipping */
  float gradient_scale; /* factor of clipping, divided by count */
  int32_t skipped;      /* loss or gradient is not finite: nothing is updated */
};

struct plm_update {
  struct plm_update_inputs inputs;
  struct plm_update_sums sums;
  struct plm_update_decision decision;
};

/* Norm to clip to, once the gradient's norm is known. */
PLM_HOST_AND_DEVICE static inline double plm_update_threshold(const struct plm_update_clip *clip,
                                                              double norm)
{
  if (!clip->automatic) return clip->fixed;
  const double lower = fmax(clip->below, fmin(norm, clip->at));
  if (!(clip->fraction > 0)) return lower;
  const double upper = fmax(clip->at, fmin(norm, clip->above));
  return lower + (upper - lower) * clip->fraction;
}

/* min(1, c/(norm + 1e-6)); 1 when threshold is 0 */
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
