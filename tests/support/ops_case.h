/* What the operators' tests share: every CPU backend this machine can open and the CUDA backend
 * under emulation or on a GPU (device_case.h), seeded operands kept both in the backend's memory
 * and as doubles, comparisons that know the precision, and a digest of all results, which must be
 * the same in a second run, with any number of threads, and in whatever order the emulation runs
 * them.
 *
 * Operators get what lies in the backend's memory alone: the results of _device, _act, _float,
 * _empty_act and _empty_float. The host reads it through _read and the checks. */
#ifndef PLM_TESTS_SUPPORT_OPS_CASE_H
#define PLM_TESTS_SUPPORT_OPS_CASE_H

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
  } * buffers; /* released when the case ends */
  int buffer_count, buffer_capacity;
};

/* Runs test on each instruction set and precision, with one and with three threads, each twice;
 * only on the best instruction set if PLM_CPU_ISA limits the processor, and not at all if the tests
 * are about a GPU. */
void ops_case_each_cpu(void (*test)(struct ops_case *c));
/* The same on the CUDA backend: emulated, under several orders of its threads, or as often on the
 * GPU; once where PLM_TEST_ONCE is set (a sanitizer watches). */
void ops_case_each_cuda(void (*test)(struct ops_case *c));
/* Both; only the CPU if PLM_CPU_ISA is set. */
void ops_case_each(void (*test)(struct ops_case *c));

/* What the case owns, at the end of one that was not run by these. */
void ops_case_release(struct ops_case *c);

/* n seeded values on the host, normal with this deviation; the case owns them. */
double *ops_case_values(struct ops_case *c, int64_t n, double deviation);
int32_t *ops_case_integers(struct ops_case *c, int64_t n, int32_t limit); /* [0, limit) */
double *ops_case_zeros(struct ops_case *c, int64_t n);

/* A copy in the backend's memory. */
void *ops_case_device(struct ops_case *c, const void *host, size_t bytes);
/* The values as activations, or floats, in the backend's memory; values become what was stored. */
void *ops_case_act(struct ops_case *c, double *values, int64_t n);
float *ops_case_float(struct ops_case *c, double *values, int64_t n);
void *ops_case_empty_act(struct ops_case *c, int64_t n); /* full of NaN: must be written */
float *ops_case_empty_float(struct ops_case *c, int64_t n);

/* Reads activations back as doubles (the case owns them). */
double *ops_case_read(struct ops_case *c, const void *values, int64_t n);
/* The same bytes. */
void ops_case_check_same(struct ops_case *c, const void *a, const void *b, size_t bytes);

/* got against exact, n elements. An element may be off by `ulps` roundings of the result's
 * precision, plus slack (in roundings of float) of the largest magnitude that entered it. */
void ops_case_check_act(struct ops_case *c, const char *what, const void *got, const double *exact,
                        int64_t n, double slack);
void ops_case_check_float(struct ops_case *c, const char *what, const float *got,
                          const double *exact, int64_t n, double slack);
/* The same without entering the digest: where the bits may depend on the number of threads. */
void ops_case_check_loose(struct ops_case *c, const char *what, const float *got,
                          const double *exact, int64_t n, double slack);

#endif
