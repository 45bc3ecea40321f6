/* Smooths the loss and finds its steepest descent. */
#include "stages/views/rate_range.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"

static const double weight = 0.9; /* of the mean so far */
enum { DIVERGED = 4 /* times the least value */, FEWEST = 10 /* steps */ };

static void rate_range_grow(struct plm_rate_range *range)
{
  const size_t capacity = range->capacity > 0 ? 2 * range->capacity : 128;
  range->rates = plm_realloc(range->rates, capacity * sizeof *range->rates);
  range->smoothed = plm_realloc(range->smoothed, capacity * sizeof *range->smoothed);
  range->capacity = capacity;
}

void plm_rate_range_add(struct plm_rate_range *range, double rate, double loss)
{
  if (range->diverged) return;
  if (!isfinite(loss)) {
    range->diverged = true;
    return;
  }
  if (range->count == range->capacity) rate_range_grow(range);
  const size_t i = range->count++;
  range->mean = weight * range->mean + (1 - weight) * loss;
  range->rates[i] = rate;
  range->smoothed[i] = range->mean / (1 - pow(weight, (double)i + 1));
  if (range->smoothed[i] < range->smoothed[range->best]) range->best = i;
  range->diverged = range->smoothed[i] > DIVERGED * range->smoothed[range->best];
}

void plm_rate_range_deinit(struct plm_rate_range *range)
{
  free(range->rates);
  free(range->smoothed);
  *range = (struct plm_rate_range){0};
}

bool plm_rate_range_suggest(const struct plm_rate_range *range,
                            struct plm_rate_suggestion *suggestion)
{
  double least = 0; /* difference over two steps, which are equally far apart in log(rate) */
  if (range->count < FEWEST) return false;
  for (size_t i = range->count / FEWEST; i < range->best; i++) {
    if (i == 0) continue;
    const double difference = range->smoothed[i + 1] - range->smoothed[i - 1];
    if (difference >= least) continue;
    least = difference;
    suggestion->steepest = range->rates[i];
  }
  suggestion->tenth = range->rates[range->best] / 10;
  return least < 0;
}
