/* Spearman's rank correlation. */
#ifndef PLM_EVALUATOR_SCORE_RANK_CORRELATION_H
#define PLM_EVALUATOR_SCORE_RANK_CORRELATION_H

#include <stddef.h>

#include "common/base/status.h"

struct plm_rank_correlation {
  size_t count;
  double value;     /* NaN below two pairs, or when one side has one value alone */
  double low, high; /* 95 % confidence interval; NaN below four pairs */
};

/* Pearson's correlation of the ranks, ties having the mean of theirs (scipy.stats.spearmanr). x and
 * y are finite. The interval is tanh(atanh(r) ± 1.96 sqrt((1 + r^2/2) / (n - 3))): Bonett and
 * Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman correlations",
 * Psychometrika 65 (2000). */
plm_status plm_rank_correlate(const double *x, const double *y, size_t count,
                              struct plm_rank_correlation *correlation, struct plm_error *error);

#endif
