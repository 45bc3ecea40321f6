/* Attention backward for sm_90a, deterministic, with the formulas and the two kernels of
 * attention_backward.cu: one owns keys and walks their queries for dK and dV, the other owns
 * queries and walks their keys for dQ. Each of a block's two workers owns 64 rows, which stay in
 * shared memory; the rows that they walk come 64 at a time through a ring of stages.
 *
 * The second product of a step runs during the exponentials of this step; products also run during
 * the exponentials of the other worker. */
#include "kernels/cuda/sm90/attention_sm90_backward.cuh"

using namespace plm_sm90_gradients;

namespace
{

template <int KP> struct Backward {
  static constexpr int STAGES = KP == 64 ? 6 : 4;
  static constexpr int WIDTH = KP, TILE = STEP * KP * 2; /* bytes */
  struct Barriers {
    plm_ring_barriers<STAGES> walked;
    plm_ring_barriers<1> owned[PLM_SM90_WORKERS];
  };
  struct Rest {
    Queries queries[STAGES];
    Barriers barriers;
  };
  /* for two tensors each: q and dout, k and v */
  static constexpr size_t TILES = (PLM_SM90_WORKERS + STAGES) * 2 * TILE;
  static constexpr size_t SHARED = PLM_SWIZZLE_BYTES + TILES + sizeof(Rest);

  unsigned char *owned, *walked;
  Rest *rest;
  __device__ __forceinline__ Backward()
  {
    owned = plm_sm90_shared();
    walked = owned + PLM_SM90_WORKERS * 2 * TILE;
    rest = reinterpret_cast<Rest *>(owned + TILES);
  }
  __device__ __forceinline__ void init(unsigned fillers)
  {
    rest->barriers.walked.init(fillers, PLM_SM90_WORKERS * PLM_SM90_WARPS);
    for (int w = 0; w < PLM_SM90_WORKERS; w++) rest->barriers.owned[w].init(1, PLM_SM90_WARPS);
    barrier_init_fence();
  }
};

/* The tensors and ranges of one of the two kernels. */
struct Sides {
  const plm_tile_map *owned[2], *walked[2];
  const int32_t *begins, *ends; /* what each owned tile touches */
};

/* The role of the thread that loads tiles. */
template <int KP>
__device__ __forceinline__ void produce(Backward<KP> &at, const plm_sm90_attention &a,
                                        const Sides &sides)
{
  typedef Backward<KP> B;
  plm_ring<B::STAGES> ring;
  plm_ring<1> turn;
  for (int i = (int)blockIdx.x; i < a.items; i += a.blocks, turn.advance()) {
    const plm_sm90_item item(a, i);
    const plm_sm90_range range = range_of(a, item, sides.begins, sides.ends);
    auto fill = [&](int row) { produce_step(at, ring, sides.walked, item, row); };
    /* the first step need not wait until the workers are done with what they owned before */
    if (range.begin < range.end) fill(range.begin);
#pragma unroll 1
    for (int w = 0; w < PLM_SM90_WORKERS; w++) {
      plm_ring_barriers<1> &barriers = at.rest->barriers.owned[w];
      unsigned char *tiles = at.owned + w * 2 * B::TILE;
      const int row = (item.tile + w) * 64;
      barriers.wait_empty(turn);
      barrier_expect(&barriers.full[0], 2 * B::TILE);
      load_rows<KP, 64>(tiles, sides.owned[0], &barriers.full[0], item, row);
      load_rows<KP, 64>(tiles + B::TILE, sides.owned[1], &barriers.full[0], item, row);
    }
#pragma unroll 1
    for (int row = range.begin + STEP; row < range.end; row += STEP) fill(row);
  }
}

template <int KP, bool CAPPED>
__device__ __forceinline__ void work_queries(Backward<KP> &at, const plm_sm90_attention &a,
                                             int worker)
{
  const plm_attention &p = a.p;
  const int L = p.shape.L, K = p.shape.K, H = p.shape.H;
  const int pair = (int)threadIdx.x % 4 * 2;
  Worker<Backward<KP>> w = {at, a, worker, {}};
  plm_ring<1> turn;
  for (int i = (int)blockIdx.x; i < a.items; i += a.blocks, turn.advance()) {
    const plm_sm90_item item(a, i);
    const int32_t *begins = p.mask.tile_key_begin, *ends = p.mask.tile_key_end;
    const plm_sm90_range own(a, item.chunk, item.tile + worker, begins, ends);
    const plm_sm90_range full(a, item.chunk, item.tile + worker, p.mask.tile_full_begin,
                              p.mask.tile_full_end);
    const plm_sm90_range range = range_of(a, item, begins, ends);
    const int first = (item.tile + worker) * 64;
    float lse[2], delta[2];
    int begin[2], end[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int query = first + plm_sm90_row() + 8 * r;
      const int64_t row = (int64_t)item.chunk * L + query;
      const int64_t of_head = ((int64_t)item.chunk * H + item.head) * L + query;
      begin[r] = query < L ? p.mask.key_begin[row] : 0;
      end[r] = query < L ? p.mask.key_end[row] : 0;
      lse[r] = query < L ? p.lse[of_head] * PLM_LOG2E : INFINITY;
      delta[r] = query < L ? p.delta[of_head] : 0;
    }
    float dq[KP / 2], s[STEP / 2], dp[STEP / 2];
    unsigned ds[STEP / 4];
#pragma unroll
    for (int j = 0; j < KP / 2; j++) dq[j] = 0;
    at.rest->barriers.owned[worker].wait_full(turn);
    w.walk(range, own, [&](int key, auto release_before) {
      w.begin_both(s, dp, FIRST, SECOND);
      products_wait<1>();
      products_hold(s);
      products_hold(dq);
      release_before();
      if (CAPPED) cap_logits(s, a);
      if (key < full.begin || key + STEP > full.end) {
#pragma unroll
        for (int j = 0; j < STEP / 2; j++) {
          const int column = key + j / 4 * 8 + pair + j % 2, r = j / 2 % 2;
          if (column < begin[r] || column >= end[r]) s[j] = -INFINITY;
        }
      }
#pragma unroll
      for (int j = 0; j < STEP / 2; j++)
        s[j] = slope_of<CAPPED>(s[j], weight_of<CAPPED>(s[j], lse[j / 2 % 2], a), a);
      compute_now(s);
      products_wait<0>();
      products_hold(dp);
#pragma unroll
      for (int j = 0; j < STEP / 2; j++) dp[j] = s[j] * (dp[j] - delta[j / 2 % 2]);
      round_accumulators(ds, dp);
      w.begin_sum(dq, ds, FIRST);
    });
    products_hold(dq);
    at.rest->barriers.owned[worker].release(turn);
    store_accumulators<KP>(p.dq + (int64_t)item.chunk * L * p.shape.row_stride + item.head * K,
                           p.shape.row_stride, first, L, K, dq, p.shape.scale, p.shape.scale);
  }
}

template <int KP, bool CAPPED>
__device__ __forceinline__ void work_keys(Backward<KP> &at, const plm_sm90_attention &a, int worker)
{
  /* For wide heads dK and dV leave no registers for both dS and the weights, so the products of dV
   * end before dS is computed. */
  constexpr bool SHARING = KP > 64;
  const plm_attention &p = a.p;
  const int L = p.shape.L, K = p.shape.K;
  Worker<Backward<KP>> w = {at, a, worker, {}};
  plm_ring<1> turn;
  for (int i = (int)blockIdx.x; i < a.items; i += a.blocks, turn.advance()) {
    const plm_sm90_item item(a, i);
    const int32_t *begins = p.mask.tile_query_begin, *ends = p.mask.tile_query_end;
    const plm_sm90_range own(a, item.chunk, item.tile + worker, begins, ends);
    const plm_sm90_range range = range_of(a, item, begins, ends);
    const int first = (item.tile + worker) * 64;
    float dk[KP / 2], dv[KP / 2], s[STEP / 2], dp[STEP / 2];
    unsigned weights[STEP / 4], apart[STEP / 4];
    unsigned(&ds)[STEP / 4] = SHARING ? weights : apart;
#pragma unroll
    for (int j = 0; j < KP / 2; j++) dk[j] = dv[j] = 0;
    at.rest->barriers.owned[worker].wait_full(turn);
    w.walk(range, own, [&](int, auto release_before) {
      const Queries &queries = at.rest->queries[w.ring.stage()];
      w.begin_both(s, dp, FIRST, SECOND);
      products_wait<1>();
      products_hold(s);
      products_hold(dk);
      products_hold(dv);
      release_before();
      weigh_keys<CAPPED>(s, weights, queries, first, a);
      w.begin_sum(dv, weights, SECOND);
      products_wait<SHARING ? 0 : 1>();
      products_hold(dp);
      slope_keys(dp, s, queries);
      round_accumulators(ds, dp);
      w.begin_sum(dk, ds, FIRST);
    });
    products_hold(dk);
    products_hold(dv);
    at.rest->barriers.owned[worker].release(turn);
    const plm_sm90_item done(a, plm_sm90_again(i));
    const int64_t base = (int64_t)done.chunk * L * p.shape.row_stride + done.head * K;
    const int first_again = (done.tile + worker) * 64;
    store_accumulators<KP>(p.dk + base, p.shape.row_stride, first_again, L, K, dk, p.shape.scale,
                           p.shape.scale);
    store_accumulators<KP>(p.dv + base, p.shape.row_stride, first_again, L, K, dv, 1, 1);
  }
}

/* The workers own keys if KEYS, else queries. */
template <int KP, bool CAPPED, bool KEYS>
__global__ void __launch_bounds__(PLM_SM90_THREADS, 1)
    backward_kernel(const PLM_GRID_CONSTANT plm_tile_map q, const PLM_GRID_CONSTANT plm_tile_map k,
                    const PLM_GRID_CONSTANT plm_tile_map v,
                    const PLM_GRID_CONSTANT plm_tile_map dout,
                    const PLM_GRID_CONSTANT plm_sm90_attention a)
{
  Backward<KP> at;
  if (threadIdx.x == 0) at.init(KEYS ? 4 : 1);
  __syncthreads();
  const int group = (int)threadIdx.x / PLM_WARPGROUP;
  if (group == 0) {
    registers_release<PLM_SM90_PRODUCER_REGISTERS>();
    if (threadIdx.x == 0 && KEYS)
      produce<KP>(at, a,
                  {{&k, &v}, {&q, &dout}, a.p.mask.tile_query_begin, a.p.mask.tile_query_end});
    if (threadIdx.x == 0 && !KEYS)
      produce<KP>(at, a, {{&q, &dout}, {&k, &v}, a.p.mask.tile_key_begin, a.p.mask.tile_key_end});
    if (KEYS)
      produce_queries(at, a, [&](auto each) {
        for (int i = (int)blockIdx.x; i < a.items; i += a.blocks) {
          const plm_sm90_item item(a, i);
          each(item, range_of(a, item, a.p.mask.tile_query_begin, a.p.mask.tile_query_end));
        }
      });
  } else {
    registers_acquire<PLM_SM90_WORKER_REGISTERS>();
    if (KEYS)
      work_keys<KP, CAPPED>(at, a, group - 1);
    else
      work_queries<KP, CAPPED>(at, a, group - 1);
  }
}

} // namespace

void plm_sm90_backward(plm_stream stream, const plm_sm90_attention &a, const plm_tile_map &q,
                       const plm_tile_map &k, const plm_tile_map &v, const plm_tile_map &dout)
{
  plm_sm90_with(&a.p.shape, [&](auto width, auto capped) {
    constexpr int KP = decltype(width)::value;
    constexpr bool CAPPED = decltype(capped)::value;
    plm_launch(stream, backward_kernel<KP, CAPPED, true>, dim3((unsigned)a.blocks),
               dim3(PLM_SM90_THREADS), Backward<KP>::SHARED, q, k, v, dout, a);
    plm_launch(stream, backward_kernel<KP, CAPPED, false>, dim3((unsigned)a.blocks),
               dim3(PLM_SM90_THREADS), Backward<KP>::SHARED, q, k, v, dout, a);
  });
}
