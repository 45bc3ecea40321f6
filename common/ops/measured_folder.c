/* See measured_folder.h. */
#include "common/ops/measured_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool plm_measured_folder(char path[PLM_PATH_SIZE])
{
  const char *given = getenv("PLM_ALGORITHM_CACHE");
  if (given == NULL) return plm_cache_folder("", path);
  snprintf(path, PLM_PATH_SIZE, "%s", given);
  return given[0] != '\0' && strlen(given) < PLM_PATH_SIZE;
}
