/* For benchmarks on a GPU: random operands, and times of operators that run one after another. */
#ifndef PLM_TESTS_SUPPORT_DEVICE_BENCH_H
#define PLM_TESTS_SUPPORT_DEVICE_BENCH_H

#include <stdint.h>

#include "common/ops/ops.h"

/* Normal random numbers on the device, float (bytes 4) or bf16 (bytes 2), since a GPU is faster on
 * zeros. They repeat after a few million. Release with ops->release. Ends the program if there is
 * no memory. */
void *device_bench_random(struct plm_ops *ops, size_t count, size_t bytes, uint64_t seed);
/* A buffer with undefined contents. */
void *device_bench_buffer(struct plm_ops *ops, size_t bytes);
/* Waits for the device; ends the program if it reports an error. */
void device_bench_wait(struct plm_ops *ops);

struct device_bench_time {
  double median_s, least_s, most_s; /* of one call, among the rounds */
  unsigned rounds, calls;           /* calls a round */
};

/* Measures rounds of calls; the device is only waited for before and after a round. Three calls
 * before them warm up. Takes about `seconds` and makes at least three rounds. */
struct device_bench_time device_bench_measure(struct plm_ops *ops, void (*call)(void *context),
                                              void *context, double seconds);

#endif
