/* The rate at which memory is copied on this machine, which a profile compares operators with. */
#ifndef PLM_TRAINER_PROFILE_COPY_RATE_H
#define PLM_TRAINER_PROFILE_COPY_RATE_H

#include <stddef.h>
#include <stdint.h>

#include "common/ops/ops.h"

/* Bytes per second, read and written, of the fastest of a few copies of `most` bytes (or of less,
 * if memory is short) by ops->copy, which uses all threads of the backend; 0 if it could not be
 * measured. Uses twice that memory, and takes some tenths of a second. clock_ns is plm_clock_ns, or
 * another clock in tests. */
double plm_copy_rate(struct plm_ops *ops, size_t most, uint64_t (*clock_ns)(void));

#endif
