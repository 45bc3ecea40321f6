/* Correlation and errors of predicted numbers. */
#include "evaluator/measures/correlation.h"

#include <math.h>
#include <stdbool.h>

static double weight(const double *weights, size_t i)
{
  return weights == NULL ? 1 : weights[i];
}

static double weighted_mean(const double *values, const double *weights, size_t count)
{
  double sum = 0, total = 0;
  for (size_t i = 0; i < count; i++) {
    sum += weight(weights, i) * values[i];
    total += weight(weights, i);
  }
  return sum / total;
}

/* Whether the values that count, of which there is one, are not all the same. The sum of their
 * squares is no sign of that: the mean of equal values may be off by a rounding. */
static bool varies(const double *values, const double *weights, size_t count)
{
  size_t first = 0;
  while (!(weight(weights, first) > 0)) first++;
  for (size_t i = first; i < count; i++)
    if (weight(weights, i) > 0 && values[i] != values[first]) return true;
  return false;
}

double plm_pearson(const double *x, const double *y, const double *weights, size_t count)
{
  const double mean_x = weighted_mean(x, weights, count), mean_y = weighted_mean(y, weights, count);
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < count; i++) {
    const double w = weight(weights, i);
    xx += w * (x[i] - mean_x) * (x[i] - mean_x);
    yy += w * (y[i] - mean_y) * (y[i] - mean_y);
    xy += w * (x[i] - mean_x) * (y[i] - mean_y);
  }
  if (!(xx > 0 && yy > 0) || !varies(x, weights, count) || !varies(y, weights, count)) return NAN;
  return fmax(-1.0, fmin(1.0, xy / sqrt(xx * yy)));
}

double plm_determination(const double *x, const double *y, const double *weights, size_t count)
{
  const double mean = weighted_mean(y, weights, count);
  double errors = 0, spread = 0;
  for (size_t i = 0; i < count; i++) {
    errors += weight(weights, i) * (y[i] - x[i]) * (y[i] - x[i]);
    spread += weight(weights, i) * (y[i] - mean) * (y[i] - mean);
  }
  return spread > 0 && varies(y, weights, count) ? 1 - errors / spread : NAN;
}

double plm_root_mean_square_error(const double *x, const double *y, const double *weights,
                                  size_t count)
{
  double errors = 0, total = 0;
  for (size_t i = 0; i < count; i++) {
    errors += weight(weights, i) * (y[i] - x[i]) * (y[i] - x[i]);
    total += weight(weights, i);
  }
  return sqrt(errors / total);
}
