/* `include`: values of included files come first and are overridden key by key, paths belong to
 * their own file, problems and origins name it, a printed configuration stands alone, and cycles
 * and limits are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/config.h"
#include "common/config/config_include.h"
#include "common/config/settings.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static int enter_folder(void **state)
{
  (void)state;
  return chdir(scratch_directory()) != 0 || plm_directory_make("shared/deep", NULL) != PLM_OK;
}

static void put(const char *path, const char *text)
{
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

static void load(const char *path, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load(path, NULL, 0, config, NULL, &error) != PLM_OK) fail_msg("%s", error.what);
}

/* Expects exactly these problems, one on each line. */
static void expect_problems(const char *text, const char *expected)
{
  struct plm_config config;
  struct plm_config_problems *problems = NULL;
  struct plm_text all = {0};
  put("pipeline.yaml", text);
  assert_int_equal(plm_config_load("./pipeline.yaml", NULL, 0, &config, &problems, NULL),
                   PLM_CONFIG);
  for (size_t i = 0; i < plm_config_problems_count(problems); i++)
    plm_text_printf(&all, "%s\n", plm_config_problem(problems, i));
  assert_string_equal(all.data, expected);
  plm_text_deinit(&all);
  plm_config_problems_free(problems);
}

static void expect_origin(const struct plm_config *config, const char *key, const char *file,
                          uint32_t line, uint32_t column)
{
  const struct plm_config_origin *origin =
      &config->origins[plm_setting_index(plm_setting_find(key))];
  if (origin->kind != PLM_ORIGIN_FILE || origin->line != line || origin->column != column ||
      strcmp(config->files[origin->file], file) != 0)
    fail_msg("%s: %s:%u:%u (%d)", key, config->files[origin->file], origin->line, origin->column,
             (int)origin->kind);
}

static void the_including_file_overrides_key_by_key(void **state)
{
  (void)state;
  struct plm_config config;
  put("base.yaml", "seed: 7\n"
                   "trainer: {steps: 50, ema: 0.25, optimizer: {lr_head: 0.5, lr_embed: 0.125}}\n"
                   "evaluator: {mask_rates: [0.1, 0.2], seed: 3}\n");
  put("more.yaml", "trainer: {ema: 0.75, max_skipped_steps: 9}\nevaluator: {seed: 4}\n");
  /* the key need not be the first one */
  put("pipeline.yaml", "trainer: {steps: 60, optimizer: {lr_head: 0.25}}\n"
                       "include: [base.yaml, ./more.yaml]\n"
                       "evaluator: {mask_rates: [0.3]}\n");
  load("pipeline.yaml", &config);
  assert_int_equal(config.seed, 7);
  assert_int_equal(config.trainer.steps, 60);
  assert_true(config.trainer.ema == 0.75); /* the later file of the list */
  assert_int_equal(config.trainer.max_skipped_steps, 9);
  assert_true(config.trainer.optimizer.lr_head == 0.25);
  assert_true(config.trainer.optimizer.lr_embed == 0.125);
  assert_int_equal(config.evaluator.mask_rate_count, 1); /* a list is replaced */
  assert_true(config.evaluator.mask_rates[0] == 0.3);
  assert_int_equal(config.evaluator.seed, 4);
  assert_int_equal(config.file_count, 3);
  expect_origin(&config, "seed", "base.yaml", 1, 7);
  expect_origin(&config, "trainer.ema", "more.yaml", 1, 16);
  expect_origin(&config, "trainer.steps", "pipeline.yaml", 1, 18);
  plm_config_deinit(&config);
}

static void null_and_presets_are_values(void **state)
{
  (void)state;
  struct plm_config config;
  put("base.yaml", "network: {keys: k}\nmodel: {preset: 8M, num_hidden_layers: 7}\n");
  put("pipeline.yaml", "include: base.yaml\nnetwork: {keys: null}\nmodel: {preset: 35M}\n");
  load("pipeline.yaml", &config);
  assert_null(config.network.keys);
  assert_int_equal(config.model.hidden_size, 480);
  assert_int_equal(config.model.num_hidden_layers, 7);
  plm_config_deinit(&config);
  static const char *const empty[] = {"include:\nseed: 5\n", "include: []\nseed: 5\n"};
  for (size_t i = 0; i < 2; i++) {
    put("pipeline.yaml", empty[i]);
    load("pipeline.yaml", &config);
    assert_int_equal(config.seed, 5);
    assert_int_equal(config.file_count, 1);
    plm_config_deinit(&config);
  }
}

static void paths_belong_to_their_file(void **state)
{
  (void)state;
  struct plm_config config;
  char expected[PLM_PATH_SIZE + 64], absolute[PLM_PATH_SIZE + 64];
  put("shared/deep/last.yaml", "run: r\nseed: 2\n");
  put("shared/base.yaml", "include: deep/last.yaml\ncorpus: c.corpus\n");
  put("pipeline.yaml", "include: shared/base.yaml\nnetwork: {keys: k}\n");
  load("pipeline.yaml", &config);
  snprintf(expected, sizeof expected, "%s/shared/deep/r", scratch_directory());
  assert_string_equal(config.run, expected);
  snprintf(expected, sizeof expected, "%s/shared/c.corpus", scratch_directory());
  assert_string_equal(config.corpus, expected);
  snprintf(expected, sizeof expected, "%s/k", scratch_directory());
  assert_string_equal(config.network.keys, expected);
  expect_origin(&config, "seed", "shared/deep/last.yaml", 2, 7);
  plm_config_deinit(&config);

  /* neither the working directory nor how a file is named matters */
  snprintf(absolute, sizeof absolute, "%s/pipeline.yaml", scratch_directory());
  assert_int_equal(chdir("shared/deep"), 0);
  load(absolute, &config);
  assert_string_equal(config.network.keys, expected);
  plm_config_deinit(&config);
  load("../../pipeline.yaml", &config);
  expect_origin(&config, "seed", "../../shared/deep/last.yaml", 2, 7);
  plm_config_deinit(&config);
  assert_int_equal(chdir(scratch_directory()), 0);
  snprintf(expected, sizeof expected, "include: %s/shared/base.yaml\n", scratch_directory());
  put("pipeline.yaml", expected);
  load("pipeline.yaml", &config);
  assert_int_equal(config.seed, 2);
  plm_config_deinit(&config);
}

static void a_printed_configuration_stands_alone(void **state)
{
  (void)state;
  struct plm_config config, again;
  char *first, *second;
  put("base.yaml", "seed: 7\ntrainer: {steps: 40, schedule: {warmup_steps: 10%}}\n");
  put("pipeline.yaml", "include: base.yaml\ntrainer: {ema: 0.5}\n");
  load("pipeline.yaml", &config);
  assert_int_equal(config.trainer.schedule.warmup_steps, 4);
  first = plm_config_print(&config);
  assert_null(strstr(first, "include:"));
  assert_int_equal(unlink("base.yaml"), 0);
  assert_int_equal(plm_config_load_text(first, strlen(first), &again, NULL), PLM_OK);
  second = plm_config_print(&again);
  assert_string_equal(first, second);
  free(first);
  free(second);
  plm_config_deinit(&config);
  plm_config_deinit(&again);
}

static void problems_name_their_file(void **state)
{
  (void)state;
  put("shared/base.yaml", "seed: x\n\nmodel:\n  num_unet_layers: 5\n");
  put("broken.yaml", "seed: 1\n\ttrainer: 2\n");
  put("list.yaml", "- 1\n");
  /* sorted by file, then line; the same file twice gives each problem once */
  expect_problems("trainer:\n  ema: 1\ninclude: [shared/base.yaml, shared/base.yaml]\nsed: 2\n",
                  "pipeline.yaml:2:8: trainer.ema: 1 is out of range: must be at least 0 and below "
                  "1\n"
                  "pipeline.yaml:4:1: unknown key \"sed\"; did you mean \"seed\"?\n"
                  "shared/base.yaml:1:7: seed: expected a whole number, found \"x\"\n"
                  "shared/base.yaml:4:20: model.num_unet_layers: 5 is not even, but encoder and "
                  "decoder mirror each other\n");
  expect_problems(
      "include: broken.yaml\n",
      "broken.yaml:2:1: not valid YAML: found a tab character that violates indentation\n");
  expect_problems("include: list.yaml\n",
                  "list.yaml:1:1: expected keys with values, found a list\n");
  expect_problems("include: [none.yaml, shared]\n",
                  "pipeline.yaml:1:11: include: cannot open none.yaml: No such file or directory\n"
                  "pipeline.yaml:1:22: include: cannot read shared: Is a directory\n");
  expect_problems("include: [[a.yaml], \"\", {b: c}]\n",
                  "pipeline.yaml:1:11: include: expected the path of a file, found a list or "
                  "section\n"
                  "pipeline.yaml:1:21: include: the path of the file is empty\n"
                  "pipeline.yaml:1:25: include: expected the path of a file, found a list or "
                  "section\n");
  expect_problems("include: {b: c}\n", "pipeline.yaml:1:10: include: expected the path of a file, "
                                       "found a list or section\n");
  expect_problems("inclde: list.yaml\n",
                  "pipeline.yaml:1:1: unknown key \"inclde\"; did you mean \"include\"?\n");
  expect_problems("trainer:\n  include: list.yaml\n",
                  "pipeline.yaml:2:3: \"include\" may only stand at the top level of a "
                  "configuration file\n");
}

static void only_a_file_includes(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_error error = {0};
  const struct plm_config_override set = {"include", "base.yaml"};
  const char text[] = "include: base.yaml\n";
  put("base.yaml", "seed: 3\n");
  assert_int_equal(plm_config_load(NULL, &set, 1, &config, NULL, &error), PLM_CONFIG);
  assert_string_equal(error.what, "--set include: \"include\" may only stand at the top level of a "
                                  "configuration file");
  assert_int_equal(plm_config_load_text(text, strlen(text), &config, &error), PLM_CONFIG);
  assert_string_equal(error.what, "configuration:1:1: \"include\" may only stand at the top level "
                                  "of a configuration file");
}

static void cycles_are_refused_by_name(void **state)
{
  (void)state;
  put("shared/a.yaml", "include: deep/b.yaml\n");
  put("shared/deep/b.yaml", "seed: 1\ninclude: [../a.yaml]\n");
  expect_problems("include: shared/a.yaml\n",
                  "shared/deep/b.yaml:2:11: include: shared/a.yaml includes itself (shared/a.yaml "
                  "-> shared/deep/b.yaml -> shared/a.yaml); remove one of these\n");
  expect_problems("include: pipeline.yaml\n",
                  "pipeline.yaml:1:10: include: pipeline.yaml includes itself (pipeline.yaml -> "
                  "pipeline.yaml); remove one of these\n");
  /* another name of the same file */
  assert_int_equal(symlink("pipeline.yaml", "other.yaml"), 0);
  expect_problems("include: other.yaml\n",
                  "pipeline.yaml:1:10: include: pipeline.yaml includes itself (pipeline.yaml -> "
                  "pipeline.yaml); remove one of these\n");
}

static void depth_and_number_have_limits(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_text many = {0};
  char name[32], text[64];
  for (int i = 1; i <= PLM_INCLUDE_MAX_DEPTH + 1; i++) {
    snprintf(name, sizeof name, "%d.yaml", i);
    snprintf(text, sizeof text, i == 1 ? "seed: 11\n" : "include: %d.yaml\n", i - 1);
    put(name, text);
  }
  put("pipeline.yaml", "include: 8.yaml\n");
  load("pipeline.yaml", &config);
  assert_int_equal(config.seed, 11);
  plm_config_deinit(&config);
  expect_problems("include: 9.yaml\n",
                  "2.yaml:1:10: include: files include each other more than 8 deep; put the values "
                  "of some into one file\n");

  plm_text_puts(&many, "include: [1.yaml");
  for (int i = 1; i < PLM_INCLUDE_MAX_FILES; i++) plm_text_puts(&many, ", 1.yaml");
  const size_t end = many.length;
  plm_text_puts(&many, "]\n");
  put("pipeline.yaml", many.data);
  load("pipeline.yaml", &config);
  assert_int_equal(config.file_count, 1 + PLM_INCLUDE_MAX_FILES);
  plm_config_deinit(&config);
  many.length = end;
  plm_text_puts(&many, ",\n1.yaml]\n");
  expect_problems(many.data, "pipeline.yaml:2:1: include: more than 64 included files; put the "
                             "values of some into one file\n");
  plm_text_deinit(&many);
}

/* Whether or not the including file's name has a folder. */
static void a_path_has_a_limit(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_text text = {0};
  plm_text_puts(&text, "include: ");
  for (int i = 0; i < PLM_PATH_SIZE; i++) plm_text_puts(&text, "p");
  plm_text_puts(&text, "\n");
  put("pipeline.yaml", text.data);
  plm_text_deinit(&text);
  for (int folder = 0; folder < 2; folder++) {
    struct plm_config_problems *problems = NULL;
    assert_int_equal(plm_config_load(folder ? "./pipeline.yaml" : "pipeline.yaml", NULL, 0, &config,
                                     &problems, NULL),
                     PLM_CONFIG);
    assert_int_equal(plm_config_problems_count(problems), 1);
    const char *problem = plm_config_problem(problems, 0);
    assert_memory_equal(problem, "pipeline.yaml:1:10: include: ", 29);
    assert_non_null(strstr(problem, " is too long"));
    plm_config_problems_free(problems);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_including_file_overrides_key_by_key),
      cmocka_unit_test(null_and_presets_are_values),
      cmocka_unit_test(paths_belong_to_their_file),
      cmocka_unit_test(a_printed_configuration_stands_alone),
      cmocka_unit_test(problems_name_their_file),
      cmocka_unit_test(only_a_file_includes),
      cmocka_unit_test(cycles_are_refused_by_name),
      cmocka_unit_test(depth_and_number_have_limits),
      cmocka_unit_test(a_path_has_a_limit),
  };
  return cmocka_run_group_tests(tests, enter_folder, NULL);
}
