/* What `checkpoints` prints of several checkpoints, compared as a whole. It only reads the MANIFEST
 * of each, so their files need not exist. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/cases/whole_checkpoint.h"
#include "tests/support/harness/scratch.h"

enum { TEXT_SIZE = 6 * PLM_PATH_SIZE };

static char run[PLM_PATH_SIZE], checkpoints[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return plm_path_join(checkpoints, run, "checkpoints", NULL) != PLM_OK;
}

static void write_file(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

/* A checkpoint whose model has this size; its other file has a byte. */
static void write_manifest(const char *folder, uint64_t step, uint64_t size)
{
  struct plm_manifest manifest = {
      .step = step,
      .files = {{.name = "config.json", .size = 1, .hash = {.high = 9, .low = 9}},
                {.name = "model.safetensors",
                 .size = size,
                 .hash = {.high = 0x0123456789abcdef, .low = step}}},
      .count = 2};
  char *text = plm_manifest_print(&manifest);
  write_file(folder, "MANIFEST", text);
  free(text);
}

static void write_step(uint64_t step, uint64_t size)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], folder[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  assert_int_equal(plm_path_join(folder, checkpoints, name, NULL), PLM_OK);
  write_manifest(folder, step, size);
}

static void expect(int code, const char *out, const char *err, int found)
{
  assert_string_equal(command_err, err);
  assert_string_equal(command_out, out);
  assert_int_equal(found, code);
}

#define HEAD "    step      size identity         loss  kept by\n"
#define HEAD_BEST "    step      size identity         loss  best_by  kept by\n"
#define ROW(step, size, loss, kept) "    " step " " size " 0123456789ab " loss "  " kept "\n"

/* Sizes have the unit in which they are below 1000. The last one is damaged, so the one before it
 * is the newest. */
static void sizes_losses_and_reasons_are_printed(void **state)
{
  static const struct {
    uint64_t step, size;
  } rows[] = {{0, 998},           {7, 999},   {10, 999939},   {20, 1234567},
              {33, 999949999998}, {40, 4e15}, {1000000000, 3}};
  char expected[TEXT_SIZE], wrong[TEXT_SIZE], last[PLM_PATH_SIZE];
  (void)state;
  write_file(run, "pipeline.yaml",
             "evaluator: {sets: [{name: other, corpus: /other, split: test}]}\n"
             "trainer: {checkpoint: {keep_last: 2, keep_best: 2, keep_every: 10}}\n");
  write_file(run, "evaluator.jsonl",
             "{\"v\":1,\"step\":7,\"split\":\"valid\",\"loss\":2.125}\n"
             "{\"v\":1,\"step\":7,\"split\":\"test\",\"loss\":1.5}\n"
             "{\"v\":1,\"step\":20,\"split\":\"valid\",\"loss\":2.25}\n"
             "{\"v\":1,\"step\":33,\"set\":\"other\",\"split\":\"test\",\"loss\":0.5}\n"
             "{\"v\":1,\"step\":33,\"split\":\"valid\",\"loss\":12.345678}\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) write_step(rows[i].step, rows[i].size);
  snprintf(last, sizeof last, "%.4000s/step_1000000000", checkpoints);
  write_file(last, "MANIFEST", "step 1000000000\n");
  snprintf(wrong, sizeof wrong, "%s: it does not begin with \"plm-checkpoint\"\n", last);
  static const char table[] = HEAD "       0    999 B  0123456789ab        -  every\n"
                                   "       7    1.0 kB 0123456789ab  2.12500  best\n"
                                   "      10  999.9 kB 0123456789ab        -  every\n"
                                   "      20    1.2 MB 0123456789ab  2.25000  best, every\n"
                                   "      33  999.9 GB 0123456789ab 12.34568 \n"
                                   "      40 4000.0 TB 0123456789ab        -  newest, last, every\n"
                                   "1000000000   damaged\n";
  snprintf(expected, sizeof expected, "%s\n%sloss and best: set and split corpus valid\n", run,
           table);
  int code = COMMAND("checkpoints", run);
  expect(0, expected, wrong, code);
  snprintf(expected, sizeof expected, "%s\n%sloss and best: set and split corpus valid\n",
           checkpoints, table);
  code = COMMAND("checkpoints", checkpoints);
  expect(0, expected, wrong, code);
  code = COMMAND("checkpoints", "--verify", run);
  assert_int_equal(code, 1);
  assert_non_null(strstr(command_err, "plm-pipeline: 7 checkpoints are damaged\n"));
  assert_null(strstr(command_out, "verified"));
}

#define JSON(step, bytes, identity, loss, kept)                              \
  "{\"step\":" step ",\"path\":\"%s/step_0000000" step "\",\"bytes\":" bytes \
  ",\"identity\":\"0123456789abcdef000000000000000" identity "\",\"loss\":" loss "," kept

/* The measure by which the run ends also chooses the best, unless best_by names another one. A loss
 * has no column of its own. */
static void what_judges_is_named(void **state)
{
  static const struct {
    const char *trainer, *judge;
    const char *values[2]; /* judged, as JSON */
    const char *kept[2];
  } cases[] = {
      {"checkpoint: {keep_last: 1, keep_best: 1}", "corpus valid", {NULL, NULL}, {"\"best\"", ""}},
      {"checkpoint: {keep_last: 1, keep_best: 1, best_by: rmse}, stop_when: {metric: r2, patience: "
       "3}",
       "rmse",
       {"0.75", "0.5"},
       {"", "\"best\""}},
      {"checkpoint: {keep_last: 1, keep_best: 1}, stop_when: {metric: r2, patience: 3}",
       "r2",
       {"0.25", "-0.5"},
       {"\"best\"", ""}},
  };
  (void)state;
  write_step(1, 100);
  write_step(2, 200);
  write_step(3, 300);
  write_file(run, "evaluator.jsonl",
             "{\"v\":1,\"step\":1,\"split\":\"valid\",\"loss\":0.1,\"rmse\":0.75,\"r2\":0.25}\n"
             "{\"v\":1,\"step\":2,\"split\":\"valid\",\"loss\":0.2,\"rmse\":0.5,\"r2\":-0.5}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char yaml[400], judged[3][100], expected[TEXT_SIZE];
    snprintf(yaml, sizeof yaml, "trainer: {objective: regression, labels: [a], %s}\n",
             cases[i].trainer);
    write_file(run, "pipeline.yaml", yaml);
    for (int k = 0; k < 3; k++) {
      const char *value = k < 2 ? cases[i].values[k] : cases[i].values[0] != NULL ? "null" : NULL;
      snprintf(judged[k], sizeof judged[k], "\"judged_by\":\"%s\"%s%s", cases[i].judge,
               value != NULL ? ",\"judged\":" : "", value != NULL ? value : "");
    }
    snprintf(expected, sizeof expected,
             "[" JSON("1", "101", "1", "0.1", "%s,\"kept_by\":[%s]},")
                 JSON("2", "201", "2", "0.2", "%s,\"kept_by\":[%s]},")
                     JSON("3", "301", "3", "null", "%s,\"kept_by\":[\"newest\",\"last\"]}]\n"),
             checkpoints, judged[0], cases[i].kept[0], checkpoints, judged[1], cases[i].kept[1],
             checkpoints, judged[2]);
    const int code = COMMAND("checkpoints", "--json", run);
    expect(0, expected, "", code);
  }
  char expected[TEXT_SIZE];
  snprintf(expected, sizeof expected,
           "%s\n" HEAD_BEST "       1    101 B  0123456789ab  0.10000  0.25000  best\n"
           "       2    201 B  0123456789ab  0.20000 -0.50000 \n"
           "       3    301 B  0123456789ab        -        -  newest, last\nbest_by: r2\n",
           run);
  const int code = COMMAND("checkpoints", run);
  expect(0, expected, "", code);
}

/* Outside of a run, or in one whose configuration cannot be read, nothing says why a checkpoint is
 * kept. */
static void without_a_run_there_are_no_reasons(void **state)
{
  char expected[TEXT_SIZE], folder[PLM_PATH_SIZE];
  (void)state;
  write_step(1, 100);
  static const char row[] = HEAD "       1    101 B  0123456789ab        - \n";
  write_file(run, "evaluator.jsonl", "{\"v\":1,\"step\":1,\"split\":\"valid\",\"loss\":0.5}\n");
  int code = COMMAND("checkpoints", run, checkpoints);
  snprintf(expected, sizeof expected, "%s\n%s%s\n%s", run, row, checkpoints, row);
  expect(0, expected, "", code);
  code = COMMAND("checkpoints", "--json", run, checkpoints);
  snprintf(expected, sizeof expected,
           "[" JSON("1", "101", "1", "null", "\"kept_by\":[]},")
               JSON("1", "101", "1", "null", "\"kept_by\":[]}]\n"),
           checkpoints, checkpoints);
  expect(0, expected, "", code);
  write_file(run, "pipeline.yaml", "seed: x\n");
  code = COMMAND("checkpoints", run);
  snprintf(expected, sizeof expected, "%s\n%s", run, row);
  expect(0, expected, "", code);
  snprintf(folder, sizeof folder, "%s", scratch_path("no-checkpoint-yet"));
  write_file(folder, "pipeline.yaml", "");
  code = COMMAND("checkpoints", folder);
  snprintf(expected, sizeof expected, "%s: no checkpoints\n", folder);
  expect(0, expected, "", code);
  code = COMMAND("checkpoints", "--json", "--run", folder);
  expect(0, "[]\n", "", code);
}

/* The step of a single checkpoint is that of its MANIFEST; in a list, that of its name. */
static void a_folder_may_have_another_name(void **state)
{
  char expected[TEXT_SIZE], folder[PLM_PATH_SIZE];
  (void)state;
  static const char *const names[] = {"renamed", "step_00000005", "step_00000006/"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(folder, sizeof folder, "%.4000s/%s", checkpoints, names[i]);
    write_manifest(folder, 12, 100);
    const int code = COMMAND("checkpoints", folder);
    snprintf(expected, sizeof expected, "%s\n" HEAD "      12    101 B  0123456789ab        - \n",
             folder);
    expect(0, expected, "", code);
  }
  const int code = COMMAND("checkpoints", checkpoints);
  snprintf(expected, sizeof expected,
           "%s\n" HEAD "       5    101 B  0123456789ab        - \n"
           "       6    101 B  0123456789ab        - \n",
           checkpoints);
  expect(0, expected, "", code);
}

/* What the model of a single checkpoint is stands below it, but not if the checkpoint is damaged or
 * one of several. */
static void the_model_of_one_checkpoint_is_described(void **state)
{
  char expected[TEXT_SIZE], folder[PLM_PATH_SIZE];
  struct inference_case model;
  (void)state;
  snprintf(folder, sizeof folder, "%.4000s/step_00000012", checkpoints);
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 2);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  inference_case_save(&model, folder);
  inference_case_close(&model);
  write_manifest(folder, 12, 100);
  static const char row[] = HEAD "      12    101 B  0123456789ab        - \n";
  snprintf(expected, sizeof expected, "%s\n%stransformer (PLMForMaskedLM), ", folder, row);
  assert_int_equal(COMMAND("checkpoints", folder), 0);
  assert_memory_equal(command_out, expected, strlen(expected));
  const int code = COMMAND("checkpoints", checkpoints);
  snprintf(expected, sizeof expected, "%s\n%s", checkpoints, row);
  expect(0, expected, "", code);
  write_file(folder, "MANIFEST", "no MANIFEST\n");
  assert_int_equal(COMMAND("checkpoints", folder), 0);
  snprintf(expected, sizeof expected, "%s\n" HEAD "      12   damaged\n", folder);
  assert_string_equal(command_out, expected);
}

static void one_that_is_whole_is_verified(void **state)
{
  char expected[TEXT_SIZE];
  (void)state;
  whole_checkpoint_write(checkpoints, 5);
  int code = COMMAND("checkpoints", "--verify", checkpoints);
  static const char ends[] = "\nverified every byte of 1 checkpoint\n";
  assert_true(plm_text_ends_with(command_out, ends));
  assert_int_equal(code, 0);
  code = COMMAND("checkpoints", "--verify", "--json", checkpoints);
  assert_true(plm_text_ends_with(command_out, ",\"kept_by\":[],\"valid\":true}]\n"));
  snprintf(expected, sizeof expected, "%.4000s/step_00000005", checkpoints);
  write_file(expected, "config.json", "changed");
  code = COMMAND("checkpoints", "--verify", "--json", checkpoints);
  assert_non_null(strstr(command_out, ",\"valid\":false,\"problem\":\"config.json differs"));
  assert_int_equal(code, 1);
}

/* A folder with weights that is neither a checkpoint nor a whole model is refused as a model. */
static void what_is_meant_as_a_model_is_refused(void **state)
{
  static const char *const files[] = {"model.safetensors", "model.safetensors.index.json",
                                      "pytorch_model.bin"};
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    scratch_run(folder);
    write_file(folder, "notes", "");
    assert_int_equal(COMMAND("checkpoints", folder), 0);
    assert_non_null(strstr(command_out, ": no checkpoints\n"));
    write_file(folder, files[i], "");
    assert_int_not_equal(COMMAND("checkpoints", folder), 0);
    assert_string_equal(command_out, "");
    assert_non_null(strstr(command_err, folder));
    assert_int_equal(plm_path_join(path, folder, files[i], NULL), PLM_OK);
    assert_int_not_equal(COMMAND("checkpoints", path), 0); /* a file */
    assert_string_equal(command_out, "");
    write_file(folder, "pipeline.yaml", ""); /* it is a run */
    assert_int_equal(COMMAND("checkpoints", folder), 0);
    assert_non_null(strstr(command_out, ": no checkpoints\n"));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(sizes_losses_and_reasons_are_printed, setup),
      cmocka_unit_test_setup(what_judges_is_named, setup),
      cmocka_unit_test_setup(without_a_run_there_are_no_reasons, setup),
      cmocka_unit_test_setup(a_folder_may_have_another_name, setup),
      cmocka_unit_test_setup(the_model_of_one_checkpoint_is_described, setup),
      cmocka_unit_test_setup(one_that_is_whole_is_verified, setup),
      cmocka_unit_test_setup(what_is_meant_as_a_model_is_refused, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
