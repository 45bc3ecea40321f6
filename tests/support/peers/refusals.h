/* A device and an exchange between ranks that refuse: their calls fail, one after another. */
#ifndef PLM_TESTS_SUPPORT_PEERS_REFUSALS_H
#define PLM_TESTS_SUPPORT_PEERS_REFUSALS_H

#include "common/collective/collective.h"
#include "common/ops/ops.h"

/* Work that begins anew each time, and releases everything. */
typedef plm_status refusals_work(void *context, struct plm_error *error);

/* Within the work: from here on the calls of these operators count that allocate, synchronise,
 * wait for copies or list algorithms. The operators belong to the work, which closes them. */
void refusals_of_ops(struct plm_ops *ops);

/* The same for waits of an exchange between ranks. Those after the one that fails succeed, so that
 * nobody else says what was lost. */
void refusals_of_ranks(struct plm_collective *collective);

/* Within the work: no call fails, or is counted, until refusals_resume. */
int refusals_pause(void);
void refusals_resume(int at);

/* Within the work, once it has succeeded: no call fails from here on, while it releases what it
 * has. */
void refusals_end(void);

/* Repeats the work: first its first call fails, then the second one, until all succeed. Each
 * attempt but the last has to end with that call's error. Returns how many calls fail. */
int refusals_try(refusals_work *work, void *context);

#endif
