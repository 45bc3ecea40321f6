/* Attention over a cache of keys and values. First the key and the value of every row are stored in
 * the cache. Then one thread computes each head of each row, in the order of the keys, so any
 * number of threads gives the same bits. */
#include <string.h>

#include "kernels/cpu/cpu_ops.h"

enum { SCORES_APART = 16 }; /* floats that keep the threads' scratch on different cache lines */

struct job {
  struct plm_cpu *cpu;
  const struct plm_cached_rows *rows;
  act *out, *key_cache, *value_cache;
  const act *q, *k, *v;
  float *scores;          /* scratch of all threads */
  int64_t scores_of_each; /* floats per thread */
};

/* The element of a cache at which the keys or values of a head begin, for the sequence of row n. */
static int64_t cache_place(const struct plm_cached_rows *rows, int64_t n, int64_t head)
{
  return ((int64_t)rows->slots[n] * rows->H + head) * rows->capacity * rows->K;
}

static void store_tile(void *context, int64_t n, uint32_t thread)
{
  (void)thread;
  const struct job *job = context;
  const struct plm_cached_rows *rows = job->rows;
  const size_t bytes = (size_t)rows->K * job->cpu->ops.act_bytes;
  for (int64_t head = 0; head < rows->H; head++) {
    const int64_t from = n * rows->row_stride + head * rows->K;
    const int64_t to = cache_place(rows, n, head) + rows->positions[n] * rows->K;
    memcpy(plm_act_at_mutable(job->cpu, job->key_cache, to), plm_act_at(job->cpu, job->k, from),
           bytes);
    memcpy(plm_act_at_mutable(job->cpu, job->value_cache, to), plm_act_at(job->cpu, job->v, from),
           bytes);
  }
}

static void attend_tile(void *context, int64_t item, uint32_t thread)
{
  const struct job *job = context;
  const struct plm_cached_rows *rows = job->rows;
  const int64_t n = item / rows->H, head = item % rows->H;
  const int64_t first = cache_place(rows, n, head) + rows->key_begin[n] * rows->K;
  const struct plm_attended_keys keys = {
      .q = plm_act_at(job->cpu, job->q, n * rows->row_stride + head * rows->K),
      .keys = plm_act_at(job->cpu, job->key_cache, first),
      .values = plm_act_at(job->cpu, job->value_cache, first),
      .scores = job->scores + thread * job->scores_of_each,
      .count = rows->positions[n] + 1 - rows->key_begin[n],
      .K = rows->K,
      .scale = rows->scale};
  job->cpu->vector.attend(plm_act_at_mutable(job->cpu, job->out, (n * rows->H + head) * rows->K),
                          &keys);
}

static void attention_cached(struct plm_ops *ops, act *out, act *key_cache, act *value_cache,
                             const act *q, const act *k, const act *v,
                             const struct plm_cached_rows *rows)
{
  PLM_ASSERT(rows->K <= PLM_HEAD_WIDTH_LIMIT);
  for (int64_t n = 0; n < rows->rows; n++)
    PLM_ASSERT(rows->key_begin[n] >= 0 && rows->key_begin[n] <= rows->positions[n] &&
               rows->positions[n] < rows->capacity);
  struct job job = {.cpu = plm_cpu_of(ops),
                    .rows = rows,
                    .out = out,
                    .key_cache = key_cache,
                    .value_cache = value_cache,
                    .q = q,
                    .k = k,
                    .v = v,
                    .scores_of_each = (rows->capacity / SCORES_APART + 2) * SCORES_APART};
  job.scores =
      plm_cpu_workspace(job.cpu, (size_t)job.scores_of_each * ops->threads * sizeof *job.scores);
  if (job.scores == NULL) return;
  plm_pool_tiles(job.cpu->pool, rows->rows, store_tile, &job);
  plm_pool_tiles(job.cpu->pool, rows->rows * rows->H, attend_tile, &job);
}

void plm_cpu_cached_attention_register(struct plm_cpu *cpu)
{
  cpu->ops.attention_cached = attention_cached;
}
