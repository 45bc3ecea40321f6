/* The link `latest` is made and replaced, also after an attempt that was cut short. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static void points_to(const char *folder, const char *name)
{
  char path[PLM_PATH_SIZE], target[64];
  assert_int_equal(plm_path_join(path, folder, "latest", NULL), PLM_OK);
  const ssize_t size = readlink(path, target, sizeof target - 1);
  assert_true(size > 0);
  target[size] = '\0';
  assert_string_equal(target, name);
}

static void the_link_is_replaced(void **state)
{
  char folder[PLM_PATH_SIZE], left[PLM_PATH_SIZE];
  struct plm_error error = {0};
  (void)state;
  scratch_run(folder);
  assert_int_equal(plm_checkpoint_point_latest(folder, "step-1", &error), PLM_OK);
  points_to(folder, "step-1");
  assert_int_equal(plm_checkpoint_point_latest(folder, "step-22", &error), PLM_OK);
  points_to(folder, "step-22");
  assert_int_equal(plm_path_join(left, folder, PLM_CHECKPOINT_TEMPORARY "latest", NULL), PLM_OK);
  assert_int_equal(access(left, F_OK), -1);
  assert_int_equal(symlink("step-3", left), 0); /* the power was cut then */
  assert_int_equal(plm_checkpoint_point_latest(folder, "step-4", &error), PLM_OK);
  points_to(folder, "step-4");
}

static void what_is_in_the_way_is_named(void **state)
{
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  (void)state;
  scratch_run(folder);
  assert_int_equal(plm_path_join(path, folder, "latest", NULL), PLM_OK);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_not_equal(plm_checkpoint_point_latest(folder, "step-1", &error), PLM_OK);
  assert_non_null(strstr(error.what, "cannot replace "));
  assert_int_equal(plm_path_join(path, folder, PLM_CHECKPOINT_TEMPORARY "latest", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_not_equal(plm_checkpoint_point_latest(folder, "step-1", &error), PLM_OK);
  assert_non_null(strstr(error.what, "cannot remove "));
  assert_int_equal(plm_path_join(path, folder, "missing", NULL), PLM_OK);
  assert_int_equal(plm_checkpoint_point_latest(path, "step-1", &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "cannot create "));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_link_is_replaced),
      cmocka_unit_test(what_is_in_the_way_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
