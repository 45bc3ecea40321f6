/* Logistic regression on standardised features z of n rows: minimises
 *
 *   sum of the cross-entropies + alpha / 2 |weights|^2
 *
 * by L-BFGS; intercepts are free. Two classes have one output f, and the second class has the
 * probability 1 / (1 + exp(-f)); more classes have one output each and the softmax of them.
 * scikit-learn's make_pipeline(StandardScaler(), LogisticRegression(C=1 / alpha)) minimises the
 * same.
 *
 * The Hessian of a row is at most 1/4 z z' with two classes, and at most 1/2 z z' for each of more
 * outputs (Böhning 1992), so with many rows the search is preconditioned by the inverse of
 * 1/4 or 1/2 Z' Z + alpha.
 *
 * Everything is double. The rows are cut into parts that depend only on their number, and sums are
 * added in the order of the parts, so the result does not depend on the number of threads. */
#ifndef PLM_EVALUATOR_PROBE_LOGISTIC_H
#define PLM_EVALUATOR_PROBE_LOGISTIC_H

#include <stdint.h>

#include "common/base/process/pool.h"
#include "evaluator/probe/features.h"

struct plm_logistic;

/* labels (0 to classes - 1) are indexed by the numbers of the rows; classes >= 2. All is borrowed
 * until _close. PLM_NO_MEMORY. */
plm_status plm_logistic_open(const struct plm_features *features, const struct plm_row_list *list,
                             const int32_t *labels, uint32_t classes, struct plm_pool *pool,
                             struct plm_logistic **logistic, struct plm_error *error);
void plm_logistic_close(struct plm_logistic *logistic); /* NULL is fine */
/* The model for alpha > 0, which belongs to logistic and changes with the next call; the search
 * begins at the last one. rough: with the precision that is enough to choose alpha. PLM_NO_MEMORY.
 * PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_logistic_solve(struct plm_logistic *logistic, double alpha, bool rough,
                              const struct plm_linear **model, struct plm_error *error);

/* The probabilities (classes) from the outputs of such a model, which may be the same memory if
 * there are more than two classes. */
void plm_logistic_probabilities(const double *outputs, uint32_t classes, double *probabilities);

#endif
