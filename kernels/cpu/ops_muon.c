/* Muon (Jordan et al. 2024): the update is the Nesterov momentum, made orthogonal by Newton-Schulz.
 *
 * All threads work together on a large matrix, and the large matrices follow one after the other. A
 * small matrix is done by one thread if there are enough of them, because its products are too
 * short to be shared. The threads then wait for each other once per call instead of about twenty
 * times per matrix. Both ways use the same tiles, so they give the same bits.
 */
#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/newton_schulz.h"
#include "kernels/cpu/product.h"

enum { TILE = 32768, SUM_TILE = 65536, SMALL = 512 * 1024 /* elements */ };

struct pass { /* one elementwise pass over a matrix */
  struct plm_cpu *cpu;
  int thread; /* index of the thread it runs on, or PLM_CPU_ALL */
  void *out;
  const void *x;
  const float *y;
  float *buffer;
  float a, c;
  int64_t n;
};

static void ops_muon_run(struct pass *pass, plm_pool_tile function)
{
  const int64_t tiles = (pass->n + TILE - 1) / TILE;
  if (pass->thread == PLM_CPU_ALL)
    plm_pool_tiles(pass->cpu->pool, tiles, function, pass);
  else
    for (int64_t i = 0; i < tiles; i++) function(pass, i, (uint32_t)pass->thread);
}

#define TILE_OF(pass, tile)                                      \
  const int64_t begin = (tile)*TILE;                             \
  const int64_t count = plm_tile_extent((pass)->n, begin, TILE); \
  (void)thread

static void nesterov_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pass *pass = context;
  TILE_OF(pass, tile);
  pass->cpu->vector.nesterov((float *)pass->out + begin, pass->buffer + begin, pass->y + begin,
                             pass->a, pass->c, count);
}

static void update_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pass *pass = context;
  TILE_OF(pass, tile);
  float *out = (float *)pass->out + begin;
  const struct plm_cpu *cpu = pass->cpu;
  if (cpu->widens)
    cpu->floats.decay_update(out, (const float *)pass->x + begin, pass->a, pass->c, count);
  else
    cpu->vector.decay_update(out, plm_act_at(cpu, pass->x, begin), pass->a, pass->c, count);
}

/* Rounds up to whole cache lines, because the scratch of the threads is adjacent. */
static int64_t ops_muon_lines(int64_t floats)
{
  return (floats + 15) / 16 * 16;
}

/* Floats of scratch for a matrix that `threads` threads work on: its direction, and the scratch of
 * Newton-Schulz. */
static size_t floats_of(const struct plm_muon_matrix *matrix, uint32_t threads)
{
  return (size_t)ops_muon_lines(matrix->rows * matrix->cols) +
         plm_newton_schulz_scratch(matrix->rows, matrix->cols, threads);
}

/* Frobenius norm. The sums of fixed tiles are added in their order, as ops->sum_squares does. */
static double norm_of(struct plm_cpu *cpu, int thread, const float *x, int64_t n)
{
  if (thread == PLM_CPU_ALL) return sqrt(plm_cpu_sum_squares(cpu, x, (size_t)n));
  double sum = 0;
  for (int64_t i = 0; i < n; i += SUM_TILE)
    sum += cpu->vector.sum_squares(x + i, plm_tile_extent(n, i, SUM_TILE));
  return sqrt(sum);
}

static void one_matrix(struct plm_cpu *cpu, int thread, const struct plm_muon_matrix *matrix,
                       float *scratch, const struct plm_update *step)
{
  const float lr = step->inputs.rate[matrix->rate];
  const int64_t rows = matrix->rows, cols = matrix->cols, n = rows * cols;
  struct pass direction = {.cpu = cpu,
                           .thread = thread,
                           .out = scratch,
                           .y = matrix->g,
                           .buffer = matrix->momentum,
                           .a = step->decision.gradient_scale,
                           .c = step->inputs.momentum,
                           .n = n};
  ops_muon_run(&direction, nesterov_tile);
  const float factor = (float)(1 / (norm_of(cpu, thread, scratch, n) + 1e-7));
  struct pass update = {
      .cpu = cpu,
      .thread = thread,
      .out = matrix->w,
      .x = plm_newton_schulz(cpu, thread, rows, cols, scratch, factor, scratch + ops_muon_lines(n)),
      .a = lr * matrix->weight_decay,
      .c = lr * matrix->update_scale,
      .n = n};
  ops_muon_run(&update, update_tile);
}

struct batch {
  struct plm_cpu *cpu;
  const struct plm_muon_matrix *matrices;
  const struct plm_update *update;
  float *scratch;
  size_t stride; /* floats between the scratch of two threads */
};

static bool is_small(const struct plm_muon_matrix *matrix)
{
  return matrix->rows * matrix->cols <= SMALL;
}

/* How a call is split. If there are at least as many small matrices as threads, each small matrix
 * is done by one thread. */
struct split {
  bool together; /* whether each small matrix is done by one thread, several at a time */
  size_t stride; /* floats of scratch for the largest matrix done by one thread */
  size_t shared; /* floats of scratch for the largest of the others, which all threads share */
};

static struct split split_of(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                             size_t count)
{
  struct split split = {0};
  size_t small = 0;
  for (size_t i = 0; i < count; i++) small += is_small(&matrices[i]);
  split.together = small >= ops->threads;
  for (size_t i = 0; i < count; i++) {
    const bool whole = split.together && is_small(&matrices[i]);
    const size_t floats = floats_of(&matrices[i], whole ? 1 : ops->threads);
    size_t *largest = whole ? &split.stride : &split.shared;
    if (floats > *largest) *largest = floats;
  }
  return split;
}

static size_t muon_scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                           size_t count)
{
  const struct split split = split_of(ops, matrices, count);
  const size_t together = ops->threads * split.stride;
  return together > split.shared ? together : split.shared;
}

static void small_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct batch *batch = context;
  const struct plm_muon_matrix *matrix = &batch->matrices[tile];
  if (is_small(matrix))
    one_matrix(batch->cpu, (int)thread, matrix, batch->scratch + thread * batch->stride,
               batch->update);
}

/* Prepares the products of the small matrices, so that threads only look them up. */
static bool prepare_small(struct plm_cpu *cpu, const struct plm_muon_matrix *matrices, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (is_small(&matrices[i])) plm_newton_schulz_prepare(cpu, matrices[i].rows, matrices[i].cols);
  return plm_products_error(cpu->products, NULL) == PLM_OK;
}

static void muon_step(struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count,
                      float *scratch, const struct plm_update *update)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  if (update->decision.skipped) return;
  const struct split split = split_of(ops, matrices, count);
  struct batch batch = {.cpu = cpu,
                        .matrices = matrices,
                        .update = update,
                        .scratch = scratch,
                        .stride = split.stride};
  if (split.together && prepare_small(cpu, matrices, count))
    plm_pool_tiles(cpu->pool, (int64_t)count, small_tile, &batch);
  for (size_t i = 0; i < count; i++)
    if (!split.together || !is_small(&matrices[i]))
      one_matrix(cpu, PLM_CPU_ALL, &matrices[i], scratch, update);
}

void plm_cpu_muon_register(struct plm_cpu *cpu)
{
  cpu->ops.muon_step = muon_step;
  cpu->ops.muon_scratch = muon_scratch;
}
