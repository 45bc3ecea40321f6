/* Files on a file system that fails or lacks something: what is read and written, and what is said.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/open_call.h"
#include "tests/support/harness/scratch.h"

enum { HANGS_S = 60 };

static enum { NONE, LSTAT, UNNAMED, CLOSE, FTRUNCATE } failing;
static int cause = EIO;

static bool fails(unsigned call)
{
  if (call == failing) errno = cause;
  return call == failing;
}

/* These take the place of libc's functions in this program. */
int lstat(const char *path, struct stat *information)
{
  return fails(LSTAT) ? -1 : fstatat(AT_FDCWD, path, information, AT_SYMLINK_NOFOLLOW);
}

int open(const char *path, int flags, ...)
{
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = open_call_mode(flags, arguments);
  va_end(arguments);
  if ((flags & O_TMPFILE) == O_TMPFILE && fails(UNNAMED)) return -1;
  return open_call_run(path, flags, mode);
}

int close(int descriptor)
{
  const int status = (int)syscall(SYS_close, descriptor);
  return fails(CLOSE) ? -1 : status;
}

int ftruncate(int descriptor, off_t size)
{
  return fails(FTRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, descriptor, size);
}

static void a_name_that_cannot_be_looked_up_is_an_error(void **state)
{
  (void)state;
  char *bytes;
  size_t size;
  struct plm_error error = {0};
  const char *path = scratch_path("replaced");
  assert_int_equal(plm_file_replace(path, "before", 6, 0644, NULL), PLM_OK);
  alarm(HANGS_S);
  failing = LSTAT;
  assert_int_equal(plm_file_replace(path, "after", 5, 0644, &error), PLM_IO);
  failing = NONE;
  alarm(0);
  assert_int_equal(plm_file_read(path, 64, &bytes, &size, NULL), PLM_OK);
  assert_string_equal(bytes, "before");
  free(bytes);
  assert_int_equal(plm_file_replace(path, "after", 5, 0644, NULL), PLM_OK); /* nothing is locked */
  assert_int_equal(plm_file_read(path, 64, &bytes, &size, NULL), PLM_OK);
  assert_string_equal(bytes, "after");
  free(bytes);
}

/* All bytes of a part are read, or it is an error. */
static void a_part_is_whole_or_an_error(void **state)
{
  (void)state;
  char bytes[4] = "";
  struct plm_error error = {0};
  const char *path = scratch_path("parts");
  scratch_write(path, "0123456789", 10);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  assert_true(file >= 0);
  assert_int_equal(plm_file_read_at(file, bytes, 4, 6, path, NULL), PLM_OK);
  assert_memory_equal(bytes, "6789", 4);
  assert_int_equal(plm_file_read_at(file, bytes, 0, 10, path, NULL), PLM_OK);
  assert_int_equal(plm_file_read_at(file, bytes, 4, 7, path, &error), PLM_CORRUPT);
  assert_non_null(strstr(error.what, "parts became shorter while it was read"));
  close(file);
  assert_int_equal(plm_file_read_at(file, bytes, 4, 0, path, &error), PLM_IO);
}

static int interruptions, locks;
static const char *renamed; /* what has another name once it is locked; NULL: nothing */
static bool replaced;       /* and another file has its name */
static bool unlockable;

/* Takes the place of libc's function in this program. */
int flock(int descriptor, int operation)
{
  (void)descriptor;
  assert_int_equal(operation, LOCK_EX);
  locks++;
  if (renamed != NULL) {
    assert_int_equal(rename(renamed, scratch_path("final")), 0);
    if (replaced) scratch_write(renamed, "other", 5);
    renamed = NULL;
  }
  errno = unlockable ? ENOLCK : EINTR;
  return unlockable || interruptions-- > 0 ? -1 : 0;
}

static void a_signal_does_not_replace_the_lock(void **state)
{
  (void)state;
  interruptions = 2;
  locks = 0;
  assert_int_equal(plm_file_replace(scratch_path("locked"), "x", 1, 0644, NULL), PLM_OK);
  assert_int_equal(locks, 3);
}

/* Another writer gives the file its final name before this one has the lock: what that one wrote
 * stays, and this one begins with a new file. */
static void what_another_writer_has_renamed_stays(void **state)
{
  (void)state;
  for (int way = 0; way < 2; way++) {
    char path[200], temporary[210], *bytes;
    size_t size;
    snprintf(path, sizeof path, "%s", scratch_path(way == 0 ? "gone" : "taken"));
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    scratch_write(temporary, "theirs", 6);
    renamed = temporary;
    replaced = way == 1;
    locks = interruptions = 0;
    assert_int_equal(plm_file_replace(path, "ours", 4, 0644, NULL), PLM_OK);
    assert_int_equal(locks, 2);
    assert_int_equal(plm_file_read(scratch_path("final"), 64, &bytes, &size, NULL), PLM_OK);
    assert_string_equal(bytes, "theirs");
    free(bytes);
    assert_int_equal(plm_file_read(path, 64, &bytes, &size, NULL), PLM_OK);
    assert_string_equal(bytes, "ours");
    free(bytes);
  }
}

static void a_file_system_may_lack_locks(void **state)
{
  (void)state;
  locks = 0;
  unlockable = true;
  alarm(HANGS_S);
  const plm_status status = plm_file_replace(scratch_path("unlocked"), "x", 1, 0644, NULL);
  alarm(0);
  unlockable = false;
  assert_int_equal(status, PLM_OK);
  assert_int_equal(locks, 1);
}

/* A name without a folder is one of the working folder. */
static void a_file_of_the_working_folder_is_replaced(void **state)
{
  (void)state;
  const int before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_int_equal(chdir(scratch_directory()), 0);
  assert_int_equal(plm_file_replace("here", "x", 1, 0640, NULL), PLM_OK);
  assert_int_equal(scratch_mode(scratch_directory(), "here") & ~0640u, 0);
  assert_int_equal(fchdir(before), 0);
  close(before);
}

static void what_fails_is_said(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char path[200], what[512];
  snprintf(path, sizeof path, "%s", scratch_path("said"));
  failing = FTRUNCATE;
  assert_int_equal(plm_file_replace(path, "x", 1, 0644, &error), PLM_IO);
  snprintf(what, sizeof what, "cannot empty %s.tmp: Input/output error", path);
  assert_string_equal(error.what, what);
  failing = CLOSE;
  assert_int_equal(plm_file_write(path, "x", 1, 0644, &error), PLM_IO);
  snprintf(what, sizeof what, "cannot close %s: Input/output error", path);
  assert_string_equal(error.what, what);
  assert_int_equal(plm_file_replace(path, "x", 1, 0644, &error), PLM_OK); /* it was synced */
  failing = NONE;
}

/* A file system may lack files without a name (O_TMPFILE). Then one is made and removed again. */
static void an_unnamed_file_leaves_no_name(void **state)
{
  (void)state;
  static const int causes[] = {0, EOPNOTSUPP, EISDIR, EINVAL, EACCES};
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  scratch_run(folder);
  for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
    int file = -2;
    char byte = 0;
    cause = causes[i];
    failing = cause == 0 ? NONE : UNNAMED;
    const plm_status status = plm_file_open_unnamed(folder, &file, &error);
    failing = NONE;
    assert_true(scratch_is_empty(folder));
    assert_int_equal(status, causes[i] == EACCES ? PLM_IO : PLM_OK);
    if (status != PLM_OK) break;
    assert_int_equal(fcntl(file, F_GETFD), FD_CLOEXEC);
    assert_int_equal(pwrite(file, "x", 1, 0), 1);
    assert_int_equal(pread(file, &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    close(file);
  }
  cause = EIO;
  assert_memory_equal(error.what, "cannot write into folder ", 25);
}

/* The longest path that leaves room for ".tmp" is tried, and the next one is not. */
static void a_path_has_room_for_the_temporary_name(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  memset(path, 'p', sizeof path);
  path[PLM_PATH_SIZE - 5] = '\0';
  assert_int_equal(plm_file_replace(path, "x", 1, 0644, &error), PLM_IO);
  path[PLM_PATH_SIZE - 5] = 'p';
  path[PLM_PATH_SIZE - 4] = '\0';
  assert_int_equal(plm_file_replace(path, "x", 1, 0644, &error), PLM_LIMIT);
  assert_memory_equal(error.what, "path pppp", 9);
  assert_non_null(strstr(error.what, "ppp is too long"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_name_that_cannot_be_looked_up_is_an_error),
      cmocka_unit_test(a_part_is_whole_or_an_error),
      cmocka_unit_test(a_signal_does_not_replace_the_lock),
      cmocka_unit_test(what_another_writer_has_renamed_stays),
      cmocka_unit_test(a_file_system_may_lack_locks),
      cmocka_unit_test(a_file_of_the_working_folder_is_replaced),
      cmocka_unit_test(what_fails_is_said),
      cmocka_unit_test(an_unnamed_file_leaves_no_name),
      cmocka_unit_test(a_path_has_room_for_the_temporary_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
