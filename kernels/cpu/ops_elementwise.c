/* Operators over n elements, or over rows that are not reduced. Tiles are ranges of either. */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"

/* Elements and rows of a tile, chosen so that its operands stay in the second-level cache. */
enum { TILE = 16384, ROWS_TILE = 64, SWIGLU_TILE = 8 };

struct job {
  struct plm_cpu *cpu;
  void *out;
  const void *a;
  int64_t n;
};

static int64_t ops_elementwise_tiles_of(int64_t n)
{
  return (n + TILE - 1) / TILE;
}

/* Defines the operands of a tile: `out` and `a`, both activations of `count` elements. */
#define TILE_OF(job, tile)                                             \
  const int64_t begin = (tile)*TILE;                                   \
  const int64_t count = plm_tile_extent((job)->n, begin, TILE);        \
  void *const out = plm_act_at_mutable((job)->cpu, (job)->out, begin); \
  const void *const a = plm_act_at((job)->cpu, (job)->a, begin);       \
  (void)thread

static void ops_elementwise_run(struct plm_cpu *cpu, plm_pool_tile function, void *out,
                                const void *a, int64_t n)
{
  struct job job = {.cpu = cpu, .out = out, .a = a, .n = n};
  plm_pool_tiles(cpu->pool, ops_elementwise_tiles_of(n), function, &job);
}

static void round_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * TILE, count = plm_tile_extent(job->n, begin, TILE);
  job->cpu->vector.from_float(plm_act_at_mutable(job->cpu, job->out, begin),
                              (const float *)job->a + begin, count);
}

static void round_weights(struct plm_ops *ops, act *out, const float *in, size_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), round_tile, out, in, (int64_t)n);
}

static void float_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * TILE, count = plm_tile_extent(job->n, begin, TILE);
  job->cpu->vector.to_float((float *)job->out + begin, plm_act_at(job->cpu, job->a, begin), count);
}

static void act_to_float(struct plm_ops *ops, float *out, const act *in, size_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), float_tile, out, in, (int64_t)n);
}

static void to_bf16_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * TILE, count = plm_tile_extent(job->n, begin, TILE);
  job->cpu->vector.bf16_from_float((bf16 *)job->out + begin, (const float *)job->a + begin, count);
}

static void float_to_bf16(struct plm_ops *ops, bf16 *out, const float *in, size_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), to_bf16_tile, out, in, (int64_t)n);
}

static void from_bf16_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * TILE, count = plm_tile_extent(job->n, begin, TILE);
  job->cpu->vector.bf16_to_float((float *)job->out + begin, (const bf16 *)job->a + begin, count);
}

static void bf16_to_float(struct plm_ops *ops, float *out, const bf16 *in, size_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), from_bf16_tile, out, in, (int64_t)n);
}

static void gelu_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.gelu_forward(out, a, count);
}

static void gelu_forward(struct plm_ops *ops, act *out, const act *x, int64_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), gelu_tile, out, x, n);
}

static void relu2_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  (void)a;
  job->cpu->vector.relu2_forward(out, count);
}

static void relu2_forward(struct plm_ops *ops, act *x, int64_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), relu2_tile, x, x, n);
}

static void relu2_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.relu2_backward(out, a, count);
}

static void relu2_backward(struct plm_ops *ops, act *dx, const act *hidden, int64_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), relu2_back_tile, dx, hidden, n);
}

static void add_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.add(out, a, count);
}

static void ops_elementwise_add(struct plm_ops *ops, act *x, const act *y, int64_t n)
{
  ops_elementwise_run(plm_cpu_of(ops), add_tile, x, y, n);
}

struct pair_job { /* out from a and b, n elements, or a row of n elements each */
  struct plm_cpu *cpu;
  void *out;
  const void *a, *b;
  int64_t N, n;
};

static void gelu_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pair_job *job = context;
  TILE_OF(job, tile);
  job->cpu->vector.gelu_backward_act(out, a, plm_act_at(job->cpu, job->b, begin), count);
}

static void gelu_backward(struct plm_ops *ops, act *dx, const act *dy, const act *x, int64_t n)
{
  struct pair_job job = {.cpu = plm_cpu_of(ops), .out = dx, .a = dy, .b = x, .n = n};
  plm_pool_tiles(job.cpu->pool, ops_elementwise_tiles_of(n), gelu_back_tile, &job);
}

static void swiglu_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pair_job *job = context;
  (void)thread;
  const int64_t begin = tile * SWIGLU_TILE,
                end = begin + plm_tile_extent(job->N, begin, SWIGLU_TILE);
  for (int64_t i = begin; i < end; i++)
    job->cpu->vector.swiglu_forward(plm_act_at_mutable(job->cpu, job->out, i * job->n),
                                    plm_act_at(job->cpu, job->a, i * 2 * job->n), job->n);
}

static void swiglu_forward(struct plm_ops *ops, act *hidden, const act *gate_up, int64_t N,
                           int64_t F)
{
  struct pair_job job = {.cpu = plm_cpu_of(ops), .out = hidden, .a = gate_up, .N = N, .n = F};
  plm_pool_tiles(job.cpu->pool, (N + SWIGLU_TILE - 1) / SWIGLU_TILE, swiglu_tile, &job);
}

static void swiglu_back_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pair_job *job = context;
  (void)thread;
  const int64_t begin = tile * SWIGLU_TILE,
                end = begin + plm_tile_extent(job->N, begin, SWIGLU_TILE);
  for (int64_t i = begin; i < end; i++)
    job->cpu->vector.swiglu_backward(plm_act_at_mutable(job->cpu, job->out, i * 2 * job->n),
                                     plm_act_at(job->cpu, job->a, i * job->n),
                                     plm_act_at(job->cpu, job->b, i * 2 * job->n), job->n);
}

static void swiglu_backward(struct plm_ops *ops, act *dgate_up, const act *dhidden,
                            const act *gate_up, int64_t N, int64_t F)
{
  struct pair_job job = {
      .cpu = plm_cpu_of(ops), .out = dgate_up, .a = dhidden, .b = gate_up, .N = N, .n = F};
  plm_pool_tiles(job.cpu->pool, (N + SWIGLU_TILE - 1) / SWIGLU_TILE, swiglu_back_tile, &job);
}

struct scale_job {
  struct plm_cpu *cpu;
  void *x;
  const float *factors; /* one for each row */
  float factor;
  int64_t N, n;
};

static void scale_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct scale_job *job = context;
  (void)thread;
  const int64_t begin = tile * TILE, count = plm_tile_extent(job->n, begin, TILE);
  job->cpu->vector.scale(plm_act_at_mutable(job->cpu, job->x, begin), job->factor, count);
}

static void ops_elementwise_scale(struct plm_ops *ops, act *x, float factor, int64_t n)
{
  struct scale_job job = {.cpu = plm_cpu_of(ops), .x = x, .factor = factor, .n = n};
  plm_pool_tiles(job.cpu->pool, ops_elementwise_tiles_of(n), scale_tile, &job);
}

static void scale_rows_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct scale_job *job = context;
  (void)thread;
  const int64_t begin = tile * ROWS_TILE, end = begin + plm_tile_extent(job->N, begin, ROWS_TILE);
  for (int64_t i = begin; i < end; i++) {
    void *row = plm_act_at_mutable(job->cpu, job->x, i * job->n);
    if (job->factors[i] != 0)
      job->cpu->vector.scale(row, job->factors[i], job->n);
    else
      memset(row, 0, (size_t)job->n * job->cpu->ops.act_bytes);
  }
}

static void scale_rows(struct plm_ops *ops, act *x, const float *factors, int64_t N, int64_t D)
{
  struct scale_job job = {.cpu = plm_cpu_of(ops), .x = x, .factors = factors, .N = N, .n = D};
  plm_pool_tiles(job.cpu->pool, (N + ROWS_TILE - 1) / ROWS_TILE, scale_rows_tile, &job);
}

struct rows_job {
  struct plm_cpu *cpu;
  void *out;
  const void *x;
  const int32_t *rows;
  int64_t N, D;
};

static void gather_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct rows_job *job = context;
  (void)thread;
  const int64_t begin = tile * ROWS_TILE, end = begin + plm_tile_extent(job->N, begin, ROWS_TILE);
  const size_t bytes = (size_t)job->D * job->cpu->ops.act_bytes;
  for (int64_t n = begin; n < end; n++) {
    void *to = plm_act_at_mutable(job->cpu, job->out, n * job->D);
    if (job->rows[n] >= 0)
      memcpy(to, plm_act_at(job->cpu, job->x, job->rows[n] * job->D), bytes);
    else
      memset(to, 0, bytes);
  }
}

static void gather_rows(struct plm_ops *ops, act *out, const act *x, const int32_t *rows, int64_t N,
                        int64_t D)
{
  struct rows_job job = {plm_cpu_of(ops), out, x, rows, N, D};
  plm_pool_tiles(job.cpu->pool, (N + ROWS_TILE - 1) / ROWS_TILE, gather_tile, &job);
}

static void scatter_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct rows_job *job = context;
  (void)thread;
  const int64_t begin = tile * ROWS_TILE, end = begin + plm_tile_extent(job->N, begin, ROWS_TILE);
  for (int64_t n = begin; n < end; n++)
    if (job->rows[n] >= 0)
      job->cpu->vector.add(plm_act_at_mutable(job->cpu, job->out, job->rows[n] * job->D),
                           plm_act_at(job->cpu, job->x, n * job->D), job->D);
}

static void scatter_rows(struct plm_ops *ops, act *out, const act *x, const int32_t *rows,
                         int64_t N, int64_t D)
{
  struct rows_job job = {plm_cpu_of(ops), out, x, rows, N, D};
  plm_pool_tiles(job.cpu->pool, (N + ROWS_TILE - 1) / ROWS_TILE, scatter_tile, &job);
}

void plm_cpu_elementwise_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->round_weights = round_weights;
  ops->act_to_float = act_to_float;
  ops->float_to_bf16 = float_to_bf16;
  ops->bf16_to_float = bf16_to_float;
  ops->gelu_forward = gelu_forward;
  ops->gelu_backward = gelu_backward;
  ops->relu2_forward = relu2_forward;
  ops->relu2_backward = relu2_backward;
  ops->swiglu_forward = swiglu_forward;
  ops->swiglu_backward = swiglu_backward;
  ops->scale = ops_elementwise_scale;
  ops->scale_rows = scale_rows;
  ops->add = ops_elementwise_add;
  ops->gather_rows = gather_rows;
  ops->scatter_rows = scatter_rows;
}
