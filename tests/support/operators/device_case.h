/* Opens the CUDA backend for tests: the emulation (tests/emulation) that is linked to them or, with
 * PLM_TEST_DEVICE=cuda (make gpu-check), the shared object that PLM_CUDA_LIBRARY names, on this
 * machine's GPU. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_DEVICE_CASE_H
#define PLM_TESTS_SUPPORT_OPERATORS_DEVICE_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ops/ops.h"

bool device_case_is_real(void);

/* Opens the backend; the caller closes it. `order` (1, 2, ...) chooses the order of the emulation's
 * threads. Fails the test if the device cannot be opened. */
struct plm_ops *device_case_open(int precision, uint64_t order);

/* _upload copies bytes to a new buffer on the device, _download copies them back. An error fails
 * the test. */
void *device_case_upload(struct plm_ops *ops, const void *host, size_t bytes);
void device_case_download(struct plm_ops *ops, void *host, const void *device, size_t bytes);

#endif
