/* Kernels with and without faults, for the test that shows which ones the emulation finds. Each
 * reverses 64 values through shared memory. out and in are the device's. */
#ifndef PLM_TESTS_EMULATION_PLANTED_H
#define PLM_TESTS_EMULATION_PLANTED_H

enum { PLM_PLANTED_VALUES = 64 };
enum plm_planted {
  PLM_PLANTED_NOTHING,
  PLM_PLANTED_MISSING_BARRIER, /* the result depends on the order of threads */
  PLM_PLANTED_RACE,            /* two warps write one place: likewise */
  PLM_PLANTED_UNWRITTEN,       /* shared memory is read that nobody wrote: NaN */
  PLM_PLANTED_MISSING_WAIT,    /* an asynchronous copy is read too early: NaN */
  PLM_PLANTED_GLOBAL_READ,     /* behind the buffer: NaN; under ASan the process ends */
  PLM_PLANTED_GLOBAL_WRITE,    /* behind the buffer: the process ends when that is released */
  PLM_PLANTED_OUT_OF_BOUNDS,   /* a write behind shared memory: the process ends */
  PLM_PLANTED_LOST_THREAD,     /* a barrier that one thread does not reach: the process ends */
  PLM_PLANTED_DIVERGENCE,      /* half of a warp shuffles, the other half votes: likewise */
};
void plm_cuda_planted_run(enum plm_planted fault, float *out, const float *in);

#endif
