/* Token tables: means over groups of 2^level tokens of a table's rows, and the way back.
 *
 * Backward, with few tokens and many rows: a block takes a slab of rows and some columns, and keeps
 * the sums of all V tokens for its columns in shared memory; a thread owns a column, so nothing
 * collides and the order is that of the rows. Slabs are added up in their order afterwards. */
#include "kernels/cuda/cuda_ops.cuh"

namespace
{

enum {
  THREADS = 128,
  COLUMNS = 64,
  SLAB_ROWS = 512,
  MAX_SLABS = 512,
  SHARED_BYTES = 200 << 10,
  COUNTED_GROUP = 8
};

/* A block a row of groups: threads go over the columns. Long groups are counted by token first, so
 * that a row of the table is read once. */
template <class T>
__global__ void mean_forward_kernel(T *out, const float *table, const int32_t *tokens, int64_t D,
                                    int V, int level)
{
  int *counts = plm_shared<int>(); /* (V) */
  const int64_t n = blockIdx.x;
  const int group = 1 << level, t = (int)threadIdx.x, threads = (int)blockDim.x;
  const bool counted = group >= COUNTED_GROUP;
  const float share = 1.0f / (float)group;
  tokens += n * group;
  if (counted) {
    for (int v = t; v < V; v += threads) counts[v] = 0;
    __syncthreads();
    for (int i = t; i < group; i += threads) atomicAdd(&counts[tokens[i]], 1);
    __syncthreads();
  }
  for (int64_t j = t; j < D; j += threads) {
    float sum = 0;
    if (counted) {
      for (int v = 0; v < V; v++)
        if (counts[v] > 0) sum += (float)counts[v] * table[(int64_t)v * D + j];
    } else {
      for (int i = 0; i < group; i++) sum += table[(int64_t)tokens[i] * D + j];
    }
    out[n * D + j] = from_float<T>(sum * share);
  }
}

/* partial (slabs, V, D) */
template <class T>
__global__ void mean_backward_kernel(float *partial, const T *dout, const int32_t *tokens,
                                     int64_t N, int64_t D, int V, int level, int64_t slab_rows)
{
  float *sums = plm_shared<float>(); /* (V, COLUMNS) */
  const int column = (int)threadIdx.x;
  const int64_t j = (int64_t)blockIdx.y * COLUMNS + column;
  const int64_t first = blockIdx.x * slab_rows;
  const int64_t last = first + slab_rows < N ? first + slab_rows : N;
  const int group = 1 << level;
  for (int v = 0; v < V; v++) sums[v * COLUMNS + column] = 0;
  if (j >= D) return; /* no barrier below: a thread reads what it wrote itself */
  for (int64_t n = first; n < last; n++) {
    const float d = to_float(dout[n * D + j]);
    for (int i = 0; i < group; i++) sums[tokens[n * group + i] * COLUMNS + column] += d;
  }
  const float share = 1.0f / (float)group;
  for (int v = 0; v < V; v++)
    partial[((int64_t)blockIdx.x * V + v) * D + j] = sums[v * COLUMNS + column] * share;
}

void token_mean_forward(struct plm_ops *ops, act *out, const float *table, const int32_t *tokens,
                        int64_t N, int64_t D, int64_t V, int level)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, mean_forward_kernel<T>, dim3((unsigned)N), dim3(THREADS),
               (size_t)V * sizeof(int), static_cast<T *>(out), table, tokens, D, (int)V, level);
  });
}

void token_mean_backward(struct plm_ops *ops, float *dtable, const act *dout, const int32_t *tokens,
                         int64_t N, int64_t D, int64_t V, int level)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const size_t shared = (size_t)V * COLUMNS * sizeof(float);
  PLM_ASSERT(shared <= SHARED_BYTES);
  if (N <= 0) return;
  const int64_t room = plm_cuda_scratch_room<float>(cuda) / (V * D);
  const int64_t most = room < MAX_SLABS ? room : (int64_t)MAX_SLABS;
  PLM_ASSERT(most >= 1);
  int64_t slab_rows = (N + most - 1) / most;
  if (slab_rows < SLAB_ROWS) slab_rows = SLAB_ROWS;
  const unsigned slabs = plm_blocks(N, slab_rows);
  float *partial = plm_cuda_scratch<float>(cuda, (size_t)(slabs * V * D));
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, mean_backward_kernel<T>, dim3(slabs, plm_blocks(D, COLUMNS)),
               dim3(COLUMNS), shared, partial, static_cast<const T *>(dout), tokens, N, D, (int)V,
               level, slab_rows);
  });
  plm_cuda_add_partials(cuda, dtable, partial, slabs, V * D);
}

} // namespace

void plm_cuda_tokens_register(struct plm_cuda *cuda)
{
  cuda->ops.token_mean_forward = token_mean_forward;
  cuda->ops.token_mean_backward = token_mean_backward;
}
