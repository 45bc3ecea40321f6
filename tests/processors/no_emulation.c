/* Linked instead of the emulated CUDA backend (tests/emulation) into the test programs that are
 * built for another processor: the emulation says nothing about that processor and takes minutes to
 * compile. Tests with PLM_TEST_QUICK do not open it. */
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"

plm_status plm_ops_cuda_open(int precision, int device, struct plm_ops **ops,
                             struct plm_error *error)
{
  (void)precision, (void)device;
  *ops = NULL;
  return plm_error_set(error, PLM_UNSUPPORTED, "this test was built without the emulated backend");
}

void plm_emulation_order(uint64_t seed)
{
  (void)seed;
}
