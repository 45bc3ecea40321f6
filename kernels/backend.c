/* Finds the shared object of the CUDA backend, and chooses between that backend and the CPU. */
#include "common/ops/open.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/process/library_path.h"
#include "kernels/backend_library.h"
#include "kernels/cpu/bf16_products.h"
#include "kernels/cpu/int8_products.h"
#include "kernels/cpu/processor.h"

#define LIBRARY_NAME "libplm_cuda.so"

/* ---- is there a device? -------------------------------------------------------------------- */

/* True if a device node of the NVIDIA driver exists: of a discrete card, WSL or Jetson. */
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

/* True if the library of the NVIDIA driver is installed. Checking it first avoids loading the
 * backend, which loads half a gigabyte of cuBLAS, on machines without a driver. */
static bool driver_library(void)
{
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != NULL) dlclose(driver);
  return driver != NULL;
}

/* ---- the library --------------------------------------------------------------------------- */

static plm_status check_library(const struct plm_backend_library *library, struct plm_error *error)
{
  if (library->struct_bytes == sizeof *library && library->ops_bytes == sizeof(struct plm_ops) &&
      strcmp(library->version, PLM_VERSION) == 0 &&
      strcmp(library->interface, PLM_BACKEND_INTERFACE) == 0)
    return PLM_OK;
  plm_error_set(error, PLM_UNSUPPORTED, "it is from another build than this program");
  return plm_error_hint(error, "run `make` again, with nvcc, so that the programs and the library "
                               "are from the same build");
}

static plm_status backend_load(const char *path, const struct plm_backend_library **library,
                               struct plm_error *error)
{
  char absolute[PATH_MAX]; /* dlopen would search other folders for a name without a slash */
  if (realpath(path, absolute) == NULL) {
    plm_error_set(error, PLM_NOT_FOUND, "the CUDA backend was not found");
    return plm_error_hint(error,
                          "`make` builds it if it finds nvcc (CUDA Toolkit); " PLM_CUDA_LIBRARY
                          " can name one that is elsewhere; device: cpu does not need it");
  }
  void *handle = dlopen(absolute, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    plm_error_set(error, PLM_UNSUPPORTED, "the CUDA backend cannot be loaded: %.400s", dlerror());
    return plm_error_hint(error, "cuBLAS of the CUDA Toolkit it was built with must be installed "
                                 "and known to the loader (LD_LIBRARY_PATH)");
  }
  plm_backend_entry_function entry;
  *(void **)&entry = dlsym(handle, PLM_BACKEND_ENTRY);
  if (entry == NULL) {
    dlclose(handle);
    plm_error_set(error, PLM_UNSUPPORTED, "this is not a backend of plm-pipeline");
    return plm_error_hint(error, "run `make`, or see " PLM_CUDA_LIBRARY);
  }
  *library = entry();
  return check_library(*library, error);
}

static plm_status find_library(const struct plm_backend_library **library, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_library_path(LIBRARY_NAME, PLM_CUDA_LIBRARY, path, error));
  const plm_status status = backend_load(path, library, error);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}

static size_t act_bytes(const struct plm_ops_request *request)
{
  return request->precision == PLM_PRECISION_FP32 ? 4 : 2;
}

static plm_status device_of_rank(const struct plm_backend_library *library, int *ordinal,
                                 struct plm_error *error)
{
  const int devices = library->count_devices();
  if (devices == 1) *ordinal = 0;
  if (devices == 0 || *ordinal < devices) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "rank %d of this host has no GPU, because there are only %d",
                *ordinal, devices);
  plm_error_hint(error, "start at most one rank for each GPU, or make only one GPU visible "
                        "(CUDA_VISIBLE_DEVICES), which all ranks then share");
  return PLM_CONFIG;
}

static plm_status open_cuda(const struct plm_ops_request *request, struct plm_ops **ops,
                            struct plm_error *error)
{
  const struct plm_backend_library *library = NULL;
  PLM_TRY(find_library(&library, error));
  int ordinal = request->ordinal;
  if (request->of_rank) PLM_TRY(device_of_rank(library, &ordinal, error));
  return library->open(act_bytes(request), ordinal, ops, error);
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* Why `auto` took the CPU although there may be a device: ops->fallback of each backend that this
 * process opens so, which is the same text again. */
static char no_cuda[256];

/* Returns true if CUDA was opened. Warns if a device seems present but cannot be used, and keeps
 * the reason in no_cuda. */
static bool try_cuda(const struct plm_ops_request *request, struct plm_ops **ops)
{
  struct plm_error error = {0};
  const char *given = getenv(PLM_CUDA_LIBRARY);
  const bool named = given != NULL && *given != '\0', node = device_node();
  if (!named && !node && !driver_library()) return false;
  const plm_status status = open_cuda(request, ops, &error);
  if (status == PLM_OK) return true;
  /* No warning is needed if no device has this number, or if the backend is missing and there is no
   * other sign of a device than the library of the driver. */
  const bool usual = status == PLM_NOT_FOUND && (error.where[0] == '\0' || (!node && !named));
  char why[sizeof no_cuda];
  if (usual) return false;
  snprintf(why, sizeof why, "the CPU computes instead of the CUDA device: %.200s", error.what);
  if (strcmp(why, no_cuda) == 0) return false; /* it was said when a backend was opened before */
  memcpy(no_cuda, why, sizeof why);
  plm_warning("using the CPU instead of the CUDA device: %s%s%s%s%s%s", error.where,
              error.where[0] != '\0' ? ": " : "", error.what, error.hint[0] != '\0' ? " (" : "",
              error.hint, error.hint[0] != '\0' ? ")" : "");
  return false;
}

plm_status plm_ops_open(const struct plm_ops_request *request, struct plm_ops **ops,
                        struct plm_error *error)
{
  const bool int8 = request->precision == PLM_PRECISION_INT8;
  *ops = NULL;
  if (request->device == PLM_DEVICE_CUDA && int8) {
    plm_error_set(error, PLM_CONFIG, "the CUDA backend has no int8 products");
    return plm_error_hint(error, "choose the CPU (--device cpu), or bf16 (--precision bf16)");
  }
  if (request->device == PLM_DEVICE_CUDA) {
    const plm_status status = open_cuda(request, ops, error);
    if (status != PLM_NOT_FOUND && status != PLM_UNSUPPORTED) return status;
    if (error != NULL) error->status = PLM_CONFIG; /* trying again will not help */
    return PLM_CONFIG;
  }
  if (request->device == PLM_DEVICE_AUTO && !int8 && try_cuda(request, ops)) return PLM_OK;
  const struct plm_cpu_request cpu = {.precision = request->precision,
                                      .bf16 = request->bf16,
                                      .threads = request->threads,
                                      .isa = request->isa};
  PLM_TRY(plm_ops_cpu_open_as(&cpu, ops, error));
  if (request->device == PLM_DEVICE_AUTO && !int8 && no_cuda[0] != '\0') (*ops)->fallback = no_cuda;
  return PLM_OK;
}

const char *plm_ops_cpu_level(void)
{
  return plm_processor_level_name(plm_processor_level());
}

enum plm_bf16_products plm_ops_cpu_bf16_products(void)
{
  const struct plm_bf16_machine machine = plm_bf16_machine();
  return plm_bf16_is_faster(&machine) ? PLM_BF16_NATIVE : PLM_BF16_BY_FP32;
}

const char *plm_ops_cpu_bf16_gain(void)
{
  const struct plm_bf16_machine machine = plm_bf16_machine();
  return plm_bf16_gain(&machine);
}

const char *plm_ops_cpu_int8_gain(bool *faster)
{
  const struct plm_int8_machine machine = plm_int8_machine();
  return plm_int8_gain(plm_cpu_best_isa(), &machine, faster);
}

/* ---- estimates ----------------------------------------------------------------------------- */

/* Operations to estimate with if the library of the CUDA backend is missing. */
static size_t no_scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                         size_t count)
{
  (void)ops;
  (void)matrices;
  (void)count;
  return 0;
}

static void unknown_size(struct plm_ops *ops, uint64_t *free_bytes, uint64_t *total_bytes)
{
  (void)ops;
  *free_bytes = *total_bytes = 0;
}

static void close_bare(struct plm_ops *ops)
{
  free(ops);
}

static plm_status open_bare(const struct plm_ops_request *request, struct plm_ops **ops,
                            struct plm_error *error)
{
  *ops = calloc(1, sizeof **ops);
  if (*ops == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  **ops = (struct plm_ops){.name = "cuda",
                           .act_bytes = act_bytes(request),
                           .threads = 1,
                           .muon_scratch = no_scratch,
                           .memory_size = unknown_size,
                           .close = close_bare};
  return PLM_OK;
}

plm_status plm_ops_preview(const struct plm_ops_request *request, struct plm_ops_preview *preview,
                           struct plm_error *error)
{
  const struct plm_backend_library *library = NULL;
  *preview = (struct plm_ops_preview){0};
  plm_status status = plm_ops_open(request, &preview->ops, &preview->why);
  const bool cuda = status == PLM_OK ? strcmp(preview->ops->name, "cuda") == 0
                                     : request->device == PLM_DEVICE_CUDA;
  const bool found = cuda && find_library(&library, NULL) == PLM_OK;
  preview->own_bytes = found ? library->own_bytes : 0;
  if (status == PLM_OK) {
    preview->why = (struct plm_error){0};
    return PLM_OK;
  }
  if (!cuda) {
    if (error != NULL) *error = preview->why;
    return status;
  }
  preview->partial = !found;
  return found ? library->preview(act_bytes(request), &preview->ops, error)
               : open_bare(request, &preview->ops, error);
}
