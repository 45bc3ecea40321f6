/* Sums of columns over many rows, for gradients of biases and of the weights of norms. The rows are
 * cut into parts. A block takes a part and a strip of columns: its warps take turns at the rows, a
 * lane sums a vector of columns, and the block adds the sums of its warps in their order. A second
 * kernel adds the parts (plm_cuda_add_partials). */
#ifndef PLM_KERNELS_CUDA_ROWS_COLUMN_SUMS_CUH
#define PLM_KERNELS_CUDA_ROWS_COLUMN_SUMS_CUH

#include "kernels/cuda/rows/rows.cuh"

enum {
  PLM_COLUMN_WARPS = 8,  /* of a block */
  PLM_COLUMN_ROWS = 64,  /* at least so many rows in a part, unless there are fewer */
  PLM_COLUMN_PARTS = 128 /* at most */
};

/* N floats, aligned to 16 bytes unless N is 1. */
template <int N> static __device__ __forceinline__ void load_floats(float *out, const float *p)
{
  if constexpr (N == 1)
    out[0] = *p;
  else
#pragma unroll
    for (int i = 0; i < N; i += plm_vector<float>::N) load_vector(out + i, p + i);
}

/* Mean and 1 / sqrt(variance + eps) of a row in memory. */
template <class C, class T>
static __device__ __forceinline__ float2 loaded_moments(const T *row, int64_t D, float eps)
{
  float sum = 0, squares = 0;
  EACH_COLUMN(C, D)
  {
    float x[C::N];
    C::load(x, row + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) sum += x[i];
  }
  const float mean = warp_sum(sum) / (float)D;
  EACH_COLUMN(C, D)
  {
    float x[C::N];
    C::load(x, row + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) squares += (x[i] - mean) * (x[i] - mean);
  }
  return make_float2(mean, rsqrtf(warp_sum(squares) / (float)D + eps));
}

/* What the kernel sums: dh y into dweight (parts, D), with y = (x - mean) r, and dh into dbias
 * (parts, D). Either may be NULL; without dweight, x and moments are not read. */
template <class T> struct RowsOfNorm {
  float *dweight, *dbias;
  const T *dh, *x;
  const float2 *moments; /* mean and r of each row */
  int64_t N, D;

  /* Adds N elements from column j of row n on. */
  template <class C>
  __device__ __forceinline__ void add(float *weights, float *biases, int64_t n, int64_t j) const
  {
    float d[C::N], v[C::N] = {};
    C::load(d, dh + n * D + j);
    const bool weighted = dweight != nullptr;
    float2 m = make_float2(0, 0);
    if (weighted) {
      C::load(v, x + n * D + j);
      m = moments[n];
    }
#pragma unroll
    for (int i = 0; i < C::N; i++) {
      weights[i] += d[i] * ((v[i] - m.x) * m.y);
      biases[i] += d[i];
    }
  }
};

/* Adds up the warps' sums of a strip in their order and leaves them in `to`; every thread of the
 * block calls it. shared: PLM_COLUMN_WARPS times 32 vectors. */
template <int N>
static __device__ __forceinline__ void leave_columns(float *to, const float *sums, float *shared,
                                                     int64_t first, int64_t D)
{
  const int lane = (int)threadIdx.x % PLM_WARP, warp = (int)threadIdx.x / PLM_WARP;
#pragma unroll
  for (int i = 0; i < N; i++) shared[(warp * PLM_WARP + lane) * N + i] = sums[i];
  __syncthreads();
  for (int at = (int)threadIdx.x; at < PLM_WARP * N; at += PLM_COLUMN_WARPS * PLM_WARP) {
    float sum = 0;
    for (int w = 0; w < PLM_COLUMN_WARPS; w++) sum += shared[w * PLM_WARP * N + at];
    if (first + at < D) to[first + at] = sum;
  }
  __syncthreads(); /* the next sums take the same memory */
}

/* Grid: strips of columns, and parts. */
template <class Rows, class C> __global__ void column_sums_kernel(Rows rows, int64_t part_rows)
{
  const int64_t first = (int64_t)blockIdx.x * PLM_WARP * C::N;
  const int64_t j = first + (int64_t)(threadIdx.x % PLM_WARP) * C::N;
  const int64_t begin = (int64_t)blockIdx.y * part_rows;
  const int64_t end = rows.N - begin < part_rows ? rows.N : begin + part_rows;
  float weights[C::N] = {}, biases[C::N] = {};
  if (j < rows.D)
    for (int64_t n = begin + threadIdx.x / PLM_WARP; n < end; n += PLM_COLUMN_WARPS)
      rows.template add<C>(weights, biases, n, j);
  float *shared = plm_shared<float>();
  const int64_t part = (int64_t)blockIdx.y * rows.D;
  if (rows.dweight != nullptr)
    leave_columns<C::N>(rows.dweight + part, weights, shared, first, rows.D);
  if (rows.dbias != nullptr) leave_columns<C::N>(rows.dbias + part, biases, shared, first, rows.D);
}

/* The parts into which N > 0 rows are cut. */
static inline int64_t plm_column_parts(int64_t N)
{
  const int64_t most = plm_most_parts(PLM_COLUMN_PARTS);
  const int64_t parts = (N + PLM_COLUMN_ROWS - 1) / PLM_COLUMN_ROWS;
  return parts < most ? parts : most;
}

/* Rows whose moments fit into scratch behind two sums of all parts, at most N. */
static inline int64_t plm_column_slab(const struct plm_cuda *cuda, int64_t N, int64_t D)
{
  const int64_t room =
      plm_cuda_scratch_room<float>(cuda) / 2 - plm_most_parts(PLM_COLUMN_PARTS) * D;
  PLM_ASSERT(room >= 1);
  return N < room ? N : room;
}

template <class T, class Rows>
static inline void plm_run_columns(struct plm_cuda *cuda, const Rows &rows, bool vector)
{
  const int64_t parts = plm_column_parts(rows.N), part_rows = (rows.N + parts - 1) / parts;
  const int64_t strip = PLM_WARP * (vector ? plm_vector<T>::N : 1);
  plm_launch(cuda->stream,
             vector ? column_sums_kernel<Rows, Columns<T, true>>
                    : column_sums_kernel<Rows, Columns<T, false>>,
             dim3(plm_blocks(rows.D, strip), (unsigned)parts), dim3(PLM_COLUMN_WARPS * PLM_WARP),
             (size_t)(PLM_COLUMN_WARPS * strip) * sizeof(float), rows, part_rows);
}

template <class T> void plm_run_column_sums(struct plm_cuda *cuda, const RowsOfNorm<T> &rows)
{
  plm_run_columns<T>(cuda, rows, plm_whole_vectors<T>(rows.D));
}

#endif
