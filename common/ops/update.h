/* What changes from step to step in an update of the weights, and what a step finds out about
 * itself. It lies in device memory: operators read it there, so that nothing inside a step waits
 * for the host, and what was recorded once (ops.h, recordings) serves every step.
 *
 *   plan      written by the host before the update
 *   sums      added up by the step's operators
 *   decision  made of both by ops->decide_update, before the first weight changes
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

/* The norm to clip to. `automatic`: a percentile of the norms so far and this step's own, which
 * the host does not know yet. Of n sorted values all but one are known; the k-th of them all is
 * the unknown one, held between its known neighbours, so three known values are enough: those
 * around ranks k and k + 1, between which the percentile is interpolated (trainer/clip.h). */
struct plm_update_clip {
  double fixed; /* 0: none */
  int32_t automatic;
  double below, at, above; /* ranks k - 1, k, k + 1 of the known; -inf and inf beyond their ends */
  double fraction;         /* of the way from rank k to k + 1 */
};

struct plm_update_plan {
  double
      count; /* the divisor of the step's sums; NaN when nothing was chosen: the step is skipped */
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
  double threshold;     /* norm clipped to, 0: none */
  float gradient_scale; /* clipping over count */
  int32_t skipped;      /* loss or gradient not finite: nothing is updated */
};

struct plm_update {
  struct plm_update_plan plan;
  struct plm_update_sums sums;
  struct plm_update_decision decision;
};

/* Source: model.md, order of a step. */
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
  const double count = update->plan.count;
  const double norm = sqrt(update->sums.squares) / count, loss = update->sums.loss / count;
  struct plm_update_decision *decision = &update->decision;
  decision->skipped = !(fabs(norm) < INFINITY && fabs(loss) < INFINITY); /* NaN fails both */
  decision->threshold = plm_update_threshold(&update->plan.clip, norm);
  decision->gradient_scale = (float)(plm_update_clip_factor(decision->threshold, norm) / count);
}

#endif
