/* Products over the pool's threads for the optimizer: general ones, and those whose result is
 * known to be symmetric, of which only the lower half is computed. Panels of C's rows depend on
 * the shape alone. */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/product.h"

/* Panels of a product, or fewer where they would be thin. */
enum { PANELS = 8, THIN = 64, STEP = 16 };

struct job {
  struct plm_product_shape shape;
  const struct plm_product *panels[PANELS];
  char *C;
  const char *A, *B;
  int64_t height, count; /* rows of a panel (the last may have fewer), panels */
};

static int64_t height_of(int64_t M)
{
  const int64_t height = (M + PANELS - 1) / PANELS;
  return height < THIN ? THIN : (height + STEP - 1) / STEP * STEP;
}

static int64_t rows_of(const struct job *job, int64_t panel)
{
  const int64_t left = job->shape.M - panel * job->height;
  return left < job->height ? left : job->height;
}

static void run_panel(const struct job *job, int64_t panel, uint32_t thread)
{
  const int64_t in_bytes = job->shape.half ? 2 : 4, out_bytes = job->shape.half_output ? 2 : 4;
  const int64_t begin = panel * job->height;
  plm_product_run(job->panels[panel], thread, job->C + begin * job->shape.ldc * out_bytes,
                  job->A + begin * (job->shape.transpose_a ? 1 : job->shape.lda) * in_bytes,
                  job->B);
}

static void general_panel(void *context, int64_t tile, uint32_t thread)
{
  run_panel(context, tile, thread);
}

/* The panels and their plans; of a symmetric C, columns up to the diagonal. */
static struct job plan(struct plm_cpu *cpu, const struct plm_product_shape *shape, bool symmetric)
{
  struct job job = {.shape = *shape, .height = height_of(shape->M)};
  job.count = (shape->M + job.height - 1) / job.height;
  struct plm_product_shape panel = *shape;
  for (int64_t i = 0; i < job.count; i++) {
    panel.M = rows_of(&job, i);
    if (symmetric) panel.N = i * job.height + panel.M;
    job.panels[i] = plm_products_get(cpu->products, &panel);
  }
  return job;
}

void plm_cpu_multiply_plan(struct plm_cpu *cpu, const struct plm_product_shape *shape,
                           bool symmetric)
{
  (void)plan(cpu, shape, symmetric);
}

static void run(struct plm_cpu *cpu, int thread, plm_pool_tile panel, struct job *job)
{
  if (thread == PLM_CPU_ALL)
    plm_pool_tiles(cpu->pool, job->count, panel, job);
  else
    for (int64_t i = 0; i < job->count; i++) panel(job, i, (uint32_t)thread);
}

void plm_cpu_multiply(struct plm_cpu *cpu, int thread, const struct plm_product_shape *shape,
                      void *C, const void *A, const void *B)
{
  struct job job = plan(cpu, shape, false);
  job.C = C, job.A = A, job.B = B;
  run(cpu, thread, general_panel, &job);
}

/* C[begin.., 0..begin) onto C[0..begin, begin..), in blocks that stay in the first-level cache. */
static void mirror(float *C, int64_t ldc, int64_t begin, int64_t rows)
{
  for (int64_t block = 0; block < begin; block += STEP)
    for (int64_t i = begin; i < begin + rows; i++)
      for (int64_t j = block; j < block + STEP && j < begin; j++) C[j * ldc + i] = C[i * ldc + j];
}

static void symmetric_panel(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  const int64_t panel = job->count - 1 - tile; /* the widest first */
  run_panel(job, panel, thread);
  mirror((float *)job->C, job->shape.ldc, panel * job->height, rows_of(job, panel));
}

void plm_cpu_multiply_symmetric(struct plm_cpu *cpu, int thread,
                                const struct plm_product_shape *shape, float *C, const void *A,
                                const void *B)
{
  PLM_ASSERT(shape->M == shape->N && !shape->half_output && !shape->accumulate);
  struct job job = plan(cpu, shape, true);
  job.C = (char *)C, job.A = A, job.B = B;
  run(cpu, thread, symmetric_panel, &job);
}
