/* Token tables: the mean of a table's rows over groups of 2^level tokens, and its gradient.
 *
 * Backward, with few tokens and many rows: a block takes a slab of rows and some columns, and keeps
 * the sums of all V tokens for its columns in shared memory. A thread owns two columns, so there
 * are no conflicts and the order is that of the rows. A block has fewer columns if the device does
 * not allow a block so much shared memory, which changes no bit. Several rows are loaded before the
 * first is added, to hide the latency of global memory. The slabs are added up in their order
 * afterwards. */
#include "kernels/cuda/rows/rows.cuh"

namespace
{

enum {
  THREADS = 128,
  WARPS = 8,
  MOST_OWNERS = 64, /* threads of a block of the backward pass; each owns OWNED columns */
  LEAST_OWNERS = 32,
  OWNED = 2,
  AHEAD = 8, /* rows loaded at a time */
  SLAB_ROWS = 256,
  MAX_SLABS = plm_most_parts(512),
  COUNTED_GROUP = 8
};

/* Short groups: a warp takes a row. */
template <class T, bool VECTOR>
__global__ void short_forward_kernel(T *out, const float *table, const int32_t *tokens, int64_t N,
                                     int64_t D, int level)
{
  typedef Columns<T, VECTOR> C;
  constexpr int PART = C::N < plm_vector<float>::N ? C::N : plm_vector<float>::N;
  typedef Columns<float, VECTOR> F;
  static_assert(PART == F::N, "a vector of the table, which is fp32");
  const int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / PLM_WARP;
  const int group = 1 << level;
  const float share = 1.0f / (float)group;
  if (n >= N) return;
  EACH_COLUMN(C, D)
  {
    float sum[C::N] = {};
    for (int i = 0; i < group; i++) {
      const float *row = table + (int64_t)tokens[n * group + i] * D + j;
#pragma unroll
      for (int k = 0; k < C::N; k += PART) {
        float v[PART];
        F::load(v, row + k);
#pragma unroll
        for (int q = 0; q < PART; q++) sum[k + q] += v[q];
      }
    }
#pragma unroll
    for (int k = 0; k < C::N; k++) sum[k] *= share;
    C::store(out + n * D + j, sum);
  }
}

/* Long groups: a block takes a row. It counts the tokens first, so that it reads a row of the table
 * only once. */
template <class T>
__global__ void long_forward_kernel(T *out, const float *table, const int32_t *tokens, int64_t D,
                                    int V, int level)
{
  int *counts = plm_shared<int>(); /* (V) */
  const int64_t n = blockIdx.x;
  const int group = 1 << level, t = (int)threadIdx.x, threads = (int)blockDim.x;
  const float share = 1.0f / (float)group;
  tokens += n * group;
  for (int v = t; v < V; v += threads) counts[v] = 0;
  __syncthreads();
  for (int i = t; i < group; i += threads) atomicAdd(&counts[tokens[i]], 1);
  __syncthreads();
  for (int64_t j = t; j < D; j += threads) {
    float sum = 0;
    for (int v = 0; v < V; v++)
      if (counts[v] > 0) sum += (float)counts[v] * table[(int64_t)v * D + j];
    out[n * D + j] = from_float<T>(sum * share);
  }
}

/* Two neighbouring elements of a row; the second exists if `second`. If EVEN, they are aligned as a
 * pair. */
template <class T, bool EVEN> __device__ __forceinline__ float2 load_owned(const T *p, bool second)
{
  if constexpr (EVEN) {
    struct alignas(2 * sizeof(T)) Two {
      T x, y;
    } two = *reinterpret_cast<const Two *>(p);
    return make_float2(to_float(two.x), to_float(two.y));
  }
  return make_float2(to_float(p[0]), second ? to_float(p[1]) : 0.0f);
}

/* The gradients of rows: x, or rounded(*scale * x) if there is a scale. */
template <class T> struct Upper {
  const T *x;
  int64_t row_stride;
  const float *scale; /* NULL: none */
};

/* Leaves the sums of each slab in partial (slabs, V, D). ALONE: the level is 0, so a group is one
 * token, and the loop over rows has no loop inside. OWNERS: threads of a block. */
template <class T, bool EVEN, bool ALONE, int OWNERS>
__global__ void mean_backward_kernel(float *partial, Upper<T> dout, const int32_t *tokens,
                                     int64_t N, int64_t D, int V, int level, int64_t slab_rows)
{
  const bool scaled = dout.scale != nullptr;
  const float scale = scaled ? *dout.scale : 1;
  float2 *sums = plm_shared<float2>(); /* (V, OWNERS) */
  const int t = (int)threadIdx.x;
  const int64_t j = (int64_t)blockIdx.y * OWNERS * OWNED + t * OWNED;
  const int64_t first = blockIdx.x * slab_rows;
  const int64_t last = first + slab_rows < N ? first + slab_rows : N;
  const int group = ALONE ? 1 : 1 << level;
  const bool second = j + 1 < D;
  for (int v = 0; v < V; v++) sums[v * OWNERS + t] = make_float2(0, 0);
  if (j >= D) return; /* no barrier below: a thread reads what it wrote itself */
  for (int64_t n = first; n < last; n += AHEAD) {
    float2 d[AHEAD];
    int token[AHEAD]; /* the first token of each group */
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const bool inside = n + a < last;
      d[a] = inside ? load_owned<T, EVEN>(dout.x + (n + a) * dout.row_stride + j, second)
                    : make_float2(0, 0);
      token[a] = inside ? tokens[(n + a) * group] : 0;
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (n + a >= last) break;
      if (scaled)
        d[a] = make_float2(to_float(from_float<T>(scale * d[a].x)),
                           to_float(from_float<T>(scale * d[a].y)));
      for (int i = 0; i < group; i++) {
        const int v = i == 0 ? token[a] : tokens[(n + a) * group + i];
        float2 *sum = &sums[v * OWNERS + t];
        *sum = make_float2(sum->x + d[a].x, sum->y + d[a].y);
      }
    }
  }
  const float share = 1.0f / (float)group;
  for (int v = 0; v < V; v++) {
    const float2 sum = sums[v * OWNERS + t];
    float *to = partial + ((int64_t)blockIdx.x * V + v) * D + j;
    to[0] = sum.x * share;
    if (second) to[1] = sum.y * share;
  }
}

/* Bytes of shared memory of a block of the backward pass. */
size_t bytes_of_sums(int64_t V, int owners)
{
  return (size_t)V * (size_t)(owners * OWNED) * sizeof(float);
}

template <int OWNERS>
void leave_sums(struct plm_cuda *cuda, float *partial, unsigned slabs, int64_t slab_rows,
                const struct plm_cuda_token_rows *rows)
{
  const int64_t D = rows->D, row_stride = rows->row_stride;
  const dim3 grid(slabs, plm_blocks(D, OWNERS * OWNED));
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    const bool even = D % 2 == 0 && row_stride % 2 == 0, ungrouped = rows->level == 0;
    const auto kernel = ungrouped ? even ? mean_backward_kernel<T, true, true, OWNERS>
                                         : mean_backward_kernel<T, false, true, OWNERS>
                        : even ? mean_backward_kernel<T, true, false, OWNERS>
                                  : mean_backward_kernel<T, false, false, OWNERS>;
    const Upper<T> dout = {static_cast<const T *>(rows->dout), row_stride, rows->scale};
    plm_launch(cuda->stream, kernel, grid, dim3(OWNERS), bytes_of_sums(rows->V, OWNERS), partial,
               dout, rows->tokens, rows->N, D, (int)rows->V, rows->level, slab_rows);
  });
}

void token_mean_forward(struct plm_ops *ops, act *out, const float *table, const int32_t *tokens,
                        int64_t N, int64_t D, int64_t V, int level)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  const bool counted = 1 << level >= COUNTED_GROUP;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    const auto short_kernel =
        D % plm_vector<T>::N == 0 ? short_forward_kernel<T, true> : short_forward_kernel<T, false>;
    if (counted)
      plm_launch(cuda->stream, long_forward_kernel<T>, dim3((unsigned)N), dim3(THREADS),
                 (size_t)V * sizeof(int), static_cast<T *>(out), table, tokens, D, (int)V, level);
    else
      plm_launch(cuda->stream, short_kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP), 0,
                 static_cast<T *>(out), table, tokens, N, D, level);
  });
}

void token_mean_backward(struct plm_ops *ops, float *dtable, const act *dout, const int32_t *tokens,
                         int64_t N, int64_t D, int64_t V, int level)
{
  const struct plm_cuda_token_rows rows = {dout, nullptr, tokens, D, N, D, V, level};
  plm_cuda_token_backward(plm_cuda_of(ops), dtable, &rows);
}

} // namespace

int64_t plm_cuda_token_slab_rows(const struct plm_cuda *cuda, int64_t N, int64_t floats)
{
  const int64_t room = plm_cuda_scratch_room<float>(cuda) / floats;
  const int64_t most = room < MAX_SLABS ? room : (int64_t)MAX_SLABS;
  PLM_ASSERT(most >= 1);
  const int64_t slab_rows = (N + most - 1) / most;
  return slab_rows < SLAB_ROWS ? (int64_t)SLAB_ROWS : slab_rows;
}

void plm_cuda_token_backward(struct plm_cuda *cuda, float *dtable,
                             const struct plm_cuda_token_rows *rows)
{
  const int64_t N = rows->N, D = rows->D, V = rows->V;
  if (N <= 0) return;
  const int64_t slab_rows = plm_cuda_token_slab_rows(cuda, N, V * D);
  const unsigned slabs = plm_blocks(N, slab_rows);
  float *partial = plm_cuda_scratch<float>(cuda, (size_t)(slabs * V * D));
  PLM_ASSERT(bytes_of_sums(V, LEAST_OWNERS) <= cuda->shared_bytes);
  if (bytes_of_sums(V, MOST_OWNERS) <= cuda->shared_bytes)
    leave_sums<MOST_OWNERS>(cuda, partial, slabs, slab_rows, rows);
  else
    leave_sums<LEAST_OWNERS>(cuda, partial, slabs, slab_rows, rows);
  plm_cuda_add_partials(cuda, dtable, partial, slabs, V * D);
}

void plm_cuda_tokens_register(struct plm_cuda *cuda)
{
  cuda->ops.token_mean_forward = token_mean_forward;
  cuda->ops.token_mean_backward = token_mean_backward;
}
