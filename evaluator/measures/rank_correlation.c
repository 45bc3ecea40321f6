/* Computes ranks with ties, and their correlation. */
#include "evaluator/measures/rank_correlation.h"

#include <math.h>
#include <stdlib.h>

#include "evaluator/measures/correlation.h"

struct ranked {
  double value;
  size_t index;
};

static int by_value(const void *left, const void *right)
{
  const struct ranked *a = left, *b = right;
  return (a->value > b->value) - (a->value < b->value);
}

/* ranks (count) of values, from 1; equal values all get the mean of the ranks that they occupy. */
static plm_status find_ranks(const double *values, size_t count, double *ranks,
                             struct plm_error *error)
{
  struct ranked *order = malloc(count * sizeof *order);
  if (order == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the ranks of %zu values", count);
  for (size_t i = 0; i < count; i++) order[i] = (struct ranked){values[i], i};
  qsort(order, count, sizeof *order, by_value);
  for (size_t begin = 0, end; begin < count; begin = end) {
    for (end = begin + 1; end < count && order[end].value == order[begin].value;) end++;
    const double shared = 0.5 * (double)(begin + 1 + end);
    for (size_t i = begin; i < end; i++) ranks[order[i].index] = shared;
  }
  free(order);
  return PLM_OK;
}

plm_status plm_rank_correlate(const double *x, const double *y, size_t count,
                              struct plm_rank_correlation *correlation, struct plm_error *error)
{
  static const double quantile =
      1.959963984540054; /* the 0.975 quantile of the normal distribution */
  *correlation = (struct plm_rank_correlation){count, NAN, NAN, NAN};
  double *ranks = malloc(2 * count * sizeof *ranks);
  if (ranks == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the ranks of %zu pairs", count);
  plm_status status = find_ranks(x, count, ranks, error);
  if (status == PLM_OK) status = find_ranks(y, count, ranks + count, error);
  if (status != PLM_OK) {
    free(ranks);
    return status;
  }
  const double r = plm_pearson(ranks, ranks + count, NULL, count);
  correlation->value = r;
  if (count > 3 && isfinite(r)) {
    const double spread = quantile * sqrt((1 + 0.5 * r * r) / (double)(count - 3));
    correlation->low = tanh(atanh(r) - spread);
    correlation->high = tanh(atanh(r) + spread);
  }
  free(ranks);
  return PLM_OK;
}
