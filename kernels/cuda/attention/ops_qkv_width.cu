/* The preparation of q, k and v if q and k are not normalised over the width of a head, but by a
 * LayerNorm over the width of all heads, or not at all. A warp takes q, k or v of a row; a lane
 * holds a vector of the first half of a head and the vector that it is paired with
 * (x_i, x_{i + K/2}), or single elements if half a head is not a multiple of a vector. */
#include "kernels/cuda/attention/qkv.cuh"
#include "kernels/cuda/rows/column_sums.cuh"
#include "kernels/cuda/rows/norm.cuh"

namespace
{

enum { MIX_BLOCKS = plm_most_parts(1024), PARTS = 3 /* q, k and v */ };

template <class T> struct Wide {
  Prepare<T> p;
  const float *weight[2]; /* of q and of k; NULL without a norm */
  float eps;
  int64_t row; /* of the first row, whose operands p's pointers are at */
};

/* The pairs of a row: C::N of them from pair c on, their place in the row and their rotation. */
template <class C> struct Pairs {
  int64_t low, high;
  float c[C::N], s[C::N];
  template <class T> __device__ __forceinline__ Pairs(const Wide<T> &w, int64_t n, int64_t pair)
  {
    const int64_t half = w.p.K / 2, i = pair % half, turn = (w.row + n) % w.p.L * half + i;
    low = pair / half * w.p.K + i;
    high = low + half;
    load_floats<C::N>(c, w.p.cosine + turn);
    load_floats<C::N>(s, w.p.sine + turn);
  }
};

#define EACH_PAIR(C, w) EACH_COLUMN(C, (w).p.H *(w).p.K / 2)

template <class C, class T>
__device__ __forceinline__ void load_normed(float *out, const T *in, const float *weight,
                                            float2 moments, int64_t at)
{
  C::load(out, in + at);
  if (weight == nullptr) return;
  float factor[C::N];
  load_floats<C::N>(factor, weight + at);
#pragma unroll
  for (int k = 0; k < C::N; k++) out[k] = (out[k] - moments.x) * moments.y * factor[k];
}

/* The gradient of the normalised pair, from that of the rotated one. */
template <class C, class T>
__device__ __forceinline__ void load_unturned(float *low, float *high, const T *dy,
                                              const Pairs<C> &at)
{
  C::load(low, dy + at.low);
  C::load(high, dy + at.high);
#pragma unroll
  for (int k = 0; k < C::N; k++) {
    const float a = low[k], b = high[k];
    low[k] = a * at.c[k] - b * at.s[k];
    high[k] = a * at.s[k] + b * at.c[k];
  }
}

/* v of a row, or its gradient, with value embeddings; the sums are those of da */
template <class C, class T>
__device__ __forceinline__ void mix_value(const Wide<T> &w, int64_t n, int64_t D)
{
  const T *v = w.p.qkv + n * 3 * D + 2 * D;
  T *out = w.p.out + n * 3 * D + 2 * D;
  EACH_COLUMN(C, D)
  {
    float x[C::N], e[C::N];
    C::load(x, v + j);
    if (w.p.vi != nullptr) {
      C::load(e, w.p.vi + n * D + j);
#pragma unroll
      for (int k = 0; k < C::N; k++) x[k] = w.p.a[0] * x[k] + w.p.a[1] * e[k];
    }
    C::store(out + j, x);
  }
}

template <class C, class T>
__device__ __forceinline__ float2 unmix_value(const Wide<T> &w, int64_t n, int64_t D)
{
  const int64_t at = n * 3 * D + 2 * D;
  float2 sums = make_float2(0, 0);
  EACH_COLUMN(C, D)
  {
    float d[C::N], x[C::N], e[C::N];
    C::load(d, w.p.dqkv + at + j);
    if (w.p.vi != nullptr) {
      C::load(x, w.p.qkv + at + j);
      C::load(e, w.p.vi + n * D + j);
#pragma unroll
      for (int k = 0; k < C::N; k++) {
        sums.x += d[k] * x[k];
        sums.y += d[k] * e[k];
        e[k] = w.p.a[1] * d[k];
        d[k] *= w.p.a[0];
      }
      C::store(w.p.dvi + n * D + j, e);
    }
    C::store(w.p.out + at + j, d);
  }
  return sums;
}

template <class T, bool VECTOR> __global__ void width_forward_kernel(Wide<T> w)
{
  typedef Columns<T, VECTOR> C;
  const int64_t D = w.p.H * w.p.K, tasks = w.p.B * PARTS;
  for (int64_t task = first_row(); task < tasks; task += row_stride()) {
    const int64_t n = task / PARTS;
    const int part = (int)(task % PARTS);
    if (part == 2) {
      mix_value<C>(w, n, D);
      continue;
    }
    const T *in = w.p.qkv + n * 3 * D + part * D;
    T *out = w.p.out + n * 3 * D + part * D;
    const float *weight = part == 0 ? w.weight[0] : w.weight[1];
    const float2 moments = weight != nullptr ? loaded_moments<C>(in, D, w.eps) : make_float2(0, 1);
    EACH_PAIR(C, w)
    {
      const Pairs<C> at(w, n, j);
      float low[C::N], high[C::N];
      load_normed<C>(low, in, weight, moments, at.low);
      load_normed<C>(high, in, weight, moments, at.high);
#pragma unroll
      for (int k = 0; k < C::N; k++) {
        const float a = low[k], b = high[k];
        low[k] = a * at.c[k] + b * at.s[k];
        high[k] = b * at.c[k] - a * at.s[k];
      }
      C::store(out + at.low, low);
      C::store(out + at.high, high);
    }
  }
}

/* Leaves mean and 1 / sqrt(variance + eps) of q and k of each row: (rows, 2). */
template <class T, bool VECTOR> __global__ void width_moments_kernel(Wide<T> w, float2 *moments)
{
  const int64_t D = w.p.H * w.p.K;
  for (int64_t task = first_row(); task < w.p.B * 2; task += row_stride()) {
    const T *in = w.p.qkv + task / 2 * 3 * D + task % 2 * D;
    const float2 m = loaded_moments<Columns<T, VECTOR>>(in, D, w.eps);
    if (threadIdx.x % PLM_WARP == 0) moments[task] = m;
  }
}

/* Takes q or k of a row back through rotation and norm; out may be dy. */
template <class C, class T>
__device__ __forceinline__ void unturn_row(const Wide<T> &w, float2 m, int64_t n, int part)
{
  const int64_t D = w.p.H * w.p.K, first = n * 3 * D + part * D;
  const T *in = w.p.qkv + first, *dy = w.p.dqkv + first;
  const float *weight = part == 0 ? w.weight[0] : w.weight[1];
  float sum = 0, product = 0;
  if (weight != nullptr) EACH_PAIR(C, w)
    {
      const Pairs<C> at(w, n, j);
      float d[2][C::N], x[C::N], factor[C::N];
      load_unturned<C>(d[0], d[1], dy, at);
#pragma unroll
      for (int side = 0; side < 2; side++) {
        C::load(x, in + (side == 0 ? at.low : at.high));
        load_floats<C::N>(factor, weight + (side == 0 ? at.low : at.high));
#pragma unroll
        for (int k = 0; k < C::N; k++) {
          const float g = d[side][k] * factor[k];
          sum += g;
          product += g * (x[k] - m.x) * m.y;
        }
      }
    }
  const float average = warp_sum(sum) / (float)D, along = warp_sum(product) / (float)D;
  EACH_PAIR(C, w)
  {
    const Pairs<C> at(w, n, j);
    float d[2][C::N], x[C::N], factor[C::N];
    load_unturned<C>(d[0], d[1], dy, at);
#pragma unroll
    for (int side = 0; side < 2; side++) {
      const int64_t place = side == 0 ? at.low : at.high;
      if (weight != nullptr) {
        C::load(x, in + place);
        load_floats<C::N>(factor, weight + place);
#pragma unroll
        for (int k = 0; k < C::N; k++)
          d[side][k] = m.y * (d[side][k] * factor[k] - average - (x[k] - m.x) * m.y * along);
      }
      C::store(w.p.out + first + place, d[side]);
    }
  }
}

template <class T, bool VECTOR>
__global__ void width_backward_kernel(Wide<T> w, const float2 *moments)
{
  typedef Columns<T, VECTOR> C;
  const int64_t D = w.p.H * w.p.K, tasks = w.p.B * PARTS;
  float sum_v = 0, sum_vi = 0;
  for (int64_t task = first_row(); task < tasks; task += row_stride()) {
    const int64_t n = task / PARTS;
    const int part = (int)(task % PARTS);
    if (part < 2) {
      const float2 m = w.weight[0] != nullptr ? moments[n * 2 + part] : make_float2(0, 1);
      unturn_row<C>(w, m, n, part);
    } else {
      const float2 sums = unmix_value<C>(w, n, D);
      sum_v += sums.x;
      sum_vi += sums.y;
    }
  }
  leave_sums(w.p, sum_v, sum_vi);
}

/* Rows of column_sums.cuh: the gradient of q's or k's weight. The sums are those of pairs: the
 * first elements are the weights' sums, the second ones the biases'; both go to a row of D. */
template <class T> struct RowsOfWidth {
  float *dweight,
      *dbias; /* (parts, D / 2): of the first elements of the pairs, and of the second */
  Wide<T> w;
  const float2 *moments;
  int part;
  int64_t N, D; /* D: pairs of a row */

  template <class C>
  __device__ __forceinline__ void add(float *low, float *high, int64_t n, int64_t j) const
  {
    const int64_t first = n * 6 * D + part * 2 * D;
    const Pairs<C> at(w, n, j);
    const float2 m = moments[n * 2 + part];
    float d[2][C::N], x[2][C::N];
    load_unturned<C>(d[0], d[1], w.p.dqkv + first, at);
    C::load(x[0], w.p.qkv + first + at.low);
    C::load(x[1], w.p.qkv + first + at.high);
#pragma unroll
    for (int k = 0; k < C::N; k++) {
      low[k] += d[0][k] * ((x[0][k] - m.x) * m.y);
      high[k] += d[1][k] * ((x[1][k] - m.x) * m.y);
    }
  }
};

/* dweight (H K) += the sums of the parts, of the pairs' first and second elements. */
__global__ void add_pairs_kernel(float *dweight, const float *low, const float *high, int64_t parts,
                                 int64_t pairs, int half)
{
  const int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= pairs) return;
  double sums[2] = {};
  for (int64_t part = 0; part < parts; part++) {
    sums[0] += (double)low[part * pairs + j];
    sums[1] += (double)high[part * pairs + j];
  }
  float *to = dweight + j / half * 2 * half + j % half;
  to[0] = (float)((double)to[0] + sums[0]);
  to[half] = (float)((double)to[half] + sums[1]);
}

template <class T> Wide<T> wide(const struct plm_qkv_arguments &arguments)
{
  Wide<T> w = {};
  w.p = prepared<T>(arguments);
  w.eps = arguments.in.eps;
  if (arguments.in.norm != PLM_QK_NORM_WIDTH) return w;
  w.weight[0] = arguments.in.q_weight;
  w.weight[1] = arguments.in.k_weight;
  return w;
}

bool is_aligned(const void *p)
{
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/* Whether pairs are moved as vectors. */
template <class T> bool takes_vectors(const struct plm_qkv &in)
{
  return in.K / 2 % plm_vector<T>::N == 0 &&
         (in.norm != PLM_QK_NORM_WIDTH || (is_aligned(in.q_weight) && is_aligned(in.k_weight)));
}

template <class T, class... Parameters, class... Arguments>
void run_tasks(struct plm_cuda *cuda, void (*kernel)(Parameters...), unsigned blocks,
               Arguments... arguments)
{
  plm_launch(cuda->stream, kernel, dim3(blocks), dim3(PLM_NORM_WARPS * PLM_WARP),
             33 * sizeof(float), arguments...);
}

/* The gradients of q's and k's weights, from `rows` rows. partial has room for the parts. */
template <class T>
void add_weights(struct plm_cuda *cuda, const struct plm_qkv &in, const Wide<T> &w,
                 const float2 *moments, float *partial)
{
  const int64_t pairs = in.H * in.K / 2, parts = plm_column_parts(w.p.B);
  float *high = partial + parts * pairs;
  for (int part = 0; part < 2; part++) {
    const RowsOfWidth<T> rows = {partial, high, w, moments, part, w.p.B, pairs};
    plm_run_columns<T>(cuda, rows, takes_vectors<T>(in));
    plm_launch(cuda->stream, add_pairs_kernel, dim3(plm_blocks(pairs, PLM_QKV_THREADS)),
               dim3(PLM_QKV_THREADS), 0, part == 0 ? in.dq_weight : in.dk_weight, partial, high,
               parts, pairs, (int)(in.K / 2));
  }
}

/* Rows [row, row + count); Prepare's B is their number, and L still that of a chunk. */
template <class T> void move_to(Wide<T> *w, int64_t row, int64_t count)
{
  const int64_t D = w->p.H * w->p.K;
  w->row = row;
  w->p.qkv += row * 3 * D;
  w->p.dqkv += row * 3 * D;
  w->p.out += row * 3 * D;
  if (w->p.vi != nullptr) w->p.vi += row * D;
  if (w->p.dvi != nullptr) w->p.dvi += row * D;
  w->p.B = count;
}

template <class T>
void run_width_backward(struct plm_cuda *cuda, const struct plm_qkv_arguments &arguments, float *da)
{
  const struct plm_qkv &in = arguments.in;
  const int64_t D = in.H * in.K, N = in.B * in.L;
  const bool normed = in.norm == PLM_QK_NORM_WIDTH, vector = takes_vectors<T>(in);
  const int64_t sums = plm_most_parts(PLM_COLUMN_PARTS) * D + 2 * MIX_BLOCKS;
  const int64_t room = (plm_cuda_scratch_room<float>(cuda) - sums) / 4;
  PLM_ASSERT(room >= 1);
  for (int64_t row = 0; row < N; row += room) {
    Wide<T> w = wide<T>(arguments);
    const int64_t count = N - row < room ? N - row : room;
    move_to(&w, row, count);
    float *scratch = plm_cuda_scratch<float>(cuda, (size_t)(4 * count + sums));
    float2 *moments = reinterpret_cast<float2 *>(scratch);
    w.p.partial = scratch + 4 * count;
    if (normed) {
      run_tasks<T>(cuda, vector ? width_moments_kernel<T, true> : width_moments_kernel<T, false>,
                   plm_blocks(2 * count, PLM_NORM_WARPS), w, moments);
      add_weights<T>(cuda, in, w, moments, w.p.partial + 2 * MIX_BLOCKS);
    }
    const unsigned blocks = min(plm_blocks(PARTS * count, PLM_NORM_WARPS), (unsigned)MIX_BLOCKS);
    run_tasks<T>(cuda, vector ? width_backward_kernel<T, true> : width_backward_kernel<T, false>,
                 blocks, w, (const float2 *)moments);
    if (in.vi != nullptr) plm_cuda_add_partials(cuda, da, w.p.partial, blocks, 2);
  }
}

} // namespace

void plm_cuda_qkv_width_forward(struct plm_cuda *cuda, const struct plm_qkv_arguments &arguments)
{
  const struct plm_qkv &in = arguments.in;
  const int64_t N = in.B * in.L;
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    Wide<T> w = wide<T>(arguments);
    w.p.B = N;
    run_tasks<T>(
        cuda, takes_vectors<T>(in) ? width_forward_kernel<T, true> : width_forward_kernel<T, false>,
        plm_blocks(PARTS * N, PLM_NORM_WARPS), w);
  });
}

void plm_cuda_qkv_width_backward(struct plm_cuda *cuda, const struct plm_qkv_arguments &arguments,
                                 float *da)
{
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_width_backward<T>(cuda, arguments, da);
  });
}
