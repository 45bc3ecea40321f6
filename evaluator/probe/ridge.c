/* Products of features, and Cholesky's decomposition. */
#include "evaluator/probe/ridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

enum { BLOCK = 128 /* rows that are standardised at once */, TILE = 16 /* rows of the products */ };

struct plm_ridge {
  const struct plm_features *features;
  const struct plm_row_list *list;
  struct plm_pool *pool;
  struct plm_linear model;
  bool dual;
  size_t order, stride, padded; /* of the products; its row in doubles; of a standardised row */
  double *products;             /* (order, stride): Z' Z or Z Z', the upper triangle */
  double *factor;               /* (order, stride): Cholesky's, the lower triangle */
  double *moments;              /* (stride): Z' y or y */
  double *solution;             /* (stride) */
  double *rows;                 /* standardised: (BLOCK, padded), or all of them for the dual */
  size_t row_count;             /* in rows */
};

static bool allocate(struct plm_ridge *ridge)
{
  const size_t held = ridge->dual ? ridge->list->count : BLOCK;
  ridge->products = calloc(ridge->order * ridge->stride, sizeof *ridge->products);
  ridge->factor = calloc(ridge->order * ridge->stride, sizeof *ridge->factor);
  ridge->moments = calloc(ridge->stride, sizeof *ridge->moments);
  ridge->solution = calloc(ridge->stride, sizeof *ridge->solution);
  ridge->rows = malloc(held * ridge->padded * sizeof *ridge->rows);
  return ridge->products != NULL && ridge->factor != NULL && ridge->moments != NULL &&
         ridge->solution != NULL && ridge->rows != NULL;
}

/* Adds the products of the rows that are held to a tile of Z' Z. Four rows at a time share a pass
 * over it. */
static void add_products(void *context, int64_t tile, uint32_t thread)
{
  (void)thread;
  const struct plm_ridge *ridge = context;
  const size_t begin = (size_t)tile * TILE, width = ridge->padded;
  const size_t end = begin + TILE < ridge->order ? begin + TILE : ridge->order;
  for (size_t r = 0; r < ridge->row_count; r += 4) {
    const double *z0 = ridge->rows + r * width, *z1 = z0 + width, *z2 = z1 + width,
                 *z3 = z2 + width;
    for (size_t i = begin; i < end; i++) {
      double *restrict out = ridge->products + i * ridge->stride;
      for (size_t j = i / PLM_ROW_UNIT * PLM_ROW_UNIT; j < width; j += PLM_ROW_UNIT)
        for (size_t k = j; k < j + PLM_ROW_UNIT; k++)
          out[k] += (z0[i] * z0[k] + z1[i] * z1[k]) + (z2[i] * z2[k] + z3[i] * z3[k]);
    }
  }
}

/* A tile of Z Z'. */
static void multiply_rows(void *context, int64_t tile, uint32_t thread)
{
  (void)thread;
  const struct plm_ridge *ridge = context;
  const size_t begin = (size_t)tile * TILE;
  const size_t end = begin + TILE < ridge->order ? begin + TILE : ridge->order;
  for (size_t i = begin; i < end; i++)
    for (size_t j = i; j < ridge->order; j++)
      ridge->products[i * ridge->stride + j] =
          plm_dot(ridge->rows + i * ridge->padded, ridge->rows + j * ridge->padded, ridge->padded);
}

static void standardise(struct plm_ridge *ridge, size_t first, size_t count)
{
  for (size_t r = 0; r < count; r++)
    plm_linear_standardise(&ridge->model, ridge->features, ridge->list->rows[first + r],
                           ridge->rows + r * ridge->padded);
  ridge->row_count = count;
}

static void multiply(struct plm_ridge *ridge, const double *targets)
{
  const struct plm_row_list *list = ridge->list;
  const int64_t tiles = (int64_t)((ridge->order + TILE - 1) / TILE);
  const double mean = ridge->model.intercepts[0];
  if (ridge->dual) {
    standardise(ridge, 0, list->count);
    plm_pool_tiles(ridge->pool, tiles, multiply_rows, ridge);
    for (size_t i = 0; i < list->count; i++) ridge->moments[i] = targets[list->rows[i]] - mean;
    return;
  }
  for (size_t first = 0; first < list->count; first += BLOCK) {
    const size_t count = list->count - first < BLOCK ? list->count - first : BLOCK;
    standardise(ridge, first, count);
    for (size_t r = 0; r < count; r++)
      plm_add_scaled(ridge->moments, targets[list->rows[first + r]] - mean,
                     ridge->rows + r * ridge->padded, ridge->padded);
    for (; ridge->row_count % 4 != 0; ridge->row_count++)
      memset(ridge->rows + ridge->row_count * ridge->padded, 0,
             ridge->padded * sizeof *ridge->rows);
    plm_pool_tiles(ridge->pool, tiles, add_products, ridge);
  }
}

plm_status plm_ridge_open(const struct plm_features *features, const struct plm_row_list *list,
                          const double *targets, struct plm_pool *pool, struct plm_ridge **opened,
                          struct plm_error *error)
{
  struct plm_ridge *ridge = plm_alloc_zeroed(1, sizeof *ridge);
  ridge->features = features;
  ridge->list = list;
  ridge->pool = pool;
  ridge->dual = list->count < features->width;
  ridge->order = ridge->dual ? list->count : features->width;
  ridge->padded = plm_padded_width(features->width);
  ridge->stride = plm_padded_width((uint32_t)ridge->order);
  plm_status status = plm_linear_init(&ridge->model, features, list, 1, error);
  if (status == PLM_OK && !allocate(ridge))
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu x %zu products",
                           ridge->order, ridge->order);
  if (status != PLM_OK) {
    plm_ridge_close(ridge);
    return status;
  }
  double sum = 0;
  for (size_t i = 0; i < list->count; i++) sum += targets[list->rows[i]];
  ridge->model.intercepts[0] = sum / (double)list->count;
  multiply(ridge, targets);
  *opened = ridge;
  return PLM_OK;
}

void plm_ridge_close(struct plm_ridge *ridge)
{
  if (ridge == NULL) return;
  plm_linear_deinit(&ridge->model);
  free(ridge->products);
  free(ridge->factor);
  free(ridge->moments);
  free(ridge->solution);
  free(ridge->rows);
  free(ridge);
}

/* A dot product of any length; rows are padded with zeros where they end. */
static double short_dot(const double *a, const double *b, size_t n)
{
  const size_t whole = n / PLM_ROW_UNIT * PLM_ROW_UNIT;
  double sum = plm_dot(a, b, whole);
  for (size_t i = whole; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* L L' = products + alpha; the products are at least 0, so alpha > 0 makes it positive definite,
 * and no pivot is below alpha except by rounding. */
static void decompose(struct plm_ridge *ridge, double alpha)
{
  const size_t n = ridge->order, stride = ridge->stride;
  for (size_t i = 0; i < n; i++) {
    double *row = ridge->factor + i * stride;
    for (size_t j = 0; j < i; j++) {
      const double *other = ridge->factor + j * stride;
      row[j] = (ridge->products[j * stride + i] - short_dot(row, other, j)) / other[j];
    }
    const double left = ridge->products[i * stride + i] + alpha - short_dot(row, row, i);
    row[i] = sqrt(left > alpha ? left : alpha);
  }
}

/* Solves L L' x = moments. */
static void substitute(struct plm_ridge *ridge)
{
  const size_t n = ridge->order, stride = ridge->stride;
  double *x = ridge->solution;
  for (size_t i = 0; i < n; i++) {
    const double *row = ridge->factor + i * stride;
    x[i] = (ridge->moments[i] - short_dot(row, x, i)) / row[i];
  }
  for (size_t i = n; i-- > 0;) {
    const double *row = ridge->factor + i * stride;
    x[i] /= row[i];
    for (size_t j = 0; j < i; j++) x[j] -= row[j] * x[i];
  }
}

const struct plm_linear *plm_ridge_solve(struct plm_ridge *ridge, double alpha)
{
  double *weights = ridge->model.weights;
  PLM_ASSERT(alpha > 0);
  decompose(ridge, alpha);
  substitute(ridge);
  memset(weights, 0, ridge->padded * sizeof *weights);
  if (ridge->dual) {
    for (size_t i = 0; i < ridge->order; i++)
      plm_add_scaled(weights, ridge->solution[i], ridge->rows + i * ridge->padded, ridge->padded);
  } else {
    memcpy(weights, ridge->solution, ridge->order * sizeof *weights);
  }
  return &ridge->model;
}
