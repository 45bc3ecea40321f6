/* The targets of a step: tokens are widened and masked, and the labelled positions are listed in
 * their order. The rule is in common/ops/target_rule.h. Drawing a position costs less than storing
 * the draw, so it is drawn twice: to count, and to write. */
#include "kernels/cuda/device/cuda_ops.cuh"

namespace
{

enum { THREADS = 256, WARPS = THREADS / PLM_WARP, SCAN_THREADS = 1024 };

struct Targets {
  struct plm_target_rows to;
  struct plm_target_tokens from;
  struct plm_masking masking;
  int64_t N;
  int *block_rows; /* rows of each block; after the scan, rows of all blocks before it */
};

__device__ __forceinline__ struct plm_masked_token apply(const Targets &p, int64_t i)
{
  const struct plm_target_tokens &from = p.from;
  return plm_masking_apply(&p.masking, &from.draws[i / from.L], (uint32_t)(i % from.L),
                           plm_masking_token(&p.masking, from.tokens, (size_t)i),
                           plm_masking_next(&p.masking, from.tokens, from.ends, (size_t)i));
}

/* Returns how many rows the threads of the block before this one have; *all: the whole block.
 * warp_rows: WARPS values of shared memory. */
__device__ __forceinline__ int rank_in_block(bool row, int *warp_rows, int *all)
{
  const int lane = (int)threadIdx.x % PLM_WARP, warp = (int)threadIdx.x / PLM_WARP;
  const unsigned rows = __ballot_sync(PLM_ALL_LANES, row);
  if (lane == 0) warp_rows[warp] = __popc(rows);
  __syncthreads();
  int rank = __popc(rows & ((1u << lane) - 1));
  *all = 0;
  for (int w = 0; w < WARPS; w++) {
    if (w < warp) rank += warp_rows[w];
    *all += warp_rows[w];
  }
  return rank;
}

__global__ void mask_kernel(Targets p)
{
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  struct plm_masked_token token = {0, -1};
  if (i < p.N) {
    token = apply(p, i);
    p.to.inputs[i] = token.input;
  }
  int all;
  rank_in_block(token.label >= 0, plm_shared<int>(), &all);
  if (threadIdx.x == 0) p.block_rows[blockIdx.x] = all;
}

/* Runs as one block. block_rows[i] becomes the sum of the values before i, and block_rows[blocks]
 * the sum of all. Each thread adds up a stretch, then the sum of the stretches before it. */
__global__ void scan_kernel(int *block_rows, int blocks)
{
  int *sums = plm_shared<int>();
  const int each = (blocks + SCAN_THREADS - 1) / SCAN_THREADS, t = (int)threadIdx.x;
  const int begin = min(t * each, blocks), end = min(begin + each, blocks);
  int own = 0;
  for (int i = begin; i < end; i++) own += block_rows[i];
  sums[t] = own;
  __syncthreads();
  for (int distance = 1; distance < SCAN_THREADS; distance *= 2) {
    const int before = t >= distance ? sums[t - distance] : 0;
    __syncthreads();
    sums[t] += before;
    __syncthreads();
  }
  int sum = sums[t] - own;
  for (int i = begin; i < end; i++) {
    const int rows = block_rows[i];
    block_rows[i] = sum;
    sum += rows;
  }
  if (t == SCAN_THREADS - 1) block_rows[blocks] = sums[t];
}

__global__ void rows_kernel(Targets p)
{
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  struct plm_masked_token token = {0, -1};
  int all;
  if (i < p.N) token = apply(p, i);
  const int64_t row =
      p.block_rows[blockIdx.x] + rank_in_block(token.label >= 0, plm_shared<int>(), &all);
  if (token.label >= 0 && row < p.to.capacity) {
    p.to.positions[row] = (int32_t)i;
    p.to.labels[row] = token.label;
    p.to.weights[row] = p.from.draws[i / p.from.L].weight;
  }
  if (i >= p.block_rows[gridDim.x] && i < p.to.capacity) {
    p.to.positions[i] = -1;
    p.to.labels[i] = 0;
    p.to.weights[i] = 0;
  }
}

void choose_targets(struct plm_ops *ops, const struct plm_target_rows *to,
                    const struct plm_target_tokens *from, const struct plm_masking *masking)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const int64_t N = from->B * from->L;
  if (N <= 0) return;
  PLM_ASSERT(to->capacity <= N);
  const unsigned blocks = plm_blocks(N, THREADS);
  const Targets p = {*to, *from, *masking, N, plm_cuda_scratch<int>(cuda, (size_t)blocks + 1)};
  plm_launch(cuda->stream, mask_kernel, dim3(blocks), dim3(THREADS), WARPS * sizeof(int), p);
  plm_launch(cuda->stream, scan_kernel, dim3(1), dim3(SCAN_THREADS), SCAN_THREADS * sizeof(int),
             p.block_rows, (int)blocks);
  plm_launch(cuda->stream, rows_kernel, dim3(blocks), dim3(THREADS), WARPS * sizeof(int), p);
}

} // namespace

void plm_cuda_targets_register(struct plm_cuda *cuda)
{
  cuda->ops.choose_targets = choose_targets;
}
