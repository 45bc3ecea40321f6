/* Replacing a file whose name cannot be looked up any more ends with an error. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/scratch.h"

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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_name_that_cannot_be_looked_up_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
