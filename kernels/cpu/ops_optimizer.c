/* The optimizer's passes over parameters: tiles of elements. Muon is in muon.c. */
#include "kernels/cpu/cpu_ops.h"

enum { TILE = 65536 };

struct job {
  struct plm_cpu *cpu;
  float *w, *m, *v;
  const float *g;
  float factor;
  const struct plm_adam_options *adam;
  double *sums;
  int64_t n;
};

#define TILE_OF(job, tile)                                                 \
  const int64_t begin = (tile)*TILE;                                       \
  const int64_t count = (job)->n - begin < TILE ? (job)->n - begin : TILE; \
  (void)thread

static int64_t tiles_of(int64_t n)
{
  return (n + TILE - 1) / TILE;
}

static void sum_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->sums[tile] = job->cpu->vector.sum_squares(job->g + begin, count);
}

static double sum_squares(struct plm_ops *ops, const float *x, size_t n)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const int64_t tiles = tiles_of((int64_t)n);
  double *sums = plm_cpu_workspace(cpu, (size_t)tiles * sizeof *sums);
  if (sums == NULL) return 0;
  struct job job = {.cpu = cpu, .g = x, .sums = sums, .n = (int64_t)n};
  plm_pool_tiles(cpu->pool, tiles, sum_tile, &job);
  double total = 0;
  for (int64_t i = 0; i < tiles; i++) total += sums[i];
  return total;
}

static void scale_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.scale(job->w + begin, job->factor, count);
}

static void scale(struct plm_ops *ops, float *x, float factor, size_t n)
{
  struct job job = {.cpu = plm_cpu_of(ops), .w = x, .factor = factor, .n = (int64_t)n};
  plm_pool_tiles(job.cpu->pool, tiles_of(job.n), scale_tile, &job);
}

static void adam_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.adam(job->w + begin, job->m + begin, job->v + begin, job->g + begin, count,
                        job->adam);
}

static void adam_step(struct plm_ops *ops, float *w, float *m, float *v, const float *g, size_t n,
                      const struct plm_adam_options *options)
{
  struct job job = {
      .cpu = plm_cpu_of(ops), .w = w, .m = m, .v = v, .g = g, .adam = options, .n = (int64_t)n};
  plm_pool_tiles(job.cpu->pool, tiles_of(job.n), adam_tile, &job);
}

static void ema_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.ema(job->w + begin, job->g + begin, job->factor, count);
}

static void ema_step(struct plm_ops *ops, float *average, const float *w, float decay, size_t n)
{
  struct job job = {.cpu = plm_cpu_of(ops), .w = average, .g = w, .factor = decay, .n = (int64_t)n};
  plm_pool_tiles(job.cpu->pool, tiles_of(job.n), ema_tile, &job);
}

void plm_cpu_optimizer_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->sum_squares = sum_squares;
  ops->scale = scale;
  ops->adam_step = adam_step;
  ops->ema_step = ema_step;
}
