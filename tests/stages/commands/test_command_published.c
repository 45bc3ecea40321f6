/* Commands on folders of published weights: what they say of them, and of those that are wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/published_file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];

static int setup(void **state)
{
  struct published_file file = published_file_of(PLM_ESM2);
  (void)state;
  published_add_ignored(&file);
  published_folder_write(&file, folder);
  published_file_free(&file);
  scratch_run(run);
  return chdir(run);
}

static void says(const char *text, const char *expected)
{
  if (strstr(text, expected) == NULL) fail_msg("\"%s\" is not in:\n%s", expected, text);
}

/* A run with other settings trains another model, so they are shown before it begins. */
static void other_settings_are_listed(void **state)
{
  static const struct {
    const char *settings, *said; /* NULL: nothing */
  } rows[] = {
      {"", NULL},
      {", token_dropout: false", "\ntoken_dropout was true, is false\n"},
      {", layer_norm_eps: 0.001", "\nlayer_norm_eps was 1e-05, is 0.001\n"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char yaml[2 * PLM_PATH_SIZE];
    snprintf(yaml, sizeof yaml,
             "corpus: null\nmodel: {architecture: esm2, hidden_size: 64, num_hidden_layers: 2, "
             "num_attention_heads: 4, intermediate_size: 128%s}\ntrainer: {init_from: %s}\n",
             rows[i].settings, folder);
    published_put(run, "its.yaml", yaml);
    assert_int_equal(COMMAND("validate", "its.yaml"), 0);
    says(command_out, "trainer.init_from: ESM-2 (EsmForMaskedLM), 73,505 parameters");
    says(command_out, "\ntrainer.init_from: the weights were trained with other settings:\n");
    says(command_out, "\nmax_length was 1026, is 512\n");
    if (rows[i].said != NULL) says(command_out, rows[i].said);
    assert_int_equal(strstr(command_out, "token_dropout was") != NULL, i == 1);
    assert_int_equal(strstr(command_out, "layer_norm_eps was") != NULL, i == 2);
    says(command_out, "\nits.yaml: valid\n");
  }
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(other_settings_are_listed, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
