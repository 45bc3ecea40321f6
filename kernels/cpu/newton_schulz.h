/* Newton-Schulz iteration of one matrix, used by Muon of the CPU backend.
 *
 * Five quintic steps X <- a X + (b A + c A^2) X with A = X X^T, where the short side of X comes
 * first (Jordan et al. 2024). They start at X = factor * direction. In a bf16 backend the products
 * take bf16 operands and accumulate in fp32, otherwise they are fp32. Between products, X, A and
 * its polynomial are rounded to the precision of the operands.
 *
 * thread: with PLM_CPU_ALL, all threads of the pool work on the matrix together. Otherwise it is
 * the index of the pool's thread that makes the call, which does all the work. Both ways use the
 * same blocks, so the bits are the same.
 */
#ifndef PLM_KERNELS_CPU_NEWTON_SCHULZ_H
#define PLM_KERNELS_CPU_NEWTON_SCHULZ_H

#include "kernels/cpu/cpu_ops.h"

enum { PLM_CPU_ALL = -1 };

/* Floats of scratch for a matrix that `threads` threads work on together. A multiple of a cache
 * line. */
size_t plm_newton_schulz_scratch(int64_t rows, int64_t cols, uint32_t threads);

/* Prepares the products of a matrix, so that threads only look them up. Must precede any call of
 * plm_newton_schulz with the index of a thread. Only the pool's caller may call it. */
void plm_newton_schulz_prepare(struct plm_cpu *cpu, int64_t rows, int64_t cols);

/* Returns the result (rows, cols), which lies in `scratch` or in `direction`: bf16 in a bf16
 * backend that does not widen (cpu->widens), else float. `direction` (rows, cols) is overwritten.
 */
const act *plm_newton_schulz(struct plm_cpu *cpu, int thread, int64_t rows, int64_t cols,
                             float *direction, float factor, float *scratch);

#endif
