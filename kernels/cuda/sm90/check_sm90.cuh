/* What the comparisons of sm_90a's kernels with the others share, on the host. */
#ifndef PLM_KERNELS_CUDA_SM90_CHECK_SM90_CUH
#define PLM_KERNELS_CUDA_SM90_CHECK_SM90_CUH

#include <vector>

#include "kernels/cuda/cuda_ops.cuh"

/* Multiples of 1/64 up to 2, which bf16 holds exactly. */
void plm_sm90_draw(std::vector<uint16_t> &values, uint64_t seed);
/* Do these bf16 agree but for roundings: in all, and in the worst element? */
bool plm_sm90_close(const std::vector<uint16_t> &got, const std::vector<uint16_t> &expected);
/* Waits for the stream, but not for ever: kernels that wait for each other do not end. */
plm_status plm_sm90_settle(struct plm_cuda *cuda, struct plm_error *error);

#endif
