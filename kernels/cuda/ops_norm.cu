/* RMSNorm (Zhang and Sennrich 2019) and the mix of a block's input. A warp works on a row;
 * statistics are fp32. */
#include "kernels/cuda/rows.cuh"

namespace
{

enum {
  WARPS = 8,     /* of a block */
  MIX_WARPS = 4, /* in the backward pass of the mix, where small blocks use more of the registers */
  MIX_BLOCKS = plm_most_parts(1024),
  MOST_HELD = 8,
  MOST_HELD_OF_EIGHT = 4
};
static constexpr float EPS = 1e-6f;

/* The first row of this warp, and the distance to its next one. */
template <int OF_BLOCK = WARPS> __device__ __forceinline__ int64_t first_row()
{
  return (int64_t)blockIdx.x * OF_BLOCK + threadIdx.x / PLM_WARP;
}
template <int OF_BLOCK = WARPS> __device__ __forceinline__ int64_t row_stride()
{
  return (int64_t)gridDim.x * OF_BLOCK;
}

template <class C, class T> __device__ __forceinline__ float inverse_rms(const T *row, int64_t D)
{
  float sum = 0;
  EACH_COLUMN(C, D)
  {
    float x[C::N];
    C::load(x, row + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) sum += x[i] * x[i];
  }
  return rsqrtf(warp_sum(sum) / (float)D + EPS);
}

template <class T, bool VECTOR>
__global__ void norm_forward_kernel(T *out, const T *x, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float inverse = inverse_rms<C>(x + n * D, D);
    EACH_COLUMN(C, D)
    {
      float v[C::N];
      C::load(v, x + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] *= inverse;
      C::store(out + n * D + j, v);
    }
  }
}

/* With r = 1 / rms: d norm(x) dh = r dh - x r^3 (dh . x) / D. Returns r and r^3 (dh . x) / D. */
template <class C, class T>
__device__ __forceinline__ float2 backward_factors(const T *dh, const T *x, int64_t D)
{
  float squares = 0, product = 0;
  EACH_COLUMN(C, D)
  {
    float v[C::N], d[C::N];
    C::load(v, x + j);
    C::load(d, dh + j);
#pragma unroll
    for (int i = 0; i < C::N; i++) {
      squares += v[i] * v[i];
      product += v[i] * d[i];
    }
  }
  const float inverse = rsqrtf(warp_sum(squares) / (float)D + EPS);
  const float along = warp_sum(product) / (float)D * inverse * inverse * inverse;
  return make_float2(inverse, along);
}

template <class T, bool VECTOR>
__global__ void norm_backward_kernel(T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const float2 factors = backward_factors<C>(dh + n * D, x + n * D, D);
    EACH_COLUMN(C, D)
    {
      float v[C::N], d[C::N], g[C::N];
      C::load(v, x + n * D + j);
      C::load(d, dh + n * D + j);
      C::load(g, dx + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) g[i] += factors.x * d[i] - factors.y * v[i];
      C::store(dx + n * D + j, g);
    }
  }
}

template <class T> struct Mix {
  const T *x, *p, *skip;
  const float *b, *s; /* s is NULL if there is no skip */
  const int32_t *p_rows;

  /* Row n of p. */
  __device__ __forceinline__ const T *p_row(int64_t n, int64_t D) const
  {
    return p + (p_rows == nullptr ? n : (int64_t)p_rows[n]) * D;
  }
};

/* A lane's elements of the block's input before the mix: x + s skip. */
template <class C, bool SKIP, class T>
__device__ __forceinline__ void load_input(float *out, const Mix<T> &mix, float s, int64_t at)
{
  C::load(out, mix.x + at);
  if constexpr (SKIP) {
    float skip[C::N];
    C::load(skip, mix.skip + at);
#pragma unroll
    for (int i = 0; i < C::N; i++) out[i] += s * skip[i];
  }
}

template <class T, bool VECTOR, bool SKIP>
__global__ void mix_forward_kernel(T *mixed, T *h, Mix<T> mix, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  const float b0 = mix.b[0], b1 = mix.b[1], s = SKIP ? *mix.s : 0;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const T *p_row = mix.p_row(n, D);
    float squares = 0;
    EACH_COLUMN(C, D)
    {
      float v[C::N], w[C::N];
      load_input<C, SKIP>(v, mix, s, n * D + j);
      C::load(w, p_row + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] = to_float(from_float<T>(b0 * v[i] + b1 * w[i]));
#pragma unroll
      for (int i = 0; i < C::N; i++) squares += v[i] * v[i];
      C::store(mixed + n * D + j, v);
    }
    const float inverse = rsqrtf(warp_sum(squares) / (float)D + EPS);
    EACH_COLUMN(C, D) /* each lane reads what it wrote itself */
    {
      float v[C::N];
      C::load(v, mixed + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] *= inverse;
      C::store(h + n * D + j, v);
    }
  }
}

template <class T> struct MixBackward {
  T *dx, *dp, *dskip;
  float *partial_b, *partial_s;        /* (blocks, 2), (blocks) */
  const T *dmixed, *dh, *mixed, *more; /* more: another gradient of the output, or NULL */
  Mix<T> mix;
  int64_t N, D;
};

struct MixSums {
  float x = 0, p = 0, skip = 0;
};

template <class T> __device__ __forceinline__ void leave_sums(const MixBackward<T> &m, MixSums sums)
{
  float *scratch = plm_shared<float>();
  sums.x = block_sum(sums.x, scratch);
  __syncthreads();
  sums.p = block_sum(sums.p, scratch);
  __syncthreads();
  if (m.partial_s != nullptr) sums.skip = block_sum(sums.skip, scratch);
  if (threadIdx.x != 0) return;
  m.partial_b[2 * blockIdx.x] = sums.x;
  m.partial_b[2 * blockIdx.x + 1] = sums.p;
  if (m.partial_s != nullptr) m.partial_s[blockIdx.x] = sums.skip;
}

template <class T, bool VECTOR, bool SKIP> __global__ void mix_backward_kernel(MixBackward<T> m)
{
  typedef Columns<T, VECTOR> C;
  const float b0 = m.mix.b[0], b1 = m.mix.b[1], s = SKIP ? *m.mix.s : 0;
  MixSums sums;
  for (int64_t n = first_row<MIX_WARPS>(); n < m.N; n += row_stride<MIX_WARPS>()) {
    const int64_t row = n * m.D;
    const T *p_row = m.mix.p_row(n, m.D);
    const float2 factors = backward_factors<C>(m.dh + row, m.mixed + row, m.D);
    EACH_COLUMN(C, m.D)
    {
      float v[C::N], d[C::N], g[C::N], w[C::N];
      C::load(v, m.mixed + row + j);
      C::load(d, m.dh + row + j);
      C::load(g, m.dmixed + row + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) g[i] += factors.x * d[i] - factors.y * v[i];
      load_input<C, SKIP>(v, m.mix, s, row + j);
      C::load(w, p_row + j);
      C::load(d, m.dp + row + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) {
        sums.x += g[i] * v[i];
        sums.p += g[i] * w[i];
        d[i] += b1 * g[i];
        g[i] *= b0;
      }
      C::store(m.dp + row + j, d);
      if constexpr (SKIP) {
        C::load(w, m.mix.skip + row + j);
#pragma unroll
        for (int i = 0; i < C::N; i++) {
          sums.skip += g[i] * w[i];
          w[i] = s * g[i];
        }
        C::store(m.dskip + row + j, w);
      }
      if (m.more != nullptr) { /* may be dskip, which was just written */
        C::load(w, m.more + row + j);
#pragma unroll
        for (int i = 0; i < C::N; i++) g[i] += w[i];
      }
      C::store(m.dx + row + j, g);
    }
  }
  leave_sums(m, sums);
}

/* ---- the same kernels with rows in registers ---- */

__device__ __forceinline__ float inverse_of(float squares, int64_t D)
{
  return rsqrtf(warp_sum(squares) / (float)D + EPS);
}

template <class T, int HELD>
__global__ void held_norm_forward_kernel(T *out, const T *x, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R row;
    row.load(x + n * D, D);
    const float inverse =
        inverse_of(R::sum([&](int i, int k) { return row.at(i, k) * row.at(i, k); }), D);
    row.fill([&](int i, int k) { return row.at(i, k) * inverse; });
    row.store(out + n * D, D);
  }
}

/* r and r^3 (dh . x) / D, as backward_factors returns them. */
template <class R> __device__ __forceinline__ float2 held_factors(const R &d, const R &x, int64_t D)
{
  const float squares = R::sum([&](int i, int k) { return x.at(i, k) * x.at(i, k); });
  const float product = R::sum([&](int i, int k) { return x.at(i, k) * d.at(i, k); });
  const float inverse = inverse_of(squares, D);
  return make_float2(inverse, warp_sum(product) / (float)D * inverse * inverse * inverse);
}

template <class T, int HELD>
__global__ void held_norm_backward_kernel(T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R v, d, g;
    v.load(x + n * D, D);
    d.load(dh + n * D, D);
    g.load(dx + n * D, D);
    const float2 f = held_factors(d, v, D);
    g.fill([&](int i, int k) { return g.at(i, k) + (f.x * d.at(i, k) - f.y * v.at(i, k)); });
    g.store(dx + n * D, D);
  }
}

template <class T, int HELD, bool SKIP>
__global__ void held_mix_forward_kernel(T *mixed, T *h, Mix<T> mix, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  const float b0 = mix.b[0], b1 = mix.b[1], s = SKIP ? *mix.s : 0;
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    R v, w, skip;
    v.load(mix.x + n * D, D);
    w.load(mix.p_row(n, D), D);
    if constexpr (SKIP) skip.load(mix.skip + n * D, D);
    v.fill([&](int i, int k) {
      const float x = SKIP ? v.at(i, k) + s * skip.at(i, k) : v.at(i, k);
      return b0 * x + b1 * w.at(i, k);
    });
    v.store(mixed + n * D, D);
    const float inverse =
        inverse_of(R::sum([&](int i, int k) { return v.at(i, k) * v.at(i, k); }), D);
    v.fill([&](int i, int k) { return v.at(i, k) * inverse; });
    v.store(h + n * D, D);
  }
}

template <class T, int HELD, bool SKIP> __global__ void held_mix_backward_kernel(MixBackward<T> m)
{
  typedef Row<T, HELD> R;
  constexpr int N = R::N;
  const float b0 = m.mix.b[0], b1 = m.mix.b[1], s = SKIP ? *m.mix.s : 0;
  const bool own = SKIP && m.more == m.dskip; /* more is what this kernel writes to dskip */
  MixSums sums;
  for (int64_t n = first_row<MIX_WARPS>(); n < m.N; n += row_stride<MIX_WARPS>()) {
    const int64_t row = n * m.D;
    R v, d, g, x, p, dp, skip, more;
    v.load(m.mixed + row, m.D);
    d.load(m.dh + row, m.D);
    g.load(m.dmixed + row, m.D);
    x.load(m.mix.x + row, m.D);
    p.load(m.mix.p_row(n, m.D), m.D);
    dp.load(m.dp + row, m.D);
    if constexpr (SKIP) skip.load(m.mix.skip + row, m.D);
    if (m.more != nullptr && !own) more.load(m.more + row, m.D);
    const float2 f = held_factors(d, v, m.D);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float gradient = g.at(i, k) + (f.x * d.at(i, k) - f.y * v.at(i, k));
        const float dx = gradient * b0;
        sums.p += gradient * p.at(i, k);
        dp.vectors[i].elements[k] = from_float<T>(dp.at(i, k) + b1 * gradient);
        if constexpr (SKIP) {
          const float kept = skip.at(i, k);
          sums.x += gradient * (x.at(i, k) + s * kept);
          sums.skip += dx * kept;
          skip.vectors[i].elements[k] = from_float<T>(s * dx);
          g.vectors[i].elements[k] = from_float<T>(dx + (own ? skip.at(i, k) : more.at(i, k)));
        } else {
          sums.x += gradient * x.at(i, k);
          g.vectors[i].elements[k] = from_float<T>(dx + more.at(i, k));
        }
      }
      dp.store_vector(m.dp + row, m.D, i);
      if constexpr (SKIP) skip.store_vector(m.dskip + row, m.D, i);
      g.store_vector(m.dx + row, m.D, i);
    }
  }
  leave_sums(m, sums);
}

/* ---- the table's functions ---- */
template <class T> bool whole_vectors(int64_t D)
{
  return D % plm_vector<T>::N == 0;
}

template <class T>
void run_norm_forward(struct plm_cuda *cuda, T *out, const T *x, int64_t N, int64_t D)
{
  if (N <= 0) return;
  plm_with_held<T, MOST_HELD>(D, [&](auto held) {
    auto kernel =
        whole_vectors<T>(D) ? norm_forward_kernel<T, true> : norm_forward_kernel<T, false>;
    if constexpr (held.value > 0) kernel = held_norm_forward_kernel<T, held.value>;
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP), 0, out, x,
               N, D);
  });
}

template <class T>
void run_norm_backward(struct plm_cuda *cuda, T *dx, const T *dh, const T *x, int64_t N, int64_t D)
{
  if (N <= 0) return;
  plm_with_held<T, MOST_HELD>(D, [&](auto held) {
    auto kernel =
        whole_vectors<T>(D) ? norm_backward_kernel<T, true> : norm_backward_kernel<T, false>;
    if constexpr (held.value > 0) kernel = held_norm_backward_kernel<T, held.value>;
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP), 0, dx, dh,
               x, N, D);
  });
}

void norm_forward(struct plm_ops *ops, act *out, const act *x, int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_norm_forward(cuda, static_cast<T *>(out), static_cast<const T *>(x), N, D);
  });
}

void norm_backward(struct plm_ops *ops, act *dx, const act *dh, const act *x, int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_norm_backward(cuda, static_cast<T *>(dx), static_cast<const T *>(dh),
                      static_cast<const T *>(x), N, D);
  });
}

void norm_rows_forward(struct plm_ops *ops, float *out, const float *x, int64_t N, int64_t D)
{
  run_norm_forward(plm_cuda_of(ops), out, x, N, D);
}

void norm_rows_backward(struct plm_ops *ops, float *dx, const float *dh, const float *x, int64_t N,
                        int64_t D)
{
  run_norm_backward(plm_cuda_of(ops), dx, dh, x, N, D);
}

template <class T> Mix<T> mix_of(const struct plm_mix *mix)
{
  return {static_cast<const T *>(mix->x),
          static_cast<const T *>(mix->p),
          static_cast<const T *>(mix->skip),
          mix->b,
          mix->s,
          mix->p_rows};
}

/* Calls f with whether there is a skip, as a compile-time constant. */
template <class F> void with_skip(const struct plm_mix *mix, F f)
{
  if (mix->skip != nullptr)
    f(std::true_type());
  else
    f(std::false_type());
}

void mix_norm_forward(struct plm_ops *ops, act *mixed, act *h, const struct plm_mix *mix, int64_t N,
                      int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    with_skip(mix, [&](auto skip) {
      plm_with_held<T, MOST_HELD>(D, [&](auto held) {
        auto kernel = whole_vectors<T>(D) ? mix_forward_kernel<T, true, skip.value>
                                          : mix_forward_kernel<T, false, skip.value>;
        if constexpr (held.value > 0) kernel = held_mix_forward_kernel<T, held.value, skip.value>;
        plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, WARPS)), dim3(WARPS * PLM_WARP), 0,
                   static_cast<T *>(mixed), static_cast<T *>(h), mix_of<T>(mix), N, D);
      });
    });
  });
}

void mix_norm_backward(struct plm_ops *ops, const struct plm_mix_gradients *to, act *dmixed,
                       const act *dh, const act *mixed, const struct plm_mix *mix, int64_t N,
                       int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  const unsigned blocks = min(plm_blocks(N, MIX_WARPS), (unsigned)MIX_BLOCKS);
  float *partial = plm_cuda_scratch<float>(cuda, 3 * MIX_BLOCKS);
  float *partial_s = mix->skip != nullptr ? partial + 2 * MIX_BLOCKS : nullptr;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    const MixBackward<T> m = {static_cast<T *>(to->dx),
                              static_cast<T *>(to->dp),
                              static_cast<T *>(to->dskip),
                              partial,
                              partial_s,
                              static_cast<const T *>(dmixed),
                              static_cast<const T *>(dh),
                              static_cast<const T *>(mixed),
                              static_cast<const T *>(to->more),
                              mix_of<T>(mix),
                              N,
                              D};
    with_skip(mix, [&](auto skip) {
      plm_with_held<T, MOST_HELD_OF_EIGHT>(D, [&](auto held) {
        auto kernel = whole_vectors<T>(D) ? mix_backward_kernel<T, true, skip.value>
                                          : mix_backward_kernel<T, false, skip.value>;
        if constexpr (held.value > 0) kernel = held_mix_backward_kernel<T, held.value, skip.value>;
        plm_launch(cuda->stream, kernel, dim3(blocks), dim3(MIX_WARPS * PLM_WARP),
                   33 * sizeof(float), m);
      });
    });
  });
  plm_cuda_add_partials(cuda, to->db, partial, blocks, 2);
  if (partial_s != nullptr) plm_cuda_add_partials(cuda, to->ds, partial_s, blocks, 1);
}

} // namespace

void plm_cuda_norm_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->norm_forward = norm_forward;
  ops->norm_backward = norm_backward;
  ops->norm_rows_forward = norm_rows_forward;
  ops->norm_rows_backward = norm_rows_backward;
  ops->mix_norm_forward = mix_norm_forward;
  ops->mix_norm_backward = mix_norm_backward;
}
