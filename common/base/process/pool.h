/* A persistent pool of threads, for operators and for what else computes in parallel. It has one
 * caller at a time, which does a share of the work.
 *
 * A waiting thread first spins briefly, because within a step the next operator follows in
 * microseconds. Then it sleeps on a condition variable, because other processes of the pipeline
 * share the cores.
 */
#ifndef PLM_COMMON_BASE_PROCESS_POOL_H
#define PLM_COMMON_BASE_PROCESS_POOL_H

#include <stdint.h>

#include "common/base/status.h"

struct plm_pool;

/* `threads` >= 1 includes the caller: threads - 1 are started, with all signals blocked. */
plm_status plm_pool_open(uint32_t threads, struct plm_pool **pool, struct plm_error *error);
void plm_pool_close(struct plm_pool *pool); /* NULL is fine */
uint32_t plm_pool_threads(const struct plm_pool *pool);

/* Calls function(context, index, count) once on each thread, with index < count = threads, and
 * returns when all are done. The threads see everything that the caller wrote before; the caller
 * then sees everything that the threads wrote. */
typedef void (*plm_pool_function)(void *context, uint32_t index, uint32_t count);
void plm_pool_run(struct plm_pool *pool, plm_pool_function function, void *context);

/* Calls `function` once for each tile in [0, tiles), on any free thread. `thread` is the index of
 * that thread, which selects its scratch. The result of a tile must depend only on the tile. */
typedef void (*plm_pool_tile)(void *context, int64_t tile, uint32_t thread);
void plm_pool_tiles(struct plm_pool *pool, int64_t tiles, plm_pool_tile function, void *context);

/* The share [*begin, *end) of thread `index` of `count` in n items. Shares begin at multiples of
 * `grain`. */
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
