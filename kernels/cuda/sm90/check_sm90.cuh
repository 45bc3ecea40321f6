/* What the self-checks of the kernels for sm_90a share, on the host. */
#ifndef PLM_KERNELS_CUDA_SM90_CHECK_SM90_CUH
#define PLM_KERNELS_CUDA_SM90_CHECK_SM90_CUH

#include <vector>

#include "kernels/cuda/device/cuda_ops.cuh"

/* Draws multiples of 1/64 in [-2, 2), which are exact in bf16. */
void plm_sm90_draw(std::vector<uint16_t> &values, uint64_t seed);
/* Whether two tensors of bf16 agree up to rounding, as a whole and in the worst element. */
bool plm_sm90_close(const std::vector<uint16_t> &got, const std::vector<uint16_t> &expected);
/* Waits for the stream, but with a limit: faulty kernels may wait for each other forever. */
plm_status plm_sm90_settle(struct plm_cuda *cuda, struct plm_error *error);

#endif
