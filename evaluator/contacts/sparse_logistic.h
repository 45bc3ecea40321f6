/* Logistic regression with an L1 penalty: finds weights w and an intercept b that minimise
 *
 *   C * (sum over the rows of the cross-entropy of 1 / (1 + exp(-(x . w + b)))) + sum of |w_j|
 *
 * as scikit-learn's LogisticRegression with an L1 penalty and the solver saga does; b is free. The
 * features are not standardised. The method is a proximal Newton method (Yuan, Ho and Lin, "An
 * improved GLMNET for L1-regularized logistic regression", JMLR 13, 2012) whose steps consider only
 * the weights that are not 0 and those that most want to leave 0. Everything but the features is
 * double, and every sum has a fixed order, so the result does not depend on the number of threads.
 */
#ifndef PLM_EVALUATOR_CONTACTS_SPARSE_LOGISTIC_H
#define PLM_EVALUATOR_CONTACTS_SPARSE_LOGISTIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/process/pool.h"
#include "common/base/status.h"

struct plm_sparse_problem {
  const float *columns; /* (width, rows): the values of a feature are adjacent */
  size_t rows;
  uint32_t width;
  const uint8_t *labels; /* (rows) 0 or 1, both of which occur */
  double strength;       /* C > 0 */
  uint32_t steps;        /* the most that are made; 0: 200 */
  struct plm_pool *pool;
  plm_status (*check)(void *context, struct plm_error *error); /* before each step */
  void *context;
};

/* weights (width). *converged: false if the most steps were made and the minimum was not reached;
 * the weights are then the best so far. PLM_NO_MEMORY, and the errors of check. */
plm_status plm_sparse_logistic(const struct plm_sparse_problem *problem, double *weights,
                               double *intercept, bool *converged, struct plm_error *error);

#endif
