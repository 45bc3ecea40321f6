/* Operators of the head: logits and back, soft cap, cross-entropy, and head_train, which does all
 * of these together.
 *
 * The vocabulary is narrow, so the products are small. They run in fp32 in both precisions (bf16
 * operands are widened, which is exact), because fp32 products need no costly preparation and the
 * number of rows changes in every step.
 */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/row_product.h"

enum { ROWS_TILE = 64, COLUMNS_TILE = 64, DEPTH_TILE = 256, LOSS_TILE = 256, CAP_TILE = 16384 };
/* Most rows whose GELU and logits are stored at a time, rounded down to whole tiles. */
enum { TRAINED_ROWS = 4096 };

struct head_job {
  struct plm_cpu *cpu;
  const float *w, *bias;
  const void *h;
  float *logits, *widened; /* widened: bf16 only, a tile of rows x D or DEPTH_TILE x COLUMNS_TILE */
  int64_t widened_stride;  /* floats of a thread's buffer in widened */
  int64_t N, D, V;
  struct plm_row_tiling tiling;
  char *padding; /* for the product of the last rows */

  /* training only: the N rows that are being processed */
  struct plm_loss_rows loss;
  bool activated; /* dense is the decoder's input, and gelu equals it */
  const void *dense, *gelu;
  void *space, *ddense;               /* space: where GELU is stored */
  float *row_loss, *dw, *column_sums; /* column_sums: V for each tile of rows */
};

static int64_t ops_head_tiles_of(int64_t n, int64_t tile)
{
  return (n + tile - 1) / tile;
}

static int64_t ops_head_smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/* Cuts the N rows of the logits into tiles. Returns false after an error. */
static bool cut_rows(struct head_job *job)
{
  const struct plm_product_shape shape = {
      .N = job->V, .K = job->D, .lda = job->D, .ldb = job->D, .ldc = job->V, .transpose_b = 1};
  PLM_ASSERT(job->N >= 0 && job->D > 0 && job->V > 0);
  struct plm_row_family *family = plm_row_family_get(job->cpu->row_products, &shape);
  if (family == NULL) return false;
  plm_row_tiling_init(&job->tiling, family, job->N, ROWS_TILE);
  return true;
}

/* Divides the workspace into the padding of the tiling, in bf16 a buffer for each thread and a copy
 * of w as fp32, and `more` floats. Returns the latter, or NULL if there is no memory. */
static float *lay_out(struct head_job *job, int64_t more)
{
  struct plm_cpu *cpu = job->cpu;
  const int64_t padding = (int64_t)(plm_row_tiling_padding(&job->tiling) / sizeof(float));
  const int64_t rows = job->tiling.tile * job->D, columns = DEPTH_TILE * COLUMNS_TILE;
  job->widened_stride = rows > columns ? rows : columns;
  const int64_t widened = cpu->bf16 ? cpu->ops.threads * job->widened_stride : 0;
  const int64_t weights = cpu->bf16 ? job->V * job->D : 0;
  const int64_t floats = padding + widened + weights + more;
  float *space = plm_cpu_workspace(cpu, (size_t)(floats > 0 ? floats : 1) * sizeof *space);
  if (space == NULL) return NULL;
  job->padding = (char *)space;
  space += padding;
  job->widened = space;
  if (cpu->bf16) {
    cpu->vector.to_float(space + widened, job->w, weights);
    job->w = space + widened;
  }
  return space + widened + weights;
}

/* Computes the logits of `count` rows of h, at most a tile. */
static void ops_head_multiply(const struct head_job *job, float *logits, const void *h,
                              int64_t count, uint32_t thread)
{
  const struct plm_cpu *cpu = job->cpu;
  const float *wide = h;
  if (cpu->bf16) {
    float *widened = job->widened + thread * job->widened_stride;
    cpu->vector.to_float(widened, h, count * job->D);
    wide = widened;
  }
  plm_row_tiling_run(&job->tiling, thread, (char *)logits, (const char *)wide, (const char *)job->w,
                     count, job->padding);
  cpu->vector.add_bias(logits, job->bias, count, job->V);
}

static void logits_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct head_job *job = context;
  const int64_t begin = tile * job->tiling.tile;
  ops_head_multiply(job, job->logits + begin * job->V, plm_act_at(job->cpu, job->h, begin * job->D),
                    ops_head_smaller(job->tiling.tile, job->N - begin), thread);
}

static void logits_forward(struct plm_ops *ops, float *logits, const act *h, const act *w,
                           const float *bias, int64_t N, int64_t D, int64_t V)
{
  struct head_job job = {.cpu = plm_cpu_of(ops),
                         .logits = logits,
                         .w = w,
                         .bias = bias,
                         .h = h,
                         .N = N,
                         .D = D,
                         .V = V};
  if (!cut_rows(&job) || lay_out(&job, 0) == NULL) return;
  plm_pool_tiles(job.cpu->pool, ops_head_tiles_of(N, job.tiling.tile), logits_tile, &job);
}

/* Computes row_loss and ddense of a tile of rows from dense. Leaves GELU in job->gelu and dlogits
 * in job->logits, from which dw_tile computes dw. */
static void train_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct head_job *job = context;
  const struct plm_cpu *cpu = job->cpu;
  const int64_t begin = tile * job->tiling.tile,
                count = ops_head_smaller(job->tiling.tile, job->N - begin);
  const int64_t place = begin * job->D, elements = count * job->D;
  const void *dense = plm_act_at(cpu, job->dense, place);
  const void *gelu = plm_act_at(cpu, job->gelu, place);
  void *ddense = plm_act_at_mutable(cpu, job->ddense, place);
  float *logits = job->logits + begin * job->V;
  struct plm_loss_rows loss = job->loss;
  loss.logits = logits;
  loss.labels += begin;
  loss.weights += begin;
  loss.N = count;
  if (loss.hits != NULL) loss.hits += begin;
  if (!job->activated)
    cpu->vector.gelu_forward(plm_act_at_mutable(cpu, job->space, place), dense, elements);
  ops_head_multiply(job, logits, gelu, count, thread);
  if (loss.options->soft_cap > 0)
    cpu->vector.soft_cap(logits, count * job->V, loss.options->soft_cap);
  cpu->vector.cross_entropy(job->row_loss + begin, logits, &loss);
  cpu->vector.column_sums(job->column_sums + tile * job->V, logits, count, job->V);

  float *dgelu = cpu->bf16 ? job->widened + thread * job->widened_stride : ddense;
  const struct plm_product_shape shape = {
      .M = count, .N = job->D, .K = job->V, .lda = job->V, .ldb = job->D, .ldc = job->D};
  plm_product_run_float(&shape, dgelu, logits, job->w);
  if (!job->activated)
    cpu->vector.gelu_backward(ddense, dgelu, dense, elements);
  else if (cpu->bf16)
    cpu->vector.from_float(ddense, dgelu, elements);
}

/* Adds to a tile of columns of dw the products of all rows, in their order. */
static void dw_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct head_job *job = context;
  const struct plm_cpu *cpu = job->cpu;
  const int64_t begin = tile * COLUMNS_TILE,
                columns = ops_head_smaller(COLUMNS_TILE, job->D - begin);
  float *widened = job->widened + thread * job->widened_stride;
  for (int64_t n = 0; n < job->N; n += DEPTH_TILE) {
    const int64_t depth = ops_head_smaller(DEPTH_TILE, job->N - n);
    struct plm_product_shape shape = {.M = job->V,
                                      .N = columns,
                                      .K = depth,
                                      .lda = job->V,
                                      .ldb = job->D,
                                      .ldc = job->D,
                                      .transpose_a = 1,
                                      .accumulate = 1};
    const float *h = plm_act_at(cpu, job->gelu, n * job->D + begin);
    if (cpu->bf16) {
      for (int64_t i = 0; i < depth; i++)
        cpu->vector.to_float(widened + i * columns,
                             plm_act_at(cpu, job->gelu, (n + i) * job->D + begin), columns);
      h = widened;
      shape.ldb = columns;
    }
    plm_product_run_float(&shape, job->dw + begin, job->logits + n * job->V, h);
  }
}

/* dbias_V += the sums of the tiles, in their order. */
static void add_column_sums(float *dbias, const float *sums, int64_t tiles, int64_t V)
{
  for (int64_t v = 0; v < V; v++) {
    double sum = 0;
    for (int64_t i = 0; i < tiles; i++) sum += (double)sums[i * V + v];
    dbias[v] += (float)sum;
  }
}

static void head_train(struct plm_ops *ops, float *row_loss, act *ddense, float *dw, float *dbias,
                       const struct plm_head_rows *rows, float loss_scale,
                       const struct plm_loss_options *options)
{
  const int64_t N = rows->N, D = rows->D, V = rows->V;
  struct head_job job = {.cpu = plm_cpu_of(ops),
                         .w = rows->w,
                         .bias = rows->bias,
                         .D = D,
                         .V = V,
                         .dw = dw,
                         .N = N,
                         .activated = rows->activated};
  if (N <= 0 || !cut_rows(&job)) return;
  const int64_t tile = job.tiling.tile, whole = TRAINED_ROWS / tile * tile;
  const int64_t kept = ops_head_smaller(N, whole), tiles = ops_head_tiles_of(N, tile);
  PLM_ASSERT(whole > 0); /* a tile fits into what is stored at a time */
  const int64_t stored = rows->activated ? 0 : kept * D;
  float *const space = lay_out(&job, (tiles + kept) * V + stored);
  if (space == NULL) return;
  job.space = space; /* bf16 uses only half of its floats */
  job.logits = space + stored;
  float *const sums = job.logits + kept * V;
  for (int64_t begin = 0; begin < N; begin += whole) {
    job.N = ops_head_smaller(whole, N - begin);
    job.loss = (struct plm_loss_rows){.labels = rows->labels + begin,
                                      .weights = rows->weights + begin,
                                      .loss_scale = loss_scale,
                                      .options = options,
                                      .V = V,
                                      .hits = rows->hits != NULL ? rows->hits + begin : NULL};
    job.dense = plm_act_at(job.cpu, rows->dense, begin * D);
    job.gelu = rows->activated ? job.dense : job.space;
    job.ddense = plm_act_at_mutable(job.cpu, ddense, begin * D);
    job.row_loss = row_loss + begin;
    job.column_sums = sums + begin / tile * V;
    plm_pool_tiles(job.cpu->pool, ops_head_tiles_of(job.N, tile), train_tile, &job);
    plm_pool_tiles(job.cpu->pool, ops_head_tiles_of(D, COLUMNS_TILE), dw_tile, &job);
  }
  add_column_sums(dbias, sums, tiles, V);
}

/* Computes dh of a tile of rows from their dlogits, and the sums of their columns. */
static void logits_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct head_job *job = context;
  const struct plm_cpu *cpu = job->cpu;
  const int64_t begin = tile * job->tiling.tile,
                count = ops_head_smaller(job->tiling.tile, job->N - begin);
  const float *dlogits = job->logits + begin * job->V;
  void *dh = plm_act_at_mutable(cpu, job->ddense, begin * job->D);
  cpu->vector.column_sums(job->column_sums + tile * job->V, dlogits, count, job->V);
  float *wide = cpu->bf16 ? job->widened + thread * job->widened_stride : dh;
  const struct plm_product_shape shape = {
      .M = count, .N = job->D, .K = job->V, .lda = job->V, .ldb = job->D, .ldc = job->D};
  plm_product_run_float(&shape, wide, dlogits, job->w);
  if (cpu->bf16) cpu->vector.from_float(dh, wide, count * job->D);
}

static void logits_backward(struct plm_ops *ops, const struct plm_logits_gradients *to,
                            const float *dlogits, const act *h, const act *w, int64_t N, int64_t D,
                            int64_t V)
{
  struct head_job job = {.cpu = plm_cpu_of(ops),
                         .w = w,
                         .D = D,
                         .V = V,
                         .dw = to->dw,
                         .N = N,
                         .gelu = h,
                         .ddense = to->dh,
                         .logits = (float *)dlogits}; /* only read here */
  if (N <= 0 || !cut_rows(&job)) return;
  const int64_t tiles = ops_head_tiles_of(N, job.tiling.tile);
  job.column_sums = lay_out(&job, tiles * V);
  if (job.column_sums == NULL) return;
  plm_pool_tiles(job.cpu->pool, tiles, logits_back_tile, &job);
  plm_pool_tiles(job.cpu->pool, ops_head_tiles_of(D, COLUMNS_TILE), dw_tile, &job);
  add_column_sums(to->dbias, job.column_sums, tiles, V);
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
  job->cpu->vector.soft_cap(job->logits + begin, ops_head_smaller(CAP_TILE, job->n - begin),
                            job->cap);
}

static void soft_cap_forward(struct plm_ops *ops, float *logits, int64_t n, float cap)
{
  if (!(cap > 0)) return; /* 0: no cap */
  struct cap_job job = {plm_cpu_of(ops), logits, n, cap};
  plm_pool_tiles(job.cpu->pool, ops_head_tiles_of(n, CAP_TILE), cap_tile, &job);
}

struct loss_job {
  struct plm_cpu *cpu;
  float *row_loss;
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
  rows.N = ops_head_smaller(LOSS_TILE, rows.N - begin);
  job->cpu->vector.cross_entropy(job->row_loss + begin, NULL, &rows);
}

static void cross_entropy(struct plm_ops *ops, float *row_loss, const float *logits,
                          const int32_t *labels, const float *weights,
                          const struct plm_loss_options *options, int64_t N, int64_t V)
{
  struct loss_job job = {
      plm_cpu_of(ops), row_loss, {logits, labels, weights, 1, options, N, V, NULL}};
  plm_pool_tiles(job.cpu->pool, ops_head_tiles_of(N, LOSS_TILE), loss_tile, &job);
}

void plm_cpu_head_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->logits_forward = logits_forward;
  ops->soft_cap_forward = soft_cap_forward;
  ops->cross_entropy = cross_entropy;
  ops->head_train = head_train;
  ops->logits_backward = logits_backward;
}
