/* The area under the ROC curve, in one pass over the sorted scores. */
#include "evaluator/measures/roc_area.h"

#include <math.h>
#include <stdlib.h>

static int roc_by_score(const void *left, const void *right, void *context)
{
  const double *scores = context;
  const size_t a = *(const size_t *)left, b = *(const size_t *)right;
  if (scores[a] != scores[b]) return scores[a] < scores[b] ? -1 : 1;
  return (a > b) - (a < b);
}

void plm_roc_order(const double *scores, size_t count, size_t *order)
{
  for (size_t i = 0; i < count; i++) order[i] = i;
  qsort_r(order, count, sizeof *order, roc_by_score, (void *)scores);
}

double plm_roc_area(const double *scores, const size_t *order, const bool *positive,
                    const double *weights, size_t count)
{
  double below = 0, positives = 0, won = 0; /* below: negatives with a lower score */
  for (size_t begin = 0, end; begin < count; begin = end) {
    double here = 0, against = 0; /* positives and negatives that share this score */
    /* a score that is NaN equals none, not even itself */
    for (end = begin; end < count && (end == begin || scores[order[end]] == scores[order[begin]]);
         end++) {
      const size_t i = order[end];
      *(positive[i] ? &here : &against) += weights == NULL ? 1 : weights[i];
    }
    won += here * (below + 0.5 * against);
    positives += here;
    below += against;
  }
  return positives > 0 && below > 0 ? won / (positives * below) : NAN;
}
