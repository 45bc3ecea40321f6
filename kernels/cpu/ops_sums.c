/* Sums of gradients and losses. */
#include "kernels/cpu/cpu_ops.h"

enum { TILE = 65536, DIFFERENCES = 4096 /* of a tile at a time */ };

struct sum_job {
  const struct plm_cpu *cpu;
  const float *x, *minus; /* minus may be NULL */
  double *sums;           /* one for each tile */
  int64_t n;
};

static double sum_differences(const struct sum_job *job, int64_t begin, int64_t n)
{
  float differences[DIFFERENCES];
  double sum = 0;
  for (int64_t i = 0; i < n; i += DIFFERENCES) {
    const float *x = job->x + begin + i, *minus = job->minus + begin + i;
    const int64_t count = n - i < DIFFERENCES ? n - i : DIFFERENCES;
    for (int64_t j = 0; j < count; j++) differences[j] = x[j] - minus[j];
    sum += job->cpu->vector.sum_squares(differences, count);
  }
  return sum;
}

static void sum_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct sum_job *job = context;
  const int64_t begin = tile * TILE, n = plm_tile_extent(job->n, begin, TILE);
  (void)thread;
  job->sums[tile] = job->minus == NULL ? job->cpu->vector.sum_squares(job->x + begin, n)
                                       : sum_differences(job, begin, n);
}

static double sum_array(struct plm_cpu *cpu, const float *x, const float *minus, size_t n)
{
  const int64_t tiles = ((int64_t)n + TILE - 1) / TILE;
  double *sums = plm_cpu_workspace(cpu, (size_t)tiles * sizeof *sums), total = 0;
  if (sums == NULL) return 0;
  struct sum_job job = {.cpu = cpu, .x = x, .minus = minus, .sums = sums, .n = (int64_t)n};
  plm_pool_tiles(cpu->pool, tiles, sum_tile, &job);
  for (int64_t i = 0; i < tiles; i++) total += sums[i];
  return total;
}

double plm_cpu_sum_squares(struct plm_cpu *cpu, const float *x, size_t n)
{
  return sum_array(cpu, x, NULL, n);
}

void plm_cpu_add_tile_sums(float (*sums)[PLM_CPU_TILE_SUMS], int64_t tiles,
                           float *const totals[PLM_CPU_TILE_SUMS])
{
  for (int j = 0; j < PLM_CPU_TILE_SUMS; j++) {
    double sum = 0;
    if (totals[j] == NULL) continue;
    for (int64_t i = 0; i < tiles; i++) sum += (double)sums[i][j];
    *totals[j] += (float)sum;
  }
}

static void sum_squares(struct plm_ops *ops, double *sums, const struct plm_array *vectors,
                        size_t count)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  for (size_t i = 0; i < count; i++)
    sums[i] = sum_array(cpu, vectors[i].x, vectors[i].minus, vectors[i].n);
}

static void add_sum(struct plm_ops *ops, double *sum, const float *x, size_t n)
{
  (void)ops;
  double total = 0;
  for (size_t i = 0; i < n; i++) total += (double)x[i];
  *sum += total;
}

static void sum_in_order(struct plm_ops *ops, double *sum, const double *x, size_t n)
{
  (void)ops;
  double total = 0;
  for (size_t i = 0; i < n; i++) total += x[i];
  *sum = total;
}

static void sum_chunks(struct plm_ops *ops, double *sums, const float *x, const int32_t *positions,
                       int64_t N, int64_t B, int64_t L)
{
  int64_t n = 0;
  (void)ops;
  for (int64_t b = 0; b < B; b++) {
    double total = 0;
    for (; n < N && positions[n] >= 0 && positions[n] < (b + 1) * L; n++) total += (double)x[n];
    sums[b] = total;
  }
  PLM_ASSERT(n == N || positions[n] < 0); /* each row belongs to a chunk, or to none */
}

struct parts_job {
  const struct plm_cpu *cpu;
  float *to;
  const float *const *parts;
  uint32_t count;
  int64_t n;
};

static void parts_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct parts_job *job = context;
  const int64_t begin = tile * TILE, n = plm_tile_extent(job->n, begin, TILE);
  (void)thread;
  job->cpu->vector.sum_parts(job->to, job->parts, job->count, begin, n);
}

static void sum_parts(struct plm_ops *ops, float *to, const float *const *parts, uint32_t count,
                      size_t n)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  struct parts_job job = {.cpu = cpu, .to = to, .parts = parts, .count = count, .n = (int64_t)n};
  PLM_ASSERT(count > 0 && count <= PLM_SUM_PARTS_MAX);
  plm_pool_tiles(cpu->pool, (job.n + TILE - 1) / TILE, parts_tile, &job);
}

void plm_cpu_sums_register(struct plm_cpu *cpu)
{
  struct plm_ops *ops = &cpu->ops;
  ops->sum_squares = sum_squares;
  ops->add_sum = add_sum;
  ops->sum_in_order = sum_in_order;
  ops->sum_chunks = sum_chunks;
  ops->sum_parts = sum_parts;
}
