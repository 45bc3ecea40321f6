/* Folders of published weights that are not exported. */
#include <stdio.h>
#include <string.h>

#include "stages/export/export.h"
#include "tests/support/cases/published_file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

/* The copy would have a config.json that belongs to another model. */
static void another_number_of_heads_is_not_copied(void **state)
{
  char folder[PLM_PATH_SIZE], output[PLM_PATH_SIZE];
  (void)state;
  for (int wrong = 0; wrong < 2; wrong++) {
    struct published_file file = published_file_of(PLM_ESM2);
    struct plm_export_result result;
    struct plm_error error = {0};
    published_add_ignored(&file);
    if (wrong) file.model.num_attention_heads = PUBLISHED_HEADS / 2;
    published_folder_write(&file, folder);
    published_file_free(&file);
    snprintf(output, sizeof output, "%s", scratch_path(wrong ? "wrong" : "right"));
    const struct plm_export_request request = {.input = folder, .output = output};
    assert_int_equal(plm_export(&request, &result, &error), wrong ? PLM_FORMAT : PLM_OK);
    assert_int_equal(plm_directory_exists(output), !wrong);
    if (wrong) assert_non_null(strstr(error.hint, "num_attention_heads"));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(another_number_of_heads_is_not_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
