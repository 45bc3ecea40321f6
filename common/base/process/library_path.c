/* Shared libraries are found beside the program, not in the loader's folders. */
#include "common/base/process/library_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

plm_status plm_library_path(const char *name, const char *variable, char path[PLM_PATH_SIZE],
                            struct plm_error *error)
{
  char program[PLM_PATH_SIZE], relative[64];
  const char *given = getenv(variable);
  if (given != NULL && *given != '\0') {
    if (snprintf(path, PLM_PATH_SIZE, "%s", given) < PLM_PATH_SIZE) return PLM_OK;
    return plm_error_set(error, PLM_LIMIT, "%s is longer than %d bytes", variable,
                         PLM_PATH_SIZE - 1);
  }
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return plm_error_errno(error, "/proc/self/exe");
  program[length] = '\0';
  for (int i = 0; i < 2; i++) { /* cut off the program's name, then its folder's name */
    char *slash = strrchr(program, '/');
    if (slash != NULL) *slash = '\0';
  }
  snprintf(relative, sizeof relative, "lib/plm-pipeline/%s", name);
  return plm_path_join(path, program, relative, error);
}
