/* Operators of heads for labels: pooling, tanh, dropout and losses. Tiles are ranges of elements,
 * rows or groups of rows. */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"

enum { ELEMENTS_TILE = 16384, LABEL_ROWS_TILE = 16 };

static int64_t label_tiles(int64_t n, int64_t tile)
{
  return (n + tile - 1) / tile;
}

/* The end of a tile of rows. */
static int64_t label_rows_end(int64_t tile, int64_t N)
{
  const int64_t end = (tile + 1) * LABEL_ROWS_TILE;
  return end < N ? end : N;
}

/* ---- pooling ---- */
struct pool_job {
  struct plm_cpu *cpu;
  void *to;
  const void *from;
  const struct plm_row_groups *groups;
  int64_t D;
};

static void pool_tile(void *context, int64_t r, uint32_t thread)
{
  const struct pool_job *job = context;
  const int32_t begin = job->groups->begin[r], end = job->groups->end[r];
  void *out = plm_act_at_mutable(job->cpu, job->to, r * job->D);
  (void)thread;
  if (begin < end)
    job->cpu->vector.pool(out, plm_act_at(job->cpu, job->from, begin * job->D), end - begin,
                          job->D);
  else
    memset(out, 0, (size_t)job->D * job->cpu->ops.act_bytes);
}

static void pool_rows(struct plm_ops *ops, act *out, const act *x,
                      const struct plm_row_groups *groups, int64_t D)
{
  struct pool_job job = {plm_cpu_of(ops), out, x, groups, D};
  plm_pool_tiles(job.cpu->pool, groups->R, pool_tile, &job);
}

static void pool_back_tile(void *context, int64_t r, uint32_t thread)
{
  const struct pool_job *job = context;
  const int32_t begin = job->groups->begin[r], end = job->groups->end[r];
  (void)thread;
  if (begin < end)
    job->cpu->vector.pool_backward(plm_act_at_mutable(job->cpu, job->to, begin * job->D),
                                   plm_act_at(job->cpu, job->from, r * job->D), end - begin,
                                   job->D);
}

static void pool_rows_backward(struct plm_ops *ops, act *dx, const act *dout,
                               const struct plm_row_groups *groups, int64_t D)
{
  struct pool_job job = {plm_cpu_of(ops), dx, dout, groups, D};
  plm_pool_tiles(job.cpu->pool, groups->R, pool_back_tile, &job);
}

/* ---- tanh ---- */
struct tanh_job {
  struct plm_cpu *cpu;
  void *out;
  const void *a, *b;
  int64_t n;
};

static void tanh_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct tanh_job *job = context;
  const int64_t begin = tile * ELEMENTS_TILE;
  const int64_t count = plm_tile_extent(job->n, begin, ELEMENTS_TILE);
  void *out = plm_act_at_mutable(job->cpu, job->out, begin);
  const void *a = plm_act_at(job->cpu, job->a, begin);
  (void)thread;
  if (job->b == NULL)
    job->cpu->vector.tanh_forward(out, a, count);
  else
    job->cpu->vector.tanh_backward(out, a, plm_act_at(job->cpu, job->b, begin), count);
}

static void tanh_forward(struct plm_ops *ops, act *out, const act *x, int64_t n)
{
  struct tanh_job job = {plm_cpu_of(ops), out, x, NULL, n};
  plm_pool_tiles(job.cpu->pool, label_tiles(n, ELEMENTS_TILE), tanh_tile, &job);
}

static void tanh_backward(struct plm_ops *ops, act *dx, const act *dy, const act *y, int64_t n)
{
  struct tanh_job job = {plm_cpu_of(ops), dx, dy, y, n};
  plm_pool_tiles(job.cpu->pool, label_tiles(n, ELEMENTS_TILE), tanh_tile, &job);
}

/* ---- dropout ---- */
struct dropout_job {
  struct plm_cpu *cpu;
  void *out;
  const void *x;
  const struct plm_dropout *dropout;
  int64_t N, D;
};

static void dropout_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct dropout_job *job = context;
  (void)thread;
  for (int64_t n = tile * LABEL_ROWS_TILE; n < label_rows_end(tile, job->N); n++)
    job->cpu->vector.dropout(plm_act_at_mutable(job->cpu, job->out, n * job->D),
                             plm_act_at(job->cpu, job->x, n * job->D), job->dropout,
                             job->dropout->keys[n], job->D);
}

static void dropout_rows(struct plm_ops *ops, act *out, const act *x,
                         const struct plm_dropout *dropout, int64_t N, int64_t D)
{
  struct dropout_job job = {plm_cpu_of(ops), out, x, dropout, N, D};
  plm_pool_tiles(job.cpu->pool, label_tiles(N, LABEL_ROWS_TILE), dropout_tile, &job);
}

/* ---- losses ---- */
struct label_loss_job {
  struct plm_cpu *cpu;
  float *row_loss, *dlogits;
  const float *outputs;
  const struct plm_label_rows *rows;
  float scale;
};

/* The loss of the class of row n, by the kernel of the language model's head. */
static float class_loss(const struct label_loss_job *job, int64_t n, float *dlogits, float *hit)
{
  static const struct plm_loss_options plain = {0};
  const struct plm_label_rows *rows = job->rows;
  const int32_t class = rows->classes[n] < 0 ? 0 : rows->classes[n];
  const float weight = rows->classes[n] < 0 ? 0 : rows->weights == NULL ? 1 : rows->weights[class];
  const struct plm_loss_rows one = {.logits = job->outputs + n * rows->O,
                                    .labels = &class,
                                    .weights = &weight,
                                    .loss_scale = job->scale,
                                    .options = &plain,
                                    .N = 1,
                                    .V = rows->O,
                                    .hits = hit};
  float loss;
  job->cpu->vector.cross_entropy(&loss, dlogits, &one);
  return loss;
}

static void label_loss_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct label_loss_job *job = context;
  const struct plm_label_rows *rows = job->rows;
  const struct plm_cpu_vector *vector = &job->cpu->vector;
  (void)thread;
  for (int64_t n = tile * LABEL_ROWS_TILE; n < label_rows_end(tile, rows->N); n++) {
    const int64_t at = n * rows->O;
    float *dlogits = job->dlogits == NULL ? NULL : job->dlogits + at, hit = 0;
    if (rows->kind == PLM_LOSS_CLASS)
      job->row_loss[n] = class_loss(job, n, dlogits, &hit);
    else
      job->row_loss[n] =
          (rows->kind == PLM_LOSS_SQUARES ? vector->squared_error : vector->binary_losses)(
              dlogits, job->outputs + at, rows->targets + at, rows->weights, job->scale, rows->O);
    if (rows->hits != NULL) rows->hits[n] = hit;
  }
}

static void label_loss(struct plm_ops *ops, float *row_loss, float *dlogits, const float *outputs,
                       const struct plm_label_rows *rows, float loss_scale)
{
  struct label_loss_job job = {plm_cpu_of(ops), row_loss, dlogits, outputs, rows, loss_scale};
  plm_pool_tiles(job.cpu->pool, label_tiles(rows->N, LABEL_ROWS_TILE), label_loss_tile, &job);
}

void plm_cpu_labels_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->pool_rows = pool_rows;
  ops->pool_rows_backward = pool_rows_backward;
  ops->tanh_forward = tanh_forward;
  ops->tanh_backward = tanh_backward;
  ops->dropout = dropout_rows;
  ops->label_loss = label_loss;
}
