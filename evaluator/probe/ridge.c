/* The equations of ridge regression. */
#include "evaluator/probe/ridge.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "evaluator/probe/gram.h"

struct plm_ridge {
  struct plm_gram gram;
  struct plm_linear model;
  double *moments;  /* (stride of gram): Z' y or y */
  double *solution; /* (stride of gram) */
};

static plm_status find_moments(struct plm_ridge *ridge, const struct plm_features *features,
                               const struct plm_row_list *list, const double *targets,
                               struct plm_error *error)
{
  const struct plm_gram *gram = &ridge->gram;
  const double mean = ridge->model.intercepts[0];
  ridge->moments = calloc(gram->stride, sizeof *ridge->moments);
  ridge->solution = calloc(gram->stride, sizeof *ridge->solution);
  if (ridge->moments == NULL || ridge->solution == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu equations", gram->order);
  for (size_t i = 0; i < list->count; i++) {
    const uint32_t row = list->rows[i];
    if (gram->dual) {
      ridge->moments[i] = targets[row] - mean;
    } else {
      plm_linear_standardise(&ridge->model, features, row, gram->rows);
      plm_add_scaled(ridge->moments, targets[row] - mean, gram->rows, gram->padded);
    }
  }
  return PLM_OK;
}

plm_status plm_ridge_open(const struct plm_features *features, const struct plm_row_list *list,
                          const double *targets, struct plm_pool *pool, struct plm_ridge **opened,
                          struct plm_error *error)
{
  struct plm_ridge *ridge = plm_alloc_zeroed(1, sizeof *ridge);
  const bool dual = list->count < features->width;
  double sum = 0;
  plm_status status = plm_linear_init(&ridge->model, features, list, 1, error);
  for (size_t i = 0; i < list->count; i++) sum += targets[list->rows[i]];
  if (status == PLM_OK) {
    ridge->model.intercepts[0] = sum / (double)list->count;
    status = plm_gram_open(features, list, &ridge->model, dual, pool, &ridge->gram, error);
  }
  if (status == PLM_OK) status = find_moments(ridge, features, list, targets, error);
  if (status != PLM_OK) {
    plm_ridge_close(ridge);
    return status;
  }
  *opened = ridge;
  return PLM_OK;
}

void plm_ridge_close(struct plm_ridge *ridge)
{
  if (ridge == NULL) return;
  plm_linear_deinit(&ridge->model);
  plm_gram_close(&ridge->gram);
  free(ridge->moments);
  free(ridge->solution);
  free(ridge);
}

const struct plm_linear *plm_ridge_solve(struct plm_ridge *ridge, double alpha)
{
  struct plm_gram *gram = &ridge->gram;
  double *weights = ridge->model.weights;
  PLM_ASSERT(alpha > 0);
  plm_gram_decompose(gram, 1, alpha);
  memcpy(ridge->solution, ridge->moments, gram->stride * sizeof *ridge->solution);
  plm_gram_solve(gram, ridge->solution);
  memset(weights, 0, gram->padded * sizeof *weights);
  if (gram->dual) {
    for (size_t i = 0; i < gram->order; i++)
      plm_add_scaled(weights, ridge->solution[i], gram->rows + i * gram->padded, gram->padded);
  } else {
    memcpy(weights, ridge->solution, gram->order * sizeof *weights);
  }
  return &ridge->model;
}
