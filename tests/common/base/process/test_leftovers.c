/* Temporary folders that an interrupted command has left are removed, unless somebody uses them. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/process/leftovers.h"
#include "tests/support/harness/scratch.h"

static void make(const char *folder)
{
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(folder, &error), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "file", &error), PLM_OK);
  scratch_write(path, "x", 1);
}

static unsigned open_descriptors(void)
{
  unsigned count = 0;
  for (int descriptor = 0; descriptor < 256; descriptor++) count += fcntl(descriptor, F_GETFD) >= 0;
  return count;
}

static void a_folder_is_locked_once(void **state)
{
  (void)state;
  make(scratch_path("locked"));
  const unsigned before = open_descriptors();
  const int lock = plm_leftovers_lock(scratch_path("locked"));
  assert_true(lock >= 0);
  assert_int_equal(plm_leftovers_lock(scratch_path("locked")), -1);
  assert_int_equal(errno, EWOULDBLOCK);
  assert_int_equal(plm_leftovers_lock(scratch_path("missing")), -1);
  assert_int_equal(errno, ENOENT);
  assert_int_equal(plm_leftovers_lock(scratch_path("locked/file")), -1);
  assert_int_equal(errno, ENOTDIR);
  assert_int_equal(symlink(scratch_path("locked"), scratch_path("link")), 0);
  assert_int_equal(plm_leftovers_lock(scratch_path("link")), -1);
  assert_int_equal(open_descriptors(), before + 1); /* what cannot be locked is closed */
  close(lock);
  const int again = plm_leftovers_lock(scratch_path("locked"));
  assert_true(again >= 0);
  close(again);
}

static void only_those_that_nobody_uses_go(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    bool goes;
  } folders[] = {{"p/.a.tmp-abc", true},  {"p/.a.tmp-", true},    {"p/.a.tmp-ab0", false},
                 {"p/.a.tmp-ab", false}, /* it is in use */
                 {"p/.b.tmp-abc", false}, {"p/a.tmp-abc", false}, {"p/.a.tm", false}};
  enum { COUNT = sizeof folders / sizeof *folders, USED = 3 };
  for (size_t i = 0; i < COUNT; i++) make(scratch_path(folders[i].name));
  const int lock = plm_leftovers_lock(scratch_path(folders[USED].name));
  assert_true(lock >= 0);
  plm_leftovers_remove(scratch_path("none"), ".a.tmp-", "abc", "test");
  plm_leftovers_remove(scratch_path("p"), ".a.tmp-", "abc", "test");
  for (size_t i = 0; i < COUNT; i++)
    assert_int_equal(plm_file_exists(scratch_path(folders[i].name)), !folders[i].goes);
  close(lock);
  plm_leftovers_remove(scratch_path("p"), ".a.tmp-", "abc", "test");
  assert_false(plm_file_exists(scratch_path(folders[USED].name)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_folder_is_locked_once),
      cmocka_unit_test(only_those_that_nobody_uses_go),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
