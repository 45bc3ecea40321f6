/* Readiness: how a stage tells whoever started it that it can work. */
#include <stdlib.h>
#include <unistd.h>

#include "common/run/run.h"

void plm_ready(void)
{
  const char *text = getenv("PLM_READY_FD");
  if (text == NULL) return;
  char *end;
  const long descriptor = strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || descriptor < 0) return;
  if (write((int)descriptor, "\n", 1) == 1) close((int)descriptor);
  unsetenv("PLM_READY_FD");
}
