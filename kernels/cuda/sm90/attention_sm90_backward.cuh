/* What the two ways of attention's backward pass on sm_90a share: the stages of queries or keys
 * that a worker walks, and the computation of a step. attention_sm90_backward.cu has two kernels,
 * of which one owns keys and the other owns queries; attention_sm90_onepass.cu has one. */
#ifndef PLM_KERNELS_CUDA_SM90_ATTENTION_SM90_BACKWARD_CUH
#define PLM_KERNELS_CUDA_SM90_ATTENTION_SM90_BACKWARD_CUH

#include "kernels/cuda/sm90/attention_sm90.cuh"

namespace plm_sm90_gradients
{

enum { STEP = 64 }; /* rows walked at a time */

/* What a stage holds besides its tiles, for the queries walked: lse times log2(e), delta, their
 * runs of keys, and the intersection of these runs. */
struct Queries {
  float lse[STEP], delta[STEP];
  int begin[STEP], end[STEP];
  int common_begin, common_end;
};

/* The range of rows that a work item walks. */
__device__ __forceinline__ plm_sm90_range range_of(const plm_sm90_attention &a,
                                                   const plm_sm90_item &item, const int32_t *begins,
                                                   const int32_t *ends)
{
  plm_sm90_range range(a, item.chunk, item.tile, begins, ends);
  range.join(plm_sm90_range(a, item.chunk, item.tile + 1, begins, ends));
  return range;
}

/* to[j] = factor * from[row + j] for the item's head; `beyond` for rows from `end` on. */
__device__ __forceinline__ void put_values(float *to, const float *from, float factor, float beyond,
                                           const plm_attention &p, const plm_sm90_item &item,
                                           int row, int end)
{
#pragma unroll
  for (int half = 0; half < STEP; half += PLM_WARP) {
    const int j = half + (int)threadIdx.x % PLM_WARP;
    /* addresses are computed again each time; there are no registers to keep them */
    const int of_head = plm_sm90_again(item.chunk * p.shape.H + item.head);
    const int64_t at = (int64_t)of_head * p.shape.L + plm_sm90_again(row + j);
    to[j] = row + j < end ? from[at] * factor : beyond;
  }
}

__device__ __forceinline__ void put_runs(Queries &queries, const plm_attention &p,
                                         const plm_sm90_item &item, int row, int end)
{
  int latest = 0, earliest = p.shape.L;
#pragma unroll 1
  for (int half = 0; half < STEP; half += PLM_WARP) {
    const int j = half + (int)threadIdx.x % PLM_WARP;
    const int64_t at = (int64_t)plm_sm90_again(item.chunk) * p.shape.L + plm_sm90_again(row + j);
    const int run_begin = row + j < end ? p.mask.key_begin[at] : 0;
    const int run_end = row + j < end ? p.mask.key_end[at] : 0;
    queries.begin[j] = run_begin;
    queries.end[j] = run_end;
    latest = max(latest, run_begin);
    earliest = min(earliest, run_end);
  }
#pragma unroll
  for (int mask = PLM_WARP / 2; mask > 0; mask /= 2) {
    latest = max(latest, __shfl_xor_sync(PLM_ALL_LANES, latest, mask));
    earliest = min(earliest, __shfl_xor_sync(PLM_ALL_LANES, earliest, mask));
  }
  if (threadIdx.x % PLM_WARP == 0) queries.common_begin = latest, queries.common_end = earliest;
}

/* Loads a step of both tensors that are walked into the ring's next stage. */
template <class B>
__device__ __forceinline__ void produce_step(B &at, plm_ring<B::STAGES> &ring,
                                             const plm_tile_map *const *walked,
                                             const plm_sm90_item &item, int row)
{
  at.rest->barriers.walked.wait_empty(ring);
  uint64_t *full = &at.rest->barriers.walked.full[ring.stage()];
  unsigned char *tiles = at.walked + ring.stage() * 2 * B::TILE;
  barrier_expect(full, 2 * B::TILE);
  load_rows<B::WIDTH, STEP>(tiles, walked[0], full, item, row);
  load_rows<B::WIDTH, STEP>(tiles + B::TILE, walked[1], full, item, row);
  ring.advance();
}

/* The roles of warps 1 to 3, each of which loads one part of Queries for each step, then arrives;
 * one warp has too few registers for all parts. items(f) calls f(item, range) for each of the
 * block's work items, with the range of queries that is walked. */
template <class B, class Items>
__device__ __forceinline__ void produce_queries(B &at, const plm_sm90_attention &a, Items items)
{
  auto produce = [&](auto put) {
    plm_ring<B::STAGES> ring;
    items([&](const plm_sm90_item &item, const plm_sm90_range &range) {
#pragma unroll 1
      for (int row = range.begin; row < range.end; row += STEP, ring.advance()) {
        at.rest->barriers.walked.wait_empty(ring);
        put(at.rest->queries[ring.stage()], item, row, range.end);
        __syncwarp();
        if (threadIdx.x % PLM_WARP == 0)
          barrier_arrive(&at.rest->barriers.walked.full[ring.stage()]);
      }
    });
  };
  typedef plm_sm90_item Item;
  const int warp = (int)threadIdx.x / PLM_WARP;
  if (warp == 1)
    produce([&](Queries &queries, const Item &item, int row, int end) {
      put_values(queries.lse, a.p.lse, PLM_LOG2E, INFINITY, a.p, item, row, end);
    });
  if (warp == 2)
    produce([&](Queries &queries, const Item &item, int row, int end) {
      put_values(queries.delta, a.p.delta, 1, 0, a.p, item, row, end);
    });
  if (warp == 3)
    produce([&](Queries &queries, const Item &item, int row, int end) {
      put_runs(queries, a.p, item, row, end);
    });
}

enum { FIRST, SECOND }; /* of two tensors: q and dout, k and v */

/* A worker's view of what it owns and of the stages. */
template <class B> struct Worker {
  static constexpr int KP = B::WIDTH;
  typedef plm_ring<B::STAGES> Ring;
  B &at;
  const plm_sm90_attention &a;
  int worker;
  Ring ring;

  __device__ __forceinline__ unsigned owned(int tensor)
  {
    return tile_descriptor(at.owned + (worker * 2 + tensor) * B::TILE, 0);
  }
  /* The stage's tensor, for a sum over its columns. */
  __device__ __forceinline__ unsigned walked(int tensor)
  {
    return tile_descriptor(at.walked + (ring.stage() * 2 + tensor) * B::TILE, 0);
  }
  /* The same for a sum over its rows. */
  __device__ __forceinline__ unsigned walked_down(int tensor)
  {
    return tile_descriptor(at.walked + (ring.stage() * 2 + tensor) * B::TILE,
                           STEP * PLM_TILE_ROW_BYTES);
  }
  __device__ __forceinline__ void pass()
  {
    at.rest->barriers.walked.wait_full(ring);
    at.rest->barriers.walked.release(ring);
    ring.advance();
  }
  /* Begins both products of the stage; each is a group. */
  __device__ __forceinline__ void begin_both(float (&s)[STEP / 2], float (&dp)[STEP / 2], int of_s,
                                             int of_dp)
  {
    products_hold(s);
    products_hold(dp);
    products_fence();
    begin_scores<KP, STEP>(s, owned(of_s), walked(of_s));
    products_commit();
    begin_scores<KP, STEP>(dp, owned(of_dp), walked(of_dp));
    products_commit();
  }
  /* Begins d += p times a tensor of the stage, as a group. */
  __device__ __forceinline__ void begin_sum(float (&d)[KP / 2], unsigned (&p)[STEP / 4], int tensor)
  {
    products_hold(d);
    products_hold(p);
    products_fence();
    begin_sums<KP, STEP>(d, p, walked_down(tensor));
    products_commit();
  }
  /* Walks the stages, which hold `range` from its begin on. Calls step(row, release_before) for
   * those that touch `own` and skips the others. release_before frees the previous stage. */
  template <class Step>
  __device__ __forceinline__ void walk(const plm_sm90_range &range, const plm_sm90_range &own,
                                       Step step)
  {
    int row = range.begin;
    for (; row < range.end && (own.end <= own.begin || row + STEP <= own.begin); row += STEP)
      pass();
    if (row < own.end) {
      Ring before = ring;
      for (bool first = true; row < own.end; row += STEP, first = false) {
        at.rest->barriers.walked.wait_full(ring);
        step(row, [&] {
          if (!first) at.rest->barriers.walked.release(before);
        });
        before = ring;
        ring.advance();
      }
      products_wait<0>();
      at.rest->barriers.walked.release(before);
    }
    for (; row < range.end; row += STEP) pass();
  }
};

/* The weight of a pair. s is its product, or its logit if logits are capped, or minus infinity if
 * the mask forbids it, which gives 0. */
template <bool CAPPED>
__device__ __forceinline__ float weight_of(float s, float lse, const plm_sm90_attention &a)
{
  return exp2_fast(s * (CAPPED ? PLM_LOG2E : a.unit) - lse);
}
/* dS is dP less delta, times this: the weight, times the slope of the cap at the logit s. */
template <bool CAPPED>
__device__ __forceinline__ float slope_of(float s, float weight, const plm_sm90_attention &a)
{
  if (!CAPPED) return weight;
  const float ratio = s * a.inverse_cap;
  return weight > 0 ? weight * (1 - ratio * ratio) : 0; /* s is infinite where the mask forbids */
}

template <int COUNT>
__device__ __forceinline__ void cap_logits(float (&s)[COUNT], const plm_sm90_attention &a)
{
#pragma unroll
  for (int j = 0; j < COUNT; j++) s[j] = plm_sm90_capped(s[j], a);
}

/* For 64 keys from `first` on, whose products with the stage's queries are s (rows are keys,
 * columns are queries): the weights, rounded, and in s what dP less delta is multiplied by. */
template <bool CAPPED>
__device__ __forceinline__ void weigh_keys(float (&s)[STEP / 2], unsigned (&weights)[STEP / 4],
                                           const Queries &queries, int first,
                                           const plm_sm90_attention &a)
{
  const int pair = (int)threadIdx.x % 4 * 2, key = first + plm_sm90_row();
  if (CAPPED) cap_logits(s, a);
  if (first < queries.common_begin || first + 64 > queries.common_end) {
#pragma unroll
    for (int j = 0; j < STEP / 2; j++) {
      const int column = j / 4 * 8 + pair + j % 2, row = key + j / 2 % 2 * 8;
      const int begin = queries.begin[column], end = queries.end[column];
      s[j] = (row < begin) | (row >= end) ? -INFINITY : s[j];
    }
  }
#pragma unroll
  for (int j = 0; j < STEP / 4; j++) {
    const int column = j / 2 * 8 + pair;
    const float low = weight_of<CAPPED>(s[2 * j], queries.lse[column], a);
    const float high = weight_of<CAPPED>(s[2 * j + 1], queries.lse[column + 1], a);
    s[2 * j] = slope_of<CAPPED>(s[2 * j], low, a);
    s[2 * j + 1] = slope_of<CAPPED>(s[2 * j + 1], high, a);
    weights[j] = pack_bf16(low, high);
  }
}

/* dp becomes dS, from dP and what weigh_keys left in s. */
__device__ __forceinline__ void slope_keys(float (&dp)[STEP / 2], const float (&s)[STEP / 2],
                                           const Queries &queries)
{
  const int pair = (int)threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < STEP / 2; j++) {
    const int column = j / 4 * 8 + pair + j % 2;
    dp[j] = s[j] * (dp[j] - queries.delta[column]);
  }
}

} // namespace plm_sm90_gradients

#endif
