/* What benchmarks of a backend on a GPU share: random operands, and times of operators that run
 * one behind the other. */
#ifndef PLM_TESTS_SUPPORT_DEVICE_BENCH_H
#define PLM_TESTS_SUPPORT_DEVICE_BENCH_H

#include <stdint.h>

#include "common/ops/ops.h"

/* Normal random numbers, as floats (bytes 4) or bf16 (2), on the device; not zeros, on which a GPU
 * is faster. They repeat after a few millions. Release with ops->release. Ends the program when
 * there is no memory. */
void *device_bench_random(struct plm_ops *ops, size_t count, size_t bytes, uint64_t seed);
/* Not filled. */
void *device_bench_buffer(struct plm_ops *ops, size_t bytes);
/* Ends the program when the device reports an error. */
void device_bench_wait(struct plm_ops *ops);

struct device_bench_time {
  double median_s, least_s, most_s; /* of one call, over the rounds */
  unsigned rounds, calls;           /* calls a round */
};

/* Rounds of calls without a wait in between, each round between two waits for the device; three
 * calls before them warm up. About seconds in all, at least three rounds. */
struct device_bench_time device_bench_measure(struct plm_ops *ops, void (*call)(void *context),
                                              void *context, double seconds);

#endif
