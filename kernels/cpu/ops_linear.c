/* Products of the model: Linear forward, and backward by input (by weight: ops_linear_weight.c).
 *
 * Rows (tokens) are cut into tiles of fixed heights (taller ones where there are many rows, which
 * is faster), so a row's bits do not depend on the threads, and few shapes are ever planned
 * whatever the number of rows: full tiles, one tile of a multiple of 32 rows, and for bf16 (whose
 * plans are costly) one of 32 rows for the last few, padded with zeros in the workspace.
 *
 * Rows that are but one tile (decoding, deep levels of a patch_unet) would leave all threads but
 * one idle: their columns are cut instead, in pieces of a fixed width.
 */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"

enum { ROWS_TILE = 256, ROWS_TILE_LARGE = 512, LARGE = 4096, ROWS_LAST = 32, COLUMNS_PIECE = 256 };

/* What happens to rows of a product while they are in the cache: nothing, or relu2's passes. */
struct finish {
  bool relu2;
  const char *hidden; /* backward: what relu2 gave, as C lies */
};

static void finish_row(const struct plm_cpu *cpu, const struct finish *finish, char *C,
                       int64_t offset, int64_t count)
{
  if (finish->hidden != NULL)
    cpu->vector.relu2_backward(C + offset, finish->hidden + offset, count);
  else if (finish->relu2)
    cpu->vector.relu2_forward(C + offset, count);
}

struct tiles_job {
  struct plm_cpu *cpu;
  struct finish finish;
  const struct plm_product *full, *rest, *last;
  char *C;
  const char *A, *B, *residual;
  int64_t a_stride, c_stride; /* bytes between rows */
  int64_t rows, tile_rows;    /* all of them; those of a full tile */
  int64_t rest_rows;          /* those of the tile after the full ones */
  int64_t C_width, A_width;   /* bytes of a row */
  char *padded;               /* ROWS_LAST rows of A, then of C */
};

/* C's rows [begin, begin + count) before a product that adds to them. */
static void copy_residual(const struct tiles_job *job, int64_t begin, int64_t count)
{
  if (job->residual == NULL || job->residual == job->C) return;
  memcpy(job->C + begin * job->c_stride, job->residual + begin * job->c_stride,
         (size_t)(count * job->c_stride));
}

static void run_padded(const struct tiles_job *job, int64_t begin, uint32_t thread)
{
  const int64_t count = job->rows - begin;
  char *A = job->padded, *C = job->padded + ROWS_LAST * job->A_width;
  memset(job->padded, 0, (size_t)(ROWS_LAST * (job->A_width + job->C_width)));
  for (int64_t i = 0; i < count; i++) {
    memcpy(A + i * job->A_width, job->A + (begin + i) * job->a_stride, (size_t)job->A_width);
    memcpy(C + i * job->C_width, job->C + (begin + i) * job->c_stride, (size_t)job->C_width);
  }
  plm_product_run(job->last, thread, C, A, job->B);
  for (int64_t i = 0; i < count; i++)
    memcpy(job->C + (begin + i) * job->c_stride, C + i * job->C_width, (size_t)job->C_width);
}

static void multiply_tile(const struct tiles_job *job, int64_t tile, uint32_t thread)
{
  const int64_t full_tiles = job->rows / job->tile_rows;
  const int64_t begin = tile * job->tile_rows;
  if (tile < full_tiles) {
    copy_residual(job, begin, job->tile_rows);
    plm_product_run(job->full, thread, job->C + begin * job->c_stride,
                    job->A + begin * job->a_stride, job->B);
    return;
  }
  copy_residual(job, begin, job->rows - begin);
  if (job->rest_rows > 0)
    plm_product_run(job->rest, thread, job->C + begin * job->c_stride,
                    job->A + begin * job->a_stride, job->B);
  if (begin + job->rest_rows < job->rows) run_padded(job, begin + job->rest_rows, thread);
}

static void run_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct tiles_job *job = context;
  const int64_t begin = tile * job->tile_rows, left = job->rows - begin;
  const int64_t rows = left < job->tile_rows ? left : job->tile_rows;
  multiply_tile(job, tile, thread);
  finish_row(job->cpu, &job->finish, job->C, begin * job->C_width,
             rows * job->C_width / (int64_t)job->cpu->ops.act_bytes);
}

/* C_MN (=, +=, = residual +) A_MK B, shape.M rows; A's and C's rows are contiguous. */
static void multiply_rows(struct plm_cpu *cpu, struct plm_product_shape shape, void *C,
                          const void *A, const void *B, const void *residual, struct finish finish)
{
  const int64_t in_bytes = shape.half ? 2 : 4, out_bytes = shape.half_output ? 2 : 4;
  struct tiles_job job = {.cpu = cpu,
                          .finish = finish,
                          .C = C,
                          .A = A,
                          .B = B,
                          .residual = residual,
                          .a_stride = shape.lda * in_bytes,
                          .c_stride = shape.ldc * out_bytes,
                          .rows = shape.M,
                          .A_width = shape.K * in_bytes,
                          .C_width = shape.N * out_bytes};
  job.tile_rows = job.rows >= LARGE ? ROWS_TILE_LARGE : ROWS_TILE;
  const int64_t after = job.rows % job.tile_rows;
  job.rest_rows = shape.half ? after / ROWS_LAST * ROWS_LAST : after;
  if (residual != NULL) shape.accumulate = 1;
  if (job.rows >= job.tile_rows) {
    shape.M = job.tile_rows;
    job.full = plm_products_get(cpu->products, &shape);
  }
  if (job.rest_rows > 0) {
    shape.M = job.rest_rows;
    job.rest = plm_products_get(cpu->products, &shape);
  }
  if (job.rest_rows < after) {
    shape.M = ROWS_LAST;
    shape.lda = shape.K;
    shape.ldc = shape.N;
    job.last = plm_products_get(cpu->products, &shape);
    job.padded = plm_cpu_workspace(cpu, (size_t)(ROWS_LAST * (job.A_width + job.C_width)));
    if (job.padded == NULL) return;
  }
  plm_pool_tiles(cpu->pool, (job.rows + job.tile_rows - 1) / job.tile_rows, run_tile, &job);
}

/* ---- one tile of rows, cut along its columns ---- */
struct columns_job {
  const struct plm_cpu *cpu;
  struct finish finish;
  const struct plm_product *piece, *last;
  char *C;
  int64_t rows, width; /* of C */
  const char *A, *B;
  int64_t pieces, C_step, B_step; /* bytes from a piece to the next */
};

static void run_columns(void *context, int64_t piece, uint32_t thread)
{
  const struct columns_job *job = context;
  const struct plm_product *product = piece + 1 < job->pieces ? job->piece : job->last;
  plm_product_run(product, thread, job->C + piece * job->C_step, job->A,
                  job->B + piece * job->B_step);
  const int64_t left = job->width - piece * COLUMNS_PIECE;
  const int64_t row_bytes = job->width * (int64_t)job->cpu->ops.act_bytes;
  for (int64_t row = 0; row < job->rows; row++)
    finish_row(job->cpu, &job->finish, job->C, row * row_bytes + piece * job->C_step,
               left < COLUMNS_PIECE ? left : COLUMNS_PIECE);
}

/* C (=, +=, = residual +) A B. Rows of bf16 are padded to a multiple of ROWS_LAST, as those of
 * other tiles. */
static void multiply_columns(struct plm_cpu *cpu, struct plm_product_shape shape, char *C,
                             const char *A, const char *B, const char *residual,
                             struct finish finish)
{
  const int64_t bytes = (int64_t)cpu->ops.act_bytes, rows = shape.M;
  const size_t A_bytes = (size_t)(rows * shape.K * bytes);
  const size_t C_bytes = (size_t)(rows * shape.N * bytes);
  const int64_t planned = shape.half ? (rows + ROWS_LAST - 1) / ROWS_LAST * ROWS_LAST : rows;
  struct columns_job job = {.cpu = cpu,
                            .finish = finish,
                            .rows = rows,
                            .width = shape.N,
                            .C = C,
                            .A = A,
                            .B = B,
                            .pieces = (shape.N + COLUMNS_PIECE - 1) / COLUMNS_PIECE,
                            .C_step = COLUMNS_PIECE * bytes,
                            .B_step = COLUMNS_PIECE * (shape.transpose_b ? shape.ldb : 1) * bytes};
  if (planned != rows) {
    const size_t A_padded = (size_t)(planned * shape.K * bytes);
    const size_t C_padded = (size_t)(planned * shape.N * bytes);
    char *padded = plm_cpu_workspace(cpu, A_padded + C_padded);
    if (padded == NULL) return;
    memset(padded, 0, A_padded + C_padded);
    memcpy(padded, A, A_bytes);
    job.A = padded;
    job.C = padded + A_padded;
  }
  if (residual != NULL) shape.accumulate = 1;
  const char *start = residual != NULL ? residual : C;
  if (shape.accumulate && start != job.C) memcpy(job.C, start, C_bytes);
  const int64_t columns = shape.N;
  shape.M = planned;
  shape.N = COLUMNS_PIECE;
  job.piece = plm_products_get(cpu->products, &shape);
  shape.N = columns - (job.pieces - 1) * COLUMNS_PIECE;
  job.last = plm_products_get(cpu->products, &shape);
  plm_pool_tiles(cpu->pool, job.pieces, run_columns, &job);
  if (job.C != C) memcpy(C, job.C, C_bytes);
}

static void multiply(struct plm_cpu *cpu, struct plm_product_shape shape, void *C, const void *A,
                     const void *B, const void *residual, struct finish finish)
{
  if (shape.M <= ROWS_TILE && shape.N > COLUMNS_PIECE)
    multiply_columns(cpu, shape, C, A, B, residual, finish);
  else
    multiply_rows(cpu, shape, C, A, B, residual, finish);
}

static void forward(struct plm_cpu *cpu, act *y, const act *x, const act *w, const act *residual,
                    int64_t N, int64_t I, int64_t O, struct finish finish)
{
  const struct plm_product_shape shape = {.M = N,
                                          .N = O,
                                          .K = I,
                                          .lda = I,
                                          .ldb = I,
                                          .ldc = O,
                                          .transpose_b = 1,
                                          .half = cpu->bf16,
                                          .half_output = cpu->bf16};
  multiply(cpu, shape, y, x, w, residual, finish);
}

static void linear_forward(struct plm_ops *ops, act *y, const act *x, const act *w,
                           const act *residual, int64_t N, int64_t I, int64_t O)
{
  forward(plm_cpu_of(ops), y, x, w, residual, N, I, O, (struct finish){0});
}

static void linear_relu2_forward(struct plm_ops *ops, act *hidden, const act *x, const act *w,
                                 int64_t N, int64_t I, int64_t O)
{
  forward(plm_cpu_of(ops), hidden, x, w, NULL, N, I, O, (struct finish){.relu2 = true});
}

static void backward_input(struct plm_cpu *cpu, act *dx, const act *dy, const act *w, int64_t N,
                           int64_t I, int64_t O, bool accumulate, struct finish finish)
{
  const struct plm_product_shape shape = {.M = N,
                                          .N = I,
                                          .K = O,
                                          .lda = O,
                                          .ldb = I,
                                          .ldc = I,
                                          .half = cpu->bf16,
                                          .half_output = cpu->bf16,
                                          .accumulate = accumulate};
  multiply(cpu, shape, dx, dy, w, NULL, finish);
}

static void linear_backward_input(struct plm_ops *ops, act *dx, const act *dy, const act *w,
                                  int64_t N, int64_t I, int64_t O, bool accumulate)
{
  backward_input(plm_cpu_of(ops), dx, dy, w, N, I, O, accumulate, (struct finish){0});
}

static void linear_relu2_backward_input(struct plm_ops *ops, act *dup, const act *dy, const act *w,
                                        const act *hidden, int64_t N, int64_t I, int64_t O)
{
  backward_input(plm_cpu_of(ops), dup, dy, w, N, I, O, false, (struct finish){.hidden = hidden});
}

void plm_cpu_linear_register(struct plm_cpu *cpu)
{
  cpu->ops.linear_forward = linear_forward;
  cpu->ops.linear_backward_input = linear_backward_input;
  cpu->ops.linear_relu2_forward = linear_relu2_forward;
  cpu->ops.linear_relu2_backward_input = linear_relu2_backward_input;
}
