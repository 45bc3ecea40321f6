/* Norm, and mix and norm, which reduce along a row. They run on tiles of rows. Sums over all rows
 * (db, ds) are computed per tile and added in the order of the tiles. */
#include "kernels/cpu/cpu_ops.h"

enum { ROWS_TILE = 32, SUMS = PLM_CPU_TILE_SUMS };

struct job {
  struct plm_cpu *cpu;
  void *out, *out2;
  const void *a, *b;
  float (*sums)[SUMS]; /* of each tile */
  int64_t N, D;
  struct plm_mix_rows mix;
  struct plm_mix_row_gradients to;
};

#define AT(job, pointer) plm_act_at((job)->cpu, (job)->pointer, begin *(job)->D)
#define OUT(job, pointer) plm_act_at_mutable((job)->cpu, (job)->pointer, begin *(job)->D)
#define ROWS_OF(job, tile)                                           \
  const int64_t begin = (tile)*ROWS_TILE;                            \
  const int64_t count = plm_tile_extent((job)->N, begin, ROWS_TILE); \
  (void)thread

static int64_t ops_norm_tiles_of(int64_t N)
{
  return (N + ROWS_TILE - 1) / ROWS_TILE;
}

static void ops_norm_run(struct job *job, plm_pool_tile function)
{
  PLM_ASSERT(job->N >= 0 && job->D > 0);
  plm_pool_tiles(job->cpu->pool, ops_norm_tiles_of(job->N), function, job);
}

/* Runs `function`, which stores the sums of each tile in job->sums. Adds their totals to
 * *totals[j], unless totals[j] is NULL. */
static void run_with_sums(struct job *job, plm_pool_tile function, float *const totals[SUMS])
{
  const int64_t tiles = ops_norm_tiles_of(job->N);
  job->sums = plm_cpu_workspace(job->cpu, (size_t)tiles * sizeof *job->sums);
  if (job->sums == NULL) return;
  ops_norm_run(job, function);
  plm_cpu_add_tile_sums(job->sums, tiles, totals);
}

static void norm_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  ROWS_OF(job, tile);
  job->cpu->vector.norm_forward(OUT(job, out), AT(job, a), count, job->D);
}

static void norm_forward(struct plm_ops *ops, act *out, const act *x, int64_t N, int64_t D)
{
  struct job job = {.cpu = plm_cpu_of(ops), .out = out, .a = x, .N = N, .D = D};
  ops_norm_run(&job, norm_tile);
}

static void norm_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  ROWS_OF(job, tile);
  job->cpu->vector.norm_backward(OUT(job, out), AT(job, a), AT(job, b), count, job->D);
}

static void norm_backward(struct plm_ops *ops, act *dx, const act *dh, const act *x, int64_t N,
                          int64_t D)
{
  struct job job = {.cpu = plm_cpu_of(ops), .out = dx, .a = dh, .b = x, .N = N, .D = D};
  ops_norm_run(&job, norm_back_tile);
}

/* The embedding tables have one row per token of the vocabulary, too few to share among threads. */
static void norm_rows_forward(struct plm_ops *ops, float *out, const float *x, int64_t N, int64_t D)
{
  plm_cpu_of(ops)->vector.norm_rows_forward(out, x, N, D);
}

static void norm_rows_backward(struct plm_ops *ops, float *dx, const float *dh, const float *x,
                               int64_t N, int64_t D)
{
  plm_cpu_of(ops)->vector.norm_rows_backward(dx, dh, x, N, D);
}

static struct plm_mix_rows mix_of(const struct job *job, int64_t begin)
{
  struct plm_mix_rows mix = job->mix;
  mix.x = plm_act_at(job->cpu, mix.x, begin * job->D);
  if (mix.p_rows != NULL)
    mix.p_rows += begin;
  else
    mix.p = plm_act_at(job->cpu, mix.p, begin * job->D);
  if (mix.skip != NULL) mix.skip = plm_act_at(job->cpu, mix.skip, begin * job->D);
  return mix;
}

static struct plm_mix_rows mix_rows(const struct plm_mix *mix)
{
  return (struct plm_mix_rows){.x = mix->x,
                               .p = mix->p,
                               .skip = mix->skip,
                               .p_rows = mix->p_rows,
                               .b = {mix->b[0], mix->b[1]},
                               .s = mix->skip == NULL ? 0 : *mix->s};
}

static void mix_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  ROWS_OF(job, tile);
  const struct plm_mix_rows mix = mix_of(job, begin);
  job->cpu->vector.mix_norm_forward(OUT(job, out), OUT(job, out2), &mix, count, job->D);
}

static void mix_norm_forward(struct plm_ops *ops, act *mixed, act *h, const struct plm_mix *mix,
                             int64_t N, int64_t D)
{
  struct job job = {.cpu = plm_cpu_of(ops), .out = mixed, .out2 = h, .N = N, .D = D};
  job.mix = mix_rows(mix);
  ops_norm_run(&job, mix_tile);
}

static void mix_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  ROWS_OF(job, tile);
  const struct plm_mix_rows mix = mix_of(job, begin);
  struct plm_mix_row_gradients to = job->to;
  to.dx = OUT(job, to.dx);
  to.dp = OUT(job, to.dp);
  to.dmixed = AT(job, to.dmixed);
  to.dh = AT(job, to.dh);
  if (to.dskip != NULL) to.dskip = OUT(job, to.dskip);
  if (to.more != NULL) to.more = AT(job, to.more);
  job->cpu->vector.mix_norm_backward(job->sums[tile], &mix, &to, count, job->D);
}

static void mix_norm_backward(struct plm_ops *ops, const struct plm_mix_gradients *to, act *dmixed,
                              const act *dh, const struct plm_mix *mix, int64_t N, int64_t D)
{
  struct job job = {.cpu = plm_cpu_of(ops), .N = N, .D = D};
  job.mix = mix_rows(mix);
  job.to = (struct plm_mix_row_gradients){.dx = to->dx,
                                          .dp = to->dp,
                                          .dskip = mix->skip == NULL ? NULL : to->dskip,
                                          .more = to->more,
                                          .dmixed = dmixed,
                                          .dh = dh};
  float *const totals[SUMS] = {to->db, to->db + 1, mix->skip == NULL ? NULL : to->ds};
  run_with_sums(&job, mix_back_tile, totals);
}

void plm_cpu_norm_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->norm_forward = norm_forward;
  ops->norm_backward = norm_backward;
  ops->norm_rows_forward = norm_rows_forward;
  ops->norm_rows_backward = norm_rows_backward;
  ops->mix_norm_forward = mix_norm_forward;
  ops->mix_norm_backward = mix_norm_backward;
}
