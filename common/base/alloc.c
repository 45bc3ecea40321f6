/* What happens when a small allocation fails. */
#include "common/base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/status.h"

static int between_attempts_ms = -1; /* -1: the process ends */

void plm_alloc_persist(unsigned pause_ms)
{
  between_attempts_ms = (int)pause_ms;
}

/* The log allocates nothing and writes each line at once. _exit, because other threads may be
 * using what the handlers of exit would take away; files of ours are complete or have a temporary
 * name at any moment. */
void plm_alloc_lacks(size_t count, size_t size)
{
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  if (between_attempts_ms < 0) {
    plm_log(PLM_LOG_ERROR,
            "out of memory: %zu bytes are not available (free memory on this host, or raise the "
            "limit of this process or container, and start again: a run resumes from its last "
            "checkpoint to the bit)",
            bytes);
    _exit(PLM_EXIT_MAY_PASS);
  }
  plm_warning("out of memory: %zu bytes are not available; free memory on this host, or raise the "
              "limit of this process or container; trying again",
              bytes);
  usleep((useconds_t)between_attempts_ms * 1000);
}

char *plm_format(const char *format, ...)
{
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  PLM_ASSERT(length >= 0); /* formats have no wide characters, and texts are shorter than 2 GiB */
  char *text = plm_alloc((size_t)length + 1);
  vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}
