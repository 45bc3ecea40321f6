/* Where the MPI engine is. It is not in collective.c, which engines are linked with themselves. */
#include "common/collective/collective.h"

#include "common/base/process/library_path.h"

plm_status plm_collective_path(char path[PLM_PATH_SIZE], struct plm_error *error)
{
  return plm_library_path("libplm_mpi.so", "PLM_MPI_LIBRARY", path, error);
}
