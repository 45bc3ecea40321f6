/* Attention forward for sm_90a: online softmax over tiles of keys, after FlashAttention-3 (Shah et
 * al. 2024). The copy engine brings tiles, products are wgmma, the sum over one tile's values runs
 * during the next tile's softmax, and the two warpgroups take turns, so that the products of one
 * run during the softmax of the other.
 *
 * Long ranges of keys are walked 128 keys at a time, which suits the tensor cores. Ranges of about
 * the length of a document are walked 64 at a time, which wastes less on forbidden pairs. */
#include "kernels/cuda/sm90/attention_sm90.cuh"

namespace
{

enum { STAGE_KEYS = 128, LONG_RANGE = 512 };

template <int KP> struct Forward {
  static constexpr int STAGES = KP == 64 ? 4 : 3;
  static constexpr int Q_BYTES = 64 * KP * 2; /* for a warpgroup */
  static constexpr int STAGE_BYTES = STAGE_KEYS * KP * 2;
  struct Barriers {
    plm_ring_barriers<STAGES> k, v;
    plm_ring_barriers<1> q[PLM_SM90_WORKERS];
  };
  static constexpr size_t TILES = PLM_SM90_WORKERS * Q_BYTES + 2 * STAGES * STAGE_BYTES;
  static constexpr size_t SHARED = PLM_SWIZZLE_BYTES + TILES + sizeof(Barriers);

  unsigned char *q, *k, *v;
  Barriers *barriers;
  __device__ __forceinline__ Forward()
  {
    q = plm_sm90_shared();
    k = q + PLM_SM90_WORKERS * Q_BYTES;
    v = k + STAGES * STAGE_BYTES;
    barriers = reinterpret_cast<Barriers *>(q + TILES);
  }
};

/* The softmax's state of a thread's two rows. `most` is a product, or a capped logit. */
struct Rows {
  float most[2], sum[2];
  int begin[2], end[2]; /* runs of keys */
};

/* The factor from `most` to log2(e) times the logit. */
template <bool CAPPED> __device__ __forceinline__ float unit_of(const plm_sm90_attention &a)
{
  return CAPPED ? PLM_LOG2E : a.unit;
}

/* Turns products into weights, in place. Earlier sums must be scaled by `factor`. */
template <int KEYS, bool CAPPED>
__device__ __forceinline__ void soften(float (&s)[KEYS / 2], Rows &rows, float (&factor)[2],
                                       int first_key, bool full, const plm_sm90_attention &a)
{
  if (CAPPED) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) s[i] = plm_sm90_capped(s[i], a);
  }
  const float unit = unit_of<CAPPED>(a);
  if (!full) {
    const int column = first_key + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
      const int key = column + i / 4 * 8 + i % 2, r = i / 2 % 2;
      if (key < rows.begin[r] || key >= rows.end[r]) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float most = rows.most[r];
#pragma unroll
    for (int i = 2 * r; i < KEYS / 2; i += 4) most = fmaxf(most, fmaxf(s[i], s[i + 1]));
    most = quad_max(most);
    /* if there was no key so far, avoid infinity minus infinity */
    const float base = most == -INFINITY ? 0 : most * unit;
    factor[r] = exp2_fast(rows.most[r] * unit - base);
    rows.most[r] = most;
    float sum = 0;
#pragma unroll
    for (int i = 2 * r; i < KEYS / 2; i += 4) {
      s[i] = exp2_fast(s[i] * unit - base);
      s[i + 1] = exp2_fast(s[i + 1] * unit - base);
      sum += s[i] + s[i + 1];
    }
    rows.sum[r] = rows.sum[r] * factor[r] + sum;
  }
}

template <int KP>
__device__ __forceinline__ void rescale(float (&o)[KP / 2], const float (&factor)[2])
{
#pragma unroll
  for (int i = 0; i < KP / 2; i++) o[i] *= factor[i / 2 % 2];
}

/* A work item, and the ranges of keys that a worker's tile and each of both tiles touch.
 * Nothing here depends on the ranges, so that they need not have come when this is made. */
struct Task {
  plm_sm90_item item;
  plm_sm90_range own, full, low, high;
  __device__ __forceinline__ Task(const plm_sm90_attention &a, int number, int worker)
      : item(a, number),
        own(a, item.chunk, item.tile + worker, a.p.mask.tile_key_begin, a.p.mask.tile_key_end),
        full(a, item.chunk, item.tile + worker, a.p.mask.tile_full_begin, a.p.mask.tile_full_end),
        low(a, item.chunk, item.tile, a.p.mask.tile_key_begin, a.p.mask.tile_key_end),
        high(a, item.chunk, item.tile + 1, a.p.mask.tile_key_begin, a.p.mask.tile_key_end)
  {
  }
};

/* A worker's walk through the keys of a work item, KEYS at a time. */
template <int KP, int KEYS, bool CAPPED> struct Walk {
  typedef Forward<KP> F;
  typedef plm_ring<F::STAGES> Ring;
  F &at;
  Ring &ring;
  const plm_sm90_attention &a;
  int worker;
  unsigned q;

  /* In long ranges the warpgroups take turns in beginning products. */
  __device__ __forceinline__ void await_turn()
  {
    if (KEYS == STAGE_KEYS) named_sync(PLM_BAR_TURN + worker, PLM_SM90_WORKERS * PLM_WARPGROUP);
  }
  __device__ __forceinline__ void give_turn()
  {
    if (KEYS == STAGE_KEYS)
      named_arrive(PLM_BAR_TURN + (worker ^ 1), PLM_SM90_WORKERS * PLM_WARPGROUP);
  }
  __device__ __forceinline__ void pass()
  {
    await_turn();
    give_turn();
    at.barriers->k.wait_full(ring);
    at.barriers->k.release(ring);
    at.barriers->v.wait_full(ring);
    at.barriers->v.release(ring);
    ring.advance();
  }
  __device__ __forceinline__ unsigned keys(const Ring &r)
  {
    return tile_descriptor(at.k + r.stage() * F::STAGE_BYTES, 0);
  }
  __device__ __forceinline__ unsigned values(const Ring &r)
  {
    return tile_descriptor(at.v + r.stage() * F::STAGE_BYTES, KEYS * PLM_TILE_ROW_BYTES);
  }

  /* ahead: called once, while the last products are under way */
  template <class Ahead>
  __device__ __forceinline__ void run(float (&o)[KP / 2], Rows &rows, const plm_sm90_range &both,
                                      const Task &task, Ahead ahead)
  {
    const plm_sm90_range own = task.own, full = task.full;
    const int end = both.end;
    int key = both.begin;
    for (; key < end && (own.end <= own.begin || key + KEYS <= own.begin); key += KEYS) pass();
    if (key < own.end) {
      float s[KEYS / 2], factor[2];
      unsigned p[KEYS / 4];
      at.barriers->k.wait_full(ring);
      await_turn();
      products_fence();
      begin_scores<KP, KEYS>(s, q, keys(ring));
      products_commit();
      give_turn();
      products_wait<0>();
      products_hold(s);
      at.barriers->k.release(ring);
      soften<KEYS, CAPPED>(s, rows, factor, key, key >= full.begin && key + KEYS <= full.end, a);
      round_accumulators(p, s);
      Ring before = ring;
      ring.advance();
      for (key += KEYS; key < own.end; key += KEYS) {
        at.barriers->k.wait_full(ring);
        await_turn();
        products_hold(s);
        products_fence();
        begin_scores<KP, KEYS>(s, q, keys(ring));
        products_commit();
        at.barriers->v.wait_full(before);
        products_hold(o);
        products_fence();
        begin_sums<KP, KEYS>(o, p, values(before));
        products_commit();
        give_turn();
        products_wait<1>();
        products_hold(s);
        at.barriers->k.release(ring);
        soften<KEYS, CAPPED>(s, rows, factor, key, key >= full.begin && key + KEYS <= full.end, a);
        compute_now(rows.sum);
        products_wait<0>();
        products_hold(o);
        at.barriers->v.release(before);
        rescale<KP>(o, factor);
        round_accumulators(p, s);
        before = ring;
        ring.advance();
      }
      at.barriers->v.wait_full(before);
      products_hold(o);
      products_fence();
      begin_sums<KP, KEYS>(o, p, values(before));
      products_commit();
      ahead();
      products_wait<0>();
      products_hold(o);
      at.barriers->v.release(before);
    } else {
      ahead();
    }
    for (; key < end; key += KEYS) pass();
  }
};

/* The role of the thread that loads tiles. */
template <int KP>
__device__ __forceinline__ void produce(Forward<KP> &at, const plm_sm90_attention &a,
                                        const plm_tile_map *q, const plm_tile_map *k,
                                        const plm_tile_map *v)
{
  typedef Forward<KP> F;
  plm_ring<F::STAGES> ring;
  plm_ring<1> turn;
  for (int i = (int)blockIdx.x; i < a.items; i += a.blocks, turn.advance()) {
    const plm_sm90_item item(a, i);
    const int32_t *begins = a.p.mask.tile_key_begin, *ends = a.p.mask.tile_key_end;
    plm_sm90_range range(a, item.chunk, item.tile, begins, ends);
    range.join(plm_sm90_range(a, item.chunk, item.tile + 1, begins, ends));
    const bool wide = range.end - range.begin > LONG_RANGE;
    const int keys = wide ? STAGE_KEYS : STAGE_KEYS / 2;
    auto load = [&](plm_ring_barriers<F::STAGES> &barriers, unsigned char *tiles,
                    const plm_tile_map *map, int key) {
      barriers.wait_empty(ring);
      uint64_t *full = &barriers.full[ring.stage()];
      unsigned char *tile = tiles + ring.stage() * F::STAGE_BYTES;
      barrier_expect(full, (unsigned)(keys * KP * 2));
      if (wide)
        load_rows<KP, STAGE_KEYS>(tile, map, full, item, key);
      else
        load_rows<KP, STAGE_KEYS / 2>(tile, map, full, item, key);
    };
    /* the first keys need not wait until the workers are done with the previous queries */
    if (range.begin < range.end) load(at.barriers->k, at.k, k, range.begin);
    for (int w = 0; w < PLM_SM90_WORKERS; w++) {
      at.barriers->q[w].wait_empty(turn);
      barrier_expect(&at.barriers->q[w].full[0], F::Q_BYTES);
      load_rows<KP, 64>(at.q + w * F::Q_BYTES, q, &at.barriers->q[w].full[0], item,
                        (item.tile + w) * 64);
    }
    for (int key = range.begin; key < range.end; key += keys) {
      if (key > range.begin) load(at.barriers->k, at.k, k, key);
      load(at.barriers->v, at.v, v, key);
      ring.advance();
    }
  }
}

template <int KP, bool CAPPED>
__device__ __forceinline__ void work(Forward<KP> &at, const plm_sm90_attention &a, int worker)
{
  typedef Forward<KP> F;
  const plm_attention &p = a.p;
  const int L = p.shape.L, K = p.shape.K, H = p.shape.H;
  const unsigned q = tile_descriptor(at.q + worker * F::Q_BYTES, 0);
  plm_ring<F::STAGES> ring;
  plm_ring<1> turn;
  if (worker == 1)
    named_arrive(PLM_BAR_TURN, PLM_SM90_WORKERS * PLM_WARPGROUP); /* worker 0 begins */
  /* The next item's ranges are read while the last products of an item are under way. */
  Task next(a, (int)blockIdx.x, worker);
  for (int i = (int)blockIdx.x; i < a.items; i += a.blocks, turn.advance()) {
    const Task task = next;
    const plm_sm90_item &item = task.item;
    plm_sm90_range both = task.low;
    both.join(task.high);
    const int first = (item.tile + worker) * 64;
    Rows rows;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int query = first + plm_sm90_row() + 8 * r;
      const int64_t row = (int64_t)item.chunk * L + query;
      rows.most[r] = -INFINITY;
      rows.sum[r] = 0;
      rows.begin[r] = query < L ? p.mask.key_begin[row] : 0;
      rows.end[r] = query < L ? p.mask.key_end[row] : 0;
    }
    float o[KP / 2];
#pragma unroll
    for (int j = 0; j < KP / 2; j++) o[j] = 0;
    at.barriers->q[worker].wait_full(turn);
    auto ahead = [&] { next = Task(a, min(i + a.blocks, a.items - 1), worker); };
    if (both.end - both.begin > LONG_RANGE)
      Walk<KP, STAGE_KEYS, CAPPED>{at, ring, a, worker, q}.run(o, rows, both, task, ahead);
    else
      Walk<KP, STAGE_KEYS / 2, CAPPED>{at, ring, a, worker, q}.run(o, rows, both, task, ahead);
    at.barriers->q[worker].release(turn);
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int query = first + plm_sm90_row() + 8 * r;
      const float sum = quad_sum(rows.sum[r]);
      factor[r] = sum > 0 ? 1 / sum : 0;
      if (query < L && threadIdx.x % 4 == 0)
        p.lse[((int64_t)item.chunk * H + item.head) * L + query] =
            sum > 0 ? rows.most[r] * unit_of<CAPPED>(a) * PLM_LN2 + logf(sum) : INFINITY;
    }
    store_accumulators<KP>(p.out + ((int64_t)item.chunk * L * H + item.head) * K, (int64_t)H * K,
                           first, L, K, o, factor[0], factor[1]);
  }
  if (worker == 0)
    named_sync(PLM_BAR_TURN,
               PLM_SM90_WORKERS * PLM_WARPGROUP); /* takes the turn that is left over */
}

template <int KP, bool CAPPED>
__global__ void __launch_bounds__(PLM_SM90_THREADS, 1)
    forward_kernel(const PLM_GRID_CONSTANT plm_tile_map q, const PLM_GRID_CONSTANT plm_tile_map k,
                   const PLM_GRID_CONSTANT plm_tile_map v,
                   const PLM_GRID_CONSTANT plm_sm90_attention a)
{
  Forward<KP> at;
  if (threadIdx.x == 0) {
    at.barriers->k.init(1, PLM_SM90_WORKERS * PLM_SM90_WARPS);
    at.barriers->v.init(1, PLM_SM90_WORKERS * PLM_SM90_WARPS);
    for (int w = 0; w < PLM_SM90_WORKERS; w++) at.barriers->q[w].init(1, PLM_SM90_WARPS);
    barrier_init_fence();
  }
  __syncthreads();
  const int group = (int)threadIdx.x / PLM_WARPGROUP;
  if (group == 0) {
    registers_release<PLM_SM90_PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce<KP>(at, a, &q, &k, &v);
  } else {
    registers_acquire<PLM_SM90_WORKER_REGISTERS>();
    work<KP, CAPPED>(at, a, group - 1);
  }
}

} // namespace

void plm_sm90_forward(plm_stream stream, const plm_sm90_attention &a, const plm_tile_map &q,
                      const plm_tile_map &k, const plm_tile_map &v)
{
  plm_sm90_with(&a.p.shape, [&](auto width, auto capped) {
    constexpr int KP = decltype(width)::value;
    plm_launch(stream, forward_kernel<KP, decltype(capped)::value>, dim3((unsigned)a.blocks),
               dim3(PLM_SM90_THREADS), Forward<KP>::SHARED, q, k, v, a);
  });
}
