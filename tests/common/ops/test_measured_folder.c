/* Where measurements of a card are kept. */
#include <stdlib.h>
#include <string.h>

#include "common/ops/measured_folder.h"
#include "tests/support/harness/cmocka_all.h"

static void the_variable_names_it(void **state)
{
  char path[PLM_PATH_SIZE], longest[PLM_PATH_SIZE + 1];
  (void)state;
  setenv("XDG_CACHE_HOME", "/cache", 1);
  setenv("PLM_ALGORITHM_CACHE", "/a/folder", 1);
  assert_true(plm_measured_folder(path));
  assert_string_equal(path, "/a/folder");
  setenv("PLM_ALGORITHM_CACHE", "", 1); /* nothing is kept */
  assert_false(plm_measured_folder(path));
  memset(longest, 'a', sizeof longest);
  longest[PLM_PATH_SIZE - 1] = '\0';
  setenv("PLM_ALGORITHM_CACHE", longest, 1);
  assert_true(plm_measured_folder(path));
  assert_string_equal(path, longest);
  longest[PLM_PATH_SIZE - 1] = 'a';
  longest[PLM_PATH_SIZE] = '\0';
  setenv("PLM_ALGORITHM_CACHE", longest, 1);
  assert_false(plm_measured_folder(path));
}

static void else_it_is_a_folder_of_the_user(void **state)
{
  char path[PLM_PATH_SIZE];
  (void)state;
  unsetenv("PLM_ALGORITHM_CACHE");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  setenv("HOME", "/home/me", 1);
  assert_true(plm_measured_folder(path));
  assert_string_equal(path, "/cache/plm-pipeline");
  setenv("XDG_CACHE_HOME", "relative", 1);
  assert_true(plm_measured_folder(path));
  assert_string_equal(path, "/home/me/.cache/plm-pipeline");
  unsetenv("XDG_CACHE_HOME");
  assert_true(plm_measured_folder(path));
  assert_string_equal(path, "/home/me/.cache/plm-pipeline");
  setenv("HOME", "relative", 1);
  assert_false(plm_measured_folder(path));
  unsetenv("HOME");
  assert_false(plm_measured_folder(path));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_variable_names_it),
      cmocka_unit_test(else_it_is_a_folder_of_the_user),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
