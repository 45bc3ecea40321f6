/* Random bytes from the kernel, for ids, keys of hash tables and jitter; never for training. */
#ifndef PLM_COMMON_BASE_NUMBERS_RANDOM_H
#define PLM_COMMON_BASE_NUMBERS_RANDOM_H

#include <stddef.h>

#include "common/base/status.h"

/* Fills all of `bytes`. Waits, once after the boot, until the kernel has gathered entropy. PLM_IO
 * if the kernel refuses, as a sandbox may make it. */
plm_status plm_random_bytes(void *bytes, size_t size, struct plm_error *error);

#endif
