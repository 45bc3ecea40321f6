/* Finding the CUDA backend's shared object, and choosing between it and the CPU. */
#include "common/ops/open.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "kernels/backend_library.h"

#define LIBRARY_NAME "libplm_cuda.so"

/* ---- is there a device? -------------------------------------------------------------------- */

/* Device nodes of NVIDIA's driver: discrete cards, WSL, Jetson. */
static bool device_node(void)
{
  static const char *const patterns[] = {"/dev/nvidia[0-9]*", "/dev/dxg", "/dev/nvhost-gpu"};
  bool found = false;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns && !found; i++) {
    glob_t nodes;
    found = glob(patterns[i], 0, NULL, &nodes) == 0;
    if (found) globfree(&nodes);
  }
  return found;
}

/* The backend brings half a gigabyte of cuBLAS with it: it is not loaded only to learn that the
 * driver is not there. */
static bool driver_library(void)
{
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != NULL) dlclose(driver);
  return driver != NULL;
}

/* ---- the library --------------------------------------------------------------------------- */

static plm_status library_path(char path[PLM_PATH_SIZE], struct plm_error *error)
{
  char program[PLM_PATH_SIZE];
  const char *given = getenv(PLM_CUDA_LIBRARY);
  if (given != NULL && *given != '\0') {
    if (snprintf(path, PLM_PATH_SIZE, "%s", given) < PLM_PATH_SIZE) return PLM_OK;
    return plm_error_set(error, PLM_LIMIT, PLM_CUDA_LIBRARY " is longer than %d bytes",
                         PLM_PATH_SIZE - 1);
  }
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return plm_error_errno(error, "/proc/self/exe");
  program[length] = '\0';
  for (int i = 0; i < 2; i++) { /* the program's name, its folder's */
    char *slash = strrchr(program, '/');
    if (slash != NULL) *slash = '\0';
  }
  return plm_path_join(path, program, "lib/" LIBRARY_NAME, error);
}

static plm_status check_library(const struct plm_backend_library *library, struct plm_error *error)
{
  if (library->struct_bytes == sizeof *library && library->ops_bytes == sizeof(struct plm_ops) &&
      strcmp(library->version, PLM_VERSION) == 0 &&
      strcmp(library->interface, PLM_BACKEND_INTERFACE) == 0)
    return PLM_OK;
  plm_error_set(error, PLM_UNSUPPORTED, "it is of another build than this program");
  return plm_error_hint(error, "run `make` again, with nvcc, so that programs and library are of "
                               "one build");
}

static plm_status load(const char *path, const struct plm_backend_library **library,
                       struct plm_error *error)
{
  if (access(path, F_OK) != 0) {
    plm_error_set(error, PLM_NOT_FOUND, "the CUDA backend is not there");
    return plm_error_hint(error,
                          "`make` builds it where it finds nvcc (CUDA Toolkit); " PLM_CUDA_LIBRARY
                          " names one that lies elsewhere; device: cpu "
                          "does without");
  }
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    plm_error_set(error, PLM_UNSUPPORTED, "the CUDA backend cannot be loaded: %.400s", dlerror());
    return plm_error_hint(error, "cuBLAS of the CUDA Toolkit it was built with must be installed "
                                 "and known to the loader (LD_LIBRARY_PATH)");
  }
  plm_backend_entry_function entry;
  *(void **)&entry = dlsym(handle, PLM_BACKEND_ENTRY);
  if (entry == NULL) {
    dlclose(handle);
    plm_error_set(error, PLM_UNSUPPORTED, "this is no backend of plm-pipeline");
    return plm_error_hint(error, "run `make`, or see " PLM_CUDA_LIBRARY);
  }
  *library = entry();
  return check_library(*library, error);
}

static plm_status open_cuda(const struct plm_ops_request *request, struct plm_ops **ops,
                            struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  const struct plm_backend_library *library = NULL;
  PLM_TRY(library_path(path, error));
  if (load(path, &library, error) != PLM_OK) return plm_error_where(error, "%s", path);
  const size_t act_bytes = request->precision == PLM_PRECISION_FP32 ? 4 : 2;
  return library->open(act_bytes, request->ordinal, ops, error);
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* True when CUDA was opened. */
static bool try_cuda(const struct plm_ops_request *request, struct plm_ops **ops)
{
  struct plm_error error = {0};
  const char *given = getenv(PLM_CUDA_LIBRARY);
  const bool named = given != NULL && *given != '\0', node = device_node();
  if (!named && !node && !driver_library()) return false;
  const plm_status status = open_cuda(request, ops, &error);
  if (status == PLM_OK) return true;
  /* no device of this number; or only a driver's library, and no backend: nothing to speak of */
  const bool usual = status == PLM_NOT_FOUND && (error.where[0] == '\0' || (!node && !named));
  if (!usual)
    plm_warning("on the CPU, the CUDA device is not used: %s%s%s%s%s%s", error.where,
                error.where[0] != '\0' ? ": " : "", error.what, error.hint[0] != '\0' ? " (" : "",
                error.hint, error.hint[0] != '\0' ? ")" : "");
  return false;
}

plm_status plm_ops_open(const struct plm_ops_request *request, struct plm_ops **ops,
                        struct plm_error *error)
{
  *ops = NULL;
  if (request->device == PLM_DEVICE_CUDA) {
    const plm_status status = open_cuda(request, ops, error);
    if (status != PLM_NOT_FOUND && status != PLM_UNSUPPORTED) return status;
    if (error != NULL) error->status = PLM_CONFIG; /* trying again will not help */
    return PLM_CONFIG;
  }
  if (request->device == PLM_DEVICE_AUTO && try_cuda(request, ops)) return PLM_OK;
  return plm_ops_cpu_open(request->precision, request->threads, request->isa, ops, error);
}
