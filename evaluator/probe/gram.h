/* The products of standardised features Z (n, d) with themselves, and the solution of linear
 * equations with them:
 *
 *   (scale Z' Z + alpha) x = b         order d
 *   (scale Z Z' + alpha) x = b         order n, the dual, which is smaller if there are few rows
 *
 * by Cholesky's decomposition. Everything is double; sums have a fixed order, so the result does
 * not depend on the number of threads. */
#ifndef PLM_EVALUATOR_PROBE_GRAM_H
#define PLM_EVALUATOR_PROBE_GRAM_H

#include <stdbool.h>

#include "common/base/process/pool.h"
#include "evaluator/probe/features.h"

struct plm_gram {
  bool dual;
  size_t order, stride, padded; /* of the products; its row in doubles; of a standardised row */
  double *products;             /* (order, stride): Z' Z or Z Z', the upper triangle */
  double *factor;               /* (order, stride): Cholesky's, the lower triangle */
  double *rows;                 /* of the dual: Z (n, padded) */
};

/* Costs n d min(n, d). model says how to standardise. Nothing is kept of what is given.
 * PLM_NO_MEMORY. */
plm_status plm_gram_open(const struct plm_features *features, const struct plm_row_list *list,
                         const struct plm_linear *model, bool dual, struct plm_pool *pool,
                         struct plm_gram *gram, struct plm_error *error);
void plm_gram_close(struct plm_gram *gram); /* also of zeros */
/* For alpha > 0 and scale > 0; costs order^3 / 3. */
void plm_gram_decompose(struct plm_gram *gram, double scale, double alpha);
/* x (order): b, and then the solution with the last decomposition. */
void plm_gram_solve(const struct plm_gram *gram, double *x);

#endif
