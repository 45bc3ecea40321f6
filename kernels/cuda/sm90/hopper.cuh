/* The instructions of sm_90a, each as a function: inline PTX on the device (hopper_ptx.cuh), plain
 * C++ under the emulation (tests/emulation/emulated_hopper.h). Semantics, layouts and descriptors:
 * PTX ISA 8.x, "mbarrier", "cp.async.bulk.tensor", "Asynchronous Warpgroup Level Matrix
 * Instructions".
 *
 * Tiles in shared memory are rows of 64 bf16 (128 bytes) in the copy engine's swizzle: the 16-byte
 * parts of a row are permuted by bits 7-9 of their address, so tiles must begin at multiples of
 * 1,024 bytes. */
#ifndef PLM_KERNELS_CUDA_SM90_HOPPER_CUH
#define PLM_KERNELS_CUDA_SM90_HOPPER_CUH

#include "kernels/cuda/device/instructions.cuh"

#ifdef PLM_EMULATE
#include "emulation/hopper.h"
#define PLM_GRID_CONSTANT
typedef plm::emulation::TensorMap plm_tile_map;
using plm::emulation::shared_address;
#else
#include <cuda.h>
#define PLM_GRID_CONSTANT __grid_constant__
typedef CUtensorMap plm_tile_map;
#endif

enum {
  PLM_WARPGROUP = 128,
  PLM_TILE_COLUMNS = 64,     /* in a row of a tile */
  PLM_TILE_ROWS = 64,        /* in one copy */
  PLM_TILE_ROW_BYTES = 128,  /* 64 bf16 */
  PLM_TILE_BYTES = 64 * 128, /* in one copy */
  PLM_SWIZZLE_BYTES = 1024,  /* 8 rows: the period of the swizzle and the alignment of tiles */
  PLM_PRODUCT_STEP = 16,     /* columns (or rows) that one product sums over */
  PLM_BAR_TURN = 1,          /* the first named barrier; barrier 0 is __syncthreads */
};

/* 1/x; 0 if x is infinite. */
static __device__ __forceinline__ float reciprocal_fast(float x);

/* The square root, with the device's approximation. */
static __device__ __forceinline__ float root_fast(float x);

/* pack_bf16 with negative values replaced by 0. NaN stays NaN. */
static __device__ __forceinline__ unsigned pack_bf16_positive(float low, float high);

/* The inverse of load_matrices: stores four 8 x 8 matrices to shared memory. Lane i passes the
 * address of row i % 8 of matrix i / 8. The warp sees the matrices after matrices_settle. */
static __device__ __forceinline__ void store_matrices(void *row, const unsigned r[4]);
static __device__ __forceinline__ void matrices_settle();
/* The same, but each matrix is transposed: the row of lane i gets column i % 8 of matrix i / 8. */
static __device__ __forceinline__ void store_matrices_turned(void *row, const unsigned r[4]);
/* Called by a warp after it stored matrices: products may read them after the next barrier that the
 * warp takes part in. */
static __device__ __forceinline__ void matrices_publish();

/* ---- barriers in shared memory ----
 * A phase ends when all expected arrivals and all announced bytes have come. The phases after the
 * initialisation have the parities 0, 1, 0, 1, … */
static __device__ __forceinline__ void barrier_init(uint64_t *barrier, unsigned arrivals);
/* Makes the initialisations visible to the copy engine. Followed by a __syncthreads. */
static __device__ __forceinline__ void barrier_init_fence();
static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier);
/* Arrives and announces that copies will bring so many bytes. */
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, unsigned bytes);
/* Waits until the phase of this parity has ended. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, unsigned parity);

/* ---- copies of tiles ----
 * Called by one thread. The tile's bytes arrive at the barrier; elements beyond the map's sizes
 * become zeros. */
/* Copies 64 rows of 64 columns that begin at (column, head, row, chunk). */
static __device__ __forceinline__ void tile_load(void *tile, const plm_tile_map *map,
                                                 uint64_t *barrier, int column, int head, int row,
                                                 int chunk);
/* Copies from a map of a matrix; the map's box says how many rows. */
static __device__ __forceinline__ void tile_load(void *tile, const plm_tile_map *map,
                                                 uint64_t *barrier, int column, int row);
static __device__ __forceinline__ void tile_map_prefetch(const plm_tile_map *map);

/* ---- named barriers: `threads` says how many threads take part ---- */
static __device__ __forceinline__ void named_sync(int name, int threads);
static __device__ __forceinline__ void named_arrive(int name, int threads);

/* ---- registers of a warpgroup ----
 * All its warps call one of these once, in the branch of their role: COUNT registers a thread. */
template <int COUNT> static __device__ __forceinline__ void registers_release();
template <int COUNT> static __device__ __forceinline__ void registers_acquire();

/* clang-format off */
/* ---- products of a warpgroup ----
 * Products run asynchronously, in order, between a fence and the wait for their group. With
 * row = t / 32 * 16 + t % 32 / 4 and column = t % 4 * 2, thread t holds of d (64, N)
 *   d[4 i], d[4 i + 1]      row, columns 8 i + column, + 1
 *   d[4 i + 2], d[4 i + 3]  row + 8, the same columns
 * and of A (64, 16) from registers
 *   a[0] row, columns column, + 1         a[1] row + 8, the same columns
 *   a[2] row, columns column + 8, + 9     a[3] row + 8, the same columns
 * so elements 8 k … 8 k + 7 of an accumulator, rounded, are the A of step k. */
/* clang-format on */

/* The lower word of the descriptor of tiles.
 * If the product sums along rows of 64 columns (K-major), leading_bytes is not used, and adding
 * PLM_COLUMNS_FURTHER moves the descriptor by 16 columns. If it sums down the rows (MN-major),
 * leading_bytes is the distance to the next 64 columns, and PLM_ROWS_FURTHER moves it by 16 rows.
 * In both cases eight rows are 1,024 bytes. */
static __device__ __forceinline__ unsigned tile_descriptor(const void *tile, unsigned leading_bytes)
{
  return (leading_bytes >> 4 & 0x3fff) << 16 | (shared_address(tile) >> 4 & 0x3fff);
}
/* The upper word of all descriptors: 1,024 bytes between groups of eight rows, and the swizzle of
 * 128 bytes (the value 1 in the two highest bits). */
static constexpr unsigned PLM_DESCRIPTOR_HIGH = 1u << 30 | PLM_SWIZZLE_BYTES >> 4;
/* In a descriptor's units of 16 bytes. */
enum {
  PLM_COLUMNS_FURTHER = PLM_PRODUCT_STEP * 2 >> 4,
  PLM_ROWS_FURTHER = PLM_PRODUCT_STEP * PLM_TILE_ROW_BYTES >> 4,
};

/* Called before the first product of a group, and after writing to registers of products. */
static __device__ __forceinline__ void products_fence();
/* Makes a group of the products begun since the last commit. */
static __device__ __forceinline__ void products_commit();
/* The compiler may not move uses of these registers across this call. Called before a fence and
 * after a wait. */
template <int COUNT> static __device__ __forceinline__ void products_hold(float (&d)[COUNT]);
template <int COUNT> static __device__ __forceinline__ void products_hold(unsigned (&a)[COUNT]);
/* Waits until at most LEFT groups are under way. */
template <int LEFT> static __device__ __forceinline__ void products_wait();
/* Computes the values (finite, a multiple of two) before the next wait. Without it, ptxas may move
 * the wait forward, and what was to run during the products runs after them. */
template <int COUNT>
static __device__ __forceinline__ void compute_now(const float (&value)[COUNT]);

/* Begins d (64, N) = A B, or d += A B if accumulate. A (64, 16) and B are tiles, given by their
 * descriptors. The sum runs along A's rows. B is (N, 16) and summed along its rows, or, if TURNED,
 * (16, N) and summed down its rows. */
template <int N, bool TURNED = false>
static __device__ __forceinline__ void product_tiles(float (&d)[N / 2], unsigned a, unsigned b,
                                                     bool accumulate);

/* Begins d (64, N) += A (64, 16) B (16, N), with A in registers and the sum down B's rows. */
template <int N>
static __device__ __forceinline__ void product_registers(float (&d)[N / 2], const unsigned *a,
                                                         unsigned b);

#ifdef PLM_EMULATE
#include "emulation/emulated_hopper.h"
#else
#include "kernels/cuda/sm90/hopper_ptx.cuh"
#endif

#endif
