/* Reads /proc/PID/stat. */
#include "common/base/process/process_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"

bool plm_process_state(pid_t pid, char *state, pid_t *parent)
{
  enum { LIMIT = 1 << 16 };
  char path[64], *text, found;
  size_t size;
  int number;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (plm_file_read(path, LIMIT, &text, &size, NULL) != PLM_OK) return false;
  /* "PID (NAME) STATE PARENT": the name may hold anything, so look for the last parenthesis */
  const char *rest = strrchr(text, ')');
  const bool known = rest != NULL && sscanf(rest + 1, " %c %d", &found, &number) == 2;
  if (known) *state = found, *parent = number;
  free(text);
  return known;
}
