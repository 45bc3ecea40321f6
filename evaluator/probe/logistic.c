/* The value and the gradient of the cross-entropy, in parts. */
#include "evaluator/probe/logistic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/run/stop.h"
#include "evaluator/probe/gram.h"
#include "evaluator/probe/lbfgs.h"

enum { MOST_PARTS = 16, LEAST_ROWS = 64, ROUGH_ITERATIONS = 100, ITERATIONS = 1000 };
/* With fewer rows or more features, the products cost more than they save. */
enum { ROWS_A_FEATURE = 4, MOST_FEATURES = 2048 };
static const double rough_tolerance = 1e-5, fine_tolerance = 1e-10;

struct plm_logistic {
  const struct plm_features *features;
  const struct plm_row_list *list;
  const int32_t *labels;
  struct plm_pool *pool;
  uint32_t classes, outputs, parts;
  size_t padded, n; /* n: weights (outputs, padded), then intercepts (outputs) */
  struct plm_linear model;
  struct plm_gram gram; /* order 0: the search is not preconditioned */
  double *x;            /* (n) */
  double *gradients;    /* (parts, n) */
  double *losses;       /* (parts) */
  double *z;            /* (parts, padded + classes) */
  double alpha;
  const double *at; /* where value and gradient are wanted */
};

void plm_logistic_probabilities(const double *outputs, uint32_t classes, double *probabilities)
{
  if (classes == 2) {
    const double f = outputs[0], small = exp(-fabs(f)), less = small / (1 + small);
    probabilities[0] = f > 0 ? less : 1 - less;
    probabilities[1] = f > 0 ? 1 - less : less;
    return;
  }
  double most = outputs[0], sum = 0;
  for (uint32_t k = 1; k < classes; k++) most = fmax(most, outputs[k]);
  for (uint32_t k = 0; k < classes; k++) {
    probabilities[k] = exp(outputs[k] - most);
    sum += probabilities[k];
  }
  for (uint32_t k = 0; k < classes; k++) probabilities[k] /= sum;
}

/* The cross-entropy of a row, and its derivatives by the outputs, which replace them. */
static double row_loss(double *outputs, uint32_t classes, int32_t label)
{
  if (classes == 2) {
    const double f = label == 1 ? outputs[0] : -outputs[0], small = exp(-fabs(f));
    const double wrong = f > 0 ? small / (1 + small) : 1 / (1 + small);
    outputs[0] = label == 1 ? -wrong : wrong;
    return (f > 0 ? 0 : -f) + log1p(small);
  }
  double most = outputs[0], sum = 0;
  for (uint32_t k = 1; k < classes; k++) most = fmax(most, outputs[k]);
  const double own = outputs[label];
  for (uint32_t k = 0; k < classes; k++) {
    outputs[k] = exp(outputs[k] - most);
    sum += outputs[k];
  }
  for (uint32_t k = 0; k < classes; k++) outputs[k] /= sum;
  outputs[label] -= 1;
  return most + log(sum) - own;
}

static void sum_part(void *context, int64_t part, uint32_t thread)
{
  (void)thread;
  const struct plm_logistic *logistic = context;
  const struct plm_row_list *list = logistic->list;
  const size_t padded = logistic->padded, count = list->count;
  const size_t begin = count * (size_t)part / logistic->parts;
  const size_t end = count * ((size_t)part + 1) / logistic->parts;
  double *gradient = logistic->gradients + (size_t)part * logistic->n;
  double *z = logistic->z + (size_t)part * (padded + logistic->classes), *outputs = z + padded;
  const double *intercepts = logistic->at + logistic->outputs * padded;
  double loss = 0;
  memset(gradient, 0, logistic->n * sizeof *gradient);
  for (size_t i = begin; i < end; i++) {
    plm_linear_standardise(&logistic->model, logistic->features, list->rows[i], z);
    for (uint32_t k = 0; k < logistic->outputs; k++)
      outputs[k] = plm_dot(logistic->at + k * padded, z, padded) + intercepts[k];
    loss += row_loss(outputs, logistic->classes, logistic->labels[list->rows[i]]);
    for (uint32_t k = 0; k < logistic->outputs; k++) {
      plm_add_scaled(gradient + k * padded, outputs[k], z, padded);
      gradient[logistic->outputs * padded + k] += outputs[k];
    }
  }
  logistic->losses[part] = loss;
}

/* The objective divided by the number of rows. */
static double logistic_value(void *context, const double *x, double *gradient)
{
  struct plm_logistic *logistic = context;
  const size_t weights = logistic->outputs * logistic->padded;
  const double share = 1 / (double)logistic->list->count;
  double loss = 0, squares = 0;
  logistic->at = x;
  plm_pool_tiles(logistic->pool, logistic->parts, sum_part, logistic);
  memset(gradient, 0, logistic->n * sizeof *gradient);
  for (uint32_t part = 0; part < logistic->parts; part++) {
    loss += logistic->losses[part];
    for (size_t i = 0; i < logistic->n; i++)
      gradient[i] += logistic->gradients[part * logistic->n + i];
  }
  for (size_t i = 0; i < weights; i++) {
    squares += x[i] * x[i];
    gradient[i] += logistic->alpha * x[i];
  }
  for (size_t i = 0; i < logistic->n; i++) gradient[i] *= share;
  return (loss + 0.5 * logistic->alpha * squares) * share;
}

static double largest_curvature(const struct plm_logistic *logistic)
{
  return logistic->classes == 2 ? 0.25 : 0.5;
}

/* The features are centred, so weights and intercepts are independent in the bound. */
static void precondition(void *context, double *v)
{
  const struct plm_logistic *logistic = context;
  const double count = (double)logistic->list->count;
  double *intercepts = v + logistic->outputs * logistic->padded;
  for (uint32_t k = 0; k < logistic->outputs; k++) {
    double *weights = v + k * logistic->padded;
    plm_gram_solve(&logistic->gram, weights);
    for (size_t d = 0; d < logistic->gram.order; d++) weights[d] *= count;
    intercepts[k] /= largest_curvature(logistic);
  }
}

static plm_status logistic_check(void *context, struct plm_error *error)
{
  (void)context;
  return plm_stop_check(" while fitting a probe", error);
}

plm_status plm_logistic_open(const struct plm_features *features, const struct plm_row_list *list,
                             const int32_t *labels, uint32_t classes, struct plm_pool *pool,
                             struct plm_logistic **opened, struct plm_error *error)
{
  struct plm_logistic *logistic = plm_alloc_zeroed(1, sizeof *logistic);
  const size_t parts = (list->count + LEAST_ROWS - 1) / LEAST_ROWS;
  PLM_ASSERT(classes >= 2);
  logistic->features = features;
  logistic->list = list;
  logistic->labels = labels;
  logistic->pool = pool;
  logistic->classes = classes;
  logistic->outputs = classes == 2 ? 1 : classes;
  logistic->parts = parts < MOST_PARTS ? (uint32_t)parts : MOST_PARTS;
  logistic->padded = plm_padded_width(features->width);
  logistic->n = logistic->outputs * (logistic->padded + 1);
  logistic->x = calloc(logistic->n, sizeof *logistic->x);
  logistic->gradients = malloc(logistic->parts * logistic->n * sizeof *logistic->gradients);
  logistic->losses = malloc(logistic->parts * sizeof *logistic->losses);
  logistic->z = malloc(logistic->parts * (logistic->padded + classes) * sizeof *logistic->z);
  plm_status status = plm_linear_init(&logistic->model, features, list, logistic->outputs, error);
  if (status == PLM_OK && (logistic->x == NULL || logistic->gradients == NULL ||
                           logistic->losses == NULL || logistic->z == NULL))
    status =
        plm_error_set(error, PLM_NO_MEMORY, "out of memory for a probe of %u classes", classes);
  if (status == PLM_OK && features->width <= MOST_FEATURES &&
      list->count >= ROWS_A_FEATURE * (size_t)features->width)
    status = plm_gram_open(features, list, &logistic->model, false, pool, &logistic->gram, error);
  if (status != PLM_OK) {
    plm_logistic_close(logistic);
    return status;
  }
  *opened = logistic;
  return PLM_OK;
}

void plm_logistic_close(struct plm_logistic *logistic)
{
  if (logistic == NULL) return;
  plm_linear_deinit(&logistic->model);
  plm_gram_close(&logistic->gram);
  free(logistic->x);
  free(logistic->gradients);
  free(logistic->losses);
  free(logistic->z);
  free(logistic);
}

plm_status plm_logistic_solve(struct plm_logistic *logistic, double alpha, bool rough,
                              const struct plm_linear **model, struct plm_error *error)
{
  const struct plm_lbfgs search = {
      .n = logistic->n,
      .value = logistic_value,
      .check = logistic_check,
      .precondition = logistic->gram.order > 0 ? precondition : NULL,
      .context = logistic,
      .tolerance = rough ? rough_tolerance : fine_tolerance,
      .iterations = rough ? ROUGH_ITERATIONS : ITERATIONS,
  };
  const size_t weights = logistic->outputs * logistic->padded;
  bool converged;
  PLM_ASSERT(alpha > 0);
  logistic->alpha = alpha;
  if (logistic->gram.order > 0)
    plm_gram_decompose(&logistic->gram, largest_curvature(logistic), alpha);
  PLM_TRY(plm_lbfgs_run(&search, logistic->x, &converged, error));
  memcpy(logistic->model.weights, logistic->x, weights * sizeof *logistic->x);
  memcpy(logistic->model.intercepts, logistic->x + weights,
         logistic->outputs * sizeof *logistic->x);
  *model = &logistic->model;
  return PLM_OK;
}
