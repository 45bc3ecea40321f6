/* The mix of a block's input, x' = b0 (x + s skip) + b1 p, and its norm. A warp works on a row. The
 * backward pass computes x' again, with the same bits, instead of reading it. */
#include "kernels/cuda/rows/norm.cuh"

namespace
{

enum {
  MIX_WARPS = 4, /* of a block in the backward pass, where small blocks use more of the registers */
  MIX_BLOCKS = plm_most_parts(1024),
  MIX_MOST_HELD = 4 /* of the seven rows of the backward pass */
};

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

struct MixScalars {
  float b0, b1, s;

  template <class T>
  __device__ __forceinline__ MixScalars(const Mix<T> &mix, bool skip)
      : b0(mix.b[0]), b1(mix.b[1]), s(skip ? *mix.s : 0)
  {
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
    for (int i = 0; i < C::N; i++) out[i] = fmaf(s, skip[i], out[i]);
  }
}

/* An element of x'. The multiplications are rounded in an order that no compiler changes, so that
 * the backward pass computes the same bits again. */
template <class T>
__device__ __forceinline__ float mixed_value(float b0, float x, float b1, float p)
{
  return to_float(from_float<T>(fmaf(b0, x, b1 * p)));
}

/* A lane's elements of x', from column j of row n on; p_row is its row of p. */
template <class C, bool SKIP, class T>
__device__ __forceinline__ void load_mixed(float *out, const Mix<T> &mix, const MixScalars &by,
                                           const T *p_row, int64_t row, int64_t j)
{
  float p[C::N];
  load_input<C, SKIP>(out, mix, by.s, row + j);
  C::load(p, p_row + j);
#pragma unroll
  for (int i = 0; i < C::N; i++) out[i] = mixed_value<T>(by.b0, out[i], by.b1, p[i]);
}

template <class T, bool VECTOR, bool SKIP>
__global__ void mix_forward_kernel(T *mixed, T *h, Mix<T> mix, int64_t N, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  const MixScalars by(mix, SKIP);
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    const T *p_row = mix.p_row(n, D);
    float squares = 0;
    EACH_COLUMN(C, D)
    {
      float v[C::N];
      load_mixed<C, SKIP>(v, mix, by, p_row, n * D, j);
#pragma unroll
      for (int i = 0; i < C::N; i++) squares += v[i] * v[i];
      C::store(mixed + n * D + j, v);
    }
    const float inverse = inverse_rms(squares, D);
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
  float *partial_b, *partial_s; /* (blocks, 2), (blocks) */
  const T *dmixed, *dh, *more;  /* more: another gradient of the output, or NULL */
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
  const MixScalars by(m.mix, SKIP);
  MixSums sums;
  for (int64_t n = first_row<MIX_WARPS>(); n < m.N; n += row_stride<MIX_WARPS>()) {
    const int64_t row = n * m.D;
    const T *p_row = m.mix.p_row(n, m.D);
    const auto load = [&](float *v, int64_t j) {
      load_mixed<C, SKIP>(v, m.mix, by, p_row, row, j);
    };
    const float2 factors = loaded_factors<C>(m.dh + row, m.D, load);
    EACH_COLUMN(C, m.D)
    {
      float v[C::N], d[C::N], g[C::N], w[C::N];
      load(v, j);
      C::load(d, m.dh + row + j);
      C::load(g, m.dmixed + row + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) g[i] += factors.x * d[i] - factors.y * v[i];
      load_input<C, SKIP>(v, m.mix, by.s, row + j);
      C::load(w, p_row + j);
      C::load(d, m.dp + row + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) {
        sums.x += g[i] * v[i];
        sums.p += g[i] * w[i];
        d[i] += by.b1 * g[i];
        g[i] *= by.b0;
      }
      C::store(m.dp + row + j, d);
      if constexpr (SKIP) {
        C::load(w, m.mix.skip + row + j);
#pragma unroll
        for (int i = 0; i < C::N; i++) {
          sums.skip += g[i] * w[i];
          w[i] = by.s * g[i];
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

/* What x' is computed from. */
template <class T, int HELD, bool SKIP> struct HeldInput {
  Row<T, HELD> x, p, skip;

  __device__ __forceinline__ void load(const Mix<T> &mix, int64_t n, int64_t D)
  {
    x.load(mix.x + n * D, D);
    p.load(mix.p_row(n, D), D);
    if constexpr (SKIP) skip.load(mix.skip + n * D, D);
  }
  __device__ __forceinline__ void hide()
  {
    x.hide(), p.hide();
    if constexpr (SKIP) skip.hide();
  }
  __device__ __forceinline__ float input(const MixScalars &by, int i, int k) const
  {
    return SKIP ? fmaf(by.s, skip.at(i, k), x.at(i, k)) : x.at(i, k);
  }
  __device__ __forceinline__ float mixed(const MixScalars &by, int i, int k) const
  {
    return mixed_value<T>(by.b0, input(by, i, k), by.b1, p.at(i, k));
  }
};

template <class T, int HELD, bool SKIP>
__global__ void held_mix_forward_kernel(T *mixed, T *h, Mix<T> mix, int64_t N, int64_t D)
{
  typedef Row<T, HELD> R;
  const MixScalars by(mix, SKIP);
  for (int64_t n = first_row(); n < N; n += row_stride()) {
    HeldInput<T, HELD, SKIP> in;
    in.load(mix, n, D);
    R v;
    v.fill([&](int i, int k) { return in.mixed(by, i, k); });
    v.store(mixed + n * D, D);
    const float inverse =
        inverse_rms(R::sum([&](int i, int k) { return v.at(i, k) * v.at(i, k); }), D);
    v.fill([&](int i, int k) { return v.at(i, k) * inverse; });
    v.store(h + n * D, D);
  }
}

/* Blocks that a multiprocessor has room for: with 768 columns (HELD 3) the compiler would take a
 * few registers more than three blocks may have. */
constexpr int mix_blocks_at_once(int held)
{
  return held == 3 ? 3 : 1;
}

template <class T, int HELD, bool SKIP>
__global__ void __launch_bounds__(MIX_WARPS *PLM_WARP, mix_blocks_at_once(HELD))
    held_mix_backward_kernel(MixBackward<T> m)
{
  typedef Row<T, HELD> R;
  constexpr int N = R::N;
  const MixScalars by(m.mix, SKIP);
  const bool own = SKIP && m.more == m.dskip; /* more is what this kernel writes to dskip */
  MixSums sums;
  for (int64_t n = first_row<MIX_WARPS>(); n < m.N; n += row_stride<MIX_WARPS>()) {
    const int64_t row = n * m.D;
    HeldInput<T, HELD, SKIP> in;
    R d, g, dp, more;
    in.load(m.mix, n, m.D);
    d.load(m.dh + row, m.D);
    g.load(m.dmixed + row, m.D);
    dp.load(m.dp + row, m.D);
    if (m.more != nullptr && !own) more.load(m.more + row, m.D);
    const float2 f = held_factors(d, m.D, [&](int i, int k) { return in.mixed(by, i, k); });
    in.hide(), d.hide();
#pragma unroll
    for (int i = 0; i < HELD; i++) {
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float gradient = g.at(i, k) + (f.x * d.at(i, k) - f.y * in.mixed(by, i, k));
        const float dx = gradient * by.b0;
        sums.x += gradient * in.input(by, i, k);
        sums.p += gradient * in.p.at(i, k);
        dp.vectors[i].elements[k] = from_float<T>(dp.at(i, k) + by.b1 * gradient);
        float other = more.at(i, k);
        if constexpr (SKIP) {
          sums.skip += dx * in.skip.at(i, k);
          in.skip.vectors[i].elements[k] = from_float<T>(by.s * dx);
          if (own) other = in.skip.at(i, k);
        }
        g.vectors[i].elements[k] = from_float<T>(dx + other);
      }
      dp.store_vector(m.dp + row, m.D, i);
      if constexpr (SKIP) in.skip.store_vector(m.dskip + row, m.D, i);
      g.store_vector(m.dx + row, m.D, i);
    }
  }
  leave_sums(m, sums);
}

/* ---- the table's functions ---- */
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
      plm_with_held<T, PLM_NORM_MOST_HELD>(D, [&](auto held) {
        auto kernel = plm_whole_vectors<T>(D) ? mix_forward_kernel<T, true, skip.value>
                                              : mix_forward_kernel<T, false, skip.value>;
        if constexpr (held.value > 0) kernel = held_mix_forward_kernel<T, held.value, skip.value>;
        plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, PLM_NORM_WARPS)),
                   dim3(PLM_NORM_WARPS * PLM_WARP), 0, static_cast<T *>(mixed), static_cast<T *>(h),
                   mix_of<T>(mix), N, D);
      });
    });
  });
}

void mix_norm_backward(struct plm_ops *ops, const struct plm_mix_gradients *to, act *dmixed,
                       const act *dh, const struct plm_mix *mix, int64_t N, int64_t D)
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
                              static_cast<const T *>(to->more),
                              mix_of<T>(mix),
                              N,
                              D};
    with_skip(mix, [&](auto skip) {
      plm_with_held<T, MIX_MOST_HELD>(D, [&](auto held) {
        auto kernel = plm_whole_vectors<T>(D) ? mix_backward_kernel<T, true, skip.value>
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

void plm_cuda_mix_register(struct plm_cuda *cuda)
{
  cuda->ops.mix_norm_forward = mix_norm_forward;
  cuda->ops.mix_norm_backward = mix_norm_backward;
}
