/* The CUDA backend that tests open: the emulation of tests/emulation, which is linked; or,
 * where PLM_TEST_DEVICE=cuda says so (make gpu-check), the shared object that PLM_CUDA_LIBRARY
 * names, on this machine's GPU. */
#ifndef PLM_TESTS_SUPPORT_DEVICE_CASE_H
#define PLM_TESTS_SUPPORT_DEVICE_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ops/ops.h"

bool device_case_is_real(void);

/* Whether what runs on it is of interest here. It is one operating-system thread: not to
 * ThreadSanitizer, which is said; then a test of it alone exits with 77. */
bool device_case_watched(void);

/* Opens it; the caller closes. order: of the emulation's threads (1, 2, ...). Fails the test when
 * the device cannot be opened. */
struct plm_ops *device_case_open(int precision, uint64_t order);

/* A buffer on the device with these bytes in it, and back. Fail the test when that fails. */
void *device_case_upload(struct plm_ops *ops, const void *host, size_t bytes);
void device_case_download(struct plm_ops *ops, void *host, const void *device, size_t bytes);

#endif
