/* The instructions that CUDA C++ has no words for, each under one name: the device's in inline PTX,
 * the emulation's in plain C++. Layouts of fragments: PTX ISA, "Matrix fragments for mma.m16n8k16".
 */
#ifndef PLM_KERNELS_CUDA_INSTRUCTIONS_CUH
#define PLM_KERNELS_CUDA_INSTRUCTIONS_CUH

#include "kernels/cuda/numbers.cuh"

#ifndef PLM_EMULATE
static __device__ __forceinline__ unsigned shared_address(const void *p)
{
  return (unsigned)__cvta_generic_to_shared(p);
}
#endif

/* d (16, 8) += a (16, 16) b (16, 8), bf16 with fp32 accumulation, by a warp. With group = lane / 4
 * and pair = lane % 4, a lane holds
 *   a[0] row group,     columns 2 pair, +1     a[1] row group + 8, the same columns
 *   a[2] row group,     columns 2 pair + 8, +1 a[3] row group + 8, the same columns
 *   b[0] rows 2 pair, +1 of column group       b[1] rows 2 pair + 8, +1 of column group
 *   d[0], d[1] row group, columns 2 pair, +1   d[2], d[3] row group + 8, the same columns */
static __device__ __forceinline__ void mma_bf16(float d[4], const unsigned a[4],
                                                const unsigned b[2])
{
#ifdef PLM_EMULATE
  const uint64_t words[] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const plm::emulation::Lanes &lanes =
      plm::emulation::warp_compute("mma.m16n8k16", words, 6, plm::emulation::multiply_fragments);
  const int lane = plm::emulation::lane();
  for (int i = 0; i < 4; i++)
    d[i] = (float)((double)d[i] + plm::emulation::from_word<double>(lanes[lane][i]));
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

#ifdef PLM_EMULATE
/* Four 8 x 8 matrices of 16-bit elements; lane i brings row i % 8 of matrix i / 8, as it is when
 * the lane comes here: what other lanes write must be there already (__syncwarp). */
static inline void ldmatrix_emulated(unsigned r[4], const void *row, bool transposed)
{
  if ((uintptr_t)row % 16 != 0) plm::emulation::stop("ldmatrix of a row that is not aligned");
  uint64_t words[2];
  memcpy(words, row, sizeof words);
  const plm::emulation::Lanes &lanes = plm::emulation::warp_exchange("ldmatrix", words, 2);
  const int lane = plm::emulation::lane(), group = lane / 4, pair = lane % 4;
  for (int m = 0; m < 4; m++) {
    r[m] = 0;
    for (int i = 0; i < 2; i++) {
      const int from = transposed ? 2 * pair + i : group, at = transposed ? group : 2 * pair + i;
      const uint64_t element = lanes[m * 8 + from][at / 4] >> at % 4 * 16 & 0xffff;
      r[m] |= (unsigned)element << 16 * i;
    }
  }
}
#endif

/* Four 8 x 8 matrices from shared memory; lane i brings the address (16-byte aligned) of row i % 8
 * of matrix i / 8. r[m]: row lane / 4, columns 2 (lane % 4), +1 of matrix m; transposed: of its
 * transpose. */
static __device__ __forceinline__ void load_matrices(unsigned r[4], const void *row)
{
#ifdef PLM_EMULATE
  ldmatrix_emulated(r, row, false);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}
static __device__ __forceinline__ void load_matrices_transposed(unsigned r[4], const void *row)
{
#ifdef PLM_EMULATE
  ldmatrix_emulated(r, row, true);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

/* 16 bytes from global to shared memory, without waiting; zeros when they are not valid (then the
 * address is not read). Both aligned to 16 bytes. Groups are waited for in the order of commits, by
 * the thread that copied; others see the bytes after a barrier that follows its wait. */
static __device__ __forceinline__ void copy_async(void *shared, const void *global, bool valid)
{
#ifdef PLM_EMULATE
  plm::emulation::copy_later(shared, global, 16, valid ? 16 : 0);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
#endif
}
static __device__ __forceinline__ void copy_async_commit()
{
#ifdef PLM_EMULATE
  plm::emulation::copy_commit();
#else
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
/* Until at most LEFT of this thread's groups are under way. */
template <int LEFT> static __device__ __forceinline__ void copy_async_wait()
{
#ifdef PLM_EMULATE
  plm::emulation::copy_wait(LEFT);
#else
  asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
#endif
}

/* 2^x */
static __device__ __forceinline__ float exp2_fast(float x)
{
#ifdef PLM_EMULATE
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

#endif
