/* LayerNorm. The gradients of its weight and bias are sums over all rows: the columns are summed in
 * tiles of rows, and the sums of the tiles are then added in their order. */
#include "kernels/cpu/cpu_ops.h"

enum { ROWS_TILE = 64, COLUMNS_TILE = 512 };

/* ---- sums of the tiles ---- */
struct totals_job {
  float *to;
  const float *parts;
  int64_t tiles, stride, D;
};

static void totals_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct totals_job *job = context;
  (void)thread;
  const int64_t begin = tile * COLUMNS_TILE;
  const int64_t columns = plm_tile_extent(job->D, begin, COLUMNS_TILE);
  double sums[COLUMNS_TILE] = {0};
  for (int64_t t = 0; t < job->tiles; t++) {
    const float *part = job->parts + t * job->stride + begin;
    for (int64_t i = 0; i < columns; i++) sums[i] += (double)part[i];
  }
  for (int64_t i = 0; i < columns; i++) job->to[begin + i] += (float)sums[i];
}

void plm_cpu_add_tile_columns(struct plm_cpu *cpu, float *to, const float *parts, int64_t tiles,
                              int64_t stride, int64_t D)
{
  struct totals_job job = {to, parts, tiles, stride, D};
  plm_pool_tiles(cpu->pool, (D + COLUMNS_TILE - 1) / COLUMNS_TILE, totals_tile, &job);
}

/* ---- LayerNorm ---- */
struct job {
  struct plm_cpu *cpu;
  act *out;
  const act *x, *dh;
  const struct plm_layer_norm *norm;
  int64_t N, D;
  float *parts; /* (2 D) of each tile: dweight and dbias */
};

static int64_t ops_layer_norm_tiles_of(int64_t N)
{
  return (N + ROWS_TILE - 1) / ROWS_TILE;
}

static int64_t ops_layer_norm_rows_of(int64_t tile, int64_t N)
{
  return plm_tile_extent(N, tile * ROWS_TILE, ROWS_TILE);
}

static void forward_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * ROWS_TILE * job->D;
  job->cpu->vector.layer_norm_forward(plm_act_at_mutable(job->cpu, job->out, begin),
                                      plm_act_at(job->cpu, job->x, begin), job->norm,
                                      ops_layer_norm_rows_of(tile, job->N), job->D);
}

static void layer_norm_forward(struct plm_ops *ops, act *out, const act *x,
                               const struct plm_layer_norm *norm, int64_t N, int64_t D)
{
  PLM_ASSERT(N >= 0 && D > 0);
  struct job job = {.cpu = plm_cpu_of(ops), .out = out, .x = x, .norm = norm, .N = N, .D = D};
  plm_pool_tiles(job.cpu->pool, ops_layer_norm_tiles_of(N), forward_tile, &job);
}

static void backward_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * ROWS_TILE * job->D;
  float *dweight = job->parts + tile * 2 * job->D;
  float *dbias = job->norm->bias != NULL ? dweight + job->D : NULL;
  job->cpu->vector.layer_norm_backward(plm_act_at_mutable(job->cpu, job->out, begin), dweight,
                                       dbias, plm_act_at(job->cpu, job->dh, begin),
                                       plm_act_at(job->cpu, job->x, begin), job->norm,
                                       ops_layer_norm_rows_of(tile, job->N), job->D);
}

static void layer_norm_backward(struct plm_ops *ops, act *dx,
                                const struct plm_layer_norm_gradients *to, const act *dh,
                                const act *x, const struct plm_layer_norm *norm, int64_t N,
                                int64_t D)
{
  PLM_ASSERT(N >= 0 && D > 0);
  struct job job = {
      .cpu = plm_cpu_of(ops), .out = dx, .dh = dh, .x = x, .norm = norm, .N = N, .D = D};
  const int64_t tiles = ops_layer_norm_tiles_of(N);
  job.parts = plm_cpu_workspace(job.cpu, (size_t)(tiles * 2 * D) * sizeof *job.parts);
  if (job.parts == NULL) return;
  plm_pool_tiles(job.cpu->pool, tiles, backward_tile, &job);
  plm_cpu_add_tile_columns(job.cpu, to->dweight, job.parts, tiles, 2 * D, D);
  if (norm->bias != NULL)
    plm_cpu_add_tile_columns(job.cpu, to->dbias, job.parts + D, tiles, 2 * D, D);
}

void plm_cpu_layer_norm_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->layer_norm_forward = layer_norm_forward;
  ops->layer_norm_backward = layer_norm_backward;
}
