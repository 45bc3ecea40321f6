/* Reading a growing log file piece by piece. */
#include "common/run/log_tail.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 16384 };

void plm_tail_init(struct plm_tail *tail, const char *path, uint64_t offset)
{
  snprintf(tail->path, sizeof tail->path, "%s", path);
  tail->offset = offset;
  tail->partial_size = 0;
}

void plm_tail_flush(struct plm_tail *tail, void (*line)(void *context, const char *text),
                    void *context)
{
  if (tail->partial_size == 0) return;
  tail->partial[tail->partial_size] = '\0';
  tail->partial_size = 0;
  line(context, tail->partial);
}

static void take(struct plm_tail *tail, const char *bytes, size_t size,
                 void (*line)(void *context, const char *text), void *context)
{
  while (size > 0) {
    const char *end = memchr(bytes, '\n', size);
    const size_t length = end != NULL ? (size_t)(end - bytes) : size;
    size_t kept = PLM_TAIL_LINE_SIZE - 1 - tail->partial_size;
    if (kept > length) kept = length;
    memcpy(tail->partial + tail->partial_size, bytes, kept);
    tail->partial_size += kept;
    if (end == NULL) return;
    tail->partial[tail->partial_size] = '\0';
    tail->partial_size = 0;
    line(context, tail->partial);
    bytes = end + 1;
    size -= length + 1;
  }
}

bool plm_tail_read(struct plm_tail *tail, size_t limit_bytes,
                   void (*line)(void *context, const char *text), void *context)
{
  struct stat info;
  char piece[PIECE];
  bool any = false;
  const int file = open(tail->path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  if (fstat(file, &info) == 0 && (uint64_t)info.st_size < tail->offset) {
    tail->offset = 0;
    tail->partial_size = 0;
  }
  for (size_t total = 0; limit_bytes == 0 || total < limit_bytes;) {
    const ssize_t size = pread(file, piece, sizeof piece, (off_t)tail->offset);
    if (size <= 0) break;
    tail->offset += (uint64_t)size;
    total += (size_t)size;
    take(tail, piece, (size_t)size, line, context);
    any = true;
  }
  close(file);
  return any;
}

uint64_t plm_tail_find(const char *path, uint64_t from, size_t lines)
{
  struct stat info;
  char piece[PIECE];
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return from;
  uint64_t start = fstat(file, &info) == 0 ? (uint64_t)info.st_size : 0;
  const uint64_t size = start;
  size_t seen = 0;
  while (start > from && lines > 0) {
    const size_t wanted = start - from < PIECE ? (size_t)(start - from) : PIECE;
    if (pread(file, piece, wanted, (off_t)(start - wanted)) != (ssize_t)wanted) break;
    for (size_t i = wanted; i-- > 0;) {
      /* No line begins after a newline at the end of the file. */
      if (piece[i] != '\n' || start - wanted + i + 1 == size) continue;
      if (++seen == lines) {
        close(file);
        return start - wanted + i + 1;
      }
    }
    start -= wanted;
  }
  close(file);
  return start < from ? from : start;
}
