/* `plm-pipeline validate`: the checks beyond the values themselves, and what it says of a model
 * that the run starts from. Which values are mistakes: test_command_config.c. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(folder);
  return chdir(folder);
}

/* What is said of every configuration without a corpus. */
#define NO_CORPUS "corpus: null, so the run takes the corpus of the first packer that joins\n"

static void write_yaml(const char *yaml)
{
  scratch_write("its.yaml", yaml, strlen(yaml));
}

static void expect(int code, const char *out, const char *err, int found)
{
  assert_string_equal(command_err, err);
  assert_string_equal(command_out, out);
  assert_int_equal(found, code);
}

/* `up` takes a run that is shorter than its warm-up, with a warning; here it is a mistake. */
static void the_schedule_has_to_fit(void **state)
{
  (void)state;
  write_yaml("corpus: null\ntrainer:\n  steps: 10\n  schedule: {warmup_steps: 11}\n");
  int code = COMMAND("validate", "its.yaml");
  expect(
      2, "",
      "its.yaml:4:28: trainer.schedule.warmup_steps: 11 steps of warm-up are more than the 10 of "
      "trainer.steps; a share, such as 5%, follows trainer.steps\n",
      code);
  code = COMMAND("validate", "-c", "its.yaml", "--set", "trainer.steps=11");
  expect(0, "its.yaml: valid\n", NO_CORPUS, code);
}

/* Without a name, it is that of the working directory. */
static void the_usual_configuration_is_found(void **state)
{
  (void)state;
  int code = COMMAND("validate");
  assert_int_equal(code, 2);
  assert_non_null(strstr(command_err, "pipeline.yaml"));
  scratch_write("pipeline.yaml", "corpus: null\n", 13);
  code = COMMAND("validate");
  expect(0, "pipeline.yaml: valid\n", NO_CORPUS, code);
  scratch_write("pipeline.yaml", "seed: x\n", 8);
  code = COMMAND("validate");
  expect(2, "", "pipeline.yaml:1:7: seed: expected a whole number, found \"x\"\n", code);
}

/* PLM_CONFIG names another one, and -c one before that. */
static void the_environment_names_a_configuration(void **state)
{
  (void)state;
  write_yaml("corpus: null\n");
  scratch_write("other.yaml", "corpus: null\n", 13);
  assert_int_equal(setenv("PLM_CONFIG", "other.yaml", 1), 0);
  int code = COMMAND("validate");
  expect(0, "other.yaml: valid\n", NO_CORPUS, code);
  code = COMMAND("validate", "-c", "its.yaml");
  expect(0, "its.yaml: valid\n", NO_CORPUS, code);
  assert_int_equal(unsetenv("PLM_CONFIG"), 0);
}

/* Each corpus of a mixture, and each in its place. */
static void the_corpora_of_a_mixture_are_read(void **state)
{
  char yaml[4 * PLM_PATH_SIZE], expected[3 * PLM_PATH_SIZE], corpus[PLM_PATH_SIZE];
  (void)state;
  plm_corpus_close(
      written_corpus_open("one", &(struct written_corpus){.documents = {20}, .longest = 9}));
  plm_corpus_close(
      written_corpus_open("two", &(struct written_corpus){.documents = {30}, .longest = 9}));
  snprintf(corpus, sizeof corpus, "%s", scratch_path("two"));
  snprintf(yaml, sizeof yaml, "corpus:\n- {path: %.4000s}\n- {path: /nowhere}\n- {path: %.4000s}\n",
           scratch_path("one"), corpus);
  write_yaml(yaml);
  if (COMMAND("validate", "its.yaml") != 0) fail_msg("%s", command_err);
  assert_string_equal(command_out, "its.yaml: valid\n");
  snprintf(expected, sizeof expected, "%.4000s/corpus.json", corpus);
  scratch_write(expected, "{}", 2);
  assert_int_equal(COMMAND("validate", "its.yaml"), 2);
  snprintf(expected, sizeof expected, "its.yaml:4:3: corpus: source 2: %.4000s: ", corpus);
  assert_string_equal(command_out, "");
  if (strncmp(command_err, expected, strlen(expected)) != 0) fail_msg("%s", command_err);
}

/* Whatever of it is not in vain. */
static void advice_is_no_mistake(void **state)
{
  (void)state;
  write_yaml("corpus: null\ntrainer: {stop_when: {metric: accuracy}}\n");
  static const char advice[] = "trainer.stop_when.metric: has no effect, since "
                               "trainer.stop_when.patience is 0\n" NO_CORPUS;
  int code = COMMAND("validate", "its.yaml");
  expect(0, "its.yaml: valid\n", advice, code);
  code = COMMAND("validate", "its.yaml", "--json");
  expect(0, "[]\n", advice, code);
  code = COMMAND("validate", "its.yaml", "--quiet");
  expect(0, "", advice, code);
}

#define MODEL                                                                                  \
  "corpus: null\nmodel: {architecture: transformer, hidden_size: 32, num_attention_heads: 2, " \
  "num_hidden_layers: 6, expansion_ratio: 2, soft_logit_cap: 16}\ndata: {max_length: 128}\n"

/* A model of the same shapes is described, with the settings that differ. One of other shapes, or
 * without its weights, is a mistake. */
static void the_model_it_starts_from_is_described(void **state)
{
  struct inference_case model;
  char expected[2 * PLM_PATH_SIZE];
  (void)state;
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 128, 2);
  inference_case_save(&model, "start");
  inference_case_close(&model);
  write_yaml(MODEL "trainer: {init_from: start}\n");
  if (COMMAND("validate", "its.yaml") != 0) fail_msg("%s", command_err);
  assert_string_equal(command_err, NO_CORPUS);
  static const char begins[] = "trainer.init_from: transformer (PLMForMaskedLM), ",
                    ends[] = "\nits.yaml: valid\n";
  assert_int_equal(strncmp(command_out, begins, strlen(begins)), 0);
  assert_true(plm_text_ends_with(command_out, ends));
  int code = COMMAND("validate", "its.yaml", "--quiet");
  expect(0, "", NO_CORPUS, code);
  code = COMMAND("validate", "its.yaml", "--json");
  expect(0, "[]\n", NO_CORPUS, code);
  code = COMMAND("validate", "its.yaml", "--set", "model.soft_logit_cap=17");
  assert_int_equal(code, 0);
  assert_non_null(strstr(command_out, "\ntrainer.init_from: the weights were trained with other "
                                      "settings:\n"));
  assert_non_null(strstr(command_out, "soft_logit_cap was 16, is 17\n"));
  assert_true(plm_text_ends_with(command_out, ends));
  assert_int_equal(COMMAND("validate", "its.yaml", "--set", "model.num_hidden_layers=4"), 2);
  assert_string_equal(command_out, "");
  assert_non_null(strstr(command_err, "num_hidden_layers"));
  assert_int_equal(unlink("start/model.safetensors"), 0);
  assert_int_equal(COMMAND("validate", "its.yaml"), 2);
  assert_string_equal(command_out, "");
  assert_non_null(strstr(command_err, "model.safetensors"));
  snprintf(expected, sizeof expected, "%s/nothing", folder);
  code = COMMAND("validate", "its.yaml", "--set", "trainer.init_from=nothing");
  assert_int_equal(code, 0);
  assert_string_equal(command_out, "its.yaml: valid\n");
  assert_non_null(strstr(command_err, " does not exist on this host\n"));
  assert_non_null(strstr(command_err, expected));
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_schedule_has_to_fit, setup),
      cmocka_unit_test_setup(the_usual_configuration_is_found, setup),
      cmocka_unit_test_setup(the_environment_names_a_configuration, setup),
      cmocka_unit_test_setup(the_corpora_of_a_mixture_are_read, setup),
      cmocka_unit_test_setup(advice_is_no_mistake, setup),
      cmocka_unit_test_setup(the_model_it_starts_from_is_described, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
