/* Draws and percentiles of the bootstrap. */
#include "evaluator/measures/bootstrap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/base/status.h"

void plm_bootstrap_draw(uint32_t replicate, size_t units, double *drawn)
{
  memset(drawn, 0, units * sizeof *drawn);
  for (size_t i = 0; i < units; i += 4) {
    const struct plm_philox_words words =
        plm_philox(0, (uint32_t)(i / 4), replicate, PLM_PURPOSE_BOOTSTRAP);
    for (size_t j = 0; j < 4 && i + j < units; j++)
      drawn[((uint64_t)words.w[j] * units) >> 32] += 1;
  }
}

static int bootstrap_ascending(const void *left, const void *right)
{
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* Of at least two values; the share is less than 1. */
static double bootstrap_percentile(const double *sorted, size_t count, double share)
{
  const double place = (double)(count - 1) * share;
  const size_t below = (size_t)floor(place);
  PLM_ASSERT(below + 1 < count);
  return sorted[below] + (sorted[below + 1] - sorted[below]) * (place - (double)below);
}

void plm_bootstrap_interval(double *values, double *low, double *high)
{
  size_t count = 0;
  for (size_t i = 0; i < PLM_BOOTSTRAP_REPLICATES; i++)
    if (!isnan(values[i])) values[count++] = values[i];
  *low = *high = NAN;
  if (2 * count < PLM_BOOTSTRAP_REPLICATES) return;
  qsort(values, count, sizeof *values, bootstrap_ascending);
  *low = bootstrap_percentile(values, count, 0.025);
  *high = bootstrap_percentile(values, count, 0.975);
}
