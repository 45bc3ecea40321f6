/* Where the shared libraries of the programs are. */
#ifndef PLM_COMMON_BASE_PROCESS_LIBRARY_PATH_H
#define PLM_COMMON_BASE_PROCESS_LIBRARY_PATH_H

#include "common/base/files/file.h"
#include "common/base/status.h"

/* The path that the environment variable names or, if it is not set or empty,
 * ../lib/plm-pipeline/NAME from the folder of the running program. That is where `make` builds the
 * libraries and where an installation puts them (PREFIX/bin and PREFIX/lib/plm-pipeline). Only
 * these programs load them, so they are not in the folders of the loader. The file need not exist.
 */
plm_status plm_library_path(const char *name, const char *variable, char path[PLM_PATH_SIZE],
                            struct plm_error *error);

#endif
