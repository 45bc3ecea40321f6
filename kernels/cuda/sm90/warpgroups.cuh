/* What the kernels of sm_90a share: a block's warpgroups, rings of stages, maps of tiles.
 *
 * A block has three warpgroups: one brings tiles (one thread of it; it gives its registers away),
 * two compute, 64 rows each. Blocks are as many as multiprocessors and take one piece of work after
 * the other: while one ends, the tiles of the next are on their way. Which block takes what depends
 * on the shape alone.
 */
#ifndef PLM_KERNELS_CUDA_SM90_WARPGROUPS_CUH
#define PLM_KERNELS_CUDA_SM90_WARPGROUPS_CUH

#include "kernels/cuda/sm90/hopper.cuh"

enum {
  PLM_SM90_WORKERS = 2, /* warpgroups that compute */
  PLM_SM90_THREADS = (PLM_SM90_WORKERS + 1) * PLM_WARPGROUP,
  PLM_SM90_WARPS = PLM_WARPGROUP / PLM_WARP, /* of a warpgroup: arrivals at what it frees */
  /* 168 a thread at the start: 65,536 by 384 threads, in eights; 24 + 2 * 240 is no more */
  PLM_SM90_BRINGER_REGISTERS = 24,
  PLM_SM90_WORKER_REGISTERS = 240,
};

/* Shared memory from where the swizzle begins. */
static __device__ __forceinline__ unsigned char *plm_sm90_shared()
{
  unsigned char *shared = plm_shared<unsigned char>();
  return shared + (0u - shared_address(shared)) % PLM_SWIZZLE_BYTES;
}

/* One of the stages of a ring, and the parity of its turn, in one register. */
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

/* Barriers of a ring: full is what the bringer fills, empty what the workers free. */
template <int STAGES> struct plm_ring_barriers {
  uint64_t full[STAGES], empty[STAGES];
  __device__ __forceinline__ void init(unsigned fillers, unsigned users)
  {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(&full[i], fillers);
      barrier_init(&empty[i], users);
    }
  }
  /* the bringer: the stage is free (at first it is) */
  __device__ __forceinline__ void wait_empty(const plm_ring<STAGES> &at)
  {
    barrier_wait(&empty[at.stage()], at.parity() ^ 1);
  }
  __device__ __forceinline__ void wait_full(const plm_ring<STAGES> &at)
  {
    barrier_wait(&full[at.stage()], at.parity());
  }
  /* a worker's warp, when all its lanes are done with the stage */
  __device__ __forceinline__ void release(const plm_ring<STAGES> &at)
  {
    __syncwarp();
    if (threadIdx.x % PLM_WARP == 0) barrier_arrive(&empty[at.stage()]);
  }
};

/* What thread t of a warpgroup holds of an accumulator's rows: this one and the eighth behind it.
 */
static __device__ __forceinline__ int plm_sm90_row()
{
  return (int)threadIdx.x % PLM_WARPGROUP / PLM_WARP * 16 + (int)threadIdx.x % PLM_WARP / 4;
}

/* ---- the host's side: tile_maps.cu ---- */
/* A view of global memory for copies of boxes: `rank` (2 or 4) sizes in elements, strides in bytes
 * (the first is an element's), the first one running fastest; box[0] is PLM_TILE_COLUMNS. Strides
 * and data are multiples of 16 bytes. False: the driver has no such maps, or refuses this one. */
bool plm_sm90_map_tiles(plm_tile_map *map, const plm_bf16 *data, int rank, const int64_t *sizes,
                        const int64_t *strides, const int *box);

#endif
