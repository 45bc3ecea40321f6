/* What the kernels for sm_90a share: a block's warpgroups, rings of stages, maps of tiles.
 *
 * A block has three warpgroups. In the first, one thread loads tiles, and the warpgroup gives its
 * registers to the others. The other two are the workers; each computes 64 rows. There are as many
 * blocks as multiprocessors, and each takes one work item after the other, so the tiles of the
 * next item are loaded while one ends. Which block takes what depends only on the shape. */
#ifndef PLM_KERNELS_CUDA_SM90_WARPGROUPS_CUH
#define PLM_KERNELS_CUDA_SM90_WARPGROUPS_CUH

#include "kernels/cuda/sm90/hopper.cuh"

enum {
  PLM_SM90_WORKERS = 2, /* warpgroups that compute */
  PLM_SM90_THREADS = (PLM_SM90_WORKERS + 1) * PLM_WARPGROUP,
  PLM_SM90_WARPS =
      PLM_WARPGROUP / PLM_WARP, /* of a warpgroup: its arrivals when it frees a stage */
  /* a thread starts with 168: 65,536 over 384 threads, rounded down to a multiple of 8; 24 + 2 *
   * 240 is not more than 3 * 168 */
  PLM_SM90_PRODUCER_REGISTERS = 24,
  PLM_SM90_WORKER_REGISTERS = 240,
};

/* Shared memory from its first multiple of the swizzle's period on. */
static __device__ __forceinline__ unsigned char *plm_sm90_shared()
{
  unsigned char *shared = plm_shared<unsigned char>();
  return shared + (0u - shared_address(shared)) % PLM_SWIZZLE_BYTES;
}

/* A stage of a ring and the parity of its turn, in one register. */
template <int STAGES> struct plm_ring {
  enum { PARITY = 16 };
  int at = 0;
  __device__ __forceinline__ int stage() const
  {
    return at % PARITY;
  }
  __device__ __forceinline__ unsigned parity() const
  {
    return (unsigned)at / PARITY;
  }
  __device__ __forceinline__ void advance()
  {
    static_assert(STAGES < PARITY, "stages of a ring");
    at = stage() + 1 == STAGES ? (at ^ PARITY) & PARITY : at + 1;
  }
};

/* The barriers of a ring: `full` is for what the loading thread fills, `empty` for what the workers
 * free. */
template <int STAGES> struct plm_ring_barriers {
  uint64_t full[STAGES], empty[STAGES];
  __device__ __forceinline__ void init(unsigned fillers, unsigned users)
  {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(&full[i], fillers);
      barrier_init(&empty[i], users);
    }
  }
  /* Called by the loading thread; waits until the stage is free, as all are at first. */
  __device__ __forceinline__ void wait_empty(const plm_ring<STAGES> &at)
  {
    barrier_wait(&empty[at.stage()], at.parity() ^ 1);
  }
  __device__ __forceinline__ void wait_full(const plm_ring<STAGES> &at)
  {
    barrier_wait(&full[at.stage()], at.parity());
  }
  /* Called by each warp of a worker when it is done with the stage. */
  __device__ __forceinline__ void release(const plm_ring<STAGES> &at)
  {
    __syncwarp();
    if (threadIdx.x % PLM_WARP == 0) barrier_arrive(&empty[at.stage()]);
  }
};

/* The first of the two rows of an accumulator that this thread holds; the other is 8 further. */
static __device__ __forceinline__ int plm_sm90_row()
{
  return (int)threadIdx.x % PLM_WARPGROUP / PLM_WARP * 16 + (int)threadIdx.x % PLM_WARP / 4;
}

/* ---- the host's side: tile_maps.cu ---- */
/* Makes a map of global memory for copies of boxes: `rank` (2 or 4) sizes in elements, strides in
 * bytes (the first is that of an element), fastest dimension first; box[0] is PLM_TILE_COLUMNS. The
 * data and the other strides are multiples of 16 bytes. Returns false if the driver cannot make
 * such maps or refuses this one. */
bool plm_sm90_map_tiles(plm_tile_map *map, const plm_bf16 *data, int rank, const int64_t *sizes,
                        const int64_t *strides, const int *box);

#endif
