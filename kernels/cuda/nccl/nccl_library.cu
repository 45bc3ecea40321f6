/* Loads NCCL. */
#include "kernels/cuda/nccl/nccl_library.cuh"

#if PLM_HAS_NCCL

#include <cstdlib>

#include <dlfcn.h>

namespace
{

struct plm_nccl_functions loaded;

/* Adds the function to `loaded`. */
template <class F> bool find(void *library, const char *name, F *function)
{
  *reinterpret_cast<void **>(function) = dlsym(library, name);
  return *function != nullptr;
}

/* A library that is refused stays loaded: the process ends with the error. */
plm_status check_version(void *library, const char *name, int *version, struct plm_error *error)
{
  if (!find(library, "ncclGetVersion", &loaded.get_version) ||
      loaded.get_version(version) != ncclSuccess) {
    plm_error_set(error, PLM_CONFIG, "%s is not NCCL", name);
    return plm_error_hint(error, "see PLM_NCCL_LIBRARY in the environment");
  }
  if (*version >= PLM_NCCL_OLDEST) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "%s is NCCL %d.%d.%d, but 2.28 or later is needed", name,
                *version / 10000, *version / 100 % 100, *version % 100);
  return plm_error_hint(error,
                        "install a newer NCCL; PLM_COLLECTIVE=mpi works without it, but is slow");
}

plm_status find_functions(void *library, const char *name, struct plm_error *error)
{
  if (find(library, "ncclGetErrorString", &loaded.error_string) &&
      find(library, "ncclGetLastError", &loaded.last_error) &&
      find(library, "ncclGetUniqueId", &loaded.get_unique_id) &&
      find(library, "ncclCommInitRankConfig", &loaded.init) &&
      find(library, "ncclCommGetAsyncError", &loaded.async_error) &&
      find(library, "ncclCommFinalize", &loaded.finalize) &&
      find(library, "ncclCommDestroy", &loaded.destroy) &&
      find(library, "ncclCommAbort", &loaded.abort) &&
      find(library, "ncclAllGather", &loaded.all_gather) &&
      find(library, "ncclAlltoAll", &loaded.all_to_all))
    return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "%s lacks functions of NCCL: %.300s", name, dlerror());
  return plm_error_hint(error, "install NCCL 2.28 or later");
}

} // namespace

plm_status plm_nccl_load(const struct plm_nccl_functions **functions, int *version,
                         struct plm_error *error)
{
  *functions = &loaded;
  if (loaded.all_to_all != nullptr) {
    loaded.get_version(version);
    return PLM_OK;
  }
  const char *given = getenv("PLM_NCCL_LIBRARY");
  const char *name = given != nullptr && given[0] != 0 ? given : "libnccl.so.2";
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    plm_error_set(error, PLM_CONFIG, "NCCL cannot be loaded: %.400s", dlerror());
    plm_error_hint(error, "install NCCL 2.28 or later, or name it with PLM_NCCL_LIBRARY; "
                          "PLM_COLLECTIVE=mpi works without it, but is slow");
    return error->status;
  }
  PLM_TRY(check_version(library, name, version, error));
  return find_functions(library, name, error);
}

#endif
