/* Attention backward for sm_90a in one kernel: S and dP are computed once for dQ, dK and dV, so a
 * step has five products instead of the seven of attention_sm90_backward.cu.
 *
 * A block takes all keys of one head of a chunk, 128 after the other, and walks their queries in
 * aligned tiles of 64. Each worker has 64 of the keys, and leaves its dS in shared memory. The
 * worker of a tile of queries (the tile's number is even or odd) then multiplies dS of both by K
 * and adds the result to the tile's dQ. Between two turns the sum is in the block's own memory in
 * fp32, which mostly stays in the second-level cache, and each thread reads what it wrote itself.
 * The first keys that a tile sees begin the sum, and the last ones round it and write dQ. So the
 * order of all sums is that of the program, and blocks need not wait for each other.
 *
 * The chunks with the most work come first, and blocks take them back and forth; so all blocks end
 * at nearly the same time, although a block has few heads. */
#include "kernels/cuda/sm90/attention_sm90_backward.cuh"

using namespace plm_sm90_gradients;

namespace
{

enum {
  BOTH = PLM_SM90_WORKERS * PLM_WARPGROUP, /* threads */
  BUFFERS = 2,                             /* for dS: of even and of odd tiles of queries */
  KEYS = PLM_SM90_WORKERS * STEP,          /* of a block at a time */
  BAR_MEET = PLM_BAR_TURN + BUFFERS,
  /* chunks; if there are more, they are taken in their order */
  MOST_RANKED = PLM_EMULATED ? 4 : 256,
};

/* The order in which chunks are taken. */
struct Order {
  int work[MOST_RANKED];
  unsigned short chunk[MOST_RANKED];
};

template <int KP> struct OnePass {
  static constexpr int WIDTH = KP, TILE = STEP * KP * 2; /* bytes */
  static constexpr int STAGES = KP == 64 ? 6 : 3;
  struct Barriers {
    plm_ring_barriers<STAGES> walked;
    plm_ring_barriers<1> owned;
  };
  struct Rest {
    Queries queries[STAGES];
    Barriers barriers;
    Order order;
  };
  /* for two tensors each: k and v, q and dout; then dS of both workers */
  static constexpr size_t TILES = (PLM_SM90_WORKERS + STAGES) * 2 * TILE;
  static constexpr size_t SLOPES = BUFFERS * PLM_SM90_WORKERS * PLM_TILE_BYTES;
  static constexpr size_t SHARED = PLM_SWIZZLE_BYTES + TILES + SLOPES + sizeof(Rest);

  unsigned char *owned, *walked;
  Rest *rest;
  __device__ __forceinline__ OnePass()
  {
    owned = plm_sm90_shared();
    walked = owned + PLM_SM90_WORKERS * 2 * TILE;
    rest = reinterpret_cast<Rest *>(owned + TILES + SLOPES);
  }
  /* dS of a worker for a tile of queries: its rows are the queries. */
  __device__ __forceinline__ unsigned char *slopes(int tile, int worker)
  {
    return owned + TILES + (tile % BUFFERS * PLM_SM90_WORKERS + worker) * PLM_TILE_BYTES;
  }
  __device__ __forceinline__ void init()
  {
    rest->barriers.walked.init(4, PLM_SM90_WORKERS * PLM_SM90_WARPS);
    rest->barriers.owned.init(1, PLM_SM90_WORKERS * PLM_SM90_WARPS);
    barrier_init_fence();
  }
};

/* Called by all threads of the block. Followed by a __syncthreads. */
__device__ __forceinline__ void rank_chunks(Order &order, const plm_sm90_attention &a)
{
  const int B = a.p.shape.B;
  if (B > MOST_RANKED) return;
  for (int c = (int)threadIdx.x; c < B; c += PLM_SM90_THREADS) {
    int work = 0;
    for (int t = 0; t < a.tiles; t++) {
      const plm_sm90_range range(a, c, t, a.p.mask.tile_query_begin, a.p.mask.tile_query_end);
      work += range.end - range.begin;
    }
    order.work[c] = work;
  }
  __syncthreads();
  for (int c = (int)threadIdx.x; c < B; c += PLM_SM90_THREADS) {
    int rank = 0;
    for (int other = 0; other < B; other++)
      rank += (order.work[other] > order.work[c]) |
              ((order.work[other] == order.work[c]) & (other < c));
    order.chunk[rank] = (unsigned short)c;
  }
}

/* Calls f(item) for the block's work items: for each of its heads, 128 keys after the other. */
template <class F>
__device__ __forceinline__ void each_item(const plm_sm90_attention &a, const Order &order, F f)
{
  const int heads = a.p.heads, strips = heads * a.p.shape.B;
#pragma unroll 1
  for (int round = 0; round * a.blocks < strips; round++) {
    const int place = round % 2 == 0 ? (int)blockIdx.x : a.blocks - 1 - (int)blockIdx.x;
    const int strip = round * a.blocks + place;
    if (strip >= strips) break;
    const int rank = strip / heads;
    const int chunk = a.p.shape.B > MOST_RANKED ? rank : order.chunk[rank];
#pragma unroll 1
    for (int tile = 0; tile < a.tiles; tile += PLM_SM90_WORKERS)
      f(plm_sm90_item(strip - rank * heads, chunk, tile));
  }
}

__device__ __forceinline__ plm_sm90_range queries_of(const plm_sm90_attention &a,
                                                     const plm_sm90_item &item, int worker)
{
  return plm_sm90_range(a, item.chunk, item.tile + worker, a.p.mask.tile_query_begin,
                        a.p.mask.tile_query_end);
}

/* The queries that a work item walks, from a multiple of STEP on. */
__device__ __forceinline__ plm_sm90_range walk_of(const plm_sm90_attention &a,
                                                  const plm_sm90_item &item)
{
  plm_sm90_range range = queries_of(a, item, 0);
  range.join(queries_of(a, item, 1));
  range.begin = range.begin / STEP * STEP;
  return range;
}

/* The role of the thread that loads tiles. */
template <int KP>
__device__ __forceinline__ void produce(OnePass<KP> &at, const plm_sm90_attention &a,
                                        const plm_tile_map *const owned[2],
                                        const plm_tile_map *const walked[2])
{
  typedef OnePass<KP> B;
  plm_ring<B::STAGES> ring;
  plm_ring<1> turn;
  each_item(a, at.rest->order, [&](const plm_sm90_item &item) {
    const plm_sm90_range range = walk_of(a, item);
    auto fill = [&](int row) { produce_step(at, ring, walked, item, row); };
    /* the first step need not wait until the workers are done with the keys before */
    if (range.begin < range.end) fill(range.begin);
    uint64_t *full = &at.rest->barriers.owned.full[0];
    at.rest->barriers.owned.wait_empty(turn);
    barrier_expect(full, PLM_SM90_WORKERS * 2 * B::TILE);
#pragma unroll 1
    for (int w = 0; w < PLM_SM90_WORKERS; w++) {
      unsigned char *tiles = at.owned + w * 2 * B::TILE;
      load_rows<KP, STEP>(tiles, owned[0], full, item, (item.tile + w) * STEP);
      load_rows<KP, STEP>(tiles + B::TILE, owned[1], full, item, (item.tile + w) * STEP);
    }
    turn.advance();
#pragma unroll 1
    for (int row = range.begin + STEP; row < range.end; row += STEP) fill(row);
  });
}

/* Writes dq = 0 for the tiles of queries of which none sees a key. */
__device__ __forceinline__ void clear_unseeing(const plm_sm90_attention &a,
                                               const plm_sm90_item &item, int worker)
{
  const plm_attention &p = a.p;
  const int vectors = p.shape.K / 8; /* of 16 bytes, in a row */
  plm_bf16 *head =
      p.dq + (int64_t)item.chunk * p.shape.L * p.shape.row_stride + item.head * p.shape.K;
#pragma unroll 1
  for (int tile = worker; tile < a.tiles; tile += PLM_SM90_WORKERS) {
    const plm_sm90_range seen(a, item.chunk, tile, p.mask.tile_key_begin, p.mask.tile_key_end);
    if (seen.begin < seen.end) continue;
#pragma unroll 1
    for (int i = (int)threadIdx.x % PLM_WARPGROUP; i < STEP * vectors; i += PLM_WARPGROUP) {
      const int row = tile * STEP + i / vectors;
      if (row < p.shape.L)
        *reinterpret_cast<uint4 *>(head + row * p.shape.row_stride + i % vectors * 8) =
            uint4{0, 0, 0, 0};
    }
  }
}

/* Stores a worker's dS, whose rows are keys, to a tile whose rows are queries. */
__device__ __forceinline__ void store_slopes(unsigned char *tile, const unsigned (&ds)[STEP / 4])
{
  const int lane = (int)threadIdx.x % PLM_WARP;
  const int visit = (int)threadIdx.x % PLM_WARPGROUP / PLM_WARP * 2 + lane / 8 % 2; /* 8 keys */
#pragma unroll
  for (int i = 0; i < STEP / 16; i++) {
    const int query = i * 16 + lane / 16 * 8 + lane % 8;
    store_matrices_turned(tile + query * PLM_TILE_ROW_BYTES + (visit ^ query % 8) * 16, ds + 4 * i);
  }
  matrices_publish();
}

/* A step of a worker's keys: dv += weights * dout and dk += dS * q for the stage's queries. Leaves
 * dS in `slopes`. */
template <int KP, bool CAPPED>
__device__ __forceinline__ void step_of_keys(Worker<OnePass<KP>> &w, float (&dk)[KP / 2],
                                             float (&dv)[KP / 2], int first, unsigned char *slopes)
{
  /* wide heads leave no registers for both dS and the weights */
  constexpr bool SHARING = KP > 64;
  const Queries &queries = w.at.rest->queries[w.ring.stage()];
  float s[STEP / 2], dp[STEP / 2];
  unsigned weights[STEP / 4], apart[STEP / 4];
  unsigned(&ds)[STEP / 4] = SHARING ? weights : apart;
  w.begin_both(s, dp, FIRST, SECOND);
  products_wait<1>();
  products_hold(s);
  weigh_keys<CAPPED>(s, weights, queries, first, w.a);
  w.begin_sum(dv, weights, SECOND);
  products_wait<SHARING ? 0 : 1>();
  products_hold(dp);
  slope_keys(dp, s, queries);
  round_accumulators(ds, dp);
  w.begin_sum(dk, ds, FIRST);
  store_slopes(slopes, ds);
  products_wait<0>();
  products_hold(dv);
  products_hold(dk);
}

/* Adds dS K of both workers' keys to dQ of the tile of queries `tile`. touched: whether a worker
 * has dS. kept: where this thread's part of the tile's sum is. */
template <int KP>
__device__ __forceinline__ void step_of_queries(Worker<OnePass<KP>> &w, const plm_sm90_item &item,
                                                int tile, const bool (&touched)[PLM_SM90_WORKERS],
                                                float *kept)
{
  const plm_attention &p = w.a.p;
  const plm_sm90_range seen(w.a, item.chunk, tile, p.mask.tile_key_begin, p.mask.tile_key_end);
  const int begins_at = seen.begin / KEYS * PLM_SM90_WORKERS; /* in the units of item.tile */
  const int ends_at = (seen.end - 1) / KEYS * PLM_SM90_WORKERS;
  const bool inside = seen.begin < seen.end && begins_at <= item.tile && item.tile <= ends_at;
  float dq[KP / 2];
#pragma unroll
  for (int i = 0; i < KP / 8; i++) {
    float4 part = {0, 0, 0, 0};
    if (inside && begins_at < item.tile)
      part = *reinterpret_cast<const float4 *>(kept + i * 4 * PLM_WARPGROUP);
    dq[4 * i] = part.x, dq[4 * i + 1] = part.y, dq[4 * i + 2] = part.z, dq[4 * i + 3] = part.w;
  }
  named_sync(PLM_BAR_TURN + tile % BUFFERS, BOTH);
  if (!inside) return;
#pragma unroll
  for (int v = 0; v < PLM_SM90_WORKERS; v++) {
    if (!touched[v]) continue;
    const unsigned ds = tile_descriptor(w.at.slopes(tile, v), 0);
    const unsigned k =
        tile_descriptor(w.at.owned + v * 2 * OnePass<KP>::TILE, STEP * PLM_TILE_ROW_BYTES);
    products_hold(dq);
    products_fence();
#pragma unroll
    for (int step = 0; step < STEP / PLM_PRODUCT_STEP; step++)
      product_tiles<KP, true>(dq, ds + step * PLM_COLUMNS_FURTHER, k + step * PLM_ROWS_FURTHER,
                              true);
    products_commit();
    products_wait<0>();
    products_hold(dq);
  }
  if (item.tile == ends_at) {
    store_accumulators<KP>(
        p.dq + (int64_t)item.chunk * p.shape.L * p.shape.row_stride + item.head * p.shape.K,
        p.shape.row_stride, tile * STEP, p.shape.L, p.shape.K, dq, p.shape.scale, p.shape.scale);
    return;
  }
#pragma unroll
  for (int i = 0; i < KP / 8; i++)
    *reinterpret_cast<float4 *>(kept + i * 4 * PLM_WARPGROUP) =
        float4{dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
}

/* The role of a worker. */
template <int KP, bool CAPPED>
__device__ __forceinline__ void work(OnePass<KP> &at, const plm_sm90_attention &a, int worker,
                                     float *partial)
{
  const plm_attention &p = a.p;
  const int L = p.shape.L, K = p.shape.K;
  Worker<OnePass<KP>> w = {at, a, worker, {}};
  plm_ring<1> turn;
  float *kept =
      partial + (int64_t)blockIdx.x * a.tiles * STEP * KP + (int)threadIdx.x % PLM_WARPGROUP * 4;
  each_item(a, at.rest->order, [&](const plm_sm90_item &item) {
    if (item.tile == 0) clear_unseeing(a, item, worker);
    const plm_sm90_range own[] = {queries_of(a, item, 0), queries_of(a, item, 1)};
    const plm_sm90_range range = walk_of(a, item);
    const int first = (item.tile + worker) * STEP;
    float dk[KP / 2], dv[KP / 2];
#pragma unroll
    for (int j = 0; j < KP / 2; j++) dk[j] = dv[j] = 0;
    at.rest->barriers.owned.wait_full(turn);
#pragma unroll 1
    for (int row = range.begin; row < range.end; row += STEP) {
      const int tile = row / STEP;
      const bool touched[] = {own[0].begin < row + STEP && row < own[0].end,
                              own[1].begin < row + STEP && row < own[1].end};
      at.rest->barriers.walked.wait_full(w.ring);
      if (worker == 0 ? touched[0] : touched[1])
        step_of_keys<KP, CAPPED>(w, dk, dv, first, at.slopes(tile, worker));
      at.rest->barriers.walked.release(w.ring);
      w.ring.advance();
      if (tile % BUFFERS == worker)
        step_of_queries<KP>(w, item, tile, touched, kept + (int64_t)tile * STEP * KP);
      else
        named_arrive(PLM_BAR_TURN + tile % BUFFERS, BOTH);
    }
    named_sync(BAR_MEET, BOTH); /* the next keys may begin at a tile of the same worker */
    at.rest->barriers.owned.release(turn);
    turn.advance();
    const int64_t base = (int64_t)item.chunk * L * p.shape.row_stride + item.head * K;
    store_accumulators<KP>(p.dk + base, p.shape.row_stride, first, L, K, dk, p.shape.scale,
                           p.shape.scale);
    store_accumulators<KP>(p.dv + base, p.shape.row_stride, first, L, K, dv, 1, 1);
  });
}

template <int KP, bool CAPPED>
__global__ void __launch_bounds__(PLM_SM90_THREADS, 1)
    onepass_kernel(const PLM_GRID_CONSTANT plm_tile_map q, const PLM_GRID_CONSTANT plm_tile_map k,
                   const PLM_GRID_CONSTANT plm_tile_map v,
                   const PLM_GRID_CONSTANT plm_tile_map dout,
                   const PLM_GRID_CONSTANT plm_sm90_attention a, float *partial)
{
  OnePass<KP> at;
  if (threadIdx.x == 0) at.init();
  rank_chunks(at.rest->order, a);
  __syncthreads();
  const int group = (int)threadIdx.x / PLM_WARPGROUP;
  if (group > 0) {
    registers_acquire<PLM_SM90_WORKER_REGISTERS>();
    work<KP, CAPPED>(at, a, group - 1, partial);
    return;
  }
  registers_release<PLM_SM90_PRODUCER_REGISTERS>();
  if (threadIdx.x == 0) {
    const plm_tile_map *const owned[] = {&k, &v}, *const walked[] = {&q, &dout};
    produce<KP>(at, a, owned, walked);
  }
  produce_queries(at, a, [&](auto visit) {
    each_item(a, at.rest->order, [&](const plm_sm90_item &item) { visit(item, walk_of(a, item)); });
  });
}

} // namespace

void plm_sm90_onepass(plm_stream stream, const plm_sm90_attention &a, const plm_tile_map maps[4],
                      float *partial)
{
  plm_sm90_with(&a.p.shape, [&](auto width, auto capped) {
    constexpr int KP = decltype(width)::value;
    constexpr bool CAPPED = decltype(capped)::value;
    plm_launch(stream, onepass_kernel<KP, CAPPED>, dim3((unsigned)a.blocks), dim3(PLM_SM90_THREADS),
               OnePass<KP>::SHARED, maps[0], maps[1], maps[2], maps[3], a, partial);
  });
}
