/* Where a shared library of the programs is looked for. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/process/library_path.h"

static void it_lies_beside_the_folder_of_the_program(void **state)
{
  (void)state;
  char program[PLM_PATH_SIZE] = "", folder[PLM_PATH_SIZE], above[PLM_PATH_SIZE],
       expected[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  assert_int_equal(plm_path_parent(folder, program, NULL), PLM_OK);
  assert_int_equal(plm_path_parent(above, folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(expected, above, "lib/plm-pipeline/libx.so", NULL), PLM_OK);
  unsetenv("PLM_TEST_LIBRARY");
  assert_int_equal(plm_library_path("libx.so", "PLM_TEST_LIBRARY", path, NULL), PLM_OK);
  assert_string_equal(path, expected);
  setenv("PLM_TEST_LIBRARY", "", 1);
  assert_int_equal(plm_library_path("libx.so", "PLM_TEST_LIBRARY", path, NULL), PLM_OK);
  assert_string_equal(path, expected);
  setenv("PLM_TEST_LIBRARY", "relative/liby.so", 1);
  assert_int_equal(plm_library_path("libx.so", "PLM_TEST_LIBRARY", path, NULL), PLM_OK);
  assert_string_equal(path, "relative/liby.so");
}

static void a_path_has_a_limit(void **state)
{
  (void)state;
  char given[PLM_PATH_SIZE + 1], path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  memset(given, 'x', sizeof given);
  given[PLM_PATH_SIZE - 1] = '\0';
  setenv("PLM_TEST_LIBRARY", given, 1);
  assert_int_equal(plm_library_path("libx.so", "PLM_TEST_LIBRARY", path, NULL), PLM_OK);
  assert_string_equal(path, given);
  given[PLM_PATH_SIZE - 1] = 'x';
  given[PLM_PATH_SIZE] = '\0';
  setenv("PLM_TEST_LIBRARY", given, 1);
  assert_int_equal(plm_library_path("libx.so", "PLM_TEST_LIBRARY", path, &error), PLM_LIMIT);
  assert_string_equal(error.what, "PLM_TEST_LIBRARY is longer than 4095 bytes");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_lies_beside_the_folder_of_the_program),
      cmocka_unit_test(a_path_has_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
