/* Gradient of the weights of a Linear, dw_OI += dy_NO^T x_NI, and of its bias, the sums of the
 * columns of dy. Each thread computes a share of dw and sums over the tokens in strips, in their
 * order. The shares divide O, so the number of threads changes their height. In bf16 products the
 * bits do not depend on that (test_ops_products.c). In fp32 products they do with oneDNN's kernels
 * for AVX2. There the shares divide I if it is longer than O, because the library rearranges all of
 * the operand that is not divided.
 *
 * fp32: dy is read along the tokens, one cache line from each row. If the rows are a power of two
 * apart, these lines compete for the same few sets of the cache; if the rows are far apart, each
 * line is in a different page. Therefore a strip of dy is first copied into a dense panel. Measured
 * on two cores of a Xeon with 2,048 tokens, without and with the panel: 81 and 123 GFLOP/s for
 * O = 2,048, 110 and 132 GFLOP/s for O = 2,304. If the backend widens bf16 operands, the panel is
 * widened by this copy, and a strip of x by another one.
 *
 * bf16: the library rearranges dy itself. Deep products are faster, because each product reads and
 * writes all of dw. Preparing a product is costly, so there are at most three depths: the largest
 * multiple of DEPTH_TILE, then the largest multiple of DEPTH_LAST, and DEPTH_LAST for the remaining
 * tokens, which are padded.
 */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"

enum {
  SHARE = 16, /* shares begin at multiples of this many rows or columns of dw */
  PANEL_ROWS = 2048,
  PANEL_DEPTH = 256,
  PANEL_GAP = 16, /* floats between the rows of a panel */
  DEPTH_TILE = 1024,
  DEPTH_LAST = 128,
  SUMMED = 64 /* rows of dy in a sum of columns */
};

/* Rows or columns [*begin, *end) of dw in share `index` of `count`. Those after the last multiple
 * of SHARE belong to the last share, because oneDNN has another kernel for a product of one row. */
static void share_of(int64_t O, uint32_t index, uint32_t count, int64_t *begin, int64_t *end)
{
  plm_pool_share(O / SHARE * SHARE, SHARE, index, count, begin, end);
  if (index + 1 == count) *end = O;
}

/* ---- sums of the columns of dy ---- */
static int64_t summed_tiles(int64_t N)
{
  return (N + SUMMED - 1) / SUMMED;
}

/* Adds `columns` elements of row n of dy to the sums of its tile. `sums` are those of the first
 * tile. */
static void add_to_sums(const struct plm_cpu *cpu, float *sums, const act *row, int64_t n,
                        int64_t O, int64_t columns)
{
  sums += n / SUMMED * O;
  if (n % SUMMED == 0) memset(sums, 0, (size_t)columns * sizeof *sums);
  cpu->vector.add_to_float(sums, row, columns);
}

/* ---- fp32, and bf16 that is widened ---- */
struct float_job {
  const struct plm_cpu *cpu;
  float *dw;
  const act *dy, *x;
  int64_t N, I, O;
  float *sums;           /* (summed_tiles(N), O): of the columns of dy; NULL without a bias */
  float *space;          /* for each thread: a panel, and in bf16 a strip of x */
  int64_t panel, stride; /* floats of a panel, and of a thread's space */
};

/* A part of dw: rows [row, row + rows) and columns [column, column + columns). */
struct part {
  int64_t row, rows, column, columns;
};

/* Row n of a part of dy -> a row of the panel. The row is also added to the sums while it is
 * cached; where dw is divided by columns, all threads read the row, and one adds it. */
static void copy_row(const struct float_job *job, float *to, int64_t n, const struct part *of)
{
  const struct plm_cpu *cpu = job->cpu;
  const act *row = plm_act_at(cpu, job->dy, n * job->O + of->row);
  cpu->vector.to_float(to, row, of->rows);
  if (job->sums != NULL && of->column == 0)
    add_to_sums(cpu, job->sums + of->row, row, n, job->O, of->rows);
}

/* Adds the products of all tokens to a part of dw, of at most PANEL_ROWS rows. */
static void add_panel(const struct float_job *job, float *panel, const struct part *of)
{
  const struct plm_cpu *cpu = job->cpu;
  struct plm_product_shape shape = {.M = of->rows,
                                    .N = of->columns,
                                    .lda = of->rows + PANEL_GAP,
                                    .ldb = job->I,
                                    .ldc = job->I,
                                    .transpose_a = 1,
                                    .accumulate = 1};
  for (int64_t n = 0; n < job->N; n += PANEL_DEPTH) {
    const float *x = plm_act_at(cpu, job->x, n * job->I + of->column);
    shape.K = job->N - n < PANEL_DEPTH ? job->N - n : PANEL_DEPTH;
    for (int64_t k = 0; k < shape.K; k++) copy_row(job, panel + k * shape.lda, n + k, of);
    if (cpu->bf16) {
      cpu->vector.to_float(panel + job->panel, x, (shape.K - 1) * job->I + of->columns);
      x = panel + job->panel;
    }
    plm_product_run_float(&shape, job->dw + of->row * job->I + of->column, panel, x);
  }
}

/* Whether threads divide the columns of dw instead of its rows. */
static bool divides_columns(const struct plm_cpu *cpu, int64_t I, int64_t O)
{
  return I > O && cpu->isa == PLM_ISA_AVX2;
}

static void float_share(void *context, uint32_t index, uint32_t count)
{
  const struct float_job *job = context;
  struct part part = {.columns = job->I};
  int64_t begin = 0, end = job->O;
  if (divides_columns(job->cpu, job->I, job->O)) {
    share_of(job->I, index, count, &part.column, &part.columns);
    part.columns -= part.column;
  } else {
    share_of(job->O, index, count, &begin, &end);
  }
  if (part.columns == 0) return;
  for (part.row = begin; part.row < end; part.row += PANEL_ROWS) {
    part.rows = end - part.row < PANEL_ROWS ? end - part.row : PANEL_ROWS;
    add_panel(job, job->space + (int64_t)index * job->stride, &part);
  }
}

/* The rows of dw in the largest share, or in a panel if that has fewer. */
static int64_t panel_rows(const struct plm_cpu *cpu, int64_t I, int64_t O)
{
  int64_t rows = divides_columns(cpu, I, O) ? O : 0, begin, end;
  for (uint32_t i = 0; i < cpu->ops.threads && rows < O; i++) {
    share_of(O, i, cpu->ops.threads, &begin, &end);
    if (end - begin > rows) rows = end - begin;
  }
  return rows < PANEL_ROWS ? rows : PANEL_ROWS;
}

/* Floats of a panel. */
static int64_t panel_of(const struct plm_cpu *cpu, int64_t N, int64_t I, int64_t O)
{
  const int64_t depth = N < PANEL_DEPTH ? N : PANEL_DEPTH;
  return depth * (panel_rows(cpu, I, O) + PANEL_GAP);
}

int64_t plm_cpu_linear_weight_floats(const struct plm_cpu *cpu, int64_t N, int64_t I, int64_t O)
{
  const int64_t depth = N < PANEL_DEPTH ? N : PANEL_DEPTH;
  return cpu->ops.threads * (panel_of(cpu, N, I, O) + (cpu->bf16 ? depth * I : 0));
}

static void add_float(struct plm_cpu *cpu, float *dw, float *dbias, const act *dy, const act *x,
                      int64_t N, int64_t I, int64_t O)
{
  struct float_job job = {.cpu = cpu, .dw = dw, .dy = dy, .x = x, .N = N, .I = I, .O = O};
  const int64_t floats = plm_cpu_linear_weight_floats(cpu, N, I, O);
  const int64_t sums = dbias != NULL ? summed_tiles(N) * O : 0;
  job.panel = panel_of(cpu, N, I, O);
  job.stride = floats / cpu->ops.threads;
  job.space = plm_cpu_workspace(cpu, (size_t)(floats + sums) * sizeof *job.space);
  if (job.space == NULL) return;
  if (dbias != NULL) job.sums = job.space + floats;
  plm_pool_run(cpu->pool, float_share, &job);
  if (dbias != NULL) plm_cpu_add_tile_columns(cpu, dbias, job.sums, summed_tiles(N), O, O);
}

/* ---- bf16 by bf16 instructions ---- */
enum { BF16_BYTES = 2 }; /* bytes of an activation */

struct bf16_job {
  struct plm_cpu *cpu;
  const struct plm_product *(*strips)[3]; /* for each share of O: whole, rest and last */
  uint32_t shares;
  float *dw;
  const char *dy, *x;
  const char *dy_last, *x_last; /* the last tokens, padded; NULL if there are none */
  int64_t N, I, O;
  int64_t whole, rest; /* tokens of the first and of the second product */
};

static void bf16_share(const struct bf16_job *job, uint32_t share, uint32_t thread)
{
  int64_t begin, end;
  share_of(job->O, share, job->shares, &begin, &end);
  if (begin == end) return;
  float *dw = job->dw + begin * job->I;
  const char *dy = job->dy + begin * BF16_BYTES;
  plm_product_run(job->strips[share][0], thread, dw, dy, job->x);
  plm_product_run(job->strips[share][1], thread, dw, dy + job->whole * job->O * BF16_BYTES,
                  job->x + job->whole * job->I * BF16_BYTES);
  if (job->dy_last != NULL)
    plm_product_run(job->strips[share][2], thread, dw, job->dy_last + begin * BF16_BYTES,
                    job->x_last);
}

static void bf16_shares(void *context, uint32_t index, uint32_t count)
{
  const struct bf16_job *job = context;
  for (uint32_t share = index; share < job->shares; share += count) bf16_share(job, share, index);
}

static const struct plm_product *bf16_strip(const struct bf16_job *job, int64_t depth, int64_t rows)
{
  if (depth == 0 || rows == 0) return NULL;
  const struct plm_product_shape shape = {.M = rows,
                                          .N = job->I,
                                          .K = depth,
                                          .lda = job->O,
                                          .ldb = job->I,
                                          .ldc = job->I,
                                          .transpose_a = 1,
                                          .is_bf16 = 1,
                                          .accumulate = 1};
  return plm_products_get(job->cpu->products, &shape);
}

/* Copies the last tokens and pads them to DEPTH_LAST with zeros, which add nothing. Returns false
 * if there is no memory. */
static bool pad_last(struct bf16_job *job, int64_t last)
{
  const int64_t begin = job->N - last;
  const size_t dy_bytes = (size_t)(DEPTH_LAST * job->O * BF16_BYTES);
  const size_t x_bytes = (size_t)(DEPTH_LAST * job->I * BF16_BYTES);
  char *padded = plm_cpu_workspace(job->cpu, dy_bytes + x_bytes);
  if (padded == NULL) return false;
  const size_t dy_used = (size_t)(last * job->O * BF16_BYTES);
  const size_t x_used = (size_t)(last * job->I * BF16_BYTES);
  memcpy(padded, job->dy + begin * job->O * BF16_BYTES, dy_used);
  memset(padded + dy_used, 0, dy_bytes - dy_used);
  memcpy(padded + dy_bytes, job->x + begin * job->I * BF16_BYTES, x_used);
  memset(padded + dy_bytes + x_used, 0, x_bytes - x_used);
  job->dy_last = padded;
  job->x_last = padded + dy_bytes;
  return true;
}

/* A single thread has two shares as well: if one product had all columns of dy, oneDNN would choose
 * a kernel for dense operands, which gives other bits. Two products take as long as one. */
static void add_bf16(struct plm_cpu *cpu, float *dw, const act *dy, const act *x, int64_t N,
                     int64_t I, int64_t O)
{
  const struct plm_product *strips[PLM_CPU_THREADS_LIMIT][3];
  struct bf16_job job = {.cpu = cpu,
                         .strips = strips,
                         .shares = cpu->ops.threads > 1 ? cpu->ops.threads : 2,
                         .dw = dw,
                         .dy = dy,
                         .x = x,
                         .N = N,
                         .I = I,
                         .O = O,
                         .whole = N / DEPTH_TILE * DEPTH_TILE};
  const int64_t last = (N - job.whole) % DEPTH_LAST;
  job.rest = N - job.whole - last;
  PLM_ASSERT(job.shares <= sizeof strips / sizeof *strips);
  for (uint32_t i = 0; i < job.shares; i++) {
    int64_t begin, end;
    share_of(O, i, job.shares, &begin, &end);
    PLM_ASSERT(0 <= begin && begin <= end && (i + 1 < job.shares || end == O));
    strips[i][0] = bf16_strip(&job, job.whole, end - begin);
    strips[i][1] = bf16_strip(&job, job.rest, end - begin);
    strips[i][2] = bf16_strip(&job, last > 0 ? DEPTH_LAST : 0, end - begin);
  }
  if (last > 0 && !pad_last(&job, last)) return;
  plm_pool_run(cpu->pool, bf16_shares, &job);
}

struct sums_job {
  const struct plm_cpu *cpu;
  float *sums;
  const act *dy;
  int64_t N, O;
};

static void sums_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct sums_job *job = context;
  (void)thread;
  const int64_t end = tile * SUMMED + plm_tile_extent(job->N, tile * SUMMED, SUMMED);
  for (int64_t n = tile * SUMMED; n < end; n++)
    add_to_sums(job->cpu, job->sums, plm_act_at(job->cpu, job->dy, n * job->O), n, job->O, job->O);
}

/* The products read dy themselves, so its sums take a pass of their own. */
static void add_bf16_bias(struct plm_cpu *cpu, float *dbias, const act *dy, int64_t N, int64_t O)
{
  struct sums_job job = {.cpu = cpu, .dy = dy, .N = N, .O = O};
  job.sums = plm_cpu_workspace(cpu, (size_t)(summed_tiles(N) * O) * sizeof *job.sums);
  if (job.sums == NULL) return;
  plm_pool_tiles(cpu->pool, summed_tiles(N), sums_tile, &job);
  plm_cpu_add_tile_columns(cpu, dbias, job.sums, summed_tiles(N), O, O);
}

static void linear_bias_backward_weight(struct plm_ops *ops, float *dw, float *dbias, const act *dy,
                                        const act *x, int64_t N, int64_t I, int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  PLM_ASSERT(N >= 0 && I > 0 && O > 0);
  if (!cpu->bf16 || cpu->widens) {
    add_float(cpu, dw, dbias, dy, x, N, I, O);
    return;
  }
  add_bf16(cpu, dw, dy, x, N, I, O);
  if (dbias != NULL) add_bf16_bias(cpu, dbias, dy, N, O);
}

static void linear_backward_weight(struct plm_ops *ops, float *dw, const act *dy, const act *x,
                                   int64_t N, int64_t I, int64_t O)
{
  linear_bias_backward_weight(ops, dw, NULL, dy, x, N, I, O);
}

void plm_cpu_linear_weight_register(struct plm_cpu *cpu)
{
  cpu->ops.linear_backward_weight = linear_backward_weight;
  cpu->ops.linear_bias_backward_weight = linear_bias_backward_weight;
}
