/* The operators of attention: the choice of kernels, delta for the backward pass, and slabs of
 * chunks or heads if all of them would outgrow a grid or the scratch. */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/rows/rows.cuh"

namespace
{

enum { WARPS = 8, MOST_CHUNKS = 65535 /* a grid's z */ };

template <class T> struct Operands;
template <> struct Operands<float> {
  typedef plm_attention_of<float> type;
};
template <> struct Operands<plm_bf16> {
  typedef struct plm_attention type;
};

void run_forward(struct plm_cuda *cuda, const plm_attention_of<float> &p)
{
  plm_cuda_attention_plain_forward(cuda, &p);
}
void run_forward(struct plm_cuda *cuda, const struct plm_attention &p)
{
  if (cuda->attention_sm90 && plm_cuda_attention_sm90_forward(cuda, &p)) return;
  plm_cuda_attention_forward(cuda, &p);
}
void run_backward(struct plm_cuda *cuda, const plm_attention_of<float> &p, float *)
{
  plm_cuda_attention_plain_backward(cuda, &p);
}
void run_backward(struct plm_cuda *cuda, const struct plm_attention &p, float *partial)
{
  if (cuda->attention_sm90 && plm_cuda_attention_sm90_backward(cuda, &p, partial)) return;
  plm_cuda_attention_backward(cuda, &p);
}

/* Floats of scratch that the backward pass may take besides delta. */
int64_t partial_of(const struct plm_cuda *, const plm_attention_of<float> &)
{
  return 0;
}
int64_t partial_of(const struct plm_cuda *cuda, const struct plm_attention &p)
{
  return cuda->attention_sm90 ? plm_cuda_attention_sm90_partial(cuda, &p) : 0;
}

/* ---- slabs ---- */

template <class T> T *moved(T *pointer, int64_t by)
{
  return pointer != nullptr ? pointer + by : nullptr;
}

struct plm_interval_mask chunks_of(const struct plm_interval_mask &all, int64_t b, int64_t chunks)
{
  const int64_t rows = b * all.L, tiles = b * plm_blocks(all.L, PLM_MASK_TILE);
  struct plm_interval_mask mask = all;
  mask.B = (int32_t)chunks;
  for (const int32_t **of_rows :
       {&mask.key_begin, &mask.key_end, &mask.query_begin, &mask.query_end})
    *of_rows = moved(*of_rows, rows);
  for (const int32_t **of_tiles :
       {&mask.tile_key_begin, &mask.tile_key_end, &mask.tile_full_begin, &mask.tile_full_end,
        &mask.tile_query_begin, &mask.tile_query_end})
    *of_tiles = moved(*of_tiles, tiles);
  return mask;
}

/* Chunks [b, b + chunks) and their heads [head, head + heads). */
template <class P> P slab_of(const P &all, int64_t b, int64_t chunks, int64_t head, int64_t heads)
{
  const struct plm_attention_shape &shape = all.shape;
  const int64_t offset = b * shape.L * shape.row_stride + head * shape.K;
  const int64_t out_offset = (b * shape.L * shape.H + head) * shape.K;
  P slab = all;
  slab.q = moved(all.q, offset), slab.k = moved(all.k, offset), slab.v = moved(all.v, offset);
  slab.dq = moved(all.dq, offset), slab.dk = moved(all.dk, offset);
  slab.dv = moved(all.dv, offset);
  slab.out = moved(all.out, out_offset), slab.dout = moved(all.dout, out_offset);
  slab.lse = moved(all.lse, (b * shape.H + head) * shape.L);
  slab.mask = chunks_of(all.mask, b, chunks);
  slab.shape.B = (int32_t)chunks;
  slab.heads = (int32_t)heads;
  return slab;
}

/* Runs slabs of at most `room` rows of heads: whole chunks, or heads of one chunk. */
template <class P, class Run> void each_slab(const P &all, int64_t room, Run run)
{
  const int64_t B = all.shape.B, L = all.shape.L, H = all.shape.H;
  PLM_ASSERT(L > 0 && H > 0);
  const int64_t fitting = room / (L * H);
  if (fitting >= 1) {
    const int64_t most = fitting < MOST_CHUNKS ? fitting : (int64_t)MOST_CHUNKS;
    for (int64_t b = 0; b < B; b += most) run(slab_of(all, b, B - b < most ? B - b : most, 0, H));
    return;
  }
  const int64_t most = room / L;
  PLM_ASSERT(most >= 1);
  for (int64_t b = 0; b < B; b++)
    for (int64_t head = 0; head < H; head += most)
      run(slab_of(all, b, 1, head, H - head < most ? H - head : most));
}

/* ---- delta of the backward pass ---- */

/* delta (B, H, L) = the sum over a head of dout * out, both (B, L, H, K). LANES lanes take a head
 * of a row. */
template <class T, bool VECTOR, int LANES>
__global__ void delta_kernel(float *delta, const T *dout, const T *out, unsigned tasks,
                             unsigned heads, struct plm_attention_shape shape)
{
  typedef Columns<T, VECTOR> C;
  const unsigned task = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
  const unsigned row = task / heads, head = task - row * heads;
  const int64_t at = ((int64_t)row * shape.H + head) * shape.K;
  const int lane = (int)threadIdx.x % LANES;
  float sum = 0;
  for (int i = lane * C::N; i < shape.K && task < tasks; i += LANES * C::N) {
    float a[C::N], b[C::N];
    C::load(a, dout + at + i);
    C::load(b, out + at + i);
#pragma unroll
    for (int k = 0; k < C::N; k++) sum += a[k] * b[k];
  }
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(PLM_ALL_LANES, sum, mask);
  const unsigned chunk = row / (unsigned)shape.L, position = row - chunk * (unsigned)shape.L;
  if (task < tasks && lane == 0)
    delta[((int64_t)chunk * shape.H + head) * shape.L + position] = sum;
}

template <bool VECTOR, int LANES, class T, class P>
void launch_delta(struct plm_cuda *cuda, float *delta, T *out, const P &p)
{
  const unsigned tasks = (unsigned)p.shape.B * (unsigned)p.shape.L * (unsigned)p.heads;
  plm_launch(cuda->stream, delta_kernel<T, VECTOR, LANES>,
             dim3(plm_blocks((int64_t)tasks * LANES, WARPS * PLM_WARP)), dim3(WARPS * PLM_WARP), 0,
             delta, p.dout, static_cast<const T *>(out), tasks, (unsigned)p.heads, p.shape);
}

/* Computes delta. */
template <class P> void compute_delta(struct plm_cuda *cuda, float *delta, const P &p)
{
  typedef std::remove_pointer_t<decltype(p.out)> T;
  const int vectors = p.shape.K % plm_vector<T>::N == 0 ? p.shape.K / plm_vector<T>::N : 0;
  if (vectors == 0)
    launch_delta<false, PLM_WARP>(cuda, delta, p.out, p);
  else if (vectors <= 4)
    launch_delta<true, 4>(cuda, delta, p.out, p);
  else if (vectors <= 8)
    launch_delta<true, 8>(cuda, delta, p.out, p);
  else
    launch_delta<true, 16>(cuda, delta, p.out, p);
}

/* The backward pass of a slab. The scratch holds delta, whose size limits the number of heads of
 * rows, and then the partial sums, if there is room. */
template <class P> void run_slab_backward(struct plm_cuda *cuda, P slab)
{
  enum { ALIGNED = 16 / sizeof(float) };
  const int64_t rows = (int64_t)slab.shape.B * slab.shape.L * slab.heads;
  const int64_t begin = (rows + ALIGNED - 1) / ALIGNED * ALIGNED;
  int64_t partial = partial_of(cuda, slab);
  if (begin + partial > plm_cuda_scratch_room<float>(cuda)) partial = 0;
  float *scratch = plm_cuda_scratch<float>(cuda, (size_t)(partial > 0 ? begin + partial : rows));
  compute_delta(cuda, scratch, slab);
  slab.delta = scratch;
  run_backward(cuda, slab, partial > 0 ? scratch + begin : nullptr);
}

/* ---- the table's functions ---- */

void attention_forward(struct plm_ops *ops, act *out, float *lse,
                       const struct plm_attention_inputs *in, const struct plm_interval_mask *mask,
                       const struct plm_attention_shape *shape)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    typename Operands<T>::type p = {};
    p.q = static_cast<const T *>(in->q);
    p.k = static_cast<const T *>(in->k);
    p.v = static_cast<const T *>(in->v);
    p.out = static_cast<T *>(out);
    p.lse = lse;
    p.mask = *mask, p.shape = *shape;
    each_slab(p, INT64_MAX, [&](const auto &slab) { run_forward(cuda, slab); });
  });
}

void attention_backward(struct plm_ops *ops, const struct plm_attention_gradients *to,
                        const act *dout, const act *out, const float *lse,
                        const struct plm_attention_inputs *in, const struct plm_interval_mask *mask,
                        const struct plm_attention_shape *shape)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    typename Operands<T>::type p = {};
    p.q = static_cast<const T *>(in->q);
    p.k = static_cast<const T *>(in->k);
    p.v = static_cast<const T *>(in->v);
    p.out = static_cast<T *>(const_cast<act *>(out));
    p.dout = static_cast<const T *>(dout);
    p.dq = static_cast<T *>(to->dq);
    p.dk = static_cast<T *>(to->dk);
    p.dv = static_cast<T *>(to->dv);
    p.lse = const_cast<float *>(lse);
    p.mask = *mask, p.shape = *shape;
    each_slab(p, plm_cuda_scratch_room<float>(cuda),
              [&](const auto &slab) { run_slab_backward(cuda, slab); });
  });
}

} // namespace

void plm_cuda_attention_register(struct plm_cuda *cuda)
{
  cuda->ops.attention_forward = attention_forward;
  cuda->ops.attention_backward = attention_backward;
}
