/* The command that continues a run: the file and the folder are named unless they are found anyway.
 */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "stages/supervisor/report/up_command.h"

static void files_and_folders_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *file; /* below the working directory, unless it begins with a slash; or NULL */
    const char *run, *expected;
  } rows[] = {
      {NULL, NULL, "plm-pipeline up"},
      {"pipeline.yaml", NULL, "plm-pipeline up"},
      {"pipeline.yaml", "runs/a b", "plm-pipeline up --run 'runs/a b'"},
      {"other/pipeline.yaml", NULL, "plm-pipeline up other/pipeline.yaml"},
      {"my file.yaml", "second", "plm-pipeline up 'my file.yaml' --run second"},
      {"/nowhere/file.yaml", "/runs/x", "plm-pipeline up /nowhere/file.yaml --run /runs/x"},
  };
  char here[PLM_PATH_SIZE], path[PLM_PATH_SIZE + 64];
  assert_non_null(getcwd(here, sizeof here));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_text text = {0};
    struct plm_config config = {0};
    if (rows[i].file != NULL) {
      const bool absolute = rows[i].file[0] == '/';
      (void)snprintf(path, sizeof path, "%s%s%s", absolute ? "" : here, absolute ? "" : "/",
                     rows[i].file);
      config.path = path;
    }
    plm_up_command_put(&config, rows[i].run, &text);
    assert_string_equal(text.data, rows[i].expected);
    plm_text_deinit(&text);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_and_folders_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
