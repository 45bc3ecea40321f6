/* A caller of the emulated runtime with and without faults, for the test that shows that the
 * emulation does what a device does after a failure, and shows the caller's faults. */
#ifndef PLM_TESTS_EMULATION_PLANTED_RUNTIME_H
#define PLM_TESTS_EMULATION_PLANTED_RUNTIME_H

#pragma GCC visibility push(default) /* test programs call these functions of a shared library */

enum { PLM_RUNTIME_VALUES = 64 };
enum plm_planted_runtime {
  PLM_RUNTIME_SOUND,
  PLM_RUNTIME_REUSED,         /* fills pageable memory again before its upload was waited for */
  PLM_RUNTIME_UNCHECKED,      /* launches the graph of a capture that has failed */
  PLM_RUNTIME_NO_PERMISSION,  /* launches with large shared memory after a fault, without asking */
  PLM_RUNTIME_TOO_LARGE,      /* launches with 102,400 bytes of shared memory, unless refused */
  PLM_RUNTIME_RESET,          /* resets the device after a fault, and goes on as if that helped */
  PLM_RUNTIME_OLD_STREAM,     /* goes on with a stream of before a reset: the process ends */
  PLM_RUNTIME_OLD_BUFFER,     /* the same with a buffer */
  PLM_RUNTIME_OLD_PERMISSION, /* the same with a kernel's permission for large shared memory */
};
/* Uploads 1, 2, ... from pageable memory, doubles them by a captured graph and downloads them to
 * `out` (64 values, not written if that fails). Returns the first error, and at once if it is not
 * UNCHECKED or RESET; 0 if there was none. */
int plm_cuda_planted_runtime_run(enum plm_planted_runtime fault, float *out);

/* cudaDeviceReset, for tests in C. Returns its error. */
int plm_cuda_planted_reset(void);

#pragma GCC visibility pop

#endif
