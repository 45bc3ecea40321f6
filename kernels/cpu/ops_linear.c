/* Linear products of the model: forward, and the gradient of the input. The gradient of the weights
 * is in ops_linear_weight.c.
 *
 * Rows (tokens) are cut into tiles that the threads share. row_product.c makes the bits of a row
 * independent of its tile. The libraries rearrange B again for each tile, which takes longer if B
 * is stored as (N, K), as weights are in the forward pass. In fp32, many rows therefore take a
 * transposed copy of B if the bits stay the same; otherwise, and in bf16, tiles are taller. For
 * products of 480 and 480 or 1,920 columns, the copy lets oneDNN 2.6 run at 112 to 114 instead of
 * 101 to 107 GFLOP/s with AVX-512 (Zen 4), and at 107 to 110 instead of 104 to 107 with AVX2.
 *
 * If all rows fit into one tile (in decoding and in the deep levels of a patch_unet), only one
 * thread would have work. The columns are then cut instead, into strips of a fixed width.
 *
 * If the backend widens bf16 operands, a thread widens the rows of its tile, and rounds the result.
 * The weights are widened once for each call, or by strips while they are in the cache.
 */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/row_product.h"

enum { ROWS_TILE = 256, ROWS_TILE_LARGE = 512, LARGE = 4096, COLUMNS_STRIP = 256 };
enum { ROWS_TURNED = 1024, TURNED_TILE = 64 /* rows of B */ };
enum { ROWS_TILE_WIDENED = 256, WIDENED_TILE = 16384 /* elements of the weights */ };

/* What is done to the rows of a product while they are cached. The arrays of activations have the
 * layout of C. */
struct finish {
  enum {
    FINISH_NOTHING,
    FINISH_RELU2,
    FINISH_RELU2_BACK,
    FINISH_BIAS,
    FINISH_GELU,
    FINISH_GELU_BACK
  } kind;
  const char *from;  /* backward only: the output of relu2, or the input of GELU */
  const float *bias; /* one for each column */
  char *gelu;        /* the output of GELU; may be C */
};

/* Finishes `count` elements of a row, those from column `column` on, at byte `offset` of C. */
static void finish_row(const struct plm_cpu *cpu, const struct finish *finish, char *C,
                       int64_t offset, int64_t column, int64_t count)
{
  void *x = C + offset;
  switch (finish->kind) {
  case FINISH_NOTHING: break;
  case FINISH_RELU2: cpu->vector.relu2_forward(x, count); break;
  case FINISH_RELU2_BACK: cpu->vector.relu2_backward(x, finish->from + offset, count); break;
  case FINISH_BIAS: cpu->vector.bias(x, finish->bias + column, count); break;
  case FINISH_GELU:
    cpu->vector.bias_gelu(finish->gelu + offset, x, finish->bias + column, count);
    break;
  case FINISH_GELU_BACK: cpu->vector.gelu_backward_act(x, x, finish->from + offset, count); break;
  }
}

struct tiles_job {
  struct plm_cpu *cpu;
  struct finish finish;
  struct plm_row_tiling tiling;
  char *C;
  const char *A, *B, *residual;
  int64_t a_stride, c_stride; /* bytes between rows */
  int64_t rows;
  int64_t tiles;
  char *padding;        /* for the last rows */
  float *widened;       /* of a tile: A, and then C; NULL unless the backend widens */
  int64_t widened_rows; /* of A and of C in each room */
};

/* Scratch memory of tiles is divided into rooms: one for each thread, but no more than there are
 * tiles. */
static int64_t rooms(const struct plm_cpu *cpu, int64_t tiles)
{
  return tiles < (int64_t)cpu->ops.threads ? tiles : (int64_t)cpu->ops.threads;
}

static int64_t room_of(const struct plm_cpu *cpu, int64_t tiles, int64_t tile, uint32_t thread)
{
  return tiles < (int64_t)cpu->ops.threads ? tile : (int64_t)thread;
}

static int64_t ops_linear_smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/* Bytes of an element of a product's operands. */
static int64_t operand_bytes(const struct plm_cpu *cpu)
{
  return cpu->widens ? (int64_t)sizeof(float) : (int64_t)cpu->ops.act_bytes;
}

/* Copies activations to an operand, or a result to activations. */
static void to_operand(const struct plm_cpu *cpu, void *operand, const char *from, int64_t n)
{
  if (cpu->widens)
    cpu->vector.to_float(operand, from, n);
  else
    memcpy(operand, from, (size_t)n * cpu->ops.act_bytes);
}

static void from_operand(const struct plm_cpu *cpu, char *to, const void *operand, int64_t n)
{
  if (cpu->widens)
    cpu->vector.from_float(to, operand, n);
  else
    memcpy(to, operand, (size_t)n * cpu->ops.act_bytes);
}

struct widen_job {
  const struct plm_cpu *cpu;
  float *out;
  const char *in;
  int64_t n;
};

static void widen_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct widen_job *job = context;
  (void)thread;
  const int64_t begin = tile * WIDENED_TILE;
  job->cpu->vector.to_float(job->out + begin, plm_act_at(job->cpu, job->in, begin),
                            plm_tile_extent(job->n, begin, WIDENED_TILE));
}

/* Floats in which B is widened. */
static size_t widened_B(const struct plm_cpu *cpu, const struct plm_product_shape *shape)
{
  return cpu->widens ? (size_t)(shape->K * shape->N) : 0;
}

/* B as the product reads it: itself, or its values as floats in `space`. */
static const char *operand_B(struct plm_cpu *cpu, const struct plm_product_shape *shape,
                             const char *B, void *space)
{
  if (!cpu->widens) return B;
  struct widen_job job = {.cpu = cpu, .out = space, .in = B, .n = shape->K * shape->N};
  plm_pool_tiles(cpu->pool, (job.n + WIDENED_TILE - 1) / WIDENED_TILE, widen_tile, &job);
  return space;
}

struct turn_job {
  const struct plm_cpu *cpu;
  float *out;      /* (K, N) */
  const float *in; /* (N, K) */
  int64_t K, N;
};

static void turn_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct turn_job *job = context;
  (void)thread;
  const int64_t begin = tile * TURNED_TILE;
  job->cpu->vector.transpose(job->out + begin, job->N, job->in + begin * job->K, job->K,
                             ops_linear_smaller(TURNED_TILE, job->N - begin), job->K);
}

/* B_NK as (K, N) in `space`. */
static const char *turned_B(struct plm_cpu *cpu, const struct plm_product_shape *shape,
                            const char *B, void *space)
{
  struct turn_job job = {
      .cpu = cpu, .out = space, .in = (const void *)B, .K = shape->K, .N = shape->N};
  plm_pool_tiles(cpu->pool, (job.N + TURNED_TILE - 1) / TURNED_TILE, turn_tile, &job);
  return space;
}

/* Computes the rows of a tile through floats, in a room of job->widened. */
static void run_widened(const struct tiles_job *job, int64_t room, uint32_t thread, char *C,
                        const char *A, const char *start, int64_t rows)
{
  const struct plm_product_shape *s = &job->tiling.shape;
  float *wide_A = job->widened + room * job->widened_rows * (s->K + s->N);
  float *wide_C = wide_A + job->widened_rows * s->K;
  to_operand(job->cpu, wide_A, A, rows * s->K);
  if (s->accumulate) to_operand(job->cpu, wide_C, start, rows * s->N);
  plm_row_tiling_run(&job->tiling, thread, (char *)wide_C, (const char *)wide_A, job->B, rows,
                     job->padding);
  from_operand(job->cpu, C, wide_C, rows * s->N);
}

static void run_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct tiles_job *job = context;
  const int64_t begin = tile * job->tiling.tile;
  const int64_t rows = plm_tile_extent(job->rows, begin, job->tiling.tile);
  const char *A = job->A + begin * job->a_stride;
  char *C = job->C + begin * job->c_stride;
  const char *start = job->residual != NULL ? job->residual + begin * job->c_stride : C;
  if (job->widened != NULL) {
    run_widened(job, room_of(job->cpu, job->tiles, tile, thread), thread, C, A, start, rows);
  } else {
    if (start != C) memcpy(C, start, (size_t)(rows * job->c_stride));
    plm_row_tiling_run(&job->tiling, thread, C, A, job->B, rows, job->padding);
  }
  if (job->finish.kind == FINISH_NOTHING) return;
  const int64_t width = job->c_stride / (int64_t)job->cpu->ops.act_bytes;
  for (int64_t row = begin; row < begin + rows; row++)
    finish_row(job->cpu, &job->finish, job->C, row * job->c_stride, 0, width);
}

/* Whether B is transposed for so many rows, if that does not change the bits. */
static bool turns(const struct plm_cpu *cpu, int64_t rows)
{
  return !cpu->bf16 && rows >= ROWS_TURNED;
}

/* Cuts the rows into tiles. Returns whether whole tiles take B transposed. */
static bool cut_rows(struct plm_cpu *cpu, struct plm_row_family *family, struct tiles_job *job)
{
  struct plm_row_tiling *tiling = &job->tiling;
  if (turns(cpu, job->rows)) {
    plm_row_tiling_init(tiling, family, job->rows, ROWS_TILE);
    if (plm_row_tiling_turn(tiling, family)) return true;
  }
  const int64_t tile = cpu->widens          ? ROWS_TILE_WIDENED
                       : job->rows >= LARGE ? ROWS_TILE_LARGE
                                            : ROWS_TILE;
  plm_row_tiling_init(tiling, family, job->rows, tile);
  return false;
}

/* C_MN (=, +=, = residual +) A_MK B, with M = job->rows, in tiles of rows. */
static void multiply_rows(struct plm_cpu *cpu, struct plm_row_family *family, struct tiles_job *job,
                          const struct plm_product_shape *shape)
{
  const bool turned = cut_rows(cpu, family, job);
  const size_t padding = plm_row_tiling_padding(&job->tiling);
  const size_t copied_B = turned ? (size_t)(shape->K * shape->N) : widened_B(cpu, shape);
  job->tiles = (job->rows + job->tiling.tile - 1) / job->tiling.tile;
  job->widened_rows = cpu->widens ? ops_linear_smaller(job->tiling.tile, job->rows) : 0;
  const size_t floats =
      copied_B + (size_t)(rooms(cpu, job->tiles) * job->widened_rows * (shape->K + shape->N));
  if (floats > 0 || padding > 0) {
    float *space = plm_cpu_workspace(cpu, floats * sizeof *space + padding);
    if (space == NULL) return;
    if (turned)
      job->tiling.turned_B = turned_B(cpu, shape, job->B, space);
    else
      job->B = operand_B(cpu, shape, job->B, space);
    if (cpu->widens) job->widened = space + copied_B;
    job->padding = (char *)(space + floats);
  }
  plm_pool_tiles(cpu->pool, job->tiles, run_tile, job);
}

/* ---- one tile of rows, cut along its columns ---- */
struct columns_job {
  const struct tiles_job *tiles;
  const char *B;
  const struct plm_product *strip, *last;
  struct plm_product_shape shape; /* of the whole product */
  int64_t height;                 /* of a strip: rows and padding */
  int64_t strips;
  const char *A; /* `height` rows */
  char *C;       /* a dense block for each strip */
  char *slices;  /* in each room, columns of B; NULL if B is used in place */
};

static const char *columns_of_B(const struct columns_job *job, int64_t first, int64_t columns,
                                int64_t room)
{
  const struct plm_product_shape *s = &job->shape;
  const struct plm_cpu *cpu = job->tiles->cpu;
  const int64_t bytes = operand_bytes(cpu);
  const int64_t stored = job->slices == NULL ? bytes : (int64_t)cpu->ops.act_bytes;
  const char *B = job->B + first * (s->transpose_b ? s->ldb : 1) * stored;
  if (job->slices == NULL) return B;
  char *slice = job->slices + room * s->K * COLUMNS_STRIP * bytes;
  if (s->transpose_b) to_operand(cpu, slice, B, columns * s->K);
  for (int64_t k = 0; !s->transpose_b && k < s->K; k++)
    to_operand(cpu, slice + k * columns * bytes, B + k * s->ldb * stored, columns);
  return slice;
}

static void run_columns(void *context, int64_t strip, uint32_t thread)
{
  const struct columns_job *job = context;
  const struct tiles_job *tiles = job->tiles;
  const struct plm_cpu *cpu = tiles->cpu;
  const int64_t bytes = (int64_t)cpu->ops.act_bytes, first = strip * COLUMNS_STRIP;
  const bool is_last = strip + 1 == job->strips;
  const int64_t columns = is_last ? job->shape.N - first : COLUMNS_STRIP;
  const int64_t width = columns * operand_bytes(cpu); /* bytes of a row of the strip */
  char *C = job->C + job->height * first * operand_bytes(cpu);
  const char *start = tiles->residual != NULL ? tiles->residual : tiles->C;
  if (job->shape.accumulate) {
    for (int64_t row = 0; row < tiles->rows; row++)
      to_operand(cpu, C + row * width, start + row * tiles->c_stride + first * bytes, columns);
    memset(C + tiles->rows * width, 0, (size_t)((job->height - tiles->rows) * width));
  }
  plm_product_run(is_last ? job->last : job->strip, thread, C, job->A,
                  columns_of_B(job, first, columns, room_of(cpu, job->strips, strip, thread)));
  for (int64_t row = 0; row < tiles->rows; row++) {
    const int64_t place = row * tiles->c_stride + first * bytes;
    from_operand(cpu, tiles->C + place, C + row * width, columns);
    finish_row(cpu, &tiles->finish, tiles->C, place, first, columns);
  }
}

/* Returns false, having done nothing, if strips of columns would not give the same bits. */
static bool multiply_columns(struct plm_cpu *cpu, struct plm_row_family *family,
                             const struct tiles_job *tiles, const struct plm_product_shape *shape)
{
  const size_t bytes = (size_t)operand_bytes(cpu);
  const int64_t strips = (shape->N + COLUMNS_STRIP - 1) / COLUMNS_STRIP;
  const int64_t before_last = (strips - 1) * COLUMNS_STRIP;
  struct columns_job job = {.tiles = tiles,
                            .shape = *shape,
                            .height = plm_row_height(family, tiles->rows),
                            .strips = strips,
                            .A = tiles->A};
  job.strip = plm_row_strip(family, job.height, 0, COLUMNS_STRIP);
  job.last = plm_row_strip(family, job.height, before_last, shape->N - before_last);
  if (job.strip == NULL || job.last == NULL) return false;
  const bool copies_A = cpu->widens || job.height != tiles->rows;
  const bool sliced = plm_row_strip_is_sliced(shape) || (cpu->widens && shape->transpose_b);
  const size_t B_bytes = sliced ? 0 : widened_B(cpu, shape) * sizeof(float);
  const size_t A_used = (size_t)(tiles->rows * shape->K) * bytes;
  const size_t A_bytes = copies_A ? (size_t)(job.height * shape->K) * bytes : 0;
  const size_t C_bytes = (size_t)(job.height * shape->N) * bytes;
  const size_t slices =
      sliced ? (size_t)(rooms(cpu, strips) * shape->K * COLUMNS_STRIP) * bytes : 0;
  char *space = plm_cpu_workspace(cpu, B_bytes + A_bytes + C_bytes + slices);
  if (space == NULL) return true;
  job.B = sliced ? tiles->B : operand_B(cpu, shape, tiles->B, space);
  space += B_bytes;
  if (copies_A) {
    to_operand(cpu, space, tiles->A, tiles->rows * shape->K);
    memset(space + A_used, 0, A_bytes - A_used);
    job.A = space;
  }
  job.C = space + A_bytes;
  if (slices > 0) job.slices = space + A_bytes + C_bytes;
  plm_pool_tiles(cpu->pool, strips, run_columns, &job);
  return true;
}

/* Operands of C_MN (=, +=, = residual +) A_MK B. The rows of A and C are contiguous. */
struct operands {
  void *C;
  const void *A, *B, *residual;
  struct finish finish;
};

static void ops_linear_multiply(struct plm_cpu *cpu, struct plm_product_shape shape,
                                const struct operands *of)
{
  const int64_t bytes = (int64_t)cpu->ops.act_bytes;
  PLM_ASSERT(shape.M >= 0 && shape.N > 0 && shape.K > 0);
  struct tiles_job job = {.cpu = cpu,
                          .finish = of->finish,
                          .C = of->C,
                          .A = of->A,
                          .B = of->B,
                          .residual = of->residual,
                          .a_stride = shape.K * bytes,
                          .c_stride = shape.N * bytes,
                          .rows = shape.M};
  if (of->residual != NULL) shape.accumulate = 1;
  struct plm_row_family *family = plm_row_family_get(cpu->row_products, &shape);
  if (family == NULL) return;
  if (shape.M <= ROWS_TILE && shape.N > COLUMNS_STRIP &&
      multiply_columns(cpu, family, &job, &shape))
    return;
  multiply_rows(cpu, family, &job, &shape);
}

static struct plm_product_shape forward_shape(const struct plm_cpu *cpu, int64_t N, int64_t I,
                                              int64_t O)
{
  return (struct plm_product_shape){.M = N,
                                    .N = O,
                                    .K = I,
                                    .lda = I,
                                    .ldb = I,
                                    .ldc = O,
                                    .transpose_b = 1,
                                    .is_bf16 = cpu->bf16 && !cpu->widens,
                                    .bf16_output = cpu->bf16 && !cpu->widens};
}

static void linear_forward(struct plm_ops *ops, act *y, const act *x, const act *w,
                           const act *residual, int64_t N, int64_t I, int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct operands of = {.C = y, .A = x, .B = w, .residual = residual};
  ops_linear_multiply(cpu, forward_shape(cpu, N, I, O), &of);
}

static void linear_relu2_forward(struct plm_ops *ops, act *hidden, const act *x, const act *w,
                                 int64_t N, int64_t I, int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct operands of = {.C = hidden, .A = x, .B = w, .finish = {.kind = FINISH_RELU2}};
  ops_linear_multiply(cpu, forward_shape(cpu, N, I, O), &of);
}

static void linear_bias_forward(struct plm_ops *ops, act *y, const act *x,
                                const struct plm_biased_linear *layer, const act *residual,
                                int64_t N, int64_t I, int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct operands of = {.C = y,
                              .A = x,
                              .B = layer->w,
                              .residual = residual,
                              .finish = {.kind = FINISH_BIAS, .bias = layer->bias}};
  ops_linear_multiply(cpu, forward_shape(cpu, N, I, O), &of);
}

static void linear_bias_gelu_forward(struct plm_ops *ops, act *hidden, act *before, const act *x,
                                     const struct plm_biased_linear *layer, int64_t N, int64_t I,
                                     int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct operands of = {.C = before != NULL ? before : hidden,
                              .A = x,
                              .B = layer->w,
                              .finish = {.kind = FINISH_GELU, .bias = layer->bias, .gelu = hidden}};
  ops_linear_multiply(cpu, forward_shape(cpu, N, I, O), &of);
}

static struct plm_product_shape backward_shape(const struct plm_cpu *cpu, int64_t N, int64_t I,
                                               int64_t O)
{
  return (struct plm_product_shape){.M = N,
                                    .N = I,
                                    .K = O,
                                    .lda = O,
                                    .ldb = I,
                                    .ldc = I,
                                    .is_bf16 = cpu->bf16 && !cpu->widens,
                                    .bf16_output = cpu->bf16 && !cpu->widens};
}

static void linear_backward_input(struct plm_ops *ops, act *dx, const act *dy, const act *w,
                                  int64_t N, int64_t I, int64_t O, bool accumulate)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  struct plm_product_shape shape = backward_shape(cpu, N, I, O);
  shape.accumulate = accumulate;
  ops_linear_multiply(cpu, shape, &(struct operands){.C = dx, .A = dy, .B = w});
}

static void linear_relu2_backward_input(struct plm_ops *ops, act *dup, const act *dy, const act *w,
                                        const act *hidden, int64_t N, int64_t I, int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct operands of = {
      .C = dup, .A = dy, .B = w, .finish = {.kind = FINISH_RELU2_BACK, .from = hidden}};
  ops_linear_multiply(cpu, backward_shape(cpu, N, I, O), &of);
}

static void linear_gelu_backward_input(struct plm_ops *ops, act *dbefore, const act *dy,
                                       const act *w, const act *before, int64_t N, int64_t I,
                                       int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct operands of = {
      .C = dbefore, .A = dy, .B = w, .finish = {.kind = FINISH_GELU_BACK, .from = before}};
  ops_linear_multiply(cpu, backward_shape(cpu, N, I, O), &of);
}

/* Columns that are cut need less than this, or at most a strip of the weights more; so do products
 * whose bits do not allow a transposed copy. */
static size_t linear_scratch(const struct plm_ops *ops, int64_t N, int64_t I, int64_t O)
{
  const struct plm_cpu *cpu = ops->context;
  if (turns(cpu, N)) return (size_t)(I * O) * sizeof(float);
  if (!cpu->widens) return 0;
  const int64_t tiles = (N + ROWS_TILE_WIDENED - 1) / ROWS_TILE_WIDENED;
  const int64_t rows = rooms(cpu, tiles) * ops_linear_smaller(N, ROWS_TILE_WIDENED);
  const int64_t activations = I * O + rows * (I + O);
  const int64_t weights = plm_cpu_linear_weight_floats(cpu, N, I, O);
  return (size_t)(activations > weights ? activations : weights) * sizeof(float);
}

void plm_cpu_linear_register(struct plm_cpu *cpu)
{
  cpu->ops.linear_scratch = linear_scratch;
  cpu->ops.linear_forward = linear_forward;
  cpu->ops.linear_backward_input = linear_backward_input;
  cpu->ops.linear_bias_forward = linear_bias_forward;
  cpu->ops.linear_bias_gelu_forward = linear_bias_gelu_forward;
  cpu->ops.linear_gelu_backward_input = linear_gelu_backward_input;
  cpu->ops.linear_relu2_forward = linear_relu2_forward;
  cpu->ops.linear_relu2_backward_input = linear_relu2_backward_input;
}
