/* Captures descriptors in files in memory, so that any amount fits. */
#include "tests/support/harness/captured.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/status.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/must.h"

enum { MOST = 2 };

static struct capture {
  int descriptor, saved, kept;
  char *text;
} captures[MOST];
static int depth;

void captured_begin(int descriptor)
{
  PLM_ASSERT(depth < MOST);
  struct capture *capture = &captures[depth++];
  fflush(NULL);
  capture->kept = memfd_create("captured", MFD_CLOEXEC);
  capture->saved = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  capture->descriptor = descriptor;
  PLM_ASSERT(capture->kept >= 0 && capture->saved >= 0 &&
             dup2(capture->kept, descriptor) == descriptor);
}

const char *captured_end(void)
{
  PLM_ASSERT(depth > 0);
  struct capture *capture = &captures[--depth];
  fflush(NULL);
  PLM_ASSERT(dup2(capture->saved, capture->descriptor) == capture->descriptor);
  close(capture->saved);
  const off_t size = lseek(capture->kept, 0, SEEK_END);
  PLM_ASSERT(size >= 0);
  free(capture->text);
  capture->text = must(calloc(1, (size_t)size + 1));
  checked_memory_keep(capture->text);
  PLM_ASSERT(pread(capture->kept, capture->text, (size_t)size, 0) == size);
  close(capture->kept);
  return capture->text;
}

void captured_abandon(void)
{
  char bytes[1024];
  while (depth > 0) {
    const struct capture *capture = &captures[--depth];
    (void)dup2(capture->saved, capture->descriptor);
    ssize_t got;
    for (off_t at = 0; (got = pread(capture->kept, bytes, sizeof bytes, at)) > 0; at += got)
      if (write(capture->descriptor, bytes, (size_t)got) != got) break;
  }
}

int captured_times(const char *text, const char *what)
{
  int count = 0;
  for (; (text = strstr(text, what)) != NULL; text += strlen(what)) count++;
  return count;
}
