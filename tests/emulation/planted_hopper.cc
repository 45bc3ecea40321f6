/* A kernel with sm_90a's instructions and planted faults: see planted_hopper.h. */
extern "C" {
#include "tests/emulation/planted_hopper.h"
}

#include "kernels/cuda/sm90/warpgroups.cuh"

namespace
{

enum { N = PLM_PLANTED_SIDE, BYTES = PLM_TILE_BYTES, WARPS = PLM_WARPGROUP / PLM_WARP };

struct Outputs {
  float *scores, *sums;
};

/* Warpgroup 0 brings a and b twice into the same tiles (the second time from row 32 on, followed by
 * zeros), and warpgroup 1 multiplies them. */
__global__ void planted_kernel(const PLM_GRID_CONSTANT plm_tile_map a,
                               const PLM_GRID_CONSTANT plm_tile_map b, Outputs out,
                               plm_planted_hopper fault)
{
  unsigned char *shared = plm_shared<unsigned char>();
  unsigned char *tiles = shared + (0u - shared_address(shared)) % PLM_SWIZZLE_BYTES;
  if (fault == PLM_PLANTED_TILE_ALIGNMENT) tiles += 128;
  uint64_t *full = reinterpret_cast<uint64_t *>(tiles + 2 * BYTES), *empty = full + 1;
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init(empty, WARPS);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < PLM_WARPGROUP) {
    for (int turn = 0; turn < 2 && threadIdx.x == 0; turn++) {
      barrier_wait(empty, (unsigned)turn ^ 1);
      barrier_expect(full, fault == PLM_PLANTED_BYTES ? BYTES : 2 * BYTES);
      if (fault == PLM_PLANTED_RANK) tile_load(tiles, &a, full, 0, 32 * turn);
      tile_load(tiles, &a, full, 0, 0, 32 * turn, 0);
      tile_load(tiles + BYTES, &b, full, 0, 0, 32 * turn, 0);
    }
    if (fault != PLM_PLANTED_NAMED) named_arrive(PLM_BAR_TURN, 2 * PLM_WARPGROUP);
    return;
  }
  const int t = (int)threadIdx.x % PLM_WARPGROUP;
  const int row = t / PLM_WARP * 16 + t % PLM_WARP / 4, column = t % 4 * 2;
  const unsigned x = tile_descriptor(tiles, 0), y = tile_descriptor(tiles + BYTES, 0);
  float d[N / 2], e[N / 2] = {};
  unsigned p[N / 4];
  for (int turn = 0; turn < 2; turn++) {
    if (fault != PLM_PLANTED_FULL_WAIT) barrier_wait(full, (unsigned)turn);
    if (fault != PLM_PLANTED_FENCE) products_fence();
    for (int step = 0; step < N / PLM_PRODUCT_STEP; step++)
      product_tiles<N>(d, x + step * PLM_COLUMNS_FURTHER, y + step * PLM_COLUMNS_FURTHER, step > 0);
    products_commit();
    if (fault != PLM_PLANTED_PRODUCT_WAIT) products_wait<0>();
    for (int i = 0; i < N / 4; i++) p[i] = pack_bf16(d[2 * i], d[2 * i + 1]);
    products_fence();
    for (int step = 0; step < N / PLM_PRODUCT_STEP; step++)
      product_registers<N>(e, p + 4 * step, y + step * PLM_ROWS_FURTHER);
    products_commit();
    if (fault == PLM_PLANTED_OPERAND) p[0] ^= 1;
    if (fault == PLM_PLANTED_ACCUMULATOR) e[3] = 0;
    if (fault == PLM_PLANTED_EARLY_RELEASE && t % PLM_WARP == 0) barrier_arrive(empty);
    products_wait<0>();
    if (fault != PLM_PLANTED_EARLY_RELEASE && t % PLM_WARP == 0) barrier_arrive(empty);
    for (int i = 0; i < N / 2; i++)
      out.scores[(turn * N + row + i / 2 % 2 * 8) * N + i / 4 * 8 + column + i % 2] = d[i];
  }
  named_sync(PLM_BAR_TURN, 2 * PLM_WARPGROUP);
  for (int i = 0; i < N / 2; i++)
    out.sums[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + column + i % 2] = e[i];
}

plm_tile_map map_of(const uint16_t *data)
{
  const int64_t sizes[] = {N, 1, N, 1}, strides[] = {2, 2 * N, 2 * N, 2 * N * N};
  const int box[] = {PLM_TILE_COLUMNS, 1, PLM_TILE_ROWS, 1};
  plm_tile_map map;
  plm_sm90_map_tiles(&map, reinterpret_cast<const plm_bf16 *>(data), 4, sizes, strides, box);
  return map;
}

} // namespace

extern "C" void plm_cuda_planted_hopper_run(enum plm_planted_hopper fault, float *scores,
                                            float *sums, const uint16_t *a, const uint16_t *b)
{
  const size_t shared = 2 * BYTES + 2 * PLM_SWIZZLE_BYTES;
  plm_launch(nullptr, planted_kernel, dim3(1), dim3(2 * PLM_WARPGROUP), shared, map_of(a),
             map_of(b), Outputs{scores, sums}, fault);
}
