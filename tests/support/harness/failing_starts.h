/* Lets threads of the code under test fail to start, one after another. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FAILING_STARTS_H
#define PLM_TESTS_SUPPORT_HARNESS_FAILING_STARTS_H

#include "common/base/status.h"

/* Work that starts threads, and ends them and releases everything, whether it fails or not. */
typedef plm_status failing_starts_work(void *context, struct plm_error *error);

/* Repeats the work: first its first thread does not start, then the second one, until all start.
 * Each attempt but the last has to end with PLM_IO and the name of a thread. Returns how many
 * threads the work starts. */
int failing_starts_try(failing_starts_work *work, void *context);

#endif
