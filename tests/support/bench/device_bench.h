/* For benchmarks on a GPU: random operands, and the times of operators that run back to back. */
#ifndef PLM_TESTS_SUPPORT_BENCH_DEVICE_BENCH_H
#define PLM_TESTS_SUPPORT_BENCH_DEVICE_BENCH_H

#include <stdint.h>

#include "common/ops/ops.h"

/* Normal random numbers on the device, as float (bytes = 4) or bf16 (bytes = 2). They matter
 * because a GPU is faster on zeros. They repeat after a few million. Release them with
 * ops->release. Ends the program if there is no memory. */
void *device_bench_random(struct plm_ops *ops, size_t count, size_t bytes, uint64_t seed);
/* A buffer with undefined contents. */
void *device_bench_buffer(struct plm_ops *ops, size_t bytes);
/* Waits for the device; ends the program if it reports an error. */
void device_bench_wait(struct plm_ops *ops);

struct device_bench_time {
  double median_s, least_s, most_s; /* time of one call, averaged over a round */
  unsigned rounds, calls;           /* calls in each round */
};

/* Measures rounds of calls and waits for the device only at the end of a round. Three calls warm up
 * first. Takes about `seconds`, but makes at least 3 and at most 64 rounds. With PLM_TEST_ONCE, it
 * is one round of one call. */
struct device_bench_time device_bench_measure(struct plm_ops *ops, void (*call)(void *context),
                                              void *context, double seconds);

#endif
