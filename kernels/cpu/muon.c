/* Muon (Jordan et al. 2024): the momentum's nearest orthogonal matrix by five quintic Newton-Schulz
 * steps X <- a X + (b A + c A^2) X with A = X X^T, the short side first. A tall matrix is not
 * transposed: there A = X^T X multiplies from the right. Products are bf16 with fp32 accumulation
 * when the backend is bf16, else fp32.
 *
 * A large matrix is worked on by all threads, one after the other. Of small ones each thread takes
 * one whole: their products are too short to be shared out, and a thread waits for the others once
 * instead of forty times a matrix. Both ways make the same panels and tiles, so the same bits.
 */
#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"

static const float newton_schulz[3] = {3.4445f, -4.7750f, 2.0315f};
enum { STEPS = 5, TILE = 32768, SUM_TILE = 65536, SMALL = 512 * 1024 /* elements */ };

struct pass { /* one elementwise pass */
  struct plm_cpu *cpu;
  int thread; /* the one it runs on, or PLM_CPU_ALL */
  void *out;
  const void *x;
  const float *y;
  float *buffer;
  float a, c;
  int64_t n;
};

static void run(struct pass *pass, plm_pool_tile function)
{
  const int64_t tiles = (pass->n + TILE - 1) / TILE;
  if (pass->thread == PLM_CPU_ALL)
    plm_pool_tiles(pass->cpu->pool, tiles, function, pass);
  else
    for (int64_t i = 0; i < tiles; i++) function(pass, i, (uint32_t)pass->thread);
}

#define TILE_OF(pass, tile)                                                  \
  const int64_t begin = (tile)*TILE;                                         \
  const int64_t count = (pass)->n - begin < TILE ? (pass)->n - begin : TILE; \
  (void)thread

static void nesterov_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pass *pass = context;
  TILE_OF(pass, tile);
  pass->cpu->vector.nesterov((float *)pass->out + begin, pass->buffer + begin, pass->y + begin,
                             pass->a, pass->c, count);
}

static void scale_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pass *pass = context;
  TILE_OF(pass, tile);
  pass->cpu->vector.scale_to(plm_act_at_mutable(pass->cpu, pass->out, begin), pass->y + begin,
                             pass->a, count);
}

static void combine_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pass *pass = context;
  TILE_OF(pass, tile);
  pass->cpu->vector.combine(plm_act_at_mutable(pass->cpu, pass->out, begin),
                            plm_act_at(pass->cpu, pass->x, begin), pass->y + begin, pass->a,
                            pass->c, count);
}

static void update_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct pass *pass = context;
  TILE_OF(pass, tile);
  pass->cpu->vector.decay_update((float *)pass->out + begin, plm_act_at(pass->cpu, pass->x, begin),
                                 pass->a, pass->c, count);
}

/* Of one matrix, whole cache lines: threads' scratch lies side by side. */
static size_t floats_of(const struct plm_muon_matrix *matrix)
{
  const int64_t rows = matrix->rows, cols = matrix->cols, side = rows < cols ? rows : cols;
  return (size_t)(2 * rows * cols + 3 * side * side + 15) / 16 * 16;
}

struct iteration {
  struct plm_cpu *cpu;
  int thread;
  int64_t rows, cols, side;
  act *X;        /* rows x cols */
  float *result; /* rows x cols */
  act *A, *B;    /* side x side */
  float *square; /* side x side */
};

/* The three products of a step: A = X X^T (or X^T X of a tall X), A A, and B X (or X B). */
struct shapes {
  struct plm_product_shape gram, square, apply;
};

static struct shapes shapes_of(int64_t rows, int64_t cols, bool half)
{
  const bool tall = rows > cols;
  const int64_t side = tall ? cols : rows;
  return (struct shapes){
      .gram = {.M = side,
               .N = side,
               .K = tall ? rows : cols,
               .lda = cols,
               .ldb = cols,
               .ldc = side,
               .transpose_a = tall,
               .transpose_b = !tall,
               .half = half},
      .square =
          {.M = side, .N = side, .K = side, .lda = side, .ldb = side, .ldc = side, .half = half},
      .apply = {
          .M = rows, .N = cols, .K = side, .lda = side, .ldb = cols, .ldc = cols, .half = half}};
}

static void newton_schulz_step(const struct iteration *it)
{
  struct plm_cpu *cpu = it->cpu;
  const int64_t area = it->side * it->side;
  const struct shapes shapes = shapes_of(it->rows, it->cols, cpu->bf16);
  plm_cpu_multiply_symmetric(cpu, it->thread, &shapes.gram, it->square, it->X, it->X);
  struct pass round = {
      .cpu = cpu, .thread = it->thread, .out = it->A, .y = it->square, .a = 1, .n = area};
  run(&round, scale_tile);

  plm_cpu_multiply_symmetric(cpu, it->thread, &shapes.square, it->square, it->A, it->A);
  struct pass polynomial = {.cpu = cpu,
                            .thread = it->thread,
                            .out = it->B,
                            .x = it->A,
                            .y = it->square,
                            .a = newton_schulz[1],
                            .c = newton_schulz[2],
                            .n = area};
  run(&polynomial, combine_tile);

  const bool tall = it->rows > it->cols;
  plm_cpu_multiply(cpu, it->thread, &shapes.apply, it->result, tall ? it->X : it->B,
                   tall ? it->B : it->X);
  struct pass next = {.cpu = cpu,
                      .thread = it->thread,
                      .out = it->X,
                      .x = it->X,
                      .y = it->result,
                      .a = newton_schulz[0],
                      .c = 1,
                      .n = it->rows * it->cols};
  run(&next, combine_tile);
}

/* Frobenius norm; sums of fixed tiles in their order, as ops->sum_squares adds them. */
static double norm_of(const struct iteration *it)
{
  const int64_t n = it->rows * it->cols;
  if (it->thread == PLM_CPU_ALL)
    return sqrt(it->cpu->ops.sum_squares(&it->cpu->ops, it->result, (size_t)n));
  double sum = 0;
  for (int64_t i = 0; i < n; i += SUM_TILE)
    sum += it->cpu->vector.sum_squares(it->result + i, n - i < SUM_TILE ? n - i : SUM_TILE);
  return sqrt(sum);
}

static void one_matrix(struct plm_cpu *cpu, int thread, const struct plm_muon_matrix *matrix,
                       float *scratch)
{
  const struct plm_muon_options *options = &matrix->options;
  const int64_t rows = matrix->rows, cols = matrix->cols, n = rows * cols;
  const int64_t side = rows < cols ? rows : cols;
  float *after = scratch + 2 * n;
  const struct iteration it = {.cpu = cpu,
                               .thread = thread,
                               .rows = rows,
                               .cols = cols,
                               .side = side,
                               .X = scratch,
                               .result = scratch + n,
                               .square = after,
                               .A = after + side * side,
                               .B = after + 2 * side * side};
  struct pass direction = {.cpu = cpu,
                           .thread = thread,
                           .out = it.result,
                           .y = matrix->g,
                           .buffer = matrix->momentum,
                           .a = options->gradient_scale,
                           .c = options->momentum,
                           .n = n};
  run(&direction, nesterov_tile);
  struct pass start = {.cpu = cpu,
                       .thread = thread,
                       .out = it.X,
                       .y = it.result,
                       .a = (float)(1 / (norm_of(&it) + 1e-7)),
                       .n = n};
  run(&start, scale_tile);
  for (int i = 0; i < STEPS; i++) newton_schulz_step(&it);
  struct pass update = {.cpu = cpu,
                        .thread = thread,
                        .out = matrix->w,
                        .x = it.X,
                        .a = options->lr * options->weight_decay,
                        .c = options->lr * options->update_scale,
                        .n = n};
  run(&update, update_tile);
}

struct batch {
  struct plm_cpu *cpu;
  const struct plm_muon_matrix *matrices;
  float *scratch;
  size_t stride; /* of a thread's scratch */
};

static bool is_small(const struct plm_muon_matrix *matrix)
{
  return matrix->rows * matrix->cols <= SMALL;
}

/* How a call is split: small matrices go to the threads, one whole to each, where there are enough.
 */
struct split {
  bool together;
  size_t stride; /* floats of the largest of those that go together */
  size_t alone;  /* of the largest of the others */
};

static struct split split_of(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                             size_t count)
{
  struct split split = {0};
  size_t small = 0;
  for (size_t i = 0; i < count; i++) small += is_small(&matrices[i]);
  split.together = small >= ops->threads;
  for (size_t i = 0; i < count; i++) {
    const size_t floats = floats_of(&matrices[i]);
    size_t *largest = split.together && is_small(&matrices[i]) ? &split.stride : &split.alone;
    if (floats > *largest) *largest = floats;
  }
  return split;
}

static size_t muon_scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                           size_t count)
{
  const struct split split = split_of(ops, matrices, count);
  const size_t together = ops->threads * split.stride;
  return together > split.alone ? together : split.alone;
}

static void small_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct batch *batch = context;
  const struct plm_muon_matrix *matrix = &batch->matrices[tile];
  if (is_small(matrix))
    one_matrix(batch->cpu, (int)thread, matrix, batch->scratch + thread * batch->stride);
}

/* Plans the small matrices' products, which threads then only look up. */
static bool plan_small(struct plm_cpu *cpu, const struct plm_muon_matrix *matrices, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (!is_small(&matrices[i])) continue;
    const struct shapes shapes = shapes_of(matrices[i].rows, matrices[i].cols, cpu->bf16);
    plm_cpu_multiply_plan(cpu, &shapes.gram, true);
    plm_cpu_multiply_plan(cpu, &shapes.square, true);
    plm_cpu_multiply_plan(cpu, &shapes.apply, false);
  }
  return plm_products_error(cpu->products, NULL) == PLM_OK;
}

static void muon_step(struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count,
                      float *scratch)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct split split = split_of(ops, matrices, count);
  struct batch batch = {
      .cpu = cpu, .matrices = matrices, .scratch = scratch, .stride = split.stride};
  if (split.together && plan_small(cpu, matrices, count))
    plm_pool_tiles(cpu->pool, (int64_t)count, small_tile, &batch);
  for (size_t i = 0; i < count; i++)
    if (!split.together || !is_small(&matrices[i]))
      one_matrix(cpu, PLM_CPU_ALL, &matrices[i], scratch);
}

void plm_cpu_muon_register(struct plm_cpu *cpu)
{
  cpu->ops.muon_step = muon_step;
  cpu->ops.muon_scratch = muon_scratch;
}
