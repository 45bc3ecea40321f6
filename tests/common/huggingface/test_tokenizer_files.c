/* The files of a tokenizer, as a whole. What the libraries make of them is tested with these. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/files/file.h"
#include "common/huggingface/huggingface.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/scratch.h"

static void compare(const char *folder, const char *kind, const char *file)
{
  char path[PLM_PATH_SIZE], name[128], *text;
  size_t size;
  assert_int_equal(plm_path_join(path, folder, file, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  snprintf(name, sizeof name, "common/huggingface/tokenizer/%s/%s", kind, file);
  expected_file(name, text);
  free(text);
}

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
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
      compare(folder, byte ? "byte" : "esm", files[i]);
  }
}

/* Models whose classes are in transformers have its tokenizers, and no code of ours. */
static void files_of_published_weights(void **state)
{
  (void)state;
  for (int esmc = 0; esmc < 2; esmc++) {
    char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
    const char *kind = esmc ? "esmc" : "esm2";
    const struct plm_model_config model = {.architecture = esmc ? PLM_ESMC : PLM_ESM2,
                                           .vocab_size = esmc ? 64 : 33};
    scratch_run(folder);
    assert_int_equal(plm_huggingface_write(folder, &model, PLM_TOKENIZER_ESM, NULL), PLM_OK);
    compare(folder, kind, "vocab.txt");
    compare(folder, kind, "tokenizer_config.json");
    compare(folder, kind, "special_tokens_map.json");
    if (esmc) compare(folder, kind, "tokenizer.json");
    assert_int_equal(plm_path_join(path, folder, "modeling_plm.py", NULL), PLM_OK);
    assert_false(plm_file_exists(path));
    assert_int_equal(plm_path_join(path, folder, "tokenizer.json", NULL), PLM_OK);
    assert_int_equal(plm_file_exists(path), esmc);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_of_both_tokenizers),
                                     cmocka_unit_test(files_of_published_weights)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
