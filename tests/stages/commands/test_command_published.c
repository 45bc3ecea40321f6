/* Commands on folders of published weights: what they say of them, and of those that are wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
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

/* `up` says so too. A model that --set makes so is meant. */
static void esm2_without_token_dropout_is_named(void **state)
{
  static const char said[] = "model.token_dropout: false, so this esm2 trains without ";
  (void)state;
  published_put(run, "plain.yaml",
                "corpus: null\nmodel: {architecture: esm2, token_dropout: false}\n");
  assert_int_equal(COMMAND("validate", "plain.yaml"), 0);
  says(command_err, said);
  assert_int_equal(COMMAND("validate", "plain.yaml", "--set", "model.token_dropout=false"), 0);
  assert_null(strstr(command_err, "token_dropout"));
  COMMAND("up", "--dry-run", "plain.yaml"); /* whether this host has room is of no interest */
  says(command_err, said);
  COMMAND("up", "--dry-run", "plain.yaml", "--set", "model.token_dropout=false");
  assert_null(strstr(command_err, "token_dropout"));
}

/* A MANIFEST makes the folder a checkpoint. */
static void add_manifest(void)
{
  static const char *const names[] = {"config.json", PUBLISHED_WEIGHTS};
  struct plm_manifest manifest = {.step = 7, .count = 2};
  for (int i = 0; i < 2; i++) {
    char path[PLM_PATH_SIZE];
    strcpy(manifest.files[i].name, names[i]);
    assert_int_equal(plm_path_join(path, folder, names[i], NULL), PLM_OK);
    assert_int_equal(
        plm_hash_file(path, &manifest.files[i].hash, &manifest.files[i].size, NULL, NULL), PLM_OK);
  }
  char *text = plm_manifest_print(&manifest);
  published_put(folder, "MANIFEST", text);
  free(text);
}

static void a_single_checkpoint_is_described(void **state)
{
  (void)state;
  static const char facts[] = "\nESM-2 (EsmForMaskedLM), 73,505 parameters in float32, 2 layers of "
                              "width 64 with 4 heads; one file, 0.3 MB; the language model's head, "
                              "and a contact head\n";
  add_manifest();
  assert_int_equal(COMMAND("checkpoints", folder), 0);
  says(command_out, "\n       7 ");
  says(command_out, facts);
  assert_int_equal(COMMAND("checkpoints", "--json", folder), 0);
  assert_null(strstr(command_out, "EsmForMaskedLM"));
  published_put(folder, "config.json", "{}"); /* without --verify, only the MANIFEST counts */
  assert_int_equal(COMMAND("checkpoints", folder), 0);
  says(command_out, "\n       7 ");
  assert_null(strstr(command_out, "parameters"));
  published_put(folder, "MANIFEST", "?");
  assert_int_equal(COMMAND("checkpoints", folder), 0);
  says(command_out, "damaged");
  assert_null(strstr(command_out, "parameters"));
}

/* The same errors as those of --checkpoint. */
static void no_model_is_an_error(void **state)
{
  static const struct {
    const char *files[2]; /* of the folder; NULL: it does not exist */
    const char *said;     /* NULL: it has no checkpoints, which is no error */
  } rows[] = {
      {{"pytorch_model.bin", NULL}, "only safetensors are read, not pytorch_model.bin"},
      {{"esm2_t6_8M_UR50D.pt", NULL}, "hf download facebook/esm2_t6_8M_UR50D"},
      {{"model.safetensors", NULL}, "neither MANIFEST nor config.json exists"},
      {{"model.safetensors.index.json", NULL}, "neither MANIFEST nor config.json exists"},
      {{"config.json", "pytorch_model.bin"}, "convert it, which needs PyTorch"},
      {{"vocab.txt", NULL}, NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    scratch_run(run);
    for (int k = 0; k < 2 && rows[i].files[k] != NULL; k++)
      published_put(run, rows[i].files[k], "{}");
    assert_int_equal(COMMAND("checkpoints", run), rows[i].said != NULL ? 1 : 0);
    if (rows[i].said == NULL)
      says(command_out, ": no checkpoints\n");
    else
      says(command_err, rows[i].said);
  }
  assert_int_equal(COMMAND("checkpoints", "facebook/esm2_t6_8M_UR50D"), 1);
  says(command_err, "there is no folder facebook/esm2_t6_8M_UR50D\n  if this is a model of the");
  published_put(run, "weights.pt", "");
  assert_int_equal(chdir(run), 0);
  assert_int_equal(COMMAND("checkpoints", "weights.pt"), 1);
  says(command_err, "weights.pt: this is a file, not the folder of a model\n  give its folder");
}

/* A run's own folder has foreign files at most by mistake. */
static void a_run_is_no_model(void **state)
{
  (void)state;
  published_put(run, "pipeline.yaml", "");
  published_put(run, "pytorch_model.bin", "");
  assert_int_equal(COMMAND("checkpoints", run), 0);
  says(command_out, ": no checkpoints\n");
}

static void a_folder_is_no_configuration(void **state)
{
  char said[3 * PLM_PATH_SIZE];
  (void)state;
  assert_int_equal(COMMAND("validate", folder), 2);
  snprintf(said, sizeof said,
           "%s is a folder, not a configuration; for a model, `plm-pipeline checkpoints %s` says "
           "what it is\n",
           folder, folder);
  assert_string_equal(command_err, said);
  published_put(run, "pipeline.yaml", "");
  assert_int_equal(COMMAND("validate", run), 2);
  snprintf(said, sizeof said,
           "%s is a folder, not a configuration; its configuration is %s/pipeline.yaml\n", run,
           run);
  assert_string_equal(command_err, said);
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(other_settings_are_listed, setup),
      cmocka_unit_test_setup(esm2_without_token_dropout_is_named, setup),
      cmocka_unit_test_setup(a_single_checkpoint_is_described, setup),
      cmocka_unit_test_setup(no_model_is_an_error, setup),
      cmocka_unit_test_setup(a_run_is_no_model, setup),
      cmocka_unit_test_setup(a_folder_is_no_configuration, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
