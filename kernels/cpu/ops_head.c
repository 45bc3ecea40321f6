/* The head's operators: logits, soft cap, cross-entropy and the way back.
 *
 * The vocabulary is narrow, so its products are small; they run in fp32 in both precisions (bf16
 * operands are widened, which is exact), on shapes that need no plan: the number of rows changes
 * every step.
 */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"

enum { ROWS_TILE = 64, COLUMNS_TILE = 64, DEPTH_TILE = 256, LOSS_TILE = 256, CAP_TILE = 16384 };

struct head_job {
  struct plm_cpu *cpu;
  float *logits; /* forward: written */
  const float *dlogits, *w, *bias;
  const void *h;
  void *dh;
  float *dw, *column_sums; /* sums: V for each tile of rows */
  float *widened;          /* bf16: ROWS_TILE x D, or DEPTH_TILE x COLUMNS_TILE, for each thread */
  int64_t widened_stride;
  int64_t N, D, V;
};

static int64_t tiles_of(int64_t n, int64_t tile)
{
  return (n + tile - 1) / tile;
}

static int64_t smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/* Lays the workspace out: w as fp32, a buffer a thread, and sums a tile. */
static bool lay_out(struct head_job *job, const void *w)
{
  const struct plm_cpu *cpu = job->cpu;
  const int64_t rows = ROWS_TILE * job->D, columns = DEPTH_TILE * COLUMNS_TILE;
  job->widened_stride = rows > columns ? rows : columns;
  const int64_t widened = cpu->bf16 ? cpu->ops.threads * job->widened_stride : 0;
  const int64_t weights = cpu->bf16 ? job->V * job->D : 0;
  const int64_t sums = tiles_of(job->N, ROWS_TILE) * job->V;
  float *space = plm_cpu_workspace(job->cpu, (size_t)(widened + weights + sums) * sizeof *space);
  if (space == NULL) return false;
  job->widened = space;
  job->column_sums = space + widened + weights;
  job->w = w;
  if (cpu->bf16) {
    cpu->vector.to_float(space + widened, w, weights);
    job->w = space + widened;
  }
  return true;
}

static void logits_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct head_job *job = context;
  const struct plm_cpu *cpu = job->cpu;
  const int64_t begin = tile * ROWS_TILE, count = smaller(ROWS_TILE, job->N - begin);
  const float *h = plm_act_at(cpu, job->h, begin * job->D);
  if (cpu->bf16) {
    float *widened = job->widened + thread * job->widened_stride;
    cpu->vector.to_float(widened, h, count * job->D);
    h = widened;
  }
  float *logits = job->logits + begin * job->V;
  const struct plm_product_shape shape = {.M = count,
                                          .N = job->V,
                                          .K = job->D,
                                          .lda = job->D,
                                          .ldb = job->D,
                                          .ldc = job->V,
                                          .transpose_b = 1};
  plm_product_run_float(&shape, logits, h, job->w);
  cpu->vector.add_bias(logits, job->bias, count, job->V);
}

static void logits_forward(struct plm_ops *ops, float *logits, const act *h, const act *w,
                           const float *bias, int64_t N, int64_t D, int64_t V)
{
  struct head_job job = {
      .cpu = plm_cpu_of(ops), .logits = logits, .bias = bias, .h = h, .N = N, .D = D, .V = V};
  if (!lay_out(&job, w)) return;
  plm_pool_tiles(job.cpu->pool, tiles_of(N, ROWS_TILE), logits_tile, &job);
}

static void dh_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct head_job *job = context;
  const struct plm_cpu *cpu = job->cpu;
  const int64_t begin = tile * ROWS_TILE, count = smaller(ROWS_TILE, job->N - begin);
  const float *dlogits = job->dlogits + begin * job->V;
  void *dh = plm_act_at_mutable(cpu, job->dh, begin * job->D);
  float *widened = cpu->bf16 ? job->widened + thread * job->widened_stride : dh;
  const struct plm_product_shape shape = {
      .M = count, .N = job->D, .K = job->V, .lda = job->V, .ldb = job->D, .ldc = job->D};
  plm_product_run_float(&shape, widened, dlogits, job->w);
  if (cpu->bf16) cpu->vector.from_float(dh, widened, count * job->D);
  cpu->vector.column_sums(job->column_sums + tile * job->V, dlogits, count, job->V);
}

/* Columns of dw, over all rows in their order. */
static void dw_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct head_job *job = context;
  const struct plm_cpu *cpu = job->cpu;
  const int64_t begin = tile * COLUMNS_TILE, columns = smaller(COLUMNS_TILE, job->D - begin);
  float *widened = job->widened + thread * job->widened_stride;
  for (int64_t n = 0; n < job->N; n += DEPTH_TILE) {
    const int64_t depth = smaller(DEPTH_TILE, job->N - n);
    struct plm_product_shape shape = {.M = job->V,
                                      .N = columns,
                                      .K = depth,
                                      .lda = job->V,
                                      .ldb = job->D,
                                      .ldc = job->D,
                                      .transpose_a = 1,
                                      .accumulate = 1};
    const float *h = plm_act_at(cpu, job->h, n * job->D + begin);
    if (cpu->bf16) {
      for (int64_t i = 0; i < depth; i++)
        cpu->vector.to_float(widened + i * columns,
                             plm_act_at(cpu, job->h, (n + i) * job->D + begin), columns);
      h = widened;
      shape.ldb = columns;
    }
    plm_product_run_float(&shape, job->dw + begin, job->dlogits + n * job->V, h);
  }
}

static void logits_backward(struct plm_ops *ops, act *dh, float *dw, float *dbias,
                            const float *dlogits, const act *h, const act *w, int64_t N, int64_t D,
                            int64_t V)
{
  struct head_job job = {.cpu = plm_cpu_of(ops),
                         .dlogits = dlogits,
                         .h = h,
                         .dh = dh,
                         .dw = dw,
                         .N = N,
                         .D = D,
                         .V = V};
  if (!lay_out(&job, w)) return;
  const int64_t tiles = tiles_of(N, ROWS_TILE);
  plm_pool_tiles(job.cpu->pool, tiles, dh_tile, &job);
  plm_pool_tiles(job.cpu->pool, tiles_of(D, COLUMNS_TILE), dw_tile, &job);
  for (int64_t v = 0; v < V; v++) {
    double sum = 0;
    for (int64_t i = 0; i < tiles; i++) sum += (double)job.column_sums[i * V + v];
    dbias[v] += (float)sum;
  }
}

struct cap_job {
  struct plm_cpu *cpu;
  float *logits;
  int64_t n;
  float cap;
};

static void cap_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct cap_job *job = context;
  (void)thread;
  const int64_t begin = tile * CAP_TILE;
  job->cpu->vector.soft_cap(job->logits + begin, smaller(CAP_TILE, job->n - begin), job->cap);
}

static void soft_cap_forward(struct plm_ops *ops, float *logits, int64_t n, float cap)
{
  if (!(cap > 0)) return; /* 0: no cap */
  struct cap_job job = {plm_cpu_of(ops), logits, n, cap};
  plm_pool_tiles(job.cpu->pool, tiles_of(n, CAP_TILE), cap_tile, &job);
}

struct loss_job {
  struct plm_cpu *cpu;
  float *row_loss, *dlogits;
  struct plm_loss_rows rows;
};

static void loss_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct loss_job *job = context;
  (void)thread;
  const int64_t begin = tile * LOSS_TILE;
  struct plm_loss_rows rows = job->rows;
  rows.logits += begin * rows.V;
  rows.labels += begin;
  rows.weights += begin;
  rows.N = smaller(LOSS_TILE, rows.N - begin);
  job->cpu->vector.cross_entropy(
      job->row_loss + begin, job->dlogits == NULL ? NULL : job->dlogits + begin * rows.V, &rows);
}

static void cross_entropy(struct plm_ops *ops, float *row_loss, float *dlogits, const float *logits,
                          const int32_t *labels, const float *weights, float loss_scale,
                          const struct plm_loss_options *options, int64_t N, int64_t V)
{
  struct loss_job job = {
      plm_cpu_of(ops), row_loss, dlogits, {logits, labels, weights, loss_scale, options, N, V}};
  plm_pool_tiles(job.cpu->pool, tiles_of(N, LOSS_TILE), loss_tile, &job);
}

void plm_cpu_head_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->logits_forward = logits_forward;
  ops->soft_cap_forward = soft_cap_forward;
  ops->cross_entropy = cross_entropy;
  ops->logits_backward = logits_backward;
}
