/* A CPU backend that has no memory, or is lost, at one call after another. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_FAILING_DEVICE_H
#define PLM_TESTS_SUPPORT_OPERATORS_FAILING_DEVICE_H

#include <stdbool.h>

#include "common/ops/ops.h"

/* Work on the device that releases everything, whether it fails or not. */
typedef plm_status failing_device_work(struct plm_ops *ops, void *context, struct plm_error *error);

/* Repeats the work on one device: first the first call fails that allocates a buffer
 * (PLM_NO_MEMORY) or waits for the computation (PLM_FAILURE), then the second one, until all
 * succeed. Each attempt but the last has to end with that status and the words of this device, and
 * has to release its buffers. Exactly `calls` have to fail. */
void failing_device_try(enum plm_precision precision, failing_device_work *work, void *context,
                        int calls);

/* Within the work: whether a call has failed in this attempt. */
bool failing_device_failed(void);

/* Within the work: no call fails, or is counted, until failing_device_resume. */
long failing_device_pause(void);
void failing_device_resume(long at);

#endif
