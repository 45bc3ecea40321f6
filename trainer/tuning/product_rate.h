/* The rate of a large product on this machine, which the metric mfu is relative to. */
#ifndef PLM_TRAINER_TUNING_PRODUCT_RATE_H
#define PLM_TRAINER_TUNING_PRODUCT_RATE_H

#include <stdint.h>

#include "common/ops/ops.h"

/* FLOP/s of the fastest of a few square products in the backend's precision, 256 to 8192 wide and
 * large enough that one takes a millisecond; 0 if it could not be measured. Takes about a tenth of
 * a second, and one product of each size before that to warm up. Measured once a run and kept in
 * trainer.json. clock_ns is plm_clock_ns, or another clock in tests. */
double plm_product_rate(struct plm_ops *ops, uint64_t (*clock_ns)(void));

#endif
