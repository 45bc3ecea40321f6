/* See changing_file.h. */
#include "tests/support/harness/changing_file.h"

#include <stddef.h>
#include <string.h>

#include "tests/support/harness/scratch.h"

static const char *changing, *next;
static int openings;

void changing_file_opens(const char *path)
{
  if (next != NULL && strcmp(path, changing) == 0 && openings++ == 1)
    scratch_write(changing, next, strlen(next));
}

void changing_file(const char *path, const char *text)
{
  changing = path;
  next = text;
  openings = 0;
}
