/* Exchanges a descriptor for a temporary file and back. */
#include "tests/support/capture.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/status.h"
#include "tests/support/must.h"

void capture_begin(struct capture *capture, int descriptor)
{
  fflush(NULL);
  *capture = (struct capture){descriptor, dup(descriptor), must(tmpfile())};
  PLM_ASSERT(capture->saved >= 0);
  PLM_ASSERT(dup2(fileno(capture->file), descriptor) == descriptor);
}

char *capture_end(struct capture *capture)
{
  fflush(NULL);
  PLM_ASSERT(dup2(capture->saved, capture->descriptor) == capture->descriptor);
  close(capture->saved);
  const long size = lseek(fileno(capture->file), 0, SEEK_END);
  PLM_ASSERT(size >= 0);
  char *text = must(calloc((size_t)size + 1, 1));
  PLM_ASSERT(pread(fileno(capture->file), text, (size_t)size, 0) == size);
  fclose(capture->file);
  return text;
}
