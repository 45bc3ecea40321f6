/* A persistent pool of threads for the operators. One caller at a time; the caller works, too.
 *
 * Waiting is a short spin (an operator follows within microseconds inside a step), then a
 * condition variable: other processes of the pipeline share the cores.
 */
#ifndef PLM_KERNELS_CPU_POOL_H
#define PLM_KERNELS_CPU_POOL_H

#include <stdint.h>

#include "common/base/status.h"

struct plm_pool;

/* threads >= 1 counts the caller: threads - 1 are started, with all signals blocked. */
plm_status plm_pool_open(uint32_t threads, struct plm_pool **pool, struct plm_error *error);
void plm_pool_close(struct plm_pool *pool); /* NULL is fine */
uint32_t plm_pool_threads(const struct plm_pool *pool);

/* Once on each thread: function(context, index, count), index < count = threads. Returns when all
 * are done; everything written before is seen by them, and what they wrote is seen after. */
typedef void (*plm_pool_function)(void *context, uint32_t index, uint32_t count);
void plm_pool_run(struct plm_pool *pool, plm_pool_function function, void *context);

/* Once for each tile in [0, tiles), on whichever thread is free; `thread` says on which (for
 * scratch). A tile's result must depend on the tile alone. */
typedef void (*plm_pool_tile)(void *context, int64_t tile, uint32_t thread);
void plm_pool_tiles(struct plm_pool *pool, int64_t tiles, plm_pool_tile function, void *context);

/* The static share [*begin, *end) of n items in multiples of `grain`. */
static inline void plm_pool_share(int64_t n, int64_t grain, uint32_t index, uint32_t count,
                                  int64_t *begin, int64_t *end)
{
  const int64_t units = (n + grain - 1) / grain;
  *begin = units * index / count * grain;
  *end = units * (index + 1) / count * grain;
  if (*begin > n) *begin = n;
  if (*end > n) *end = n;
}

#endif
