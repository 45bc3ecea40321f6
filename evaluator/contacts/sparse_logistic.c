/* Newton steps over the weights that are not 0, with coordinate descent inside. */
#include "evaluator/contacts/sparse_logistic.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, PART = 4096, STEPS = 200, SWEEPS = 2000, HALVINGS = 40, ENTRANTS = 64 };
static const double tolerance = 1e-9; /* of the subgradient, whose penalty is 1 */

struct sparse_search {
  const struct plm_sparse_problem *problem;
  size_t parts;
  double *weights, intercept;
  double *outputs;    /* (rows) x . w + b */
  double *moves;      /* (rows) how a step changes them */
  double *residuals;  /* (rows) C (p - y) */
  double *curvatures; /* (rows) C p (1 - p) */
  double *losses;     /* (parts) */
  double *gradient;   /* (width + 1), the last for the intercept */
  uint32_t *active;   /* (width + 1) features of the step, then width for the intercept */
  uint32_t count;     /* of active */
  double *hessian;    /* (count, count) */
  size_t hessian_room;
  double *step; /* (count) */
  double share; /* of the step that is tried */
};

/* The sum of weights[i] x[i], in a fixed order; x NULL: ones. */
static double weighted_sum(const double *weights, const float *x, size_t n)
{
  double sums[LANES] = {0};
  const size_t whole = n / LANES * LANES;
  if (x == NULL) {
    for (size_t i = 0; i < whole; i += LANES)
      for (size_t k = 0; k < LANES; k++) sums[k] += weights[i + k];
    for (size_t i = whole; i < n; i++) sums[i - whole] += weights[i];
  } else {
    for (size_t i = 0; i < whole; i += LANES)
      for (size_t k = 0; k < LANES; k++) sums[k] += weights[i + k] * (double)x[i + k];
    for (size_t i = whole; i < n; i++) sums[i - whole] += weights[i] * (double)x[i];
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* NULL: the intercept's ones. */
static const float *column(const struct sparse_search *search, uint32_t feature)
{
  const struct plm_sparse_problem *problem = search->problem;
  return feature == problem->width ? NULL : problem->columns + feature * problem->rows;
}

static size_t part_end(const struct sparse_search *search, size_t part)
{
  const size_t end = (part + 1) * PART;
  return end < search->problem->rows ? end : search->problem->rows;
}

/* ---- parts of rows ---- */

/* The loss of the outputs moved by `share` of the step. */
static void loss_part(void *context, int64_t part, uint32_t thread)
{
  struct sparse_search *search = context;
  double loss = 0;
  (void)thread;
  for (size_t i = (size_t)part * PART; i < part_end(search, (size_t)part); i++) {
    const double f = search->outputs[i] + search->share * search->moves[i];
    const double margin = search->problem->labels[i] != 0 ? f : -f;
    loss += (margin > 0 ? 0 : -margin) + log1p(exp(-fabs(margin)));
  }
  search->losses[part] = loss;
}

static double loss_at(struct sparse_search *search, double share)
{
  double loss = 0;
  search->share = share;
  plm_pool_tiles(search->problem->pool, (int64_t)search->parts, loss_part, search);
  for (size_t part = 0; part < search->parts; part++) loss += search->losses[part];
  return search->problem->strength * loss;
}

static void derivative_part(void *context, int64_t part, uint32_t thread)
{
  struct sparse_search *search = context;
  const double strength = search->problem->strength;
  (void)thread;
  for (size_t i = (size_t)part * PART; i < part_end(search, (size_t)part); i++) {
    const double f = search->outputs[i], small = exp(-fabs(f));
    const double p = f > 0 ? 1 / (1 + small) : small / (1 + small);
    const double wrong = search->problem->labels[i] != 0 ? p - 1 : p;
    search->residuals[i] = strength * wrong;
    search->curvatures[i] = strength * small / ((1 + small) * (1 + small));
  }
}

/* moves = the step's change of the outputs */
static void move_part(void *context, int64_t part, uint32_t thread)
{
  struct sparse_search *search = context;
  const size_t begin = (size_t)part * PART, end = part_end(search, (size_t)part);
  (void)thread;
  for (size_t i = begin; i < end; i++) search->moves[i] = 0;
  for (uint32_t a = 0; a < search->count; a++) {
    const float *x = column(search, search->active[a]);
    const double step = search->step[a];
    if (step == 0) continue;
    for (size_t i = begin; i < end; i++) search->moves[i] += x == NULL ? step : step * (double)x[i];
  }
}

/* ---- features ---- */

static void gradient_of(void *context, int64_t feature, uint32_t thread)
{
  struct sparse_search *search = context;
  (void)thread;
  search->gradient[feature] =
      weighted_sum(search->residuals, column(search, (uint32_t)feature), search->problem->rows);
}

/* Row a of the lower triangle of the Hessian, PART rows of the problem at a time. */
static void hessian_row(void *context, int64_t a, uint32_t thread)
{
  struct sparse_search *search = context;
  const float *x = column(search, search->active[a]);
  double *row = search->hessian + (size_t)a * search->count;
  double products[PART];
  (void)thread;
  memset(row, 0, ((size_t)a + 1) * sizeof *row);
  for (size_t part = 0; part < search->parts; part++) {
    const size_t begin = part * PART, n = part_end(search, part) - begin;
    const double *curvatures = search->curvatures + begin;
    for (size_t i = 0; i < n; i++)
      products[i] = x == NULL ? curvatures[i] : curvatures[i] * (double)x[begin + i];
    for (int64_t b = 0; b <= a; b++) {
      const float *other = column(search, search->active[b]);
      row[b] += weighted_sum(products, other == NULL ? NULL : other + begin, n);
    }
  }
}

/* How far the subgradient of a feature is from containing 0. */
static double violation(const struct sparse_search *search, uint32_t feature)
{
  const double slope = search->gradient[feature];
  if (feature == search->problem->width) return fabs(slope);
  const double w = search->weights[feature];
  if (w != 0) return fabs(slope + (w > 0 ? 1 : -1));
  return fmax(0, fabs(slope) - 1);
}

/* Finds derivatives and chooses the features of the next step. Returns the largest violation. */
static double choose_active(struct sparse_search *search)
{
  const struct plm_sparse_problem *problem = search->problem;
  const uint32_t width = problem->width;
  uint32_t entrants[ENTRANTS], entered = 0;
  double most = 0;
  plm_pool_tiles(problem->pool, (int64_t)search->parts, derivative_part, search);
  plm_pool_tiles(problem->pool, (int64_t)width + 1, gradient_of, search);
  search->count = 0;
  for (uint32_t j = 0; j < width; j++) {
    const double off = violation(search, j);
    most = fmax(most, off);
    if (search->weights[j] != 0) {
      search->active[search->count++] = j;
    } else if (off > 0) { /* sorted, the largest first */
      uint32_t at = entered < ENTRANTS ? entered++ : ENTRANTS;
      if (at == ENTRANTS) {
        if (off <= violation(search, entrants[ENTRANTS - 1])) continue;
        at = ENTRANTS - 1;
      }
      while (at > 0 && violation(search, entrants[at - 1]) < off) {
        entrants[at] = entrants[at - 1];
        at--;
      }
      entrants[at] = j;
    }
  }
  memcpy(search->active + search->count, entrants, entered * sizeof *entrants);
  search->count += entered;
  search->active[search->count++] = width;
  return fmax(most, violation(search, width));
}

/* ---- a step ---- */

static double entry(const struct sparse_search *search, uint32_t a, uint32_t b)
{
  return a >= b ? search->hessian[(size_t)a * search->count + b]
                : search->hessian[(size_t)b * search->count + a];
}

static double weight_of(const struct sparse_search *search, uint32_t feature)
{
  return feature == search->problem->width ? search->intercept : search->weights[feature];
}

/* The step of one coordinate that minimises the quadratic model with the penalty. slope: that of
 * the model at the present step. */
static double coordinate_step(double w, double slope, double curvature, bool free_weight)
{
  if (free_weight) return -slope / curvature;
  if (slope + 1 < curvature * w) return -(slope + 1) / curvature;
  if (slope - 1 > curvature * w) return -(slope - 1) / curvature;
  return -w;
}

/* step = the minimum of the quadratic model plus the penalty, by coordinate descent */
static plm_status solve_model(struct sparse_search *search, struct plm_error *error)
{
  const uint32_t count = search->count, width = search->problem->width;
  double *slopes = malloc(count * sizeof *slopes); /* of the model at the present step */
  if (slopes == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a step of %u weights", count);
  for (uint32_t a = 0; a < count; a++) {
    slopes[a] = search->gradient[search->active[a]];
    search->step[a] = 0;
  }
  for (int sweep = 0; sweep < SWEEPS; sweep++) {
    double largest = 0;
    for (uint32_t a = 0; a < count; a++) {
      const uint32_t feature = search->active[a];
      const double curvature = entry(search, a, a);
      if (!(curvature > 0)) continue;
      const double w = weight_of(search, feature) + search->step[a];
      const double change = coordinate_step(w, slopes[a], curvature, feature == width);
      if (change == 0) continue;
      search->step[a] += change;
      for (uint32_t b = 0; b < count; b++) slopes[b] += change * entry(search, a, b);
      largest = fmax(largest, fabs(change) * curvature);
    }
    if (largest <= 0.01 * tolerance) break;
  }
  free(slopes);
  return PLM_OK;
}

static double penalty_at(const struct sparse_search *search, double share)
{
  double sum = 0;
  for (uint32_t a = 0; a < search->count; a++)
    if (search->active[a] != search->problem->width)
      sum += fabs(search->weights[search->active[a]] + share * search->step[a]);
  return sum;
}

/* Takes the largest halving of the step at which the objective falls as Armijo demands. False:
 * there is none, because of rounding. */
static bool take_step(struct sparse_search *search)
{
  const double loss = loss_at(search, 0), penalty = penalty_at(search, 0);
  const double noise = 1e-13 * (1 + loss + penalty); /* of the sums */
  double fall = penalty_at(search, 1) - penalty, share = 1;
  for (uint32_t a = 0; a < search->count; a++)
    fall += search->gradient[search->active[a]] * search->step[a];
  if (!(fall < 0)) return false;
  for (int i = 0; i < HALVINGS; i++, share *= 0.5) {
    const double change = loss_at(search, share) - loss + penalty_at(search, share) - penalty;
    if (change <= 0.01 * share * fall + noise) break;
    if (i + 1 == HALVINGS) return false;
  }
  for (uint32_t a = 0; a < search->count; a++) {
    const uint32_t feature = search->active[a];
    double *w = feature == search->problem->width ? &search->intercept : &search->weights[feature];
    const bool gone = share == 1 && *w + search->step[a] == 0;
    *w = gone ? 0 : *w + share * search->step[a];
  }
  for (size_t i = 0; i < search->problem->rows; i++) search->outputs[i] += share * search->moves[i];
  return true;
}

static plm_status make_step(struct sparse_search *search, bool *moved, struct plm_error *error)
{
  const size_t cells = (size_t)search->count * search->count;
  if (cells > search->hessian_room) {
    free(search->hessian);
    search->hessian = malloc(cells * sizeof *search->hessian);
    search->hessian_room = search->hessian != NULL ? cells : 0;
    if (search->hessian == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %u weights", search->count);
  }
  plm_pool_tiles(search->problem->pool, search->count, hessian_row, search);
  PLM_TRY(solve_model(search, error));
  plm_pool_tiles(search->problem->pool, (int64_t)search->parts, move_part, search);
  *moved = take_step(search);
  return PLM_OK;
}

/* ---- the search ---- */

static plm_status allocate_search(struct sparse_search *search, struct plm_error *error)
{
  const size_t rows = search->problem->rows, width = search->problem->width;
  search->outputs = calloc(rows, sizeof *search->outputs);
  search->moves = calloc(rows, sizeof *search->moves);
  search->residuals = malloc(rows * sizeof *search->residuals);
  search->curvatures = malloc(rows * sizeof *search->curvatures);
  search->losses = malloc(search->parts * sizeof *search->losses);
  search->gradient = malloc((width + 1) * sizeof *search->gradient);
  search->active = malloc((width + 1) * sizeof *search->active);
  search->step = malloc((width + 1) * sizeof *search->step);
  if (search->outputs != NULL && search->moves != NULL && search->residuals != NULL &&
      search->curvatures != NULL && search->losses != NULL && search->gradient != NULL &&
      search->active != NULL && search->step != NULL)
    return PLM_OK;
  return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a regression of %zu rows", rows);
}

static plm_status run_search(struct sparse_search *search, bool *converged, struct plm_error *error)
{
  const struct plm_sparse_problem *problem = search->problem;
  PLM_TRY(allocate_search(search, error));
  const uint32_t steps = problem->steps != 0 ? problem->steps : STEPS;
  *converged = true;
  for (uint32_t i = 0; i < steps; i++) {
    bool moved = false;
    PLM_TRY(problem->check(problem->context, error));
    if (choose_active(search) <= tolerance) return PLM_OK;
    PLM_TRY(make_step(search, &moved, error));
    if (!moved) return PLM_OK; /* closer than the rounding of the sums */
  }
  *converged = choose_active(search) <= tolerance;
  return PLM_OK;
}

plm_status plm_sparse_logistic(const struct plm_sparse_problem *problem, double *weights,
                               double *intercept, bool *converged, struct plm_error *error)
{
  struct sparse_search search = {.problem = problem, .weights = weights};
  double positive = 0;
  PLM_ASSERT(problem->rows > 0 && problem->strength > 0);
  search.parts = (problem->rows + PART - 1) / PART;
  memset(weights, 0, problem->width * sizeof *weights);
  for (size_t i = 0; i < problem->rows; i++) positive += problem->labels[i] != 0;
  PLM_ASSERT(positive > 0 && positive < (double)problem->rows);
  const plm_status status = run_search(&search, converged, error);
  *intercept = search.intercept;
  free(search.outputs);
  free(search.moves);
  free(search.residuals);
  free(search.curvatures);
  free(search.losses);
  free(search.gradient);
  free(search.active);
  free(search.hessian);
  free(search.step);
  return status;
}
