/* Operators that reduce along a row: norm, mix and norm, QKV prepare. Tiles of rows; the sums over
 * all rows (db, da) are each tile's, added in the order of the tiles. */
#include "common/ops/value_table.h"
#include "kernels/cpu/cpu_ops.h"

enum { ROWS_TILE = 32 };

struct job {
  struct plm_cpu *cpu;
  void *out, *out2, *out3;
  const void *a, *b, *c, *d;
  float scalars[2];
  float (*sums)[2]; /* a pair a tile */
  int64_t N, D;
  struct plm_qkv_rows rows;
};

#define AT(job, pointer) plm_act_at((job)->cpu, (job)->pointer, begin *(job)->D)
#define OUT(job, pointer) plm_act_at_mutable((job)->cpu, (job)->pointer, begin *(job)->D)
#define ROWS_OF(job, tile)                                                           \
  const int64_t begin = (tile)*ROWS_TILE;                                            \
  const int64_t count = (job)->N - begin < ROWS_TILE ? (job)->N - begin : ROWS_TILE; \
  (void)thread

static int64_t tiles_of(int64_t N)
{
  return (N + ROWS_TILE - 1) / ROWS_TILE;
}

static void run(struct job *job, plm_pool_tile function)
{
  plm_pool_tiles(job->cpu->pool, tiles_of(job->N), function, job);
}

/* Runs with a pair of sums a tile, and adds them to total[0..1]. */
static void run_with_sums(struct job *job, plm_pool_tile function, float *total)
{
  const int64_t tiles = tiles_of(job->N);
  job->sums = plm_cpu_workspace(job->cpu, (size_t)tiles * sizeof *job->sums);
  if (job->sums == NULL) return;
  run(job, function);
  double sum[2] = {0, 0};
  for (int64_t i = 0; i < tiles; i++)
    for (int j = 0; j < 2; j++) sum[j] += (double)job->sums[i][j];
  for (int j = 0; j < 2; j++) total[j] += (float)sum[j];
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
  run(&job, norm_tile);
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
  run(&job, norm_back_tile);
}

/* The embedding tables have a row for each token of the vocabulary: too few to share out. */
static void norm_rows_forward(struct plm_ops *ops, float *out, const float *x, int64_t N, int64_t D)
{
  plm_cpu_of(ops)->vector.norm_rows_forward(out, x, N, D);
}

static void norm_rows_backward(struct plm_ops *ops, float *dx, const float *dh, const float *x,
                               int64_t N, int64_t D)
{
  plm_cpu_of(ops)->vector.norm_rows_backward(dx, dh, x, N, D);
}

static void mix_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  ROWS_OF(job, tile);
  job->cpu->vector.mix_norm_forward(OUT(job, out), OUT(job, out2), AT(job, a), AT(job, b),
                                    job->scalars, count, job->D);
}

static void mix_norm_forward(struct plm_ops *ops, act *mixed, act *h, const act *x, const act *p,
                             const float *b, int64_t N, int64_t D)
{
  struct job job = {.cpu = plm_cpu_of(ops),
                    .out = mixed,
                    .out2 = h,
                    .a = x,
                    .b = p,
                    .scalars = {b[0], b[1]},
                    .N = N,
                    .D = D};
  run(&job, mix_tile);
}

static void mix_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  ROWS_OF(job, tile);
  job->cpu->vector.mix_norm_backward(OUT(job, out), OUT(job, out2), job->sums[tile], OUT(job, out3),
                                     AT(job, a), AT(job, b), AT(job, c), AT(job, d), job->scalars,
                                     count, job->D);
}

static void mix_norm_backward(struct plm_ops *ops, act *dx, act *dp, float *db, act *dmixed,
                              const act *dh, const act *mixed, const act *x, const act *p,
                              const float *b, int64_t N, int64_t D)
{
  struct job job = {.cpu = plm_cpu_of(ops),
                    .out = dx,
                    .out2 = dp,
                    .out3 = dmixed,
                    .a = dh,
                    .b = mixed,
                    .c = x,
                    .d = p,
                    .scalars = {b[0], b[1]},
                    .N = N,
                    .D = D};
  run_with_sums(&job, mix_back_tile, db);
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

static void qkv_prepare_forward(struct plm_ops *ops, act *out, const act *qkv, const act *vi,
                                const float *a, const float *cosine, const float *sine, int64_t B,
                                int64_t L, int64_t H, int64_t K)
{
  PLM_ASSERT(K % 2 == 0 && K <= PLM_HEAD_WIDTH_LIMIT);
  struct job job = {.cpu = plm_cpu_of(ops), .out = out, .a = qkv, .b = vi, .N = B * L};
  job.rows = (struct plm_qkv_rows){.L = L, .H = H, .K = K, .cosine = cosine, .sine = sine};
  if (vi != NULL) {
    job.rows.a0 = a[0];
    job.rows.a1 = a[1];
  }
  run(&job, qkv_tile);
}

static void qkv_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const struct plm_qkv_rows rows = rows_of_tile(job, tile);
  job->cpu->vector.qkv_backward(job->out, job->out2, job->sums[tile], job->a, job->b, job->c,
                                &rows);
}

static void qkv_prepare_backward(struct plm_ops *ops, act *dqkv_raw, act *dvi, float *da,
                                 const act *dqkv, const act *qkv, const act *vi, const float *a,
                                 const float *cosine, const float *sine, int64_t B, int64_t L,
                                 int64_t H, int64_t K)
{
  PLM_ASSERT(K % 2 == 0 && K <= PLM_HEAD_WIDTH_LIMIT);
  struct job job = {.cpu = plm_cpu_of(ops),
                    .out = dqkv_raw,
                    .out2 = dvi,
                    .a = dqkv,
                    .b = qkv,
                    .c = vi,
                    .N = B * L};
  job.rows = (struct plm_qkv_rows){.L = L, .H = H, .K = K, .cosine = cosine, .sine = sine};
  float unused[2] = {0, 0};
  if (vi != NULL) {
    job.rows.a0 = a[0];
    job.rows.a1 = a[1];
  }
  run_with_sums(&job, qkv_back_tile, vi != NULL ? da : unused);
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
  ops->qkv_prepare_forward = qkv_prepare_forward;
  ops->qkv_prepare_backward = qkv_prepare_backward;
  ops->qkv_value_forward = plm_value_forward_in_parts;
  ops->qkv_value_backward = plm_value_backward_in_parts;
}
