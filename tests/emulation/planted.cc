/* A kernel with planted faults: see planted.h. */
extern "C" {
#include "tests/emulation/planted.h"
}

#include "kernels/cuda/device/instructions.cuh"

namespace
{

enum { VALUES = PLM_PLANTED_VALUES, EACH = 4 /* floats in 16 bytes */ };

/* Leaves zeros on the stack. */
template <int BYTES> __attribute__((noinline)) void write_locals()
{
  char locals[BYTES];
  memset(locals, 0, sizeof locals);
  asm volatile("" : : "r"(locals) : "memory");
}

/* NaN, unless this finds something else in so much of the stack. */
template <int BYTES> __attribute__((noinline)) float read_locals()
{
  float locals[BYTES / sizeof(float)], found = NAN;
  asm volatile("" : : "r"(locals) : "memory");
  for (const float each : locals)
    if (each == each) found = each;
  return found;
}

/* Blocks leave different depths of their stacks written. What one thread finds there stays in
 * `out`. */
__device__ void read_unwritten(float *out)
{
  const float found = read_locals<2800>();
  if (found == found) *out = found;
  if (blockIdx.x % 3 == 0) write_locals<400>();
  if (blockIdx.x % 3 == 1) write_locals<1200>();
  if (blockIdx.x % 3 == 2) write_locals<2800>();
}

__global__ void reverse_kernel(float *out, const float *in, plm_planted fault)
{
  float *shared = plm_shared<float>();
  const int i = (int)threadIdx.x;
  if (fault == PLM_PLANTED_LOCALS) return read_unwritten(out + i);
  if (i < VALUES / EACH) copy_async(shared + i * EACH, in + i * EACH, true);
  copy_async_commit();
  if (fault != PLM_PLANTED_MISSING_WAIT) copy_async_wait<0>();
  if (fault == PLM_PLANTED_OUT_OF_BOUNDS && i == 0) shared[VALUES] = 1;
  if (fault == PLM_PLANTED_BEFORE && i == 0) shared[-1] = 1;
  if (fault == PLM_PLANTED_LOST_THREAD && i == 5) return;
  if (fault == PLM_PLANTED_DIVERGENCE) {
    if (i % 2 == 0)
      __syncwarp();
    else
      out[i] = __shfl_xor_sync(PLM_ALL_LANES, out[i], 1);
  }
  if (fault != PLM_PLANTED_MISSING_BARRIER) __syncthreads();
  out[i] = shared[VALUES - 1 - i];
  if (fault == PLM_PLANTED_RACE && i % PLM_WARP == 0) out[0] = shared[i];
  if (fault == PLM_PLANTED_LANES && i < PLM_WARP) out[0] = shared[i];
  if (fault == PLM_PLANTED_UNWRITTEN && i == 0) out[0] = shared[VALUES];
  if (fault == PLM_PLANTED_GLOBAL_READ && i == 0) out[0] = in[VALUES];
  if (fault == PLM_PLANTED_GLOBAL_WRITE && i == 0) out[VALUES] = 1;
}

} // namespace

extern "C" void plm_cuda_planted_run(enum plm_planted fault, float *out, const float *in)
{
  plm_launch(nullptr, reverse_kernel, dim3(fault == PLM_PLANTED_LOCALS ? 9 : 1), dim3(VALUES),
             (VALUES + (fault == PLM_PLANTED_UNWRITTEN ? 1 : 0)) * sizeof(float), out, in, fault);
}
