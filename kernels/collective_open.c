/* Finds and loads the engine of a collective. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/collective/collective.h"

static bool is_above_one(const char *variable)
{
  const char *value = getenv(variable);
  return value != NULL && strtol(value, NULL, 10) > 1;
}

bool plm_collective_launched(void)
{
  /* srun sets the second one for the processes of a step, also without MPI. */
  return is_above_one("OMPI_COMM_WORLD_SIZE") || is_above_one("SLURM_STEP_NUM_TASKS");
}

static plm_status collective_open_load(const char *path,
                                       const struct plm_collective_library **library,
                                       struct plm_error *error)
{
  char absolute[PATH_MAX]; /* dlopen would search other folders for a name without a slash */
  if (realpath(path, absolute) == NULL) {
    plm_error_set(error, PLM_CONFIG, "this build cannot train with several ranks");
    return plm_error_hint(error, "install Open MPI (Debian: libopenmpi-dev and openmpi-bin) and "
                                 "run `make` again, or set trainer.ranks to 1");
  }
  /* Open MPI loads its components at run time, and they need its symbols. */
  void *handle = dlopen(absolute, RTLD_NOW | RTLD_GLOBAL);
  if (handle == NULL) {
    plm_error_set(error, PLM_CONFIG, "the MPI engine cannot be loaded: %.400s", dlerror());
    return plm_error_hint(error, "Open MPI must be installed on every host (Debian: openmpi-bin)");
  }
  plm_collective_entry_function entry;
  *(void **)&entry = dlsym(handle, PLM_COLLECTIVE_ENTRY);
  *library = entry != NULL ? entry() : NULL;
  if (*library != NULL && (*library)->struct_bytes == sizeof **library &&
      (*library)->collective_bytes == sizeof(struct plm_collective) &&
      strcmp((*library)->version, PLM_VERSION) == 0)
    return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "the MPI engine is from another build than this program");
  return plm_error_hint(error, "run `make` again");
}

plm_status plm_collective_open(plm_collective_say say, struct plm_collective **collective,
                               struct plm_error *error)
{
  const struct plm_collective_library *library = NULL;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_collective_path(path, error));
  const plm_status status = collective_open_load(path, &library, error);
  if (status != PLM_OK) {
    plm_error_where(error, "%s", path);
    return status;
  }
  return library->open(say, collective, error);
}
