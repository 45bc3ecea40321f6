/* The sum of squares that ops->sum_squares and Muon's norm share. */
#include "kernels/cpu/cpu_ops.h"

enum { TILE = 65536 };

struct sum_job {
  const struct plm_cpu *cpu;
  const float *x;
  double *sums; /* one for each tile */
  int64_t n;
};

static void sum_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct sum_job *job = context;
  const int64_t begin = tile * TILE, left = job->n - begin;
  (void)thread;
  job->sums[tile] = job->cpu->vector.sum_squares(job->x + begin, left < TILE ? left : TILE);
}

double plm_cpu_sum_squares(struct plm_cpu *cpu, const float *x, size_t n)
{
  const int64_t tiles = ((int64_t)n + TILE - 1) / TILE;
  double *sums = plm_cpu_workspace(cpu, (size_t)tiles * sizeof *sums), total = 0;
  if (sums == NULL) return 0;
  struct sum_job job = {.cpu = cpu, .x = x, .sums = sums, .n = (int64_t)n};
  plm_pool_tiles(cpu->pool, tiles, sum_tile, &job);
  for (int64_t i = 0; i < tiles; i++) total += sums[i];
  return total;
}
