/* Opens the CUDA backend, emulated or real, for tests; see device_case.h. */
#include "tests/support/operators/device_case.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/ops/open.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/harness/cmocka_all.h"

bool device_case_is_real(void)
{
  const char *device = getenv("PLM_TEST_DEVICE");
  return device != NULL && strcmp(device, "cuda") == 0;
}

static plm_status open_real(int precision, struct plm_ops **ops, struct plm_error *error)
{
  const struct plm_ops_request request = {.device = PLM_DEVICE_CUDA,
                                          .precision = (enum plm_precision)precision};
  setenv(PLM_CUDA_LIBRARY, "build/lib/plm-pipeline/libplm_cuda.so", 0);
  return plm_ops_open(&request, ops, error);
}

static plm_status open_emulated(int precision, uint64_t order, struct plm_ops **ops,
                                struct plm_error *error)
{
  plm_emulation_order(order);
  return plm_ops_cuda_open(precision, 0, ops, error);
}

struct plm_ops *device_case_open(int precision, uint64_t order)
{
  struct plm_ops *ops;
  struct plm_error error = {0};
  const plm_status status = device_case_is_real() ? open_real(precision, &ops, &error)
                                                  : open_emulated(precision, order, &ops, &error);
  if (status != PLM_OK) {
    plm_error_print("device_case", &error);
    fail_msg("the CUDA backend does not open");
  }
  return ops;
}

static void require(plm_status status, const struct plm_error *error)
{
  if (status == PLM_OK) return;
  plm_error_print("device_case", error);
  fail_msg("the device reports an error");
}

void *device_case_upload(struct plm_ops *ops, const void *host, size_t bytes)
{
  void *buffer;
  struct plm_error error = {0};
  require(ops->allocate(ops, bytes, &buffer, &error), &error);
  if (bytes > 0) ops->upload(ops, buffer, host, bytes);
  return buffer;
}

void device_case_download(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  struct plm_error error = {0};
  ops->download(ops, host, device, bytes);
  require(ops->synchronize(ops, &error), &error);
}
