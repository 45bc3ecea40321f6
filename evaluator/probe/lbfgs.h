/* Minimises a smooth convex function by L-BFGS (Nocedal, "Updating quasi-Newton matrices with
 * limited storage", Mathematics of Computation 35, 1980) with ten pairs and a line search that
 * halves the step until the function falls as Armijo demands. The matrix that the pairs update is
 * the identity, or an approximate inverse of the Hessian that the caller has (a preconditioner),
 * scaled to the curvature of the last step. */
#ifndef PLM_EVALUATOR_PROBE_LBFGS_H
#define PLM_EVALUATOR_PROBE_LBFGS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_lbfgs {
  size_t n;
  /* The value at x, and its gradient. */
  double (*value)(void *context, const double *x, double *gradient);
  /* Called before each iteration; anything but PLM_OK ends the search with it. */
  plm_status (*check)(void *context, struct plm_error *error);
  /* Multiplies v by a positive definite matrix, about the inverse of the Hessian. NULL: leaves it.
   */
  void (*precondition)(void *context, double *v);
  void *context;
  double tolerance;    /* ends when no component of the gradient is larger */
  uint32_t iterations; /* at most */
};

/* x (n) is where the search begins, and then the minimum. It also ends where rounding lets the
 * function fall no further. *converged: the gradient is within the tolerance. PLM_NO_MEMORY. */
plm_status plm_lbfgs_run(const struct plm_lbfgs *search, double *x, bool *converged,
                         struct plm_error *error);

#endif
