/* The folder of an export: exports of one place side by side, what killed ones leave, and what is
 * moved aside. */
#include "stages/export/export_target.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static int moved_before; /* as many folders seem to have been moved aside */

/* Takes the place of libc's function in this program. */
int access(const char *path, int mode)
{
  const char *number = strstr(path, ".previous-");
  if (number != NULL && atoi(number + strlen(".previous-")) <= moved_before) return 0;
  return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

static void open_target(const char *output, struct plm_export_target *target)
{
  struct plm_error error = {0};
  if (plm_export_target_open(output, true, target, &error) != PLM_OK) fail_msg("%s", error.what);
}

static mode_t mode_of(const char *path)
{
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  return info.st_mode & 07777;
}

/* Another export removes only what no export holds any more. */
static void what_is_being_written_is_kept(void **state)
{
  (void)state;
  struct plm_export_target one, two, three;
  const char *output = scratch_path("side");
  open_target(output, &one);
  open_target(output, &two);
  assert_string_not_equal(one.temporary, two.temporary);
  assert_true(plm_file_exists(one.temporary) && plm_file_exists(two.temporary));
  assert_int_equal(close(one.lock), 0); /* as if it had been killed */
  open_target(output, &three);
  assert_false(plm_file_exists(one.temporary));
  assert_true(plm_file_exists(two.temporary) && plm_file_exists(three.temporary));
  plm_export_target_abandon(&two);
  plm_export_target_abandon(&three);
  assert_false(plm_file_exists(two.temporary) || plm_file_exists(three.temporary));
  assert_int_equal(two.lock, -1);
}

static void the_folder_has_the_mode_of_others(void **state)
{
  (void)state;
  struct plm_export_target target;
  const mode_t before = umask(027);
  open_target(scratch_path("mode"), &target);
  assert_int_equal(mode_of(target.temporary), 0750);
  assert_int_equal(umask(before), 027);
  plm_export_target_abandon(&target);
}

/* ".NAME.export-" may have 200 bytes. */
static void long_names_are_refused(void **state)
{
  (void)state;
  char name[256], path[PLM_PATH_SIZE];
  struct plm_export_target target;
  struct plm_error error = {0};
  for (int length = 191; length <= 192; length++) {
    memset(name, 'n', (size_t)length);
    name[length] = '\0';
    assert_int_equal(plm_path_join(path, scratch_directory(), name, NULL), PLM_OK);
    assert_int_equal(plm_export_target_open(path, false, &target, &error),
                     length == 191 ? PLM_OK : PLM_LIMIT);
    plm_export_target_abandon(&target);
  }
  assert_non_null(strstr(error.what, "is too long"));
}

/* Whoever closes the target removes no other folder. */
static void a_folder_that_cannot_be_made_has_no_name(void **state)
{
  struct plm_export_target target;
  struct plm_error error = {0};
  (void)state;
  assert_int_not_equal(plm_export_target_open("/proc/model", false, &target, &error), PLM_OK);
  assert_string_equal(error.what, "cannot make a folder in /proc: No such file or directory");
  assert_string_equal(target.temporary, "");
  assert_int_equal(plm_export_target_open("/", false, &target, &error), PLM_EXISTS);
  assert_string_equal(error.what, "an export cannot go to /");
}

/* Slashes at the end do not count, and a folder that is missing has a name. */
static void the_place_is_a_folder(void **state)
{
  static const char *const bad[] = {"none/.", "none/..", "none/..//"};
  (void)state;
  struct plm_export_target target;
  char path[PLM_PATH_SIZE], what[PLM_PATH_SIZE + 64];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct plm_error error = {0};
    snprintf(path, sizeof path, "%s", scratch_path(bad[i]));
    assert_int_equal(plm_export_target_open(path, true, &target, &error), PLM_USAGE);
    snprintf(what, sizeof what, "\"%.200s\" does not name a folder", path);
    assert_string_equal(error.what, what);
  }
  snprintf(path, sizeof path, "%s", scratch_path("new/folder///"));
  open_target(path, &target);
  assert_string_equal(target.final, scratch_path("new/folder"));
  plm_export_target_abandon(&target);
  struct plm_error error = {0};
  scratch_write(scratch_path("a file"), "x", 1);
  assert_int_equal(plm_export_target_open(scratch_path("a file"), true, &target, &error),
                   PLM_EXISTS);
  assert_string_equal(error.what, "it exists and is not a folder");
  assert_string_equal(error.where, scratch_path("a file"));
  assert_int_equal(symlink("circle", scratch_path("circle")), 0);
  assert_int_not_equal(plm_export_target_open(scratch_path("circle"), true, &target, &error),
                       PLM_OK);
  snprintf(what, sizeof what, "cannot stat %s: Too many levels of symbolic links",
           scratch_path("circle"));
  assert_string_equal(error.what, what);
}

/* With force, what is at the place gets the first free name. */
static void something_else_is_moved_aside(void **state)
{
  (void)state;
  char moved[PLM_PATH_SIZE], expected[PLM_PATH_SIZE], file[PLM_PATH_SIZE];
  struct plm_export_target target;
  const char *output = scratch_path("aside");
  for (int i = 0; i < 3; i++) {
    open_target(output, &target);
    assert_false(target.earlier);
    assert_int_equal(target.aside, i > 0);
    assert_int_equal(plm_path_join(file, target.temporary, "file", NULL), PLM_OK);
    assert_int_equal(plm_file_write(file, "x", 1, 0644, NULL), PLM_OK);
    assert_int_equal(plm_export_target_publish(&target, moved, NULL), PLM_OK);
    expected[0] = '\0';
    if (i > 0) snprintf(expected, sizeof expected, "%s.previous-%d", output, i);
    assert_string_equal(moved, expected);
    assert_true(plm_file_exists(output) && (i == 0 || plm_file_exists(moved)));
    assert_false(plm_file_exists(target.temporary));
    assert_int_equal(target.lock, -1);
  }
  struct plm_error error = {0};
  assert_int_equal(plm_export_target_open(output, false, &target, &error), PLM_EXISTS);
  assert_string_equal(error.where, output);
  assert_string_equal(error.hint, "choose another --output, or move the folder aside with --force");
}

/* Not even with force. */
static void some_folders_are_never_replaced(void **state)
{
  static const char *const never[][2] = {{"MANIFEST", "it is a checkpoint of a run"},
                                         {"checkpoints", "it is a run"},
                                         {"data.mdb", "it is a corpus"},
                                         {".git", "it is a Git repository"}};
  char output[PLM_PATH_SIZE], file[PLM_PATH_SIZE], what[100];
  struct plm_export_target target;
  (void)state;
  for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
    struct plm_error error = {0};
    scratch_run(output);
    assert_int_equal(plm_path_join(file, output, never[i][0], NULL), PLM_OK);
    scratch_write(file, "", 0);
    assert_int_equal(plm_export_target_open(output, true, &target, &error), PLM_EXISTS);
    snprintf(what, sizeof what, "the folder cannot be replaced: %s", never[i][1]);
    assert_string_equal(error.what, what);
  }
}

static void up_to_9999_folders_are_moved_aside(void **state)
{
  (void)state;
  char moved[PLM_PATH_SIZE], output[PLM_PATH_SIZE], expected[PLM_PATH_SIZE + 64];
  struct plm_export_target target;
  struct plm_error error = {0};
  snprintf(output, sizeof output, "%s", scratch_path("many"));
  assert_int_equal(mkdir(output, 0755), 0);
  for (moved_before = 9998; moved_before <= 9999; moved_before++) {
    scratch_write(scratch_path("many/file"), "x", 1);
    open_target(output, &target);
    const plm_status status = plm_export_target_publish(&target, moved, &error);
    snprintf(expected, sizeof expected, "%s.previous-9999", output);
    if (moved_before == 9998) {
      assert_int_equal(status, PLM_OK);
      assert_string_equal(moved, expected);
      continue;
    }
    assert_int_equal(status, PLM_LIMIT);
    snprintf(expected, sizeof expected, "there are too many folders %s.previous-N", output);
    assert_string_equal(error.what, expected);
    plm_export_target_abandon(&target);
  }
  moved_before = 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_being_written_is_kept),
      cmocka_unit_test(the_folder_has_the_mode_of_others),
      cmocka_unit_test(long_names_are_refused),
      cmocka_unit_test(a_folder_that_cannot_be_made_has_no_name),
      cmocka_unit_test(the_place_is_a_folder),
      cmocka_unit_test(something_else_is_moved_aside),
      cmocka_unit_test(some_folders_are_never_replaced),
      cmocka_unit_test(up_to_9999_folders_are_moved_aside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
