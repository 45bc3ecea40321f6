/* Waking a thread that polls a descriptor. */
#ifndef PLM_COMMON_BASE_PROCESS_WAKE_H
#define PLM_COMMON_BASE_PROCESS_WAKE_H

#include "common/base/status.h"

/* *descriptor becomes readable by plm_wake, from any thread, until plm_wake_clear. The caller
 * closes it. */
plm_status plm_wake_open(int *descriptor, struct plm_error *error);
void plm_wake(int descriptor);
void plm_wake_clear(int descriptor);

#endif
