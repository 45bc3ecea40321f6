/* The optimizer's passes over parameters, in tiles of elements. Muon is in ops_muon.c. */
#include "kernels/cpu/cpu_ops.h"

enum { TILE = 65536 };

struct job {
  struct plm_cpu *cpu;
  float *w, *m, *v;
  const float *g;
  float factor;
  struct plm_cpu_adam adam;
  int64_t n;
};

#define TILE_OF(job, tile)                                      \
  const int64_t begin = (tile)*TILE;                            \
  const int64_t count = plm_tile_extent((job)->n, begin, TILE); \
  (void)thread

static int64_t ops_optimizer_tiles_of(int64_t n)
{
  return (n + TILE - 1) / TILE;
}

static void decide_update(struct plm_ops *ops, struct plm_update *update)
{
  (void)ops;
  plm_update_decide(update);
}

static void adam_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.adam(job->w + begin, job->m + begin, job->v + begin, job->g + begin, count,
                        &job->adam);
}

static void adam_step(struct plm_ops *ops, const struct plm_adam_tensor *tensors, size_t count,
                      const struct plm_adam_options *options, const struct plm_update *update)
{
  if (update->decision.skipped) return;
  for (size_t i = 0; i < count; i++) {
    const struct plm_adam_tensor *tensor = &tensors[i];
    PLM_ASSERT((unsigned)tensor->rate < PLM_UPDATE_RATES);
    struct job job = {.cpu = plm_cpu_of(ops),
                      .w = tensor->w,
                      .m = tensor->m,
                      .v = tensor->v,
                      .g = tensor->g,
                      .n = (int64_t)tensor->n,
                      .adam = {.lr = update->inputs.rate[tensor->rate],
                               .beta1 = options->beta1,
                               .beta2 = options->beta2,
                               .eps = options->eps,
                               .weight_decay = tensor->weight_decay,
                               .correction1 = update->inputs.correction1,
                               .correction2 = update->inputs.correction2,
                               .gradient_scale = update->decision.gradient_scale}};
    plm_pool_tiles(job.cpu->pool, ops_optimizer_tiles_of(job.n), adam_tile, &job);
  }
}

static void average_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.ema(job->w + begin, job->g + begin, job->factor, count);
}

static void average_step(struct plm_ops *ops, float *average, const float *w, size_t n,
                         const struct plm_update *update)
{
  if (update->decision.skipped) return;
  struct job job = {.cpu = plm_cpu_of(ops),
                    .w = average,
                    .g = w,
                    .factor = update->inputs.average_decay,
                    .n = (int64_t)n};
  plm_pool_tiles(job.cpu->pool, ops_optimizer_tiles_of(job.n), average_tile, &job);
}

void plm_cpu_optimizer_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->decide_update = decide_update;
  ops->adam_step = adam_step;
  ops->average_step = average_step;
}
