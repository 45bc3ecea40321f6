/* `plm-pipeline config` and `validate`: where each value comes from, the reference of all keys, and
 * what is wrong with a configuration and what it names. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/config/settings.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE], file[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_path_join(file, run, "its.yaml", NULL), PLM_OK);
  return chdir(run);
}

static void write_file(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

/* ---- config ------------------------------------------------------------------------------------
 */

/* The line of a key and what stands behind its comment sign. */
static void expect_line(const char *line, const char *origin)
{
  const char *at = strstr(command_out, line);
  if (at == NULL) fail_msg("no line \"%s\" in\n%s", line, command_out);
  assert_true(at == command_out || at[-1] == '\n');
  const char *comment = strstr(at, " # ");
  assert_non_null(comment);
  const size_t length = strlen(origin);
  if (strncmp(comment + 3, origin, length) != 0 || comment[3 + length] != '\n')
    fail_msg("%.*s", (int)strcspn(at, "\n"), at);
  assert_true(comment - at >= 48); /* comments stand below each other */
}

static void each_value_has_an_origin(void **state)
{
  (void)state;
  write_file("base.yaml", "seed: 5\ndata:\n  max_length: 256\n");
  write_file("its.yaml", "include: base.yaml\nmodel: {preset: 8M}\ndata:\n  window_groups: 9\n");
  setenv("PLM_TRAINER_STEPS", "77", 1);
  const int code = COMMAND("config", "its.yaml", "--run", "here", "--set", "trainer.ema=0.5");
  unsetenv("PLM_TRAINER_STEPS");
  if (code != 0) fail_msg("%s", command_err);
  expect_line("seed: 5 ", "base.yaml:1:7");
  expect_line("  max_length: 256 ", "base.yaml:3:15");
  expect_line("  window_groups: 9 ", "its.yaml:4:18");
  expect_line("  steps: 77 ", "PLM_TRAINER_STEPS");
  expect_line("  ema: 0.5 ", "--set");
  expect_line("run: ", "--run");
  expect_line("  cache: null ", "default");
  expect_line("  hidden_size: ", "model.preset 8M");
}

static void values_are_json_too(void **state)
{
  (void)state;
  write_file("its.yaml", "seed: 18446744073709551615\ncorpus: /c d\ntrainer: {optimizer: "
                         "{lr_hidden: 0.1}}\nmodel: {preset: 8M}\n");
  assert_int_equal(COMMAND("config", "its.yaml", "--json"), 0);
  assert_non_null(strstr(command_out, "18446744073709551615")); /* more than a double holds */
  cJSON *json = cJSON_Parse(command_out);
  assert_non_null(json);
  static const struct {
    const char *key, *value, *origin;
  } cases[] = {{"corpus", "/c d", "its.yaml:2:9"},
               {"model.preset", "8M", "its.yaml:4:17"},
               {"trainer.device", "auto", "default"},
               {"data.packing", "best_fit", "default"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(json, cases[i].key);
    assert_non_null(entry);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(entry, "value")), cases[i].value);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(entry, "origin")),
                        cases[i].origin);
  }
  const cJSON *rate = cJSON_GetObjectItemCaseSensitive(json, "trainer.optimizer.lr_hidden");
  assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(rate, "value")) == 0.1);
  const cJSON *cache = cJSON_GetObjectItemCaseSensitive(json, "packer.cache");
  assert_true(cJSON_IsNull(cJSON_GetObjectItem(cache, "value")));
  const cJSON *board = cJSON_GetObjectItemCaseSensitive(json, "metrics.tensorboard");
  assert_true(cJSON_IsBool(cJSON_GetObjectItem(board, "value")));
  cJSON_Delete(json);
}

static void the_reference_is_the_page(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("config", "--reference"), 0);
  expected_file("../doc/configuration.md", command_out);
}

static void the_manual_has_every_key(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("config", "--manual"), 0);
  size_t count;
  const struct plm_setting *settings = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    char line[120];
    snprintf(line, sizeof line, "%s%s\n    ", i > 0 ? "\n" : "", settings[i].key);
    if (strstr(command_out, line) == NULL) fail_msg("no %s", settings[i].key);
  }
  assert_non_null(strstr(command_out, "\n    PLM_SEED; on resume: refused\n"));
  assert_non_null(
      strstr(command_out, "\n    a power of two, in tokens; default 512; from 2, to 1048576\n"));
  assert_non_null(strstr(command_out, "; default 2.0; above 0, to 64\n"));
  assert_non_null(strstr(command_out, "; default 0.95; from 0, below 1\n"));
  assert_int_equal(COMMAND("config", "a", "b"), 2);
}

/* ---- validate ----------------------------------------------------------------------------------
 */

static void mistakes_are_listed(void **state)
{
  (void)state;
  write_file("its.yaml", "seed: x\ndata: {max_length: 3}\n");
  assert_int_equal(COMMAND("validate", "its.yaml", "--json"), 2);
  assert_string_equal(command_err, "");
  cJSON *json = cJSON_Parse(command_out);
  assert_int_equal(cJSON_GetArraySize(json), 2);
  assert_int_equal(
      strncmp(cJSON_GetStringValue(cJSON_GetArrayItem(json, 0)), "its.yaml:1:7: seed", 18), 0);
  assert_int_equal(strncmp(cJSON_GetStringValue(cJSON_GetArrayItem(json, 1)),
                           "its.yaml:2:20: data.max_length", 30),
                   0);
  cJSON_Delete(json);
  write_file("its.yaml", "seed: 1\n");
  assert_int_equal(COMMAND("validate", "its.yaml", "--json"), 0);
  assert_string_equal(command_out, "[]\n");
  assert_int_equal(COMMAND("validate", "its.yaml", "more"), 2);
  assert_int_equal(COMMAND("validate", "its.yaml", "--set", "seed=x"), 2);
  /* the schedule has to fit into the run, which other commands check later */
  write_file("its.yaml", "trainer: {steps: 10, schedule: {warmup_steps: 10}}\n");
  assert_int_equal(COMMAND("validate", "its.yaml"), 0);
  write_file("its.yaml", "trainer: {steps: 10, schedule: {warmup_steps: 11}}\n");
  assert_int_equal(COMMAND("validate", "its.yaml"), 2);
  assert_non_null(strstr(command_err, "trainer.schedule.warmup_steps"));
}

/* What is not here may be made later; what is here has to fit. */
static void what_it_names_is_looked_at(void **state)
{
  char yaml[3 * PLM_PATH_SIZE], expected[2 * PLM_PATH_SIZE];
  (void)state;
  plm_corpus_close(written_corpus_open(
      "checked", &(struct written_corpus){.documents = {3, 0, 0}, .longest = 9}));
  write_file("its.yaml", "corpus: /nowhere\ndata: {sampling: clusters}\n"
                         "trainer: {init_from: /none}\n"
                         "evaluator: {tasks: [{name: a, kind: assays, path: /d, reference: /r}, "
                         "{name: c, kind: contacts, path: /e}]}\n");
  assert_int_equal(COMMAND("validate", "its.yaml"), 0);
  static const char *const warnings[] = {
      "warning: corpus: /nowhere does not exist on this host; make it with",
      "warning: trainer.init_from: /none does not exist on this host\n",
      "warning: evaluator.tasks: a: /d does not exist on this host\n",
      "warning: evaluator.tasks: a: /r does not exist on this host\n",
      "warning: evaluator.tasks: c: /e does not exist on this host\n"};
  for (size_t i = 0; i < sizeof warnings / sizeof *warnings; i++)
    if (strstr(command_err, warnings[i]) == NULL) fail_msg("%s", command_err);
  snprintf(yaml, sizeof yaml, "corpus: %s\n", scratch_path("checked"));
  write_file("its.yaml", yaml);
  assert_int_equal(COMMAND("validate", "its.yaml"), 0);
  assert_null(strstr(command_err, "warning: corpus"));
  assert_int_equal(COMMAND("validate", "its.yaml", "--set", "data.sampling=clusters"), 2);
  assert_int_equal(COMMAND("validate", "its.yaml", "--set", "data.tokenizer=byte"), 2);
  /* a file where a task needs a folder */
  for (int contacts = 0; contacts < 2; contacts++) {
    snprintf(yaml, sizeof yaml,
             "corpus: null\nevaluator: {tasks: [{name: a, kind: %s, path: %s%s}]}\n",
             contacts ? "contacts" : "assays", file, contacts ? "" : ", reference: /r");
    write_file("its.yaml", yaml);
    assert_int_equal(COMMAND("validate", "its.yaml"), 2);
    snprintf(expected, sizeof expected,
             "plm-pipeline: evaluator.tasks: a: %s is not a folder; %s\n", file,
             contacts ? "contacts need a folder of NAME.fasta and NAME.contacts"
                      : "assays need the folder of their CSV files");
    assert_string_equal(command_err, expected);
  }
}

/* Tables of probes and lists of assays that are here are read. */
static void what_tasks_name_is_read(void **state)
{
  static const struct {
    const char *task, *said; /* NULL: it is taken */
  } cases[] = {
      {"path: t.csv, target: y, split: s", NULL},
      {"path: t.csv, target: z, split: s", "\"z\""},
      {"path: wrong.csv, target: y, split: s", "wrong.csv"},
      {"kind: assays, path: d, reference: list.csv, ids: [ONE]", NULL},
      {"kind: assays, path: d, reference: list.csv, ids: [ONE, TOW]", "lists no assay \"TOW\""},
      {"kind: assays, path: d, reference: d, ids: [ONE]", "plm-pipeline: evaluator.tasks: a: "},
      {"kind: assays, path: d, reference: none.csv, ids: [ONE, TOW]", NULL}, /* made later */
      {"kind: assays, path: d, reference: list.csv", NULL},
      {"kind: contacts, path: d}, {name: b, kind: contacts, path: t.csv", "b: "},
      {"path: t.csv, target: y, split: s}, {name: b, kind: contacts, path: t.csv", "b: "},
      {"kind: contacts, path: none}, {name: b, kind: contacts, path: t.csv", "b: "},
      {"path: d, target: y, split: s", "/d is a folder, not a file\n"},
      {"kind: contacts, path: d", NULL},
  };
  (void)state;
  write_file("t.csv", "sequence,y,s\nMKV,1,train\nMAV,2,test\n");
  write_file("wrong.csv", "sequence,y,s\nMKV\nMAV,2,test\n");
  write_file("list.csv",
             "DMS_id,DMS_filename,target_seq,DMS_binarization_cutoff\nONE,ONE.csv,MK,0\n");
  assert_int_equal(plm_directory_make("d", NULL), PLM_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char yaml[400];
    snprintf(yaml, sizeof yaml, "corpus: null\nevaluator: {tasks: [{name: a, %s}]}\n",
             cases[i].task);
    write_file("its.yaml", yaml);
    const int code = COMMAND("validate", "its.yaml");
    if (code != (cases[i].said != NULL ? 2 : 0)) fail_msg("case %zu: %d %s", i, code, command_err);
    if (cases[i].said != NULL && strstr(command_err, cases[i].said) == NULL)
      fail_msg("case %zu: %s", i, command_err);
    assert_string_equal(command_out, cases[i].said != NULL ? "" : "its.yaml: valid\n");
    if (cases[i].said == NULL)
      assert_int_equal(strstr(command_err, "does not exist") != NULL,
                       strstr(cases[i].task, "none") != NULL);
  }
  assert_int_equal(COMMAND("validate", "./its.yaml", "--quiet"), 0);
  assert_string_equal(command_out, "");
  assert_int_equal(COMMAND("validate", "./its.yaml"), 0);
  assert_string_equal(command_out, "its.yaml: valid\n");
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(each_value_has_an_origin, setup),
      cmocka_unit_test_setup(values_are_json_too, setup),
      cmocka_unit_test_setup(the_reference_is_the_page, setup),
      cmocka_unit_test_setup(the_manual_has_every_key, setup),
      cmocka_unit_test_setup(mistakes_are_listed, setup),
      cmocka_unit_test_setup(what_it_names_is_looked_at, setup),
      cmocka_unit_test_setup(what_tasks_name_is_read, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
