/* Sums as tensor cores make them: see tensor_sum.h. */
#include "tests/support/operators/tensor_sum.h"

#include <math.h>

static double additions(int64_t terms)
{
  return ceil((double)terms / TENSOR_SUM_PRODUCTS);
}

double tensor_sum_error(int64_t terms)
{
  return fmax(1e-5, additions(terms) * 2 / 3 * 0x1p-23);
}

double tensor_sum_slack(int64_t terms)
{
  return 2 * additions(terms);
}

/* x without what is below `unit`, a power of two. */
static double cut(double x, double unit)
{
  return trunc(x / unit) * unit;
}

static int exponent_of(double x)
{
  return x != 0 ? ilogb(x) : -149;
}

float tensor_sum(float c, const float *x, const float *y, int64_t terms, int wider, int bits)
{
  enum { FRACTION = 23 };
  const int64_t each = (int64_t)TENSOR_SUM_PRODUCTS * wider;
  double sum = (double)c;
  for (int64_t first = 0; first < terms; first += each) {
    const int64_t end = first + each < terms ? first + each : terms;
    int most = exponent_of(sum);
    for (int64_t i = first; i < end; i++) {
      const int exponent = exponent_of((double)x[i] * (double)y[i]);
      if (exponent > most) most = exponent;
    }
    const double unit = ldexp(1, most - FRACTION - bits);
    double total = cut(sum, unit);
    for (int64_t i = first; i < end; i++) total += cut((double)x[i] * (double)y[i], unit);
    sum = cut(total, ldexp(1, exponent_of(total) - FRACTION));
  }
  return (float)sum;
}
