/* Spearman's rank correlation. */
#ifndef PLM_EVALUATOR_MEASURES_RANK_CORRELATION_H
#define PLM_EVALUATOR_MEASURES_RANK_CORRELATION_H

#include <stddef.h>

#include "common/base/status.h"

struct plm_rank_correlation {
  size_t count;
  double value;     /* NaN for fewer than two pairs, or if all values of one side are equal */
  double low, high; /* 95 % confidence interval; NaN for fewer than four pairs */
};

/* Pearson's correlation of the ranks of x and y (count each, finite); equal values share their mean
 * rank, as in scipy.stats.spearmanr. The interval is tanh(atanh(r) ± 1.96 sqrt((1 + r^2/2) / (n -
 * 3))): Bonett and Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman
 * correlations", Psychometrika 65 (2000). PLM_NO_MEMORY. */
plm_status plm_rank_correlate(const double *x, const double *y, size_t count,
                              struct plm_rank_correlation *correlation, struct plm_error *error);

#endif
