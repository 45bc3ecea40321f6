/* The files of a tokenizer, as a whole. What the libraries make of them is tested with these. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/files/file.h"
#include "common/huggingface/huggingface.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/scratch.h"

static void files_of_both_tokenizers(void **state)
{
  static const char *const files[] = {"vocab.txt", "tokenizer.json", "tokenizer_config.json",
                                      "special_tokens_map.json"};
  (void)state;
  const struct plm_model_config model = {.max_length = 64};
  for (int byte = 0; byte < 2; byte++) {
    char folder[PLM_PATH_SIZE];
    scratch_run(folder);
    assert_int_equal(
        plm_huggingface_write(folder, &model, byte ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM, NULL),
        PLM_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
      char path[PLM_PATH_SIZE], name[128], *text;
      size_t size;
      assert_int_equal(plm_path_join(path, folder, files[i], NULL), PLM_OK);
      assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
      snprintf(name, sizeof name, "common/huggingface/tokenizer/%s/%s", byte ? "byte" : "esm",
               files[i]);
      expected_file(name, text);
      free(text);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_of_both_tokenizers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
