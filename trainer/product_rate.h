/* The rate of a large product on this machine: what mfu is a share of. */
#ifndef PLM_TRAINER_PRODUCT_RATE_H
#define PLM_TRAINER_PRODUCT_RATE_H

#include "common/ops/ops.h"

/* FLOP/s of the fastest of a few products of side 256 to 8192, so large that one takes a
 * millisecond, in the backend's precision; 0 when it could not be measured. Takes some ten
 * milliseconds; measured once a run and kept in trainer.json. */
double plm_product_rate(struct plm_ops *ops);

#endif
