/* Measures the rate of copies in memory. */
#include "trainer/profile/copy_rate.h"

#include <stddef.h>

enum { REPETITIONS_MAX = 8 };
static const size_t LEAST = (size_t)1 << 20;
static const uint64_t BUDGET_NS = 200000000;

/* Seconds of one copy; negative if the device reports an error. */
static double copy_once(struct plm_ops *ops, void *to, const void *from, size_t bytes,
                        uint64_t (*clock_ns)(void))
{
  const uint64_t started = clock_ns();
  ops->copy(ops, to, from, bytes);
  if (ops->synchronize(ops, NULL) != PLM_OK) return -1;
  return 1e-9 * (double)(clock_ns() - started);
}

/* The first copy only warms up: it may be the first to touch the memory. */
static double copy_rate_of(struct plm_ops *ops, void *to, const void *from, size_t bytes,
                           uint64_t (*clock_ns)(void))
{
  double best_s = 0;
  if (copy_once(ops, to, from, bytes, clock_ns) < 0) return 0;
  const uint64_t started = clock_ns();
  for (int i = 0; i < REPETITIONS_MAX && (i == 0 || clock_ns() - started < BUDGET_NS); i++) {
    const double took_s = copy_once(ops, to, from, bytes, clock_ns);
    if (took_s < 0) return 0;
    if (best_s == 0 || took_s < best_s) best_s = took_s;
  }
  return best_s > 0 ? 2 * (double)bytes / best_s : 0;
}

double plm_copy_rate(struct plm_ops *ops, size_t most, uint64_t (*clock_ns)(void))
{
  for (size_t bytes = most; bytes >= LEAST; bytes /= 4) {
    void *buffer = NULL;
    if (ops->allocate(ops, 2 * bytes, &buffer, NULL) != PLM_OK) continue;
    ops->zero(ops, buffer, 2 * bytes);
    const double rate = copy_rate_of(ops, buffer, (char *)buffer + bytes, bytes, clock_ns);
    ops->release(ops, buffer);
    return rate;
  }
  return 0;
}
