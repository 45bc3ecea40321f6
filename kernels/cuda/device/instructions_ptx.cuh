/* The device's side of instructions.cuh. */
#ifndef PLM_KERNELS_CUDA_DEVICE_INSTRUCTIONS_PTX_CUH
#define PLM_KERNELS_CUDA_DEVICE_INSTRUCTIONS_PTX_CUH

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
  return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void mma_bf16(float d[4], const unsigned a[4],
                                                const unsigned b[2])
{
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void load_matrices(unsigned r[4], const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

static __device__ __forceinline__ void load_matrices_transposed(unsigned r[4], const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

static __device__ __forceinline__ void copy_async(void *shared, const void *global, bool valid)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

static __device__ __forceinline__ void copy_async_commit()
{
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int LEFT> static __device__ __forceinline__ void copy_async_wait()
{
  asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ uint4 load_now(const void *global)
{
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global)
               : "memory");
  return v;
}

static __device__ __forceinline__ float exp2_fast(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif
