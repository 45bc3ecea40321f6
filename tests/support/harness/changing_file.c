/* See changing_file.h. open takes the place of libc's in a program that has no such function of its
 * own. */
#include "tests/support/harness/changing_file.h"

#include <fcntl.h>
#include <string.h>

#include "tests/support/harness/open_call.h"
#include "tests/support/harness/scratch.h"

static const char *changing, *next;
static int openings;

__attribute__((weak)) int open(const char *path, int flags, ...)
{
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = open_call_mode(flags, arguments);
  va_end(arguments);
  if (next != NULL && strcmp(path, changing) == 0 && openings++ == 1)
    scratch_write(changing, next, strlen(next));
  return open_call_run(path, flags, mode);
}

void changing_file(const char *path, const char *text)
{
  changing = path;
  next = text;
  openings = 0;
}
