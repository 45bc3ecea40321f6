/* See device_case.h. */
#include "tests/support/device_case.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tests/support/cmocka_all.h"

typedef plm_status opener(int precision, int device, struct plm_ops **ops, struct plm_error *error);

bool device_case_is_real(void)
{
  const char *device = getenv("PLM_TEST_DEVICE");
  return device != NULL && strcmp(device, "cuda") == 0;
}

/* Stays loaded: a CUDA library keeps threads. */
static opener *real_opener(void)
{
  static opener *found;
  if (found != NULL) return found;
  const char *path = getenv("PLM_CUDA_LIBRARY");
  void *library = dlopen(path != NULL ? path : "build/lib/libplm_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail_msg("PLM_TEST_DEVICE=cuda: %s", dlerror());
  *(void **)&found = dlsym(library, "plm_ops_cuda_open");
  if (found == NULL) fail_msg("PLM_TEST_DEVICE=cuda: %s", dlerror());
  return found;
}

struct plm_ops *device_case_open(int precision, uint64_t order)
{
  struct plm_ops *ops;
  struct plm_error error = {0};
  opener *open = plm_ops_cuda_open;
  if (device_case_is_real())
    open = real_opener();
  else
    plm_cuda_emulation_order(order);
  if (open(precision, 0, &ops, &error) != PLM_OK) {
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
  ops->upload(ops, buffer, host, bytes);
  return buffer;
}

void device_case_download(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  struct plm_error error = {0};
  ops->download(ops, host, device, bytes);
  require(ops->synchronize(ops, &error), &error);
}
