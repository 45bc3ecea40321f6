/* The folder of what was found out about a card and is kept outside of runs: product algorithms and
 * checks of kernels. */
#ifndef PLM_COMMON_OPS_MEASURED_FOLDER_H
#define PLM_COMMON_OPS_MEASURED_FOLDER_H

#include <stdbool.h>

#include "common/base/files/file.h"

/* Writes its path: the environment variable PLM_ALGORITHM_CACHE, else plm-pipeline/ under
 * $XDG_CACHE_HOME or ~/.cache. False if the variable is empty, or if no folder is known: then
 * nothing is kept. The folder need not exist. */
bool plm_measured_folder(char path[PLM_PATH_SIZE]);

#endif
