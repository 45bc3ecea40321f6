/* Captures a descriptor in a file, so that any amount fits. */
#include "tests/support/captured.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/status.h"
#include "tests/support/must.h"

static int captured = -1, saved;
static FILE *kept;
static char *text;

void captured_begin(int descriptor)
{
  PLM_ASSERT(captured < 0);
  fflush(stdout);
  kept = must(tmpfile());
  saved = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  PLM_ASSERT(saved >= 0 && dup2(fileno(kept), descriptor) == descriptor);
  captured = descriptor;
}

const char *captured_end(void)
{
  fflush(stdout);
  PLM_ASSERT(captured >= 0 && dup2(saved, captured) == captured);
  close(saved);
  captured = -1;
  const long size = lseek(fileno(kept), 0, SEEK_END) >= 0 ? lseek(fileno(kept), 0, SEEK_CUR) : 0;
  free(text);
  text = must(calloc(1, (size_t)size + 1));
  PLM_ASSERT(pread(fileno(kept), text, (size_t)size, 0) == size);
  fclose(kept);
  return text;
}
