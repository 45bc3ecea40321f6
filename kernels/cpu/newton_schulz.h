/* Inside of the CPU backend's Muon: Newton-Schulz of one matrix.
 *
 * Five quintic steps X <- a X + (b A + c A^2) X with A = X X^T, the short side first (Jordan et al.
 * 2024), from X = factor * direction. Products are bf16 with fp32 accumulation when the backend is
 * bf16, else fp32; A, its polynomial and X are kept in that precision between them.
 *
 * thread: PLM_CPU_ALL works on one matrix with all of the pool's threads; else the pool's thread
 * that calls does all of it. Both cut into the same blocks, so the bits are the same.
 */
#ifndef PLM_KERNELS_CPU_NEWTON_SCHULZ_H
#define PLM_KERNELS_CPU_NEWTON_SCHULZ_H

#include "kernels/cpu/cpu_ops.h"

enum { PLM_CPU_ALL = -1 };

/* Floats of scratch for a matrix, a multiple of a cache line; threads: as many as will work on it
 * together. */
size_t plm_newton_schulz_scratch(int64_t rows, int64_t cols, uint32_t threads);

/* Plans the products, which threads then only look up: before calls with a thread's number. By the
 * pool's caller alone. */
void plm_newton_schulz_plan(struct plm_cpu *cpu, int64_t rows, int64_t cols);

/* The result (rows, cols), which lies in scratch or in direction. direction (rows, cols) is
 * overwritten. */
const act *plm_newton_schulz(struct plm_cpu *cpu, int thread, int64_t rows, int64_t cols,
                             float *direction, float factor, float *scratch);

#endif
