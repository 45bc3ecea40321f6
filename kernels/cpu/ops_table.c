/* Token tables. The forward pass runs on tiles of groups. The backward pass runs on tiles of
 * columns, each of which adds all groups in their order, so it needs neither partial sums nor
 * atomics. */
#include "kernels/cpu/cpu_ops.h"

enum { GROUPS_TILE = 64, COLUMNS_TILE = 64 };

struct job {
  struct plm_cpu *cpu;
  void *out;
  const void *in;
  struct plm_token_groups groups;
};

static void forward_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * GROUPS_TILE, end = begin + GROUPS_TILE;
  job->cpu->vector.token_mean_forward(job->out, job->in, &job->groups, begin,
                                      end < job->groups.N ? end : job->groups.N);
}

static void token_mean_forward(struct plm_ops *ops, act *out, const float *table,
                               const int32_t *tokens, int64_t N, int64_t D, int64_t V, int level)
{
  PLM_ASSERT(V <= PLM_TABLE_ROWS_LIMIT && level >= 0);
  struct job job = {plm_cpu_of(ops), out, table, {tokens, N, D, V, level}};
  plm_pool_tiles(job.cpu->pool, (N + GROUPS_TILE - 1) / GROUPS_TILE, forward_tile, &job);
}

static void backward_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct job *job = context;
  (void)thread;
  const int64_t begin = tile * COLUMNS_TILE, end = begin + COLUMNS_TILE;
  job->cpu->vector.token_mean_backward(job->out, job->in, &job->groups, begin,
                                       end < job->groups.D ? end : job->groups.D);
}

static void token_mean_backward(struct plm_ops *ops, float *dtable, const act *dout,
                                const int32_t *tokens, int64_t N, int64_t D, int64_t V, int level)
{
  PLM_ASSERT(V <= PLM_TABLE_ROWS_LIMIT && level >= 0);
  struct job job = {plm_cpu_of(ops), dtable, dout, {tokens, N, D, V, level}};
  plm_pool_tiles(job.cpu->pool, (D + COLUMNS_TILE - 1) / COLUMNS_TILE, backward_tile, &job);
}

void plm_cpu_table_register(struct plm_cpu *cpu)
{
  cpu->ops.token_mean_forward = token_mean_forward;
  cpu->ops.token_mean_backward = token_mean_backward;
}
