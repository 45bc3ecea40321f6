/* The instructions of sm_90a, each under one name: the device's in inline PTX, the emulation's in
 * plain C++ (emulation/hopper.h). Semantics, layouts and descriptors: PTX ISA 8.x, "mbarrier",
 * "cp.async.bulk.tensor", "Asynchronous Warpgroup Level Matrix Instructions".
 *
 * Tiles in shared memory are rows of 64 bf16 (128 bytes), swizzled by the copy engine: 16-byte
 * pieces change places by bits 7-9 of their address, so tiles begin at multiples of 1,024 bytes. */
#ifndef PLM_KERNELS_CUDA_SM90_HOPPER_CUH
#define PLM_KERNELS_CUDA_SM90_HOPPER_CUH

#include "kernels/cuda/instructions.cuh"

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
  PLM_TILE_COLUMNS = 64,     /* of a row of a tile */
  PLM_TILE_ROWS = 64,        /* of what one copy brings */
  PLM_TILE_ROW_BYTES = 128,  /* 64 bf16 */
  PLM_TILE_BYTES = 64 * 128, /* of what one copy brings */
  PLM_SWIZZLE_BYTES = 1024,  /* 8 rows: the swizzle's period, and a tile's alignment */
  PLM_PRODUCT_STEP = 16,     /* columns (or rows) that one product sums over */
  PLM_BAR_TURN = 1,          /* named barriers; 0 is __syncthreads */
};

/* 1/x; 0 for infinity */
static __device__ __forceinline__ float reciprocal_fast(float x)
{
#ifdef PLM_EMULATE
  return 1 / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/* The square root */
static __device__ __forceinline__ float root_fast(float x)
{
#ifdef PLM_EMULATE
  return sqrtf(x);
#else
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/* pack_bf16 of what is positive, and of NaN; zeros for what is negative. */
static __device__ __forceinline__ unsigned pack_bf16_positive(float low, float high)
{
#ifdef PLM_EMULATE
  return pack_bf16(low < 0 ? 0 : low, high < 0 ? 0 : high);
#else
  unsigned pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#endif
}

/* load_matrices' way back: four 8 x 8 matrices to shared memory, lane i brings the address of row
 * i % 8 of matrix i / 8. The warp sees them after matrices_settle. */
static __device__ __forceinline__ void store_matrices(void *row, const unsigned r[4])
{
#ifdef PLM_EMULATE
  plm::emulation::matrices_store(row, r);
#else
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(
                   shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
#endif
}

static __device__ __forceinline__ void matrices_settle()
{
#ifdef PLM_EMULATE
  plm::emulation::matrices_settle();
#else
  __syncwarp();
#endif
}

/* ---- barriers in shared memory ----
 * A phase ends when all arrivals have come and all bytes that were announced; phases have parities
 * 0, 1, 0, … from the initialisation on. */
static __device__ __forceinline__ void barrier_init(uint64_t *barrier, unsigned arrivals)
{
#ifdef PLM_EMULATE
  plm::emulation::barrier_init(barrier, arrivals);
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
#endif
}
/* After the initialisations, before a __syncthreads: the copy engine sees them. */
static __device__ __forceinline__ void barrier_init_fence()
{
#ifndef PLM_EMULATE
  asm volatile("fence.mbarrier_init.release.cluster;\n"
               "fence.proxy.async.shared::cta;\n" ::
                   : "memory");
#endif
}
static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
#ifdef PLM_EMULATE
  plm::emulation::barrier_arrive(barrier, 0);
#else
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
/* Arrives, and announces the bytes of copies. */
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, unsigned bytes)
{
#ifdef PLM_EMULATE
  plm::emulation::barrier_arrive(barrier, bytes);
#else
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
/* Until the phase of this parity has ended. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, unsigned parity)
{
#ifdef PLM_EMULATE
  plm::emulation::barrier_wait(barrier, parity);
#else
  asm volatile("{\n"
               ".reg .pred over;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
               "@over bra done;\n"
               "bra again;\n"
               "done:\n"
               "}\n" ::"r"(shared_address(barrier)),
               "r"(parity)
               : "memory");
#endif
}

/* ---- copies of tiles ----
 * 64 rows of 64 columns from (column, head, row, chunk) on, to a tile; zeros beyond the map's
 * sizes. Its bytes arrive at the barrier. By one thread. */
static __device__ __forceinline__ void tile_load(void *tile, const plm_tile_map *map,
                                                 uint64_t *barrier, int column, int head, int row,
                                                 int chunk)
{
#ifdef PLM_EMULATE
  const int at[4] = {column, head, row, chunk};
  plm::emulation::tile_copy(tile, *map, barrier, at, 4);
#else
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(shared_address(tile)),
               "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(head), "r"(row), "r"(chunk)
               : "memory");
#endif
}
/* The same of a matrix: as many rows as the map's box has. */
static __device__ __forceinline__ void tile_load(void *tile, const plm_tile_map *map,
                                                 uint64_t *barrier, int column, int row)
{
#ifdef PLM_EMULATE
  const int at[4] = {column, row, 0, 0};
  plm::emulation::tile_copy(tile, *map, barrier, at, 2);
#else
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4}], [%2];\n" ::"r"(shared_address(tile)),
               "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
               : "memory");
#endif
}
static __device__ __forceinline__ void tile_map_prefetch(const plm_tile_map *map)
{
#ifdef PLM_EMULATE
  (void)map;
#else
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
#endif
}

/* ---- named barriers, of threads that are told by their number ---- */
static __device__ __forceinline__ void named_sync(int name, int threads)
{
#ifdef PLM_EMULATE
  plm::emulation::named_sync(name, threads);
#else
  asm volatile("bar.sync %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
#endif
}
static __device__ __forceinline__ void named_arrive(int name, int threads)
{
#ifdef PLM_EMULATE
  plm::emulation::named_arrive(name, threads);
#else
  asm volatile("bar.arrive %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
#endif
}

/* ---- registers of a warpgroup: all its warps, once, in the branch that is its role ---- */
template <int COUNT> static __device__ __forceinline__ void registers_give()
{
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "setmaxnreg");
#ifndef PLM_EMULATE
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
#endif
}
template <int COUNT> static __device__ __forceinline__ void registers_take()
{
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "setmaxnreg");
#ifndef PLM_EMULATE
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
#endif
}

/* ---- products of a warpgroup ----
 * They run beside it, in order, between a fence and the wait for their group. Thread t holds of
 * d (64, N), with row = t / 32 * 16 + t % 32 / 4 and column = t % 4 * 2,
 *   d[4 i], d[4 i + 1]      row, columns 8 i + column, + 1
 *   d[4 i + 2], d[4 i + 3]  row + 8, the same columns
 * and of A (64, 16) from registers
 *   a[0] row, columns column, + 1         a[1] row + 8, the same columns
 *   a[2] row, columns column + 8, + 9     a[3] row + 8, the same columns
 * so the elements 8 k … 8 k + 7 of an accumulator, rounded, are the A of step k. */

/* The lower word of the descriptor of tiles. Where the sum runs along rows of 64 columns (K-major):
 * leading is not used, 16 columns further is PLM_COLUMNS_FURTHER. Where it runs down the rows
 * (MN-major): leading is the bytes to the next 64 columns, 16 rows further is PLM_ROWS_FURTHER.
 * Eight rows further is 1,024 bytes in both. */
static __device__ __forceinline__ unsigned tile_descriptor(const void *tile, unsigned leading_bytes)
{
  return (leading_bytes >> 4 & 0x3fff) << 16 | (shared_address(tile) >> 4 & 0x3fff);
}
/* The upper words are the same for all: 1,024 bytes from eight rows to the next, and the swizzle of
 * 128 bytes (1, in the two highest bits). */
static constexpr unsigned PLM_DESCRIPTOR_HIGH = 1u << 30 | PLM_SWIZZLE_BYTES >> 4;
enum { /* in a descriptor's units of 16 bytes */
       PLM_COLUMNS_FURTHER = PLM_PRODUCT_STEP * 2 >> 4,
       PLM_ROWS_FURTHER = PLM_PRODUCT_STEP * PLM_TILE_ROW_BYTES >> 4,
};

/* Before the first product of a group, and after registers of products were written. */
static __device__ __forceinline__ void products_fence()
{
#ifdef PLM_EMULATE
  plm::emulation::product_fence();
#else
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#endif
}
/* What was begun since the last commit is a group. */
static __device__ __forceinline__ void products_commit()
{
#ifdef PLM_EMULATE
  plm::emulation::product_commit();
#else
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#endif
}
/* The compiler may not move uses of the registers over this: before a fence, and after a wait. */
template <int COUNT> static __device__ __forceinline__ void products_hold(float (&d)[COUNT])
{
#ifdef PLM_EMULATE
  (void)d;
#else
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
#endif
}
template <int COUNT> static __device__ __forceinline__ void products_hold(unsigned (&a)[COUNT])
{
#ifdef PLM_EMULATE
  (void)a;
#else
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(a[i])::"memory");
#endif
}
/* Until at most LEFT groups are under way. */
template <int LEFT> static __device__ __forceinline__ void products_wait()
{
#ifdef PLM_EMULATE
  plm::emulation::product_wait(LEFT);
#else
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
#endif
}

#ifndef PLM_EMULATE
#define PLM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PLM_D16(i) PLM_D4(i), PLM_D4(i + 4), PLM_D4(i + 8), PLM_D4(i + 12)
#define PLM_NAMES_0_31                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLM_NAMES_32_63                                                                        \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PLM_NAMES_64_95                                                                        \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PLM_NAMES_96_127                                                                         \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PLM_WGMMA(N) "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "
#endif

/* d (64, N) = or += A (64, 16) B: tiles, A's sum along its rows. B is (N, 16), its sum along the
 * rows, too; or TURNED, (16, N), the sum down the rows. */
template <int N, bool TURNED = false>
static __device__ __forceinline__ void product_tiles(float (&d)[N / 2], unsigned a, unsigned b,
                                                     bool accumulate)
{
  static_assert(N == 64 || N == 128 || N == 256, "widths that are written out");
#ifdef PLM_EMULATE
  const uint64_t high = (uint64_t)PLM_DESCRIPTOR_HIGH << 32, a_descriptor = high | a;
  plm::emulation::product_begin({&a_descriptor, nullptr, high | b, d, N, TURNED, accumulate});
#else
  const int add = accumulate;
  if constexpr (N == 64) {
    asm volatile("{\n.reg .pred add;\n.reg .b64 a, b;\nsetp.ne.b32 add, %34, 0;\n"
                 "mov.b64 a, {%32, %35};\nmov.b64 b, {%33, %35};\n" PLM_WGMMA(
                     64) "{" PLM_NAMES_0_31 "}, a, b, add, 1, 1, 0, %36;\n}\n"
                 : PLM_D16(0), PLM_D16(16)
                 : "r"(a), "r"(b), "r"(add), "n"(PLM_DESCRIPTOR_HIGH), "n"(TURNED));
  } else if constexpr (N == 128) {
    asm volatile("{\n.reg .pred add;\n.reg .b64 a, b;\nsetp.ne.b32 add, %66, 0;\n"
                 "mov.b64 a, {%64, %67};\nmov.b64 b, {%65, %67};\n" PLM_WGMMA(
                     128) "{" PLM_NAMES_0_31 ", " PLM_NAMES_32_63 "}, a, b, add, 1, 1, 0, %68;\n}\n"
                 : PLM_D16(0), PLM_D16(16), PLM_D16(32), PLM_D16(48)
                 : "r"(a), "r"(b), "r"(add), "n"(PLM_DESCRIPTOR_HIGH), "n"(TURNED));
  } else {
    asm volatile("{\n.reg .pred add;\n.reg .b64 a, b;\nsetp.ne.b32 add, %130, 0;\n"
                 "mov.b64 a, {%128, %131};\nmov.b64 b, {%129, %131};\n" PLM_WGMMA(
                     256) "{" PLM_NAMES_0_31 ", " PLM_NAMES_32_63 ", " PLM_NAMES_64_95
                          ", " PLM_NAMES_96_127 "}, a, b, add, 1, 1, 0, %132;\n}\n"
                 : PLM_D16(0), PLM_D16(16), PLM_D16(32), PLM_D16(48), PLM_D16(64), PLM_D16(80),
                   PLM_D16(96), PLM_D16(112)
                 : "r"(a), "r"(b), "r"(add), "n"(PLM_DESCRIPTOR_HIGH), "n"(TURNED));
  }
#endif
}

/* d (64, N) += A (64, 16) B (16, N), A from registers, the sum down B's rows. */
template <int N>
static __device__ __forceinline__ void product_registers(float (&d)[N / 2], const unsigned *a,
                                                         unsigned b)
{
  static_assert(N == 64 || N == 128, "widths that are written out");
#ifdef PLM_EMULATE
  const uint64_t high = (uint64_t)PLM_DESCRIPTOR_HIGH << 32;
  plm::emulation::product_begin({nullptr, a, high | b, d, N, true, true});
#else
  if constexpr (N == 64) {
    asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%36, %37};\n" PLM_WGMMA(
                     64) "{" PLM_NAMES_0_31 "}, {%32, %33, %34, %35}, b, 1, 1, 1, 1;\n}\n"
                 : PLM_D16(0), PLM_D16(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(PLM_DESCRIPTOR_HIGH));
  } else {
    asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%68, %69};\n" PLM_WGMMA(
                     128) "{" PLM_NAMES_0_31 ", " PLM_NAMES_32_63
                          "}, {%64, %65, %66, %67}, b, 1, 1, 1, 1;\n}\n"
                 : PLM_D16(0), PLM_D16(16), PLM_D16(32), PLM_D16(48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(PLM_DESCRIPTOR_HIGH));
  }
#endif
}

#endif
