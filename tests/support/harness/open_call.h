/* For functions that take the place of libc's open in a test: the mode that a call has, and the
 * call itself. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_OPEN_CALL_H
#define PLM_TESTS_SUPPORT_HARNESS_OPEN_CALL_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The argument after the flags, which only a call that may make a file has; else 0. O_TMPFILE
 * contains the bit of O_DIRECTORY. */
static inline mode_t open_call_mode(int flags, va_list arguments)
{
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? va_arg(arguments, mode_t) : 0;
}

static inline int open_call_run(const char *path, int flags, mode_t mode)
{
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#endif
