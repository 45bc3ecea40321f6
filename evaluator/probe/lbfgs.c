/* L-BFGS with its two loops over the remembered pairs. */
#include "evaluator/probe/lbfgs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 10, HALVINGS = 40 };

struct lbfgs_state {
  size_t n;
  uint32_t pairs, next;                      /* remembered, and where the next one goes */
  double *s, *y;                             /* (PAIRS, n): steps, and changes of the gradient */
  double rho[PAIRS];                         /* 1 / s . y */
  double *direction, *changed;               /* (n); changed: of precondition */
  double *trial, *trial_gradient, *gradient; /* (n) */
};

static double inner(const double *a, const double *b, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

static void axpy(double *y, double factor, const double *x, size_t n)
{
  for (size_t i = 0; i < n; i++) y[i] += factor * x[i];
}

static double largest(const double *x, size_t n)
{
  double most = 0;
  for (size_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
  return most;
}

/* q = the matrix that the pairs update, times q: the preconditioner, scaled so that it is right
 * along the last step. */
static void apply_first_matrix(const struct plm_lbfgs *search, struct lbfgs_state *state, double *q)
{
  const size_t n = state->n;
  if (search->precondition != NULL) search->precondition(search->context, q);
  if (state->pairs == 0) return;
  const uint32_t newest = (state->next + PAIRS - 1) % PAIRS;
  const double *y = state->y + newest * n;
  memcpy(state->changed, y, n * sizeof *y);
  if (search->precondition != NULL) search->precondition(search->context, state->changed);
  const double scale = 1 / (state->rho[newest] * inner(y, state->changed, n));
  for (size_t i = 0; i < n; i++) q[i] *= scale;
}

/* direction = - H gradient, from the newest pair to the oldest and back. */
static void find_direction(const struct plm_lbfgs *search, struct lbfgs_state *state)
{
  const size_t n = state->n;
  double alphas[PAIRS];
  double *q = state->direction;
  for (size_t i = 0; i < n; i++) q[i] = -state->gradient[i];
  for (uint32_t k = 0; k < state->pairs; k++) {
    const uint32_t p = (state->next + PAIRS - 1 - k) % PAIRS;
    alphas[p] = state->rho[p] * inner(state->s + p * n, q, n);
    axpy(q, -alphas[p], state->y + p * n, n);
  }
  apply_first_matrix(search, state, q);
  for (uint32_t k = state->pairs; k-- > 0;) {
    const uint32_t p = (state->next + PAIRS - 1 - k) % PAIRS;
    const double beta = state->rho[p] * inner(state->y + p * n, q, n);
    axpy(q, alphas[p] - beta, state->s + p * n, n);
  }
}

/* Remembers the step from x to the trial, unless the function is not curved along it. */
static void remember(struct lbfgs_state *state, const double *x)
{
  const size_t n = state->n;
  double *s = state->s + state->next * n, *y = state->y + state->next * n;
  for (size_t i = 0; i < n; i++) {
    s[i] = state->trial[i] - x[i];
    y[i] = state->trial_gradient[i] - state->gradient[i];
  }
  const double curvature = inner(s, y, n);
  if (!(curvature > 1e-14 * sqrt(inner(s, s, n) * inner(y, y, n)))) return;
  state->rho[state->next] = 1 / curvature;
  state->next = (state->next + 1) % PAIRS;
  if (state->pairs < PAIRS) state->pairs++;
}

/* Halves the step until the function falls. Where it cannot, because of rounding, it may stay, if
 * the gradient becomes smaller. False: no such step. */
static bool search_line(const struct plm_lbfgs *search, struct lbfgs_state *state, const double *x,
                        double *value)
{
  const size_t n = state->n;
  const double slope = inner(state->gradient, state->direction, n);
  const double steepness = inner(state->gradient, state->gradient, n);
  const double noise = 1e-13 * (1 + fabs(*value));
  const bool scaled = state->pairs > 0 || search->precondition != NULL;
  double step = scaled ? 1 : fmin(1, 1 / sqrt(steepness));
  if (!(slope < 0)) return false;
  for (int i = 0; i < HALVINGS; i++, step *= 0.5) {
    for (size_t k = 0; k < n; k++) state->trial[k] = x[k] + step * state->direction[k];
    const double reached = search->value(search->context, state->trial, state->trial_gradient);
    const bool falls = reached <= *value + 1e-4 * step * slope;
    const bool stays = reached <= *value + noise &&
                       inner(state->trial_gradient, state->trial_gradient, n) < steepness;
    if (!falls && !stays) continue;
    *value = reached;
    return true;
  }
  return false;
}

static plm_status iterate(const struct plm_lbfgs *search, struct lbfgs_state *state, double *x,
                          bool *converged, struct plm_error *error)
{
  const size_t n = state->n;
  double value = search->value(search->context, x, state->gradient);
  for (uint32_t i = 0;; i++) {
    *converged = largest(state->gradient, n) <= search->tolerance;
    if (*converged || i == search->iterations) return PLM_OK;
    PLM_TRY(search->check(search->context, error));
    find_direction(search, state);
    if (!search_line(search, state, x, &value)) {
      if (state->pairs == 0) return PLM_OK;
      state->pairs = 0; /* once more along the gradient */
      continue;
    }
    remember(state, x);
    memcpy(x, state->trial, n * sizeof *x);
    memcpy(state->gradient, state->trial_gradient, n * sizeof *x);
  }
}

plm_status plm_lbfgs_run(const struct plm_lbfgs *search, double *x, bool *converged,
                         struct plm_error *error)
{
  const size_t n = search->n;
  struct lbfgs_state state = {.n = n};
  double *memory = malloc((2 * PAIRS + 5) * n * sizeof *memory);
  if (memory == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu weights of a probe", n);
  state.s = memory;
  state.y = state.s + PAIRS * n;
  state.direction = state.y + PAIRS * n;
  state.changed = state.direction + n;
  state.trial = state.changed + n;
  state.trial_gradient = state.trial + n;
  state.gradient = state.trial_gradient + n;
  const plm_status status = iterate(search, &state, x, converged, error);
  free(memory);
  return status;
}
