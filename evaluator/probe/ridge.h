/* Ridge regression in closed form (Hoerl and Kennard 1970): with standardised features Z (n, d) and
 * centred targets y, the weights minimise |Z w - y|^2 + alpha |w|^2, so
 *
 *   w = (Z' Z + alpha)^-1 Z' y         if d <= n
 *   w = Z' (Z Z' + alpha)^-1 y         otherwise, which is the same
 *
 * and the intercept is the mean of the targets. scikit-learn's make_pipeline(StandardScaler(),
 * Ridge(alpha)) computes the same. Everything is double; sums have a fixed order, so the result
 * does not depend on the number of threads. */
#ifndef PLM_EVALUATOR_PROBE_RIDGE_H
#define PLM_EVALUATOR_PROBE_RIDGE_H

#include "common/base/process/pool.h"
#include "evaluator/probe/features.h"

struct plm_ridge;

/* targets are indexed by the numbers of the rows. list is borrowed until _close, as are the others.
 * Costs n d min(n, d). PLM_NO_MEMORY. */
plm_status plm_ridge_open(const struct plm_features *features, const struct plm_row_list *list,
                          const double *targets, struct plm_pool *pool, struct plm_ridge **ridge,
                          struct plm_error *error);
void plm_ridge_close(struct plm_ridge *ridge); /* NULL is fine */
/* The model for alpha > 0, which belongs to ridge and changes with the next call. */
const struct plm_linear *plm_ridge_solve(struct plm_ridge *ridge, double alpha);

#endif
