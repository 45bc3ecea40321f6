/* Products of features, and Cholesky's decomposition. */
#include "evaluator/probe/gram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128 /* rows that are standardised at once */, TILE = 16 /* rows of the products */ };

struct multiplying {
  const struct plm_gram *gram;
  const double *rows; /* (count, padded) */
  size_t count;
};

static size_t tile_end(const struct plm_gram *gram, int64_t tile)
{
  const size_t end = ((size_t)tile + 1) * TILE;
  return end < gram->order ? end : gram->order;
}

/* Adds the products of the rows to a tile of Z' Z. Four rows at a time share a pass over it. */
static void add_products(void *context, int64_t tile, uint32_t thread)
{
  (void)thread;
  const struct multiplying *multiplying = context;
  const struct plm_gram *gram = multiplying->gram;
  const size_t begin = (size_t)tile * TILE, end = tile_end(gram, tile), width = gram->padded;
  for (size_t r = 0; r < multiplying->count; r += 4) {
    const double *z0 = multiplying->rows + r * width, *z1 = z0 + width, *z2 = z1 + width,
                 *z3 = z2 + width;
    for (size_t i = begin; i < end; i++) {
      double *restrict out = gram->products + i * gram->stride;
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
  const struct multiplying *multiplying = context;
  const struct plm_gram *gram = multiplying->gram;
  const double *rows = multiplying->rows;
  const size_t begin = (size_t)tile * TILE, end = tile_end(gram, tile), width = gram->padded;
  for (size_t i = begin; i < end; i++)
    for (size_t j = i; j < gram->order; j++)
      gram->products[i * gram->stride + j] = plm_dot(rows + i * width, rows + j * width, width);
}

static void multiply(const struct plm_gram *gram, const struct plm_features *features,
                     const struct plm_row_list *list, const struct plm_linear *model,
                     struct plm_pool *pool)
{
  struct multiplying multiplying = {.gram = gram, .rows = gram->rows};
  const size_t most = gram->dual ? list->count : BLOCK;
  for (size_t first = 0; first < list->count; first += most) {
    size_t count = list->count - first < most ? list->count - first : most;
    for (size_t r = 0; r < count; r++)
      plm_linear_standardise(model, features, list->rows[first + r], gram->rows + r * gram->padded);
    for (; !gram->dual && count % 4 != 0; count++)
      memset(gram->rows + count * gram->padded, 0, gram->padded * sizeof *gram->rows);
    multiplying.count = count;
    plm_pool_tiles(pool, (int64_t)((gram->order + TILE - 1) / TILE),
                   gram->dual ? multiply_rows : add_products, &multiplying);
  }
}

plm_status plm_gram_open(const struct plm_features *features, const struct plm_row_list *list,
                         const struct plm_linear *model, bool dual, struct plm_pool *pool,
                         struct plm_gram *gram, struct plm_error *error)
{
  const size_t order = dual ? list->count : features->width;
  *gram = (struct plm_gram){.dual = dual,
                            .order = order,
                            .stride = plm_padded_width((uint32_t)order),
                            .padded = plm_padded_width(features->width)};
  gram->products = calloc(order * gram->stride, sizeof *gram->products);
  gram->factor = calloc(order * gram->stride, sizeof *gram->factor);
  gram->rows = malloc((dual ? list->count : BLOCK) * gram->padded * sizeof *gram->rows);
  if (gram->products == NULL || gram->factor == NULL || gram->rows == NULL) {
    plm_gram_close(gram);
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu x %zu products", order,
                         order);
  }
  multiply(gram, features, list, model, pool);
  return PLM_OK;
}

void plm_gram_close(struct plm_gram *gram)
{
  free(gram->products);
  free(gram->factor);
  free(gram->rows);
  *gram = (struct plm_gram){0};
}

/* A dot product of any length; rows are padded with zeros where they end. */
static double short_dot(const double *a, const double *b, size_t n)
{
  const size_t whole = n / PLM_ROW_UNIT * PLM_ROW_UNIT;
  double sum = plm_dot(a, b, whole);
  for (size_t i = whole; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* The products are at least 0, so alpha > 0 makes the sum positive definite, and no pivot is below
 * alpha except by rounding. */
void plm_gram_decompose(struct plm_gram *gram, double scale, double alpha)
{
  const size_t n = gram->order, stride = gram->stride;
  PLM_ASSERT(scale > 0 && alpha > 0);
  for (size_t i = 0; i < n; i++) {
    double *row = gram->factor + i * stride;
    for (size_t j = 0; j < i; j++) {
      const double *other = gram->factor + j * stride;
      row[j] = (scale * gram->products[j * stride + i] - short_dot(row, other, j)) / other[j];
    }
    const double left = scale * gram->products[i * stride + i] + alpha - short_dot(row, row, i);
    row[i] = sqrt(left > alpha ? left : alpha);
  }
}

void plm_gram_solve(const struct plm_gram *gram, double *x)
{
  const size_t n = gram->order, stride = gram->stride;
  for (size_t i = 0; i < n; i++) {
    const double *row = gram->factor + i * stride;
    x[i] = (x[i] - short_dot(row, x, i)) / row[i];
  }
  for (size_t i = n; i-- > 0;) {
    const double *row = gram->factor + i * stride;
    x[i] /= row[i];
    for (size_t j = 0; j < i; j++) x[j] -= row[j] * x[i];
  }
}
