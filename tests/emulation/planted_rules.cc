/* A kernel that breaks one rule at a time: see planted_rules.h. */
extern "C" {
#include "tests/emulation/planted_rules.h"
}

#include "kernels/cuda/sm90/warpgroups.cuh"

namespace
{

enum { N = PLM_RULES_SIDE, BYTES = PLM_TILE_BYTES, BOTH = 2 * PLM_WARPGROUP };

__device__ void copied_map(unsigned char *tile, const plm_tile_map *map, uint64_t *full)
{
  const plm_tile_map copy = *map;
  tile_load(tile, &copy, full, 0, 0, 0, 0);
}

/* Brings the tile. */
__device__ void bring(unsigned char *tile, const plm_tile_map *map, uint64_t *full,
                      plm_planted_rule fault)
{
  barrier_expect(full, BYTES);
  if (fault == PLM_RULE_MAP_COPIED)
    copied_map(tile, map, full);
  else
    tile_load(fault == PLM_RULE_TILE_OVER_BARRIER ? tile + BYTES : tile, map, full, 0, 0, 0, 0);
}

__device__ void meet_by_name(plm_planted_rule fault)
{
  if (fault == PLM_RULE_NAMED_COUNT)
    named_arrive(PLM_BAR_TURN, PLM_WARPGROUP);
  else if (fault == PLM_RULE_NAMED_PART)
    named_arrive(PLM_BAR_TURN, 250);
  else if (fault == PLM_RULE_NAMED_ZERO)
    named_arrive(0, BOTH);
  else if (fault == PLM_RULE_NAMED_DIVERGED && threadIdx.x % 2 == 0)
    named_arrive(PLM_BAR_TURN, BOTH);
  else
    named_arrive(PLM_BAR_TURN, BOTH);
  if (fault == PLM_RULE_NAMED_LEFT) named_arrive(PLM_BAR_TURN + 1, BOTH);
}

/* The loading warpgroup gives its registers and meets the second worker. */
__device__ void give(plm_planted_rule fault)
{
  const bool last_warp = threadIdx.x >= PLM_WARPGROUP - PLM_WARP;
  if (fault == PLM_RULE_REGISTERS_UP)
    registers_release<200>();
  else if (fault == PLM_RULE_REGISTERS_DIFFER && last_warp)
    registers_release<32>();
  else if (fault != PLM_RULE_REGISTERS_PART || !last_warp)
    registers_release<24>();
}

/* d = a a^T by tiles, and e += bf16(d_before) a from registers, as two groups. */
__device__ void multiply(float (&d)[N / 2], float (&e)[N / 2], unsigned tile,
                         plm_planted_rule fault)
{
  unsigned p[4] = {0, 0, 0, 0};
  products_hold(d);
  products_hold(p);
  products_fence();
  if (fault == PLM_RULE_FENCE_DIVERGED && threadIdx.x % 2 == 0) products_fence();
  product_tiles<N>(d, tile, tile, false);
  products_commit();
  for (unsigned &pair : p) pair = 0x3f803f80; /* ones */
  products_hold(p);
  if (fault != PLM_RULE_SECOND_FENCE) products_fence();
  product_registers<N>(e, p, tile);
  products_commit();
  if (fault == PLM_RULE_WAIT_DIVERGED && threadIdx.x % 2 == 0) products_wait<1>();
  products_wait<0>();
  products_hold(d);
  products_hold(e);
}

/* Words beside those that belong to it. `offset` is in bytes. */
template <class T> __device__ float read_beside(const void *data, int offset)
{
  const T value = *reinterpret_cast<const T *>(static_cast<const char *>(data) + offset);
  return memcmp(&value.x, &value.y, sizeof value.x) != 0 ? 1 : 0;
}

__global__ void rules_kernel(const PLM_GRID_CONSTANT plm_tile_map map, const plm_bf16 *a,
                             float *out, plm_planted_rule fault)
{
  unsigned char *tile = plm_sm90_shared();
  uint64_t *full = reinterpret_cast<uint64_t *>(tile + BYTES);
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    if (fault == PLM_RULE_INIT_TWICE) barrier_init(full, 1);
    if (fault != PLM_RULE_INIT_FENCE) barrier_init_fence();
    if (fault == PLM_RULE_STORE_OVER_BARRIER) *full = 0;
  }
  if (fault == PLM_RULE_BLOCK_DIVERGED && threadIdx.x % 2 == 0)
    __syncthreads();
  else if (fault != PLM_RULE_INIT_BARRIER)
    __syncthreads();
  if (threadIdx.x < PLM_WARPGROUP) {
    give(fault);
    if (threadIdx.x == 0) bring(tile, &map, full, fault);
    meet_by_name(fault);
    return;
  }
  if (fault == PLM_RULE_REGISTERS_POOL)
    registers_acquire<248>();
  else
    registers_acquire<PLM_SM90_WORKER_REGISTERS>();
  if (threadIdx.x >= BOTH) {
    named_sync(PLM_BAR_TURN, BOTH);
    return;
  }
  float d[N / 2], e[N / 2] = {};
  barrier_wait(full, 0);
  if (fault == PLM_RULE_MATRICES_HIDDEN) {
    const unsigned ones[] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
    store_matrices_turned(tile + threadIdx.x % PLM_WARPGROUP * 16, ones);
    matrices_settle();
  }
  multiply(d, e, tile_descriptor(tile, 0), fault);
  const unsigned zeros[4] = {};
  if (fault == PLM_RULE_STORES_DIVERGED && threadIdx.x % 2 == 0)
    store_matrices(tile, zeros);
  else if (fault == PLM_RULE_STORES_DIVERGED)
    store_matrices(tile, zeros);
  unsigned words[4];
  if (fault == PLM_RULE_MATRICES_DIVERGED && threadIdx.x % 2 == 0)
    load_matrices(words, tile);
  else
    load_matrices(words, tile);
  if (fault == PLM_RULE_PAIR_OF_4) e[0] += read_beside<__nv_bfloat162>(a, 2);
  if (fault == PLM_RULE_PAIR_OF_8) e[0] += read_beside<float2>(a, 4);
  out[threadIdx.x % PLM_WARPGROUP] = d[0] + e[0] + (words[0] != 0 ? 1 : 0);
}

plm_tile_map map_of(const uint16_t *a, plm_planted_rule fault)
{
  const bool strides_fault = fault == PLM_RULE_MAP_STRIDES;
  const int64_t sizes[] = {N, 1, N, 1};
  const int64_t strides[] = {2, strides_fault ? 4 * N : 2 * N,
                             fault == PLM_RULE_MAP_STRIDE ? 120 : 2 * N, 2 * N * N};
  const int box[] = {PLM_TILE_COLUMNS, 1, fault == PLM_RULE_MAP_BOX ? 257 : PLM_TILE_ROWS, 1};
  plm_tile_map map;
  plm_sm90_map_tiles(&map, reinterpret_cast<const plm_bf16 *>(a) + (fault == PLM_RULE_MAP_ADDRESS),
                     4, sizes, strides, box);
  return map;
}

} // namespace

extern "C" void plm_cuda_planted_rule_run(enum plm_planted_rule fault, float *out,
                                          const uint16_t *a)
{
  const size_t shared = 2 * BYTES + 2 * PLM_SWIZZLE_BYTES;
  plm_launch(nullptr, rules_kernel, dim3(1), dim3(PLM_SM90_THREADS), shared, map_of(a, fault),
             reinterpret_cast<const plm_bf16 *>(a), out, fault);
}
