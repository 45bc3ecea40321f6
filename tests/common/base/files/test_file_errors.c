/* Replacing a file whose name cannot be looked up any more ends with an error. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { HANGS_S = 60 };

static bool failing;

/* Takes the place of libc's function in this program. */
int lstat(const char *path, struct stat *information)
{
  if (failing) {
    errno = EIO;
    return -1;
  }
  return fstatat(AT_FDCWD, path, information, AT_SYMLINK_NOFOLLOW);
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
  failing = true;
  assert_int_equal(plm_file_replace(path, "after", 5, 0644, &error), PLM_IO);
  failing = false;
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

/* Takes the place of libc's function in this program. */
int flock(int descriptor, int operation)
{
  (void)descriptor;
  assert_int_equal(operation, LOCK_EX);
  locks++;
  errno = EINTR;
  return interruptions-- > 0 ? -1 : 0;
}

static void a_signal_does_not_replace_the_lock(void **state)
{
  (void)state;
  interruptions = 2;
  locks = 0;
  assert_int_equal(plm_file_replace(scratch_path("locked"), "x", 1, 0644, NULL), PLM_OK);
  assert_int_equal(locks, 3);
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_name_that_cannot_be_looked_up_is_an_error),
      cmocka_unit_test(a_part_is_whole_or_an_error),
      cmocka_unit_test(a_signal_does_not_replace_the_lock),
      cmocka_unit_test(a_file_of_the_working_folder_is_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
