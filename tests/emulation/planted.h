/* A kernel with and without faults, for the test that shows which faults the emulation finds. It
 * reverses 64 values through shared memory; out and in are on the device. */
#ifndef PLM_TESTS_EMULATION_PLANTED_H
#define PLM_TESTS_EMULATION_PLANTED_H

#pragma GCC visibility push(default) /* test programs call these functions of a shared library */

enum { PLM_PLANTED_VALUES = 64 };
enum plm_planted {
  PLM_PLANTED_NOTHING,
  PLM_PLANTED_MISSING_BARRIER, /* the result depends on the order of threads */
  PLM_PLANTED_RACE,            /* two warps write one place: the same */
  PLM_PLANTED_LANES,           /* the lanes of a warp write one place: that of the last one */
  PLM_PLANTED_LOCALS,          /* reads locals that it did not write: NaN */
  PLM_PLANTED_UNWRITTEN,       /* reads shared memory that nobody wrote: NaN */
  PLM_PLANTED_MISSING_WAIT,    /* reads an asynchronous copy too early: NaN */
  PLM_PLANTED_GLOBAL_READ,     /* reads beyond the buffer: NaN; under ASan the process ends */
  PLM_PLANTED_GLOBAL_WRITE,    /* writes beyond the buffer: its release ends the process */
  PLM_PLANTED_OUT_OF_BOUNDS,   /* writes beyond shared memory: the process ends */
  PLM_PLANTED_BEFORE,          /* writes before shared memory: the process ends */
  PLM_PLANTED_LOST_THREAD,     /* one thread does not reach a barrier: the process ends */
  PLM_PLANTED_DIVERGENCE,      /* half of a warp synchronises, the other half shuffles: the same */
};
void plm_cuda_planted_run(enum plm_planted fault, float *out, const float *in);

#pragma GCC visibility pop

#endif
