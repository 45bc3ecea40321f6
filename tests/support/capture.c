/* Exchanges a descriptor for a temporary file and back. */
#include "tests/support/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/file.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"

void capture_begin(struct capture *capture, int descriptor)
{
  fflush(NULL);
  *capture = (struct capture){descriptor, dup(descriptor), -1};
  PLM_ASSERT(capture->saved >= 0);
  PLM_ASSERT(plm_file_open_unnamed(scratch_directory(), &capture->file, NULL) == PLM_OK);
  PLM_ASSERT(dup2(capture->file, descriptor) == descriptor);
}

char *capture_end(struct capture *capture)
{
  fflush(NULL);
  PLM_ASSERT(dup2(capture->saved, capture->descriptor) == capture->descriptor);
  close(capture->saved);
  const long size = lseek(capture->file, 0, SEEK_END);
  PLM_ASSERT(size >= 0);
  char *text = must(calloc((size_t)size + 1, 1));
  PLM_ASSERT(pread(capture->file, text, (size_t)size, 0) == size);
  close(capture->file);
  return text;
}
