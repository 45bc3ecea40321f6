/* The device's side of hopper.cuh. */
#ifndef PLM_KERNELS_CUDA_SM90_HOPPER_PTX_CUH
#define PLM_KERNELS_CUDA_SM90_HOPPER_PTX_CUH

static __device__ __forceinline__ float reciprocal_fast(float x)
{
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

static __device__ __forceinline__ float root_fast(float x)
{
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

static __device__ __forceinline__ unsigned pack_bf16_positive(float low, float high)
{
  unsigned pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

static __device__ __forceinline__ void store_matrices(void *row, const unsigned r[4])
{
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(
                   shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

static __device__ __forceinline__ void matrices_settle()
{
  __syncwarp();
}

static __device__ __forceinline__ void store_matrices_turned(void *row, const unsigned r[4])
{
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(
                   shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

static __device__ __forceinline__ void matrices_publish()
{
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, unsigned arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

static __device__ __forceinline__ void barrier_init_fence()
{
  asm volatile("fence.mbarrier_init.release.cluster;\n"
               "fence.proxy.async.shared::cta;\n" ::
                   : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier))
               : "memory");
}

static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, unsigned bytes)
{
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, unsigned parity)
{
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
}

static __device__ __forceinline__ void tile_load(void *tile, const plm_tile_map *map,
                                                 uint64_t *barrier, int column, int head, int row,
                                                 int chunk)
{
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(shared_address(tile)),
               "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(head), "r"(row), "r"(chunk)
               : "memory");
}

static __device__ __forceinline__ void tile_load(void *tile, const plm_tile_map *map,
                                                 uint64_t *barrier, int column, int row)
{
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4}], [%2];\n" ::"r"(shared_address(tile)),
               "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
               : "memory");
}

static __device__ __forceinline__ void tile_map_prefetch(const plm_tile_map *map)
{
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

static __device__ __forceinline__ void named_sync(int name, int threads)
{
  asm volatile("bar.sync %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}

static __device__ __forceinline__ void named_arrive(int name, int threads)
{
  asm volatile("bar.arrive %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}

template <int COUNT> static __device__ __forceinline__ void registers_release()
{
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "setmaxnreg");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

template <int COUNT> static __device__ __forceinline__ void registers_acquire()
{
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "setmaxnreg");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

static __device__ __forceinline__ void products_fence()
{
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ void products_commit()
{
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int COUNT> static __device__ __forceinline__ void products_hold(float (&d)[COUNT])
{
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

template <int COUNT> static __device__ __forceinline__ void products_hold(unsigned (&a)[COUNT])
{
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(a[i])::"memory");
}

template <int LEFT> static __device__ __forceinline__ void products_wait()
{
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
}

/* The values are put into one number, which is compared with one that it never equals. If it did,
 * an event for profilers would be counted. ptxas does not move that instruction across a wait. */
template <int COUNT> static __device__ __forceinline__ void compute_now(const float (&value)[COUNT])
{
  static_assert(COUNT % 2 == 0, "pairs");
  float all = 0;
#pragma unroll
  for (int i = 0; i < COUNT; i += 2)
    asm("fma.rn.f32 %0, %1, %2, %0;\n" : "+f"(all) : "f"(value[i]), "f"(value[i + 1]));
  asm volatile("{\n"
               ".reg .pred never;\n"
               "setp.eq.f32 never, %0, 0f7149F2CA;\n" /* 1e30 */
               "@never pmevent 0;\n"
               "}\n" ::"f"(all)
               : "memory");
}

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

template <int N, bool TURNED>
static __device__ __forceinline__ void product_tiles(float (&d)[N / 2], unsigned a, unsigned b,
                                                     bool accumulate)
{
  static_assert(N == 64 || N == 128 || N == 256, "widths that are written out");
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
}

template <int N>
static __device__ __forceinline__ void product_registers(float (&d)[N / 2], const unsigned *a,
                                                         unsigned b)
{
  static_assert(N == 64 || N == 128, "widths that are written out");
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
}

#endif
