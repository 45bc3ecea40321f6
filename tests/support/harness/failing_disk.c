/* See failing_disk.h. The functions take the place of libc's in a program that has no such function
 * of its own. */
#include "tests/support/harness/failing_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/changing_file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/open_call.h"
#include "tests/support/harness/scratch.h"

#define WEAK __attribute__((weak))

static atomic_long left = -1;           /* calls that succeed before one fails; -1: all do */
static char failed[PLM_PATH_SIZE + 16]; /* the call and its path; "": none has failed */
static bool counted;                    /* calls are counted here, so none waits for the disk */
static dev_t device;
static bool in_pieces;         /* every transfer that is counted comes in pieces */
static atomic_ulong transfers; /* so far, in pieces */

/* Counts a call of any thread. Whether it is the one that fails. */
static bool is_last(void)
{
  long at = left;
  while (at >= 0 && !atomic_compare_exchange_weak(&left, &at, at - 1)) continue;
  return at == 0;
}

static bool fails(const char *call, const char *path)
{
  snprintf(failed, sizeof failed, "%s %s", call, path);
  errno = EIO;
  return true;
}

bool failing_disk_fails(const char *call, const char *path)
{
  const char *folder = left < 0 ? "" : scratch_directory();
  return left >= 0 && strncmp(path, folder, strlen(folder)) == 0 && is_last() && fails(call, path);
}

static bool is_counted(int file)
{
  struct stat about;
  return left >= 0 && file > STDERR_FILENO && fstat(file, &about) == 0 && about.st_dev == device &&
         (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode));
}

static void path_of(int file, char path[PLM_PATH_SIZE])
{
  char entry[32];
  snprintf(entry, sizeof entry, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(entry, path, PLM_PATH_SIZE - 1);
  path[length > 0 ? length : 0] = '\0';
}

static bool file_fails(const char *call, int file)
{
  char path[PLM_PATH_SIZE];
  if (!is_counted(file) || !is_last()) return false;
  path_of(file, path);
  return fails(call, path);
}

/* A call that reads or writes. In pieces, every second one is interrupted by a signal before it
 * begins, and the others leave out the last byte; LMDB, which does not call read, takes that for an
 * error. */
static bool transfer_fails(const char *call, int file, size_t *size)
{
  char path[PLM_PATH_SIZE];
  if (!in_pieces || !is_counted(file)) return file_fails(call, file);
  path_of(file, path);
  if (strcmp(call, "read") != 0 && fnmatch("*.mdb", path, 0) == 0) return false;
  if (*size > 1) --*size;
  errno = EINTR;
  return atomic_fetch_add(&transfers, 1) % 2 == 0;
}

WEAK int open(const char *path, int flags, ...)
{
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = open_call_mode(flags, arguments);
  va_end(arguments);
  changing_file_opens(path);
  return failing_disk_fails("open", path) ? -1 : open_call_run(path, flags, mode);
}

WEAK int mkdir(const char *path, mode_t mode)
{
  return failing_disk_fails("mkdir", path) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

WEAK int rename(const char *from, const char *to)
{
  return failing_disk_fails("rename", from) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

WEAK int remove(const char *path)
{
  struct stat about;
  if (failing_disk_fails("remove", path) || lstat(path, &about) != 0) return -1;
  return unlinkat(AT_FDCWD, path, S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0);
}

WEAK ssize_t read(int file, void *bytes, size_t size)
{
  return transfer_fails("read", file, &size) ? -1 : syscall(SYS_read, file, bytes, size);
}

WEAK ssize_t pread(int file, void *bytes, size_t size, off_t at)
{
  return transfer_fails("pread", file, &size) ? -1 : syscall(SYS_pread64, file, bytes, size, at);
}

WEAK ssize_t write(int file, const void *bytes, size_t size)
{
  return transfer_fails("write", file, &size) ? -1 : syscall(SYS_write, file, bytes, size);
}

WEAK ssize_t pwrite(int file, const void *bytes, size_t size, off_t at)
{
  return transfer_fails("pwrite", file, &size) ? -1 : syscall(SYS_pwrite64, file, bytes, size, at);
}

/* No test cuts the power, and thousands of attempts would wait. */
static int sync_file(long number, int file)
{
  return counted ? 0 : (int)syscall(number, file);
}

WEAK int fsync(int file)
{
  return file_fails("fsync", file) ? -1 : sync_file(SYS_fsync, file);
}

WEAK int fdatasync(int file)
{
  return file_fails("fdatasync", file) ? -1 : sync_file(SYS_fdatasync, file);
}

WEAK int ftruncate(int file, off_t size)
{
  return file_fails("ftruncate", file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

long failing_disk_pause(void)
{
  return atomic_exchange(&left, -1);
}

void failing_disk_resume(long at)
{
  left = at;
}

bool failing_disk_failed(const char *path)
{
  const char *blank = strchr(failed, ' ');
  return blank != NULL && strcmp(blank + 1, path) == 0;
}

/* Signals that interrupt it, and transfers that end early, have no effect. */
static void try_in_pieces(failing_disk_work *work, void *context)
{
  struct plm_error error = {0};
  in_pieces = true;
  left = LONG_MAX;
  const plm_status status = work(context, &error);
  failing_disk_pause();
  in_pieces = false;
  if (status != PLM_OK) fail_msg("in pieces: status %d, \"%s\"", (int)status, error.what);
}

/* Whether a pattern that is not used up, or is of any number of calls, is that of the call. */
static bool is_unnoticed(const char *pattern, bool used)
{
  const bool any = pattern[0] == '+';
  return (any || !used) && fnmatch(pattern + any, failed, 0) == 0;
}

void failing_disk_try(failing_disk_work *work, void *context, const char *const *unnoticed)
{
  static const char *const none[] = {NULL};
  struct stat about;
  unsigned long used = 0; /* bits: which of unnoticed have come */
  if (unnoticed == NULL) unnoticed = none;
  assert_int_equal(stat(scratch_directory(), &about), 0);
  device = about.st_dev;
  counted = true;
  for (long at = 0;; at++) {
    struct plm_error error = {0};
    failed[0] = '\0';
    left = at;
    const plm_status status = work(context, &error);
    const long rest = failing_disk_pause();
    if (rest >= 0) {
      if (status != PLM_OK) fail_msg("status %d, \"%s\"", (int)status, error.what);
      for (size_t i = 0; unnoticed[i] != NULL; i++)
        if ((used >> i & 1) == 0 && *unnoticed[i] != '+')
          fail_msg("no failure of %s was unnoticed", unnoticed[i]);
      try_in_pieces(work, context);
      return;
    }
    const bool said = status != PLM_OK && strstr(error.what, strerror(EIO)) != NULL;
    if (said) continue;
    size_t i = 0;
    while (unnoticed[i] != NULL && !is_unnoticed(unnoticed[i], (used >> i & 1) != 0)) i++;
    if (unnoticed[i] == NULL)
      fail_msg("%ld: %s: status %d, \"%s\"", at, failed, (int)status, error.what);
    assert_true(i < 64);
    used |= 1ul << i;
  }
}
