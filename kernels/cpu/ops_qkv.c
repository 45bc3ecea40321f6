/* Preparation of queries, keys and values for attention, on tiles of rows. The sums over all rows
 * (da) are computed per tile and added in the order of the tiles. */
#include "common/ops/value_table.h"
#include "kernels/cpu/cpu_ops.h"

enum { ROWS_TILE = 32 };

struct job {
  struct plm_cpu *cpu;
  act *out, *out2;
  const act *a, *b, *c;
  float (*sums)[PLM_CPU_TILE_SUMS]; /* of each tile */
  float *dweights;                  /* (2 H K) of each tile, with PLM_QK_NORM_WIDTH */
  int64_t N;
  struct plm_qkv_rows rows;
};

static int64_t ops_qkv_tiles_of(int64_t N)
{
  return (N + ROWS_TILE - 1) / ROWS_TILE;
}

static struct plm_qkv_rows rows_of_tile(const struct job *job, int64_t tile)
{
  struct plm_qkv_rows rows = job->rows;
  rows.begin = tile * ROWS_TILE;
  rows.end = rows.begin + ROWS_TILE < job->N ? rows.begin + ROWS_TILE : job->N;
  return rows;
}

static void qkv_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const struct plm_qkv_rows rows = rows_of_tile(job, tile);
  job->cpu->vector.qkv_forward(job->out, job->a, job->b, &rows);
}

static struct plm_qkv_rows qkv_rows(const struct plm_qkv *in)
{
  PLM_ASSERT(in->H > 0 && in->K % 2 == 0 && in->K <= PLM_HEAD_WIDTH_LIMIT);
  struct plm_qkv_rows rows = {.L = in->L,
                              .H = in->H,
                              .K = in->K,
                              .cosine = in->cosine,
                              .sine = in->sine,
                              .norm = in->norm,
                              .eps = in->eps,
                              .qk_weight = {in->q_weight, in->k_weight}};
  if (in->vi != NULL) {
    rows.a0 = in->a[0];
    rows.a1 = in->a[1];
  }
  return rows;
}

static void qkv_prepare_forward(struct plm_ops *ops, act *out, const struct plm_qkv *in)
{
  struct job job = {.cpu = plm_cpu_of(ops),
                    .out = out,
                    .a = in->qkv,
                    .b = in->vi,
                    .N = in->B * in->L,
                    .rows = qkv_rows(in)};
  plm_pool_tiles(job.cpu->pool, ops_qkv_tiles_of(job.N), qkv_tile, &job);
}

static void qkv_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const struct plm_qkv_rows rows = rows_of_tile(job, tile);
  float *dweight =
      rows.norm == PLM_QK_NORM_WIDTH ? job->dweights + tile * 2 * rows.H * rows.K : NULL;
  job->cpu->vector.qkv_backward(job->out, job->out2, job->sums[tile], dweight, job->a, job->b,
                                job->c, &rows);
}

static void qkv_prepare_backward(struct plm_ops *ops, act *dqkv_raw, act *dvi, float *da,
                                 const act *dqkv, const struct plm_qkv *in)
{
  struct job job = {.cpu = plm_cpu_of(ops),
                    .out = dqkv_raw,
                    .out2 = dvi,
                    .a = dqkv,
                    .b = in->qkv,
                    .c = in->vi,
                    .N = in->B * in->L,
                    .rows = qkv_rows(in)};
  const int64_t tiles = ops_qkv_tiles_of(job.N);
  float *totals[PLM_CPU_TILE_SUMS] = {NULL};
  if (in->vi != NULL) {
    totals[0] = da;
    totals[1] = da + 1;
  }
  const int64_t D = in->norm == PLM_QK_NORM_WIDTH ? in->H * in->K : 0;
  const size_t dweights = (size_t)(tiles * 2 * D) * sizeof *job.dweights;
  char *space = plm_cpu_workspace(job.cpu, (size_t)tiles * sizeof *job.sums + dweights);
  if (space == NULL) return;
  job.dweights = (float *)space;
  job.sums = (float(*)[PLM_CPU_TILE_SUMS])(space + dweights);
  plm_pool_tiles(job.cpu->pool, tiles, qkv_back_tile, &job);
  plm_cpu_add_tile_sums(job.sums, tiles, totals);
  if (D == 0) return;
  plm_cpu_add_tile_columns(job.cpu, in->dq_weight, job.dweights, tiles, 2 * D, D);
  plm_cpu_add_tile_columns(job.cpu, in->dk_weight, job.dweights + D, tiles, 2 * D, D);
}

void plm_cpu_qkv_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->qkv_prepare_forward = qkv_prepare_forward;
  ops->qkv_prepare_backward = qkv_prepare_backward;
  ops->qkv_value_forward = plm_value_forward_in_parts;
  ops->qkv_value_backward = plm_value_backward_in_parts;
}
