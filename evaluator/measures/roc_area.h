/* The area under the ROC curve: how probable it is that a positive has a higher score than a
 * negative, where equal scores count one half (Mann and Whitney 1947). */
#ifndef PLM_EVALUATOR_MEASURES_ROC_AREA_H
#define PLM_EVALUATOR_MEASURES_ROC_AREA_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/* order (count): the indices of the scores (finite), ascending. */
void plm_roc_order(const double *scores, size_t count, size_t *order);

/* NaN without positives or without negatives. weights (count, NULL: all 1) say how often each
 * counts. Sums of whole weights are exact. */
double plm_roc_area(const double *scores, const size_t *order, const bool *positive,
                    const double *weights, size_t count);

#endif
