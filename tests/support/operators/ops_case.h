/* For tests of operators. Runs a test on every CPU backend that this machine can open and on the
 * CUDA backend (emulated or on a GPU: device_case.h). Makes seeded operands, both in the backend's
 * memory and as doubles, and compares results with tolerances that fit the precision. A digest of
 * the results must be the same in a second run, with any number of threads, and in any order in
 * which the emulation runs its threads.
 *
 * Operators get only buffers in the backend's memory: those of _device, _act, _float, _empty_act
 * and _empty_float. The host reads them with _read and the checks. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_OPS_CASE_H
#define PLM_TESTS_SUPPORT_OPERATORS_OPS_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ops/ops.h"

struct ops_case {
  struct plm_ops *ops;
  uint64_t seed, drawn;
  uint64_t digest;
  struct ops_case_buffer {
    void *memory;
    bool on_device;
  } * buffers; /* released at the end of the case */
  int buffer_count, buffer_capacity;
};

/* True if PLM_TEST_QUICK is set, which is for processors that qemu emulates (make test-processors).
 * The functions below then run a test once for each precision and number of threads, only with the
 * best instruction set, and not on the CUDA backend; tests may leave out their largest shapes. */
bool ops_case_quick(void);

/* Runs test for each instruction set and precision, with one and with three threads, each twice
 * (once if PLM_TEST_ONCE is set, for sanitizers). If PLM_CPU_ISA limits the processor, only for the
 * best instruction set that is left. Does nothing if the tests are about a GPU, or in a program
 * that is linked again with cuBLASLt's interface. */
void ops_case_each_cpu(void (*test)(struct ops_case *c));
/* Runs test on the CUDA backend: emulated, in several orders of its threads, or as often on the
 * GPU. Only once if PLM_TEST_ONCE is set. */
void ops_case_each_cuda(void (*test)(struct ops_case *c));
/* Runs test on the CPU and on the CUDA backend; only on the CPU if PLM_CPU_ISA is set. */
void ops_case_each(void (*test)(struct ops_case *c));

/* Releases what the case owns. Only needed for a case that the functions above do not run. */
void ops_case_release(struct ops_case *c);

/* n seeded values on the host, normal with this deviation; the case owns them. */
double *ops_case_values(struct ops_case *c, int64_t n, double deviation);
int32_t *ops_case_integers(struct ops_case *c, int64_t n, int32_t limit); /* [0, limit) */
double *ops_case_zeros(struct ops_case *c, int64_t n);

/* Makes a copy in the backend's memory. */
void *ops_case_device(struct ops_case *c, const void *host, size_t bytes);
/* Copies values as activations or floats to the backend's memory, and rounds `values` in the same
 * way. */
void *ops_case_act(struct ops_case *c, double *values, int64_t n);
float *ops_case_float(struct ops_case *c, double *values, int64_t n);
void *ops_case_empty_act(struct ops_case *c,
                         int64_t n); /* full of NaN, to be written by an operator */
float *ops_case_empty_float(struct ops_case *c, int64_t n);

/* Reads activations back as doubles (the case owns them). */
double *ops_case_read(struct ops_case *c, const void *values, int64_t n);
/* Checks that two buffers have the same bytes. */
void ops_case_check_same(struct ops_case *c, const void *a, const void *b, size_t bytes);

/* Compare n elements of got with exact. An element may be off by two roundings of the stored
 * precision, relative to its exact value, plus slack * 2^-24 of the largest exact magnitude. */
void ops_case_check_act(struct ops_case *c, const char *what, const void *got, const double *exact,
                        int64_t n, double slack);
void ops_case_check_float(struct ops_case *c, const char *what, const float *got,
                          const double *exact, int64_t n, double slack);
/* The same without the digest, for bits that may depend on the number of threads. */
void ops_case_check_loose(struct ops_case *c, const char *what, const float *got,
                          const double *exact, int64_t n, double slack);

#endif
