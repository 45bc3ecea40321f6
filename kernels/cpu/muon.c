/* Muon (Jordan et al. 2024): the momentum's nearest orthogonal matrix by five quintic Newton-Schulz
 * steps X <- a X + (b A + c A^2) X with A = X X^T, the short side first. A tall matrix is not
 * transposed: there A = X^T X multiplies from the right. Products are bf16 with fp32 accumulation
 * when the backend is bf16, else fp32.
 */
#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"

static const float newton_schulz[3] = {3.4445f, -4.7750f, 2.0315f};
enum { STEPS = 5, TILE = 32768 };

struct pass { /* one elementwise pass */
  struct plm_cpu *cpu;
  void *out;
  const void *x;
  const float *y;
  float *buffer;
  float a, c;
  int64_t n;
};

static void run(struct pass *pass, plm_pool_tile function)
{
  plm_pool_tiles(pass->cpu->pool, (pass->n + TILE - 1) / TILE, function, pass);
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

size_t plm_muon_scratch_floats(int64_t rows, int64_t cols)
{
  const int64_t side = rows < cols ? rows : cols;
  return (size_t)(2 * rows * cols + 3 * side * side);
}

struct iteration {
  struct plm_cpu *cpu;
  int64_t rows, cols, side;
  act *X;        /* rows x cols */
  float *result; /* rows x cols */
  act *A, *B;    /* side x side */
  float *square; /* side x side */
};

/* square = X X^T, or X^T X of a tall X */
static void gram(const struct iteration *it)
{
  const bool tall = it->rows > it->cols;
  const struct plm_product_shape shape = {.M = it->side,
                                          .N = it->side,
                                          .K = tall ? it->rows : it->cols,
                                          .lda = it->cols,
                                          .ldb = it->cols,
                                          .ldc = it->side,
                                          .transpose_a = tall,
                                          .transpose_b = !tall,
                                          .half = it->cpu->bf16};
  plm_cpu_multiply_symmetric(it->cpu, &shape, it->square, it->X, it->X);
}

static void newton_schulz_step(const struct iteration *it)
{
  struct plm_cpu *cpu = it->cpu;
  const int64_t side = it->side, area = side * side;
  gram(it);
  struct pass round = {.cpu = cpu, .out = it->A, .y = it->square, .a = 1, .n = area};
  run(&round, scale_tile);

  const struct plm_product_shape square = {
      .M = side, .N = side, .K = side, .lda = side, .ldb = side, .ldc = side, .half = cpu->bf16};
  plm_cpu_multiply_symmetric(cpu, &square, it->square, it->A, it->A);
  struct pass polynomial = {.cpu = cpu,
                            .out = it->B,
                            .x = it->A,
                            .y = it->square,
                            .a = newton_schulz[1],
                            .c = newton_schulz[2],
                            .n = area};
  run(&polynomial, combine_tile);

  const bool tall = it->rows > it->cols;
  const struct plm_product_shape apply = {.M = it->rows,
                                          .N = it->cols,
                                          .K = side,
                                          .lda = side,
                                          .ldb = it->cols,
                                          .ldc = it->cols,
                                          .half = cpu->bf16};
  plm_cpu_multiply(cpu, &apply, it->result, tall ? it->X : it->B, tall ? it->B : it->X);
  struct pass next = {.cpu = cpu,
                      .out = it->X,
                      .x = it->X,
                      .y = it->result,
                      .a = newton_schulz[0],
                      .c = 1,
                      .n = it->rows * it->cols};
  run(&next, combine_tile);
}

static void muon_step(struct plm_ops *ops, float *w, float *momentum, const float *g, int64_t rows,
                      int64_t cols, float *scratch, const struct plm_muon_options *options)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const int64_t n = rows * cols, side = rows < cols ? rows : cols;
  float *after = scratch + 2 * n;
  const struct iteration it = {.cpu = cpu,
                               .rows = rows,
                               .cols = cols,
                               .side = side,
                               .X = scratch,
                               .result = scratch + n,
                               .square = after,
                               .A = after + side * side,
                               .B = after + 2 * side * side};
  struct pass direction = {.cpu = cpu,
                           .out = it.result,
                           .y = g,
                           .buffer = momentum,
                           .a = options->gradient_scale,
                           .c = options->momentum,
                           .n = n};
  run(&direction, nesterov_tile);
  const double norm = sqrt(ops->sum_squares(ops, it.result, (size_t)n));
  struct pass start = {
      .cpu = cpu, .out = it.X, .y = it.result, .a = (float)(1 / (norm + 1e-7)), .n = n};
  run(&start, scale_tile);
  for (int i = 0; i < STEPS; i++) newton_schulz_step(&it);
  struct pass update = {.cpu = cpu,
                        .out = w,
                        .x = it.X,
                        .a = options->lr * options->weight_decay,
                        .c = options->lr * options->update_scale,
                        .n = n};
  run(&update, update_tile);
}

void plm_cpu_muon_register(struct plm_cpu *cpu)
{
  cpu->ops.muon_step = muon_step;
}
