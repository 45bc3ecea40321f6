/* Measures of predicted numbers. x is predicted, y the truth; count values each, finite. weights
 * (count, NULL: all 1) say how often each pair counts. */
#ifndef PLM_EVALUATOR_MEASURES_CORRELATION_H
#define PLM_EVALUATOR_MEASURES_CORRELATION_H

#include <stddef.h>

/* Pearson's correlation, in [-1, 1]; NaN if all values of one side are equal. */
double plm_pearson(const double *x, const double *y, const double *weights, size_t count);

/* 1 - sum (y - x)^2 / sum (y - mean y)^2; NaN if all y are equal. */
double plm_determination(const double *x, const double *y, const double *weights, size_t count);

/* sqrt(mean (y - x)^2); NaN without pairs. */
double plm_root_mean_square_error(const double *x, const double *y, const double *weights,
                                  size_t count);

#endif
