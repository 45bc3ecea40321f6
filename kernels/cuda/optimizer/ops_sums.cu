/* Sums of gradients and losses. The order of each addition is fixed by the sizes. */
#include "kernels/cuda/device/cuda_ops.cuh"
#include "kernels/cuda/optimizer/tensor_blocks.cuh"

namespace
{

enum { THREADS = 256, EACH = 4096, SUM_BLOCKS = plm_most_parts(1024) };

/* ---- squares ---- */

/* Many vectors in one launch (tensor_blocks.cuh). Passed by value; a launch's arguments may take
 * 4 KB. */
enum { VECTORS = 128, VECTOR_BLOCKS = plm_most_parts(256) };
struct Vectors {
  struct plm_array of[VECTORS];
  unsigned first_block[VECTORS + 1];
  int count;
};

/* partial[block] = this block's part of the sum of squares of its vector. The branch is the same
 * for the whole block. */
__global__ void squares_kernel(double *partial, Vectors vectors)
{
  const int v = plm_tensor_of_block(vectors.first_block, vectors.count);
  const struct plm_array &vector = vectors.of[v];
  const unsigned block = blockIdx.x - vectors.first_block[v];
  const int64_t blocks = vectors.first_block[v + 1] - vectors.first_block[v];
  double sum = 0;
  for (int64_t i = (int64_t)block * THREADS + threadIdx.x; i < (int64_t)vector.n;
       i += blocks * THREADS) {
    const float x = vector.minus == NULL ? vector.x[i] : vector.x[i] - vector.minus[i];
    sum += (double)x * (double)x;
  }
  sum = block_sum(sum, plm_shared<double>());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* One thread for each vector adds up its few parts in their order. */
__global__ void vector_sums_kernel(double *sums, const double *partial, Vectors vectors)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= vectors.count) return;
  double sum = 0;
  for (unsigned b = vectors.first_block[i]; b < vectors.first_block[i + 1]; b++) sum += partial[b];
  sums[i] = sum;
}

void sum_some_squares(struct plm_cuda *cuda, double *sums, const Vectors &vectors)
{
  const unsigned blocks = vectors.first_block[vectors.count];
  double *partial = plm_cuda_scratch<double>(cuda, blocks);
  if (blocks > 0)
    plm_launch(cuda->stream, squares_kernel, dim3(blocks), dim3(THREADS), 33 * sizeof(double),
               partial, vectors);
  plm_launch(cuda->stream, vector_sums_kernel, dim3(plm_blocks(vectors.count, THREADS)),
             dim3(THREADS), 0, sums, partial, vectors);
}

void sum_squares(struct plm_ops *ops, double *sums, const struct plm_array *vectors, size_t count)
{
  Vectors some = {};
  static_assert(sizeof some <= 4000, "a launch's arguments");
  size_t first = 0;
  for (size_t i = 0; i < count; i++) {
    const unsigned blocks = min(plm_blocks((int64_t)vectors[i].n, EACH), (unsigned)VECTOR_BLOCKS);
    some.of[some.count] = vectors[i];
    some.first_block[some.count + 1] = some.first_block[some.count] + blocks;
    some.count++;
    if (some.count < VECTORS && i + 1 < count) continue;
    sum_some_squares(plm_cuda_of(ops), sums + first, some);
    first = i + 1;
    some.count = 0;
  }
}

/* ---- sums in double ---- */

__global__ void sum_kernel(double *partial, const float *x, int64_t n)
{
  double sum = 0;
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    sum += (double)x[i];
  sum = block_sum(sum, plm_shared<double>());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* One thread adds up a few numbers in their order, and sets *sum or adds to it. */
__global__ void in_order_kernel(double *sum, const double *x, int64_t n, bool add)
{
  double total = 0;
  for (int64_t i = 0; i < n; i++) total += x[i];
  *sum = add ? *sum + total : total;
}

void add_sum(struct plm_ops *ops, double *sum, const float *x, size_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const unsigned blocks = min(plm_blocks((int64_t)n, THREADS), (unsigned)SUM_BLOCKS);
  double *partial = plm_cuda_scratch<double>(cuda, SUM_BLOCKS);
  if (blocks > 0)
    plm_launch(cuda->stream, sum_kernel, dim3(blocks), dim3(THREADS), 33 * sizeof(double), partial,
               x, (int64_t)n);
  plm_launch(cuda->stream, in_order_kernel, dim3(1), dim3(1), 0, sum, partial, (int64_t)blocks,
             true);
}

void sum_in_order(struct plm_ops *ops, double *sum, const double *x, size_t n)
{
  plm_launch(plm_cuda_of(ops)->stream, in_order_kernel, dim3(1), dim3(1), 0, sum, x, (int64_t)n,
             false);
}

/* The first row whose position is at least `position`. Those of -1 are unsigned here, so they are
 * larger than all others, and the rows ascend. */
__device__ __forceinline__ int64_t first_row_from(const int32_t *positions, int64_t N,
                                                  int64_t position)
{
  int64_t low = 0, high = N;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if ((int64_t)(uint32_t)positions[middle] < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* A block for each chunk. */
__global__ void chunks_kernel(double *sums, const float *x, const int32_t *positions, int64_t N,
                              int64_t L)
{
  const int64_t begin = first_row_from(positions, N, blockIdx.x * L),
                end = first_row_from(positions, N, (blockIdx.x + 1) * L);
  double sum = 0;
  for (int64_t n = begin + threadIdx.x; n < end; n += THREADS) sum += (double)x[n];
  sum = block_sum(sum, plm_shared<double>());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

void sum_chunks(struct plm_ops *ops, double *sums, const float *x, const int32_t *positions,
                int64_t N, int64_t B, int64_t L)
{
  if (B > 0)
    plm_launch(plm_cuda_of(ops)->stream, chunks_kernel, dim3((unsigned)B), dim3(THREADS),
               33 * sizeof(double), sums, x, positions, N, L);
}

/* ---- sums of parts ---- */

/* Passed by value. */
struct Parts {
  const float *of[PLM_SUM_PARTS_MAX];
  unsigned count;
};

/* The tree over COUNT parts from `first` on; COUNT is a power of two. */
template <unsigned COUNT>
__device__ __forceinline__ float tree(const Parts &parts, unsigned first, int64_t i)
{
  if constexpr (COUNT == 1)
    return parts.of[first][i];
  else
    return tree<COUNT / 2>(parts, first, i) + tree<COUNT / 2>(parts, first + COUNT / 2, i);
}

/* Adds the tree over COUNT parts to the parts after them, if that tree is one of those into which
 * parts.count divides. */
template <unsigned COUNT>
__device__ __forceinline__ void add_tree(float *sum, bool *any, const Parts &parts, int64_t i)
{
  if ((parts.count & COUNT) == 0) return;
  const float left = tree<COUNT>(parts, parts.count & ~(2 * COUNT - 1), i);
  *sum = *any ? left + *sum : left;
  *any = true;
}

__global__ void parts_kernel(float *to, Parts parts, int64_t n)
{
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    float sum = 0;
    bool any = false;
    add_tree<1>(&sum, &any, parts, i);
    add_tree<2>(&sum, &any, parts, i);
    add_tree<4>(&sum, &any, parts, i);
    add_tree<8>(&sum, &any, parts, i);
    add_tree<16>(&sum, &any, parts, i);
    add_tree<32>(&sum, &any, parts, i);
    add_tree<64>(&sum, &any, parts, i);
    to[i] = sum;
  }
}

void sum_parts(struct plm_ops *ops, float *to, const float *const *parts, uint32_t count, size_t n)
{
  Parts some = {};
  PLM_ASSERT(count > 0 && count <= PLM_SUM_PARTS_MAX);
  for (uint32_t p = 0; p < count; p++) some.of[p] = parts[p];
  some.count = count;
  const unsigned blocks = min(plm_blocks((int64_t)n, THREADS), (unsigned)(4 * SUM_BLOCKS));
  if (blocks > 0)
    plm_launch(plm_cuda_of(ops)->stream, parts_kernel, dim3(blocks), dim3(THREADS), 0, to, some,
               (int64_t)n);
}

} // namespace

void plm_cuda_sums_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->sum_squares = sum_squares;
  ops->add_sum = add_sum;
  ops->sum_in_order = sum_in_order;
  ops->sum_chunks = sum_chunks;
  ops->sum_parts = sum_parts;
}
