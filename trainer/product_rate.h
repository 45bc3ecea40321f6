/* The rate of a large product on this machine: what mfu is a share of. */
#ifndef PLM_TRAINER_PRODUCT_RATE_H
#define PLM_TRAINER_PRODUCT_RATE_H

#include "common/ops/ops.h"

/* FLOP/s of the fastest of a few products in the backend's precision, of square matrices as large
 * as this device needs to show its rate (up to 8192); 0 when it could not be measured. Takes tenths
 * of a second at most; measured once a run and kept in trainer.json. */
double plm_product_rate(struct plm_ops *ops);

#endif
