/* Linear products of int8 weights and activations (common/ops/int8_matrix.h has the rules).
 *
 * First all rows of activations are quantised. Then tiles of rows by strips of columns are
 * multiplied, by one or two panels at a time, and scaled while their sums are in the first-level
 * cache. All sums of integers are exact, so no tiling changes a bit. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/int8_products.h"

enum {
  ROWS_QUANTISED = 16,
  ROWS_TILE = 120,  /* a multiple of the rows that each kernel multiplies at a time */
  PANELS_STRIP = 8, /* 128 columns */
  WEIGHT_ROWS_TILE = 64
};

/* The parts of a matrix. */
struct matrix {
  float *scales;
  int32_t *totals;
  int8_t *panels;
  int64_t depth; /* padded columns */
};

static struct matrix matrix_of(const void *start, int64_t O, int64_t I)
{
  const int64_t rows = plm_int8_padded(O);
  struct matrix matrix = {.scales = (float *)(uintptr_t)start, .depth = plm_int8_padded(I)};
  matrix.totals = (int32_t *)(matrix.scales + rows);
  matrix.panels = (int8_t *)(matrix.totals + rows);
  return matrix;
}

/* ---- weights ---- */
struct weights_job {
  struct plm_cpu *cpu;
  struct matrix matrix;
  const float *rows;
  int64_t first, count, I;
  int32_t *words; /* for each thread, those of a row */
};

/* A word has two int16 or four uint8 with 128 added. */
static int32_t element_of(const struct plm_int8_kernel *kernel, const int32_t *words, int64_t i)
{
  if (kernel->in_word == 2) return ((const int16_t *)(const void *)words)[i];
  return (int32_t)((const uint8_t *)words)[i] - 128;
}

static void quantise_weights(void *context, int64_t tile, uint32_t thread)
{
  const struct weights_job *job = context;
  const struct plm_int8_kernel *kernel = job->cpu->int8;
  const struct matrix *to = &job->matrix;
  const int64_t begin = tile * WEIGHT_ROWS_TILE;
  const int64_t end = begin + plm_tile_extent(job->count, begin, WEIGHT_ROWS_TILE);
  int32_t *words = job->words + (int64_t)thread * to->depth / kernel->in_word;
  for (int64_t n = begin; n < end; n++) {
    const int64_t row = job->first + n;
    int8_t *panel =
        to->panels + row / PLM_INT8_PANEL * PLM_INT8_PANEL * to->depth + row % PLM_INT8_PANEL * 4;
    int32_t total = 0;
    to->scales[row] = kernel->quantise(words, job->rows + n * job->I, job->I);
    for (int64_t i = 0; i < to->depth; i++) {
      const int32_t element = element_of(kernel, words, i);
      panel[i / 4 * 4 * PLM_INT8_PANEL + i % 4] = (int8_t)element;
      total += element;
    }
    to->totals[row] = 128 * total;
  }
}

static void quantise_rows(struct plm_ops *ops, void *matrix, const float *rows, int64_t first,
                          int64_t count, int64_t I, int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  PLM_ASSERT(0 <= first && 0 <= count && first + count <= O && I <= PLM_INT8_INPUTS_MOST);
  struct weights_job job = {.cpu = cpu,
                            .matrix = matrix_of(matrix, O, I),
                            .rows = rows,
                            .first = first,
                            .count = count,
                            .I = I};
  const size_t words = (size_t)(cpu->ops.threads * job.matrix.depth / cpu->int8->in_word);
  job.words = plm_cpu_workspace(cpu, words * sizeof *job.words);
  if (job.words == NULL) return;
  plm_pool_tiles(cpu->pool, (count + WEIGHT_ROWS_TILE - 1) / WEIGHT_ROWS_TILE, quantise_weights,
                 &job);
}

/* ---- products ---- */
struct product_job {
  struct plm_cpu *cpu;
  const struct plm_int8_kernel *kernel;
  struct matrix matrix;
  const struct plm_int8_linear *layer;
  float *y;
  const float *x, *residual;
  int64_t N, I, O;
  int64_t steps, strips;
  int32_t *words;   /* (N, steps) */
  float *scales;    /* (N) */
  int32_t *widened; /* for each thread, a panel as the kernel multiplies it */
};

static void quantise_activations(void *context, int64_t tile, uint32_t thread)
{
  const struct product_job *job = context;
  (void)thread;
  const int64_t begin = tile * ROWS_QUANTISED;
  const int64_t end = begin + plm_tile_extent(job->N, begin, ROWS_QUANTISED);
  for (int64_t n = begin; n < end; n++)
    job->scales[n] =
        job->kernel->quantise(job->words + n * job->steps, job->x + n * job->I, job->I);
}

/* A panel as the kernel multiplies it. */
static const void *panel_of(const struct product_job *job, int64_t panel, uint32_t thread)
{
  const int8_t *b = job->matrix.panels + panel * PLM_INT8_PANEL * job->matrix.depth;
  if (job->kernel->widen == NULL) return b;
  int32_t *widened = job->widened + (int64_t)thread * job->steps * PLM_INT8_PANEL;
  job->kernel->widen(widened, b, job->steps);
  return widened;
}

/* Scales the sums of `rows` rows from `begin` on and one panel. */
static void scale_panel(const struct product_job *job, const int32_t *sums, int64_t begin,
                        int64_t rows, int64_t panel)
{
  const int64_t first = panel * PLM_INT8_PANEL;
  const int64_t at = begin * job->O + first;
  const struct plm_int8_scaling scaling = {
      .y = job->y + at,
      .residual = job->residual != NULL ? job->residual + at : NULL,
      .stride = job->O,
      .sums = sums,
      .row_scales = job->scales + begin,
      .scales = job->matrix.scales + first,
      .totals = job->kernel->in_word == 4 ? job->matrix.totals + first : NULL,
      .bias = job->layer->bias != NULL ? job->layer->bias + first : NULL,
      .rows = rows,
      .columns = plm_tile_extent(job->O, first, PLM_INT8_PANEL)};
  job->kernel->scale(&scaling);
}

/* Multiplies `rows` rows from `begin` on by the panels [panel, end), and scales the sums. */
static void multiply_panels(const struct product_job *job, int64_t begin, int64_t rows,
                            int64_t panel, int64_t end, uint32_t thread)
{
  int32_t sums[PLM_INT8_PANELS_MOST * ROWS_TILE * PLM_INT8_PANEL] __attribute__((aligned(64)));
  const struct plm_int8_kernel *kernel = job->kernel;
  while (panel < end) {
    const int64_t panels = end - panel < kernel->panels ? 1 : kernel->panels;
    kernel->multiply(sums, job->words + begin * job->steps, rows, panel_of(job, panel, thread),
                     panels, job->steps);
    for (int64_t i = 0; i < panels; i++)
      scale_panel(job, sums + i * rows * PLM_INT8_PANEL, begin, rows, panel + i);
    panel += panels;
  }
}

static void finish_row(const struct product_job *job, float *y, int64_t columns)
{
  switch (job->layer->after) {
  case PLM_INT8_LINEAR: break;
  case PLM_INT8_RELU2: job->cpu->vector.relu2_forward(y, columns); break;
  case PLM_INT8_GELU: job->cpu->vector.gelu_forward(y, y, columns); break;
  }
}

static void multiply_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct product_job *job = context;
  const int64_t begin = tile / job->strips * ROWS_TILE;
  const int64_t rows = plm_tile_extent(job->N, begin, ROWS_TILE);
  const int64_t first = tile % job->strips * PANELS_STRIP * PLM_INT8_PANEL;
  const int64_t whole = PANELS_STRIP * PLM_INT8_PANEL;
  const int64_t columns = plm_tile_extent(job->O, first, whole);
  multiply_panels(job, begin, rows, first / PLM_INT8_PANEL,
                  plm_int8_padded(first + columns) / PLM_INT8_PANEL, thread);
  if (job->layer->after == PLM_INT8_LINEAR) return;
  for (int64_t row = begin; row < begin + rows; row++)
    finish_row(job, job->y + row * job->O + first, columns);
}

static void linear_int8_forward(struct plm_ops *ops, act *y, const act *x,
                                const struct plm_int8_linear *layer, const act *residual, int64_t N,
                                int64_t I, int64_t O)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  const struct plm_int8_kernel *kernel = cpu->int8;
  PLM_ASSERT(N >= 0 && O > 0 && I > 0 && I <= PLM_INT8_INPUTS_MOST);
  struct product_job job = {.cpu = cpu,
                            .kernel = kernel,
                            .matrix = matrix_of(layer->w, O, I),
                            .layer = layer,
                            .y = y,
                            .x = x,
                            .residual = residual,
                            .N = N,
                            .I = I,
                            .O = O};
  const int64_t whole = PANELS_STRIP * PLM_INT8_PANEL;
  job.steps = job.matrix.depth / kernel->in_word;
  job.strips = (O + whole - 1) / whole;
  const int64_t words = plm_int8_padded(N * job.steps);
  const int64_t widened = kernel->widen != NULL ? cpu->ops.threads * job.steps * PLM_INT8_PANEL : 0;
  job.words = plm_cpu_workspace(cpu, (size_t)(words + widened + N) * sizeof *job.words);
  if (job.words == NULL) return;
  job.widened = job.words + words;
  job.scales = (float *)(job.widened + widened);
  plm_pool_tiles(cpu->pool, (N + ROWS_QUANTISED - 1) / ROWS_QUANTISED, quantise_activations, &job);
  plm_pool_tiles(cpu->pool, (N + ROWS_TILE - 1) / ROWS_TILE * job.strips, multiply_tile, &job);
}

void plm_cpu_int8_register(struct plm_cpu *cpu)
{
  if (cpu->int8 == NULL) return;
  PLM_ASSERT(!cpu->bf16);
  cpu->ops.quantise_rows = quantise_rows;
  cpu->ops.linear_int8_forward = linear_int8_forward;
}
