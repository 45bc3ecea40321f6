/* `plm-pipeline push` with a script as `hf`, and `export`: what is uploaded, from where and how,
 * and what both say. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/huggingface.h"
#include "common/run/stop.h"
#include "tests/support/cases/case_batch.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE], path_before[1 << 14], *temporary_before;

/* A model as a Hugging Face folder, `model`; `hf`, which writes down its words and what lies in the
 * folder that it uploads; and a folder of temporary files. */
static int setup(void **state)
{
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 2, 32);
  struct plm_parameter *table;
  struct plm_error error = {0};
  size_t count, elements;
  (void)state;
  scratch_run(folder);
  assert_int_equal(chdir(folder), 0);
  config.vocab_size = 33;
  must_work(plm_model_parameters(&config, &table, &count, &elements, &error), &error);
  float *values = must(calloc(elements, sizeof *values));
  case_weights(table, count, 3, values);
  assert_int_equal(mkdir("model", 0755), 0);
  assert_int_equal(mkdir("temporary", 0755), 0);
  char *text = plm_huggingface_config_print(&config, 32, PLM_OBJECTIVE_MLM);
  scratch_write("model/config.json", text, strlen(text));
  must_work(plm_parameters_write("model/model.safetensors", table, count, values, &error), &error);
  free(text);
  free(values);
  free(table);
  command_case_program("hf", "#!/bin/sh\nfor i; do echo \"$i\"; done >words\nls \"$3\" >uploaded\n"
                             "[ ! -e \"$3/README.md\" ] || cp \"$3/README.md\" card\n"
                             "echo 'said by hf'\n");
  snprintf(path_before, sizeof path_before, "%s", getenv("PATH"));
  const char *temporary = getenv("TMPDIR");
  temporary_before = temporary != NULL ? must(strdup(temporary)) : NULL;
  char paths[sizeof path_before + PLM_PATH_SIZE];
  snprintf(paths, sizeof paths, "%s:%s", command_programs, path_before);
  setenv("PATH", paths, 1);
  snprintf(paths, sizeof paths, "%s/temporary", folder);
  setenv("TMPDIR", paths, 1);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  setenv("PATH", path_before, 1);
  if (temporary_before != NULL)
    setenv("TMPDIR", temporary_before, 1);
  else
    unsetenv("TMPDIR");
  free(temporary_before);
  plm_stop_requested = 0;
  return 0;
}

/* ---- push -------------------------------------------------------------------------------------
 */

static void a_folder_is_uploaded_as_it_is(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("push", "them/it", "--folder", "model"), 0);
  assert_string_equal(scratch_contents("words"), "upload\nthem/it\nmodel\n.\n--repo-type\nmodel\n"
                                                 "--commit-message\nplm-pipeline\n");
  assert_string_equal(scratch_contents("uploaded"), "config.json\nmodel.safetensors\n");
  assert_string_equal(command_out, "said by hf\n");
  assert_int_equal(COMMAND("push", "them/it", "--folder", "model", "--private", "--revision", "r",
                           "--message", "what it is", "--create-pr", "--json"),
                   0);
  assert_string_equal(scratch_contents("words"),
                      "upload\nthem/it\nmodel\n.\n--repo-type\nmodel\n--private\n--revision\nr\n"
                      "--commit-message\nwhat it is\n--create-pr\n");
  assert_string_equal(command_out, "{\"repository\":\"them/it\",\"uploaded\":true}\n");
  assert_string_equal(command_err, "said by hf\n");
  /* hf would take this name for an option */
  assert_int_equal(rename("model", "-model"), 0);
  assert_int_equal(COMMAND("push", "them/it", "--folder", "-model"), 0);
  assert_int_equal(strncmp(scratch_contents("words"), "upload\nthem/it\n./-model\n", 24), 0);
}

/* It is exported into a temporary folder, which is gone afterwards. */
static void a_model_is_exported_and_uploaded(void **state)
{
  char start[PLM_PATH_SIZE + 100];
  (void)state;
  assert_int_equal(COMMAND("push", "them/it", "--checkpoint", "model"), 0);
  const char *words = scratch_contents("words");
  snprintf(start, sizeof start, "upload\nthem/it\n%s/temporary/plm-push-", folder);
  assert_int_equal(strncmp(words, start, strlen(start)), 0);
  assert_string_equal(words + strlen(start) + 6, "/model\n.\n--repo-type\nmodel\n--commit-message\n"
                                                 "plm-pipeline: step 0, model weights\n");
  assert_non_null(strstr(scratch_contents("uploaded"), "README.md\n"));
  assert_non_null(strstr(scratch_contents("card"), "\n# them/it\n"));
  assert_true(scratch_is_empty("temporary"));
  assert_int_equal(COMMAND("push", "them/it", "--checkpoint", "model", "--message", "mine"), 0);
  assert_non_null(strstr(scratch_contents("words"), "\n--commit-message\nmine\n"));
  assert_int_equal(COMMAND("push", "them/it", "--checkpoint", "model", "--weights", "ema"), 1);
  assert_true(scratch_is_empty("temporary"));
}

static void an_upload_that_fails_is_reported(void **state)
{
  static const char hint[] = "  see the message of hf above; to log in, use `hf auth login` or set "
                             "HF_TOKEN\n";
  (void)state;
  command_case_program("hf", "#!/bin/sh\nexit 3\n");
  assert_int_equal(COMMAND("push", "them/it", "--folder", "model", "--json"), 1);
  assert_int_equal(strncmp(command_err, "plm-pipeline: `hf upload` ended with 3\n", 39), 0);
  assert_non_null(strstr(command_err, hint));
  assert_string_equal(command_out, "");
  command_case_program("hf", "#!/bin/sh\nkill -SEGV $$\n");
  assert_int_equal(COMMAND("push", "them/it", "--checkpoint", "model"), 1);
  assert_int_equal(strncmp(command_err, "plm-pipeline: `hf upload` was ended by signal 11\n", 49),
                   0);
  command_case_program("hf", "#!/no/shell\n");
  assert_int_equal(COMMAND("push", "them/it", "--folder", "model"), 1);
  assert_non_null(strstr(command_err, "plm-pipeline: cannot run hf: No such file or directory\n"
                                      "plm-pipeline: `hf upload` ended with 127\n"));
  assert_true(scratch_is_empty("temporary"));
}

/* hf is told to stop, once, and has the usual signals. */
static void a_signal_stops_the_upload(void **state)
{
  (void)state;
  command_case_program("hf",
                       "#!/bin/sh\ntrap 'echo told >>told; exit 1' TERM\nkill -INT $PPID\n" STAYS);
  assert_int_equal(COMMAND("push", "them/it", "--folder", "model"), 130);
  assert_string_equal(command_err, "plm-pipeline: stopped by Ctrl-C during the upload\n");
  assert_string_equal(scratch_contents("told"), "told\n");
  plm_stop_requested = 0;
  command_case_program("hf", "#!/bin/sh\nkill -PIPE $$\nexit 0\n"); /* which is ignored here */
  assert_int_equal(COMMAND("push", "them/it", "--folder", "model"), 1);
  assert_int_equal(strncmp(command_err, "plm-pipeline: `hf upload` was ended by signal 13\n", 49),
                   0);
}

static void commands_are_printed_instead(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("push", "them/it", "--folder", "model", "--dry-run"), 0);
  assert_string_equal(command_out, "hf upload them/it model . --repo-type model --commit-message "
                                   "plm-pipeline\n");
  assert_int_equal(COMMAND("push", "them/it", "--checkpoint", "model", "--dry-run", "--message",
                           "a b", "--weights", "model", "--dtype", "bfloat16", "--license", "mit"),
                   0);
  assert_string_equal(command_out,
                      "plm-pipeline export --checkpoint model --output it --name them/it --weights "
                      "model --dtype bfloat16 --license mit\n"
                      "hf upload them/it it . --repo-type model --commit-message 'a b'\n");
  assert_int_equal(COMMAND("push", "it", "--checkpoint", "model", "--dry-run"), 0);
  assert_string_equal(command_out, "plm-pipeline export --checkpoint model --output it --name it\n"
                                   "hf upload it it . --repo-type model --commit-message "
                                   "plm-pipeline\n");
  assert_int_equal(COMMAND("push", "it", "--checkpoint", "model", "--dry-run", "--dtype", "x"), 2);
  assert_string_equal(command_out, "");
  setenv("PATH", "/nowhere", 1);
  assert_int_equal(COMMAND("push", "it", "--folder", "model"), 1);
  assert_string_equal(command_out, "hf upload it model . --repo-type model --commit-message "
                                   "plm-pipeline\n");
  assert_int_equal(strncmp(command_err,
                           "plm-pipeline: nothing was uploaded: the command `hf` is "
                           "not on PATH\n",
                           67),
                   0);
  assert_string_equal(scratch_contents("words"), "");
}

/* ---- export -----------------------------------------------------------------------------------
 */

static void an_export_is_reported(void **state)
{
  char expected[2 * PLM_PATH_SIZE];
  struct stat weights;
  (void)state;
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", "new"), 0);
  assert_int_equal(stat("new/model.safetensors", &weights), 0);
  snprintf(expected, sizeof expected, "%s/new: ", folder);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  assert_non_null(strstr(command_out, " parameters, model weights in float32, "));
  assert_null(strstr(command_out, ", step "));
  assert_string_equal(command_err,
                      "plm-pipeline: README.md names no licence: give --license ID, or "
                      "fill it in before others use the model\n");
  assert_int_equal(
      COMMAND("export", "--checkpoint", "model", "--output", "new", "--license", "mit", "--json"),
      0);
  assert_string_equal(command_err, "");
  snprintf(
      expected, sizeof expected,
      "{\"output\":\"%s/new\",\"weights\":\"model\",\"dtype\":\"float32\",\"parameters\":", folder);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  assert_int_equal(stat("new/model.safetensors", &weights), 0);
  assert_non_null(strstr(command_out, ",\"evaluated\":false}\n"));
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", "new", "-q"), 0);
  assert_string_equal(command_out, "");
  snprintf(expected, sizeof expected, "%s/absolute", folder);
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", expected, "-q"), 0);
  assert_true(plm_file_exists("absolute/config.json"));
  assert_int_equal(mkdir("n", 0755), 0);
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", "n/new", "-q"), 0);
  assert_true(plm_file_exists("n/new/config.json"));
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", "slashes//"), 0);
  snprintf(expected, sizeof expected, "%s/slashes: ", folder);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  scratch_write("new/more", "", 0); /* now it is not an export that may be replaced */
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", "new"), 1);
  assert_non_null(strstr(command_err, "more was changed or added since"));
  assert_int_equal(unlink("new/more"), 0);
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", "new"), 0);
  scratch_write("new/config.json", "{}", 2);
  assert_int_equal(COMMAND("export", "--checkpoint", "model", "--output", "new"), 1);
  assert_non_null(strstr(command_err, "config.json was changed or added since"));
  assert_int_equal(
      COMMAND("export", "--checkpoint", "model", "--output", "new", "--force", "--json"), 0);
  snprintf(expected, sizeof expected, "the earlier folder is now %s/new", folder);
  assert_non_null(strstr(command_err, expected));
  snprintf(expected, sizeof expected, "\"moved\":\"%s/new", folder);
  assert_non_null(strstr(command_out, expected));
}

/* The folder `model` becomes the checkpoint of a step. */
static void make_checkpoint(const char *name, uint64_t step)
{
  static const char *const files[] = {"config.json", "model.safetensors"};
  struct plm_manifest manifest = {.step = step, .count = 2};
  char path[PLM_PATH_SIZE];
  assert_int_equal(rename("model", name), 0);
  for (int i = 0; i < 2; i++) {
    strcpy(manifest.files[i].name, files[i]);
    assert_int_equal(plm_path_join(path, name, files[i], NULL), PLM_OK);
    assert_int_equal(
        plm_hash_file(path, &manifest.files[i].hash, &manifest.files[i].size, NULL, NULL), PLM_OK);
  }
  char *text = plm_manifest_print(&manifest);
  assert_int_equal(plm_path_join(path, name, "MANIFEST", NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
  free(text);
}

static void the_step_of_a_checkpoint_is_reported(void **state)
{
  char expected[2 * PLM_PATH_SIZE];
  (void)state;
  make_checkpoint("step_00000012", 12);
  if (COMMAND("export", "--checkpoint", "step_00000012", "--output", "new", "--license", "mit") !=
      0)
    fail_msg("%s", command_err);
  snprintf(expected, sizeof expected,
           "%s/new: 44,129 parameters, model weights in float32, 0.2 MB, step 12\n", folder);
  assert_string_equal(command_out, expected);
  assert_int_equal(COMMAND("export", "--checkpoint", "step_00000012", "--output", "new", "--json"),
                   0);
  assert_non_null(strstr(command_out, "/new\",\"step\":12,\"weights\":\"model\","));
}

static void a_checkpoint_is_not_uploaded_as_a_folder(void **state)
{
  (void)state;
  make_checkpoint("step_00000012", 12);
  COMMAND_REFUSES(2, "step_00000012 is a checkpoint, which includes the optimizer's state", "push",
                  "them/it", "--folder", "step_00000012");
  assert_string_equal(scratch_contents("words"), "");
}

/* ---- validate ---------------------------------------------------------------------------------
 */

/* What trainer.init_from names is opened, compared with the model and described. */
static void the_first_weights_are_described(void **state)
{
  static const char yaml[] =
      "corpus: null\ndata: {max_length: 32}\ntrainer: {init_from: model, batch_tokens: 64, "
      "micro_batch_tokens: 32}\n"
      "model: {preset: none, architecture: transformer, hidden_size: 32, num_attention_heads: 2, "
      "num_hidden_layers: 2, expansion_ratio: 2, soft_logit_cap: 16}\n";
  (void)state;
  scratch_write("its.yaml", yaml, strlen(yaml));
  if (COMMAND("validate", "its.yaml") != 0) fail_msg("%s", command_err);
  assert_int_equal(strncmp(command_out, "trainer.init_from: ", 19), 0);
  assert_non_null(strstr(command_out, "\nits.yaml: valid\n"));
  assert_int_equal(COMMAND("validate", "its.yaml", "-q"), 0);
  assert_string_equal(command_out, "");
  assert_int_equal(COMMAND("validate", "its.yaml", "--json"), 0);
  assert_string_equal(command_out, "[]\n");
  assert_int_equal(COMMAND("validate", "its.yaml", "--set", "model.num_hidden_layers=3"), 2);
  assert_non_null(strstr(command_err, "num_hidden_layers"));
  assert_string_equal(command_out, "");
  assert_int_equal(mkdir("none", 0755), 0);
  assert_int_equal(COMMAND("validate", "its.yaml", "--set", "trainer.init_from=none"), 2);
  assert_string_equal(command_out, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      TEST(a_folder_is_uploaded_as_it_is),
      TEST(a_model_is_exported_and_uploaded),
      TEST(an_upload_that_fails_is_reported),
      TEST(a_signal_stops_the_upload),
      TEST(commands_are_printed_instead),
      TEST(an_export_is_reported),
      TEST(the_step_of_a_checkpoint_is_reported),
      TEST(the_first_weights_are_described),
      TEST(a_checkpoint_is_not_uploaded_as_a_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
