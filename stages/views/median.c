/* The median, by sorting. */
#include "stages/views/median.h"

#include <stdlib.h>

#include "common/base/status.h"

static int median_ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double plm_median(double *values, size_t count)
{
  PLM_ASSERT(count > 0);
  qsort(values, count, sizeof *values, median_ascending);
  return values[count / 2];
}
