/* See failing_disk.h. The functions take the place of libc's in a program that has no such function
 * of its own. */
#include "tests/support/harness/failing_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

#define WEAK __attribute__((weak))

static atomic_long left = -1; /* calls that succeed before one fails; -1: all do */
static char failed[512];      /* the call, for messages */
static dev_t device;

static bool fails(const char *call, const char *name)
{
  if (left < 0 || left-- > 0) return false;
  snprintf(failed, sizeof failed, "%s %s", call, name);
  errno = EIO;
  return true;
}

static bool path_fails(const char *call, const char *path)
{
  const char *folder = left < 0 ? "" : scratch_directory();
  return left >= 0 && strncmp(path, folder, strlen(folder)) == 0 && fails(call, path);
}

static bool file_fails(const char *call, int file)
{
  struct stat about;
  return left >= 0 && file > STDERR_FILENO && fstat(file, &about) == 0 && about.st_dev == device &&
         (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) && fails(call, "");
}

WEAK int open(const char *path, int flags, ...)
{
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return path_fails("open", path) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

WEAK int mkdir(const char *path, mode_t mode)
{
  return path_fails("mkdir", path) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

WEAK int rename(const char *from, const char *to)
{
  return path_fails("rename", from) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

WEAK int remove(const char *path)
{
  struct stat about;
  if (path_fails("remove", path) || lstat(path, &about) != 0) return -1;
  return unlinkat(AT_FDCWD, path, S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0);
}

WEAK ssize_t read(int file, void *bytes, size_t size)
{
  return file_fails("read", file) ? -1 : syscall(SYS_read, file, bytes, size);
}

WEAK ssize_t pread(int file, void *bytes, size_t size, off_t at)
{
  return file_fails("pread", file) ? -1 : syscall(SYS_pread64, file, bytes, size, at);
}

WEAK ssize_t write(int file, const void *bytes, size_t size)
{
  return file_fails("write", file) ? -1 : syscall(SYS_write, file, bytes, size);
}

WEAK ssize_t pwrite(int file, const void *bytes, size_t size, off_t at)
{
  return file_fails("pwrite", file) ? -1 : syscall(SYS_pwrite64, file, bytes, size, at);
}

WEAK int fsync(int file)
{
  return file_fails("fsync", file) ? -1 : (int)syscall(SYS_fsync, file);
}

WEAK int fdatasync(int file)
{
  return file_fails("fdatasync", file) ? -1 : (int)syscall(SYS_fdatasync, file);
}

WEAK int ftruncate(int file, off_t size)
{
  return file_fails("ftruncate", file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

long failing_disk_pause(void)
{
  const long at = left;
  left = -1;
  return at;
}

void failing_disk_resume(long at)
{
  left = at;
}

void failing_disk_try(failing_disk_work *work, void *context, int unnoticed)
{
  struct stat about;
  int ignored = 0;
  assert_int_equal(stat(scratch_directory(), &about), 0);
  device = about.st_dev;
  for (long at = 0;; at++) {
    struct plm_error error = {0};
    left = at;
    const plm_status status = work(context, &error);
    const long rest = left;
    left = -1;
    if (rest >= 0) {
      if (status != PLM_OK || ignored != unnoticed)
        fail_msg("status %d, \"%s\"; %d failures were not noticed", (int)status, error.what,
                 ignored);
      return;
    }
    const bool said = status != PLM_OK && strstr(error.what, strerror(EIO)) != NULL;
    if (!said && ++ignored > unnoticed)
      fail_msg("%ld: %s: status %d, \"%s\"", at, failed, (int)status, error.what);
  }
}
