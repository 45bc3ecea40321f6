/* The rate at which memory is copied on this machine, which a profile compares operators with. */
#ifndef PLM_TRAINER_PROFILE_COPY_RATE_H
#define PLM_TRAINER_PROFILE_COPY_RATE_H

#include <stdint.h>

#include "common/ops/ops.h"

/* Bytes per second, read and written, of the fastest of a few copies of 128 MiB (or of less, if
 * memory is short) by ops->copy, which uses all threads of the backend; 0 if it could not be
 * measured. Takes some tenths of a second. clock_ns is plm_clock_ns, or another clock in tests. */
double plm_copy_rate(struct plm_ops *ops, uint64_t (*clock_ns)(void));

#endif
