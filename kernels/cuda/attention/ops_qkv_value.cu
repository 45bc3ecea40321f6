/* The backward pass of qkv, with the gradients of a table of value embeddings summed on the way.
 *
 * A block takes a head of a slab of rows. It computes the gradients of as many rows at a time as it
 * has threads for, and leaves those of the value embeddings, rounded, in shared memory. There a
 * thread owns two columns of the head and adds the rows in their order to the sums of their tokens.
 * There is room for the rows of two turns, so that one barrier a turn is enough. The slabs and the
 * order are those of token_mean_backward, and so are the bits. */
#include "kernels/cuda/attention/qkv.cuh"

namespace
{

enum {
  OWNED = 2,
  SHARED_BYTES = 99 << 10 /* every device allows it; two blocks fit on a multiprocessor of 9.0 */
};

/* Where the sums by token go. */
struct TokenSums {
  float *partial; /* (slabs, V, H K) */
  int64_t slab_rows;
  int V;
};

/* Two neighbouring elements of a row. */
template <class T> struct alignas(OWNED * sizeof(T)) Two {
  T x, y;
};

/* The rows of a turn, and the sums of all V tokens, in shared memory. */
template <class T, int LANES> struct ValueRows {
  static constexpr int EACH = PLM_QKV_THREADS / LANES;
  float2 *sums; /* (V, K/2) */
  T *rows;      /* (2, EACH, K) */

  __device__ __forceinline__ ValueRows(int V, int K)
      : sums(plm_shared<float2>()), rows(reinterpret_cast<T *>(sums + V * (K / OWNED)))
  {
  }
  static size_t bytes(int64_t V, int64_t K)
  {
    return (size_t)(V * K) * sizeof(float) + 2 * EACH * (size_t)K * sizeof(T);
  }
};

/* Adds `count` rows to the sums, for the columns of this thread, if it has any. */
template <class T>
__device__ __forceinline__ void add_rows(float2 *sums, const T *rows, const int32_t *tokens,
                                         int count, int K)
{
  const int t = (int)threadIdx.x, owners = K / OWNED;
  if (t >= owners) return;
  for (int r = 0; r < count; r++) {
    const Two<T> d = *reinterpret_cast<const Two<T> *>(rows + r * K + t * OWNED);
    float2 *sum = &sums[tokens[r] * owners + t];
    *sum = make_float2(sum->x + to_float(d.x), sum->y + to_float(d.y));
  }
}

/* Two blocks on a multiprocessor, so that one loads while the other waits at its barrier. */
template <class T, int LANES>
__global__ void __launch_bounds__(PLM_QKV_THREADS, 2)
    value_backward_kernel(Prepare<T> p, TokenSums to)
{
  typedef ValueRows<T, LANES> Rows;
  constexpr int N = Halves<T>::N;
  const int K = (int)p.K, owners = K / OWNED, t = (int)threadIdx.x;
  const int row = t / LANES, lane = t % LANES;
  const int64_t head = blockIdx.y, all = p.B * p.L, first = blockIdx.x * to.slab_rows;
  const int64_t end = first + to.slab_rows < all ? first + to.slab_rows : all;
  const Rows shared(to.V, K);
  float sum_v = 0, sum_vi = 0;
  for (int i = t; i < to.V * owners; i += PLM_QKV_THREADS) shared.sums[i] = make_float2(0, 0);
  int turn = 0; /* the barrier of the first one is also behind the zeros */
  for (int64_t n = first; n < end; n += Rows::EACH, turn ^= 1) {
    T *rows = shared.rows + turn * Rows::EACH * K;
    const Place<T> at(p, n + row, head, lane, end);
    HeadBackward<T, LANES> part;
    part.load(p, at);
    part.compute(p, at, &sum_v, &sum_vi);
    part.vi.store(rows + row * K + lane * N, at.half, at.inside);
    part.store(p, at);
    __syncthreads();
    const int64_t left = end - n;
    add_rows(shared.sums, rows, p.tokens + n, (int)(left < Rows::EACH ? left : Rows::EACH), K);
  }
  float *partial = to.partial + blockIdx.x * to.V * p.H * K + head * K + t * OWNED;
  for (int v = 0; t < owners && v < to.V; v++) {
    const float2 sum = shared.sums[v * owners + t];
    partial[v * p.H * K] = sum.x;
    partial[v * p.H * K + 1] = sum.y;
  }
  __syncthreads(); /* the sums of da take the same memory */
  leave_sums(p, sum_v, sum_vi);
}

} // namespace

bool plm_cuda_qkv_value_backward(struct plm_cuda *cuda, float *dtable, float *da, int64_t V,
                                 const struct plm_qkv_arguments &arguments)
{
  const struct plm_qkv &in = arguments.in;
  const int64_t N = in.B * in.L, sums = V * in.H * in.K, mixes = 2 * in.H;
  if (N <= 0) return true;
  const int64_t slab_rows = plm_cuda_token_slab_rows(cuda, N, sums + mixes);
  const unsigned slabs = plm_blocks(N, slab_rows);
  bool ran = false;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    with_lanes<T>(in.K, [&](auto lanes) {
      if constexpr (lanes.value > 0) {
        const size_t shared = ValueRows<T, lanes.value>::bytes(V, in.K);
        if (shared > SHARED_BYTES) return;
        float *partial = plm_cuda_scratch<float>(cuda, (size_t)(slabs * (sums + mixes)));
        Prepare<T> p = prepared<T>(arguments);
        p.partial = partial + slabs * sums;
        plm_launch(cuda->stream, value_backward_kernel<T, lanes.value>, dim3(slabs, (unsigned)in.H),
                   dim3(PLM_QKV_THREADS), shared, p, TokenSums{partial, slab_rows, (int)V});
        plm_cuda_add_partials(cuda, dtable, partial, slabs, sums);
        plm_cuda_add_partials(cuda, da, p.partial, slabs * in.H, 2);
        ran = true;
      }
    });
  });
  return ran;
}
