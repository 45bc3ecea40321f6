/* `plm-pipeline checkpoints` as people run it: on runs, folders and single checkpoints, whole and
 * damaged. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/files/file.h"
#include "common/base/log/progress.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/safetensors.h"
#include "common/config/config.h"
#include "common/run/run.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/scratch.h"

enum { STEPS = 5, OUTPUT_SIZE = 1 << 16 };

static char run_folder[PLM_PATH_SIZE], program[PLM_PATH_SIZE];

/* Runs the program, writes its stdout and stderr to output, and returns its exit code. */
static int pipeline(const char *arguments, char output[OUTPUT_SIZE])
{
  char command[4 * PLM_PATH_SIZE];
  snprintf(command, sizeof command, "'%s' %s 2>&1", program, arguments);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t size = fread(output, 1, OUTPUT_SIZE - 1, pipe);
  output[size] = '\0';
  return WEXITSTATUS(pclose(pipe));
}

static void write_text(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

static void make_checkpoint(const char *checkpoints, uint64_t step)
{
  static const char *const names[] = {"config.json", "model.safetensors"};
  const float value = (float)step;
  const struct plm_tensor_info tensor = {
      .name = "w", .dtype = PLM_F32, .rank = 1, .shape = {1}, .bytes = 4, .data = &value};
  struct plm_manifest manifest = {.step = step, .count = 2};
  char name[PLM_CHECKPOINT_NAME_SIZE], folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  assert_int_equal(plm_path_join(folder, checkpoints, name, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  write_text(folder, "config.json", "{}\n");
  assert_int_equal(plm_path_join(path, folder, "model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_safetensors_write(path, &tensor, 1, NULL, 0, NULL), PLM_OK);
  for (int i = 0; i < 2; i++) {
    strcpy(manifest.files[i].name, names[i]);
    assert_int_equal(plm_path_join(path, folder, names[i], NULL), PLM_OK);
    assert_int_equal(
        plm_hash_file(path, &manifest.files[i].hash, &manifest.files[i].size, NULL, NULL), PLM_OK);
  }
  char *text = plm_manifest_print(&manifest);
  write_text(folder, "MANIFEST", text);
  free(text);
}

static const char reports[] = "{\"v\":1,\"step\":0,\"split\":\"valid\",\"loss\":3.5}\n"
                              "{\"v\":1,\"step\":100,\"split\":\"valid\",\"loss\":2.8125}\n"
                              "{\"v\":1,\"step\":200,\"split\":\"valid\",\"loss\":2.9}\n"
                              "{\"v\":1,\"step\":300,\"skipped\":\"deleted before evaluation\"}\n";

/* A run with checkpoints 0, 100 ... 400; the evaluator has reported the first four. */
static int make_run(void **state)
{
  (void)state;
  const struct plm_config_override overrides[] = {{"trainer.checkpoint.keep_last", "1"},
                                                  {"trainer.checkpoint.keep_best", "1"},
                                                  {"trainer.checkpoint.keep_every", "200"},
                                                  {"trainer.checkpoint.max_unevaluated", "16"}};
  struct plm_config config;
  char checkpoints[PLM_PATH_SIZE], *yaml;
  const char *bin = getenv("PLM_BIN");
  if (bin != NULL) {
    snprintf(program, sizeof program, "%s/plm-pipeline", bin);
  } else { /* if the test is run by hand, from the root of the tree */
    snprintf(program, sizeof program, "build/bin/plm-pipeline");
  }
  snprintf(run_folder, sizeof run_folder, "%s", scratch_path("run"));
  assert_int_equal(plm_config_load(NULL, overrides, 4, &config, NULL, NULL), PLM_OK);
  yaml = plm_config_print(&config);
  plm_config_deinit(&config);
  assert_int_equal(plm_path_join(checkpoints, run_folder, PLM_RUN_CHECKPOINTS, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(checkpoints, NULL), PLM_OK);
  write_text(run_folder, PLM_RUN_CONFIG, yaml);
  free(yaml);
  for (uint64_t i = 0; i < STEPS; i++) make_checkpoint(checkpoints, i * 100);
  write_text(run_folder, PLM_RUN_EVALUATOR_METRICS, reports);
  return 0;
}

static void lists_what_keeps_each(void **state)
{
  (void)state;
  static const struct {
    double loss;
    const char *kept;
  } expected[STEPS] = {
      {3.5, "every "}, {2.8125, "best "}, {2.9, "every "}, {-1, ""}, {-1, "newest last every "}};
  char output[OUTPUT_SIZE], arguments[PLM_PATH_SIZE + 64];
  snprintf(arguments, sizeof arguments, "checkpoints --json --run '%s'", run_folder);
  assert_int_equal(pipeline(arguments, output), 0);
  cJSON *array = cJSON_Parse(output);
  assert_int_equal(cJSON_GetArraySize(array), STEPS);
  for (int i = 0; i < STEPS; i++) {
    const cJSON *row = cJSON_GetArrayItem(array, i);
    const cJSON *loss = cJSON_GetObjectItem(row, "loss"), *reason;
    char kept[128] = "";
    assert_int_equal(cJSON_GetNumberValue(cJSON_GetObjectItem(row, "step")), i * 100);
    assert_int_equal(strlen(cJSON_GetStringValue(cJSON_GetObjectItem(row, "identity"))), 32);
    if (expected[i].loss < 0)
      assert_true(cJSON_IsNull(loss));
    else
      assert_true(cJSON_GetNumberValue(loss) == expected[i].loss);
    cJSON_ArrayForEach(reason, cJSON_GetObjectItem(row, "kept_by"))
    {
      strcat(kept, cJSON_GetStringValue(reason));
      strcat(kept, " ");
    }
    assert_string_equal(kept, expected[i].kept);
  }
  cJSON_Delete(array);
  snprintf(arguments, sizeof arguments, "checkpoints '%s'", run_folder);
  assert_int_equal(pipeline(arguments, output), 0);
  assert_non_null(strstr(output, "2.81250"));
  assert_non_null(strstr(output, "newest, last, every"));
}

/* The measure by which keep_best judges has a column. */
static void best_by_has_a_column(void **state)
{
  (void)state;
  char output[OUTPUT_SIZE], arguments[PLM_PATH_SIZE + 64], path[PLM_PATH_SIZE], *config;
  size_t size;
  assert_int_equal(plm_path_join(path, run_folder, PLM_RUN_CONFIG, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &config, &size, NULL), PLM_OK);
  snprintf(arguments, sizeof arguments, "checkpoints '%s'", run_folder);
  assert_int_equal(pipeline(arguments, output), 0);
  assert_null(strstr(output, "best_by"));
  snprintf(path, sizeof path, "checkpoints --json '%.3000s'", run_folder);
  assert_int_equal(pipeline(path, output), 0);
  assert_null(strstr(output, "\"judged\""));
  static const char before[] = "best_by: null";
  char *at = strstr(config, before), judged[1 << 16];
  assert_non_null(at);
  (void)snprintf(judged, sizeof judged, "%.*sbest_by: mcc%s", (int)(at - config), config,
                 at + strlen(before));
  write_text(run_folder, PLM_RUN_CONFIG, judged);
  write_text(run_folder, PLM_RUN_EVALUATOR_METRICS,
             "{\"v\":1,\"step\":0,\"split\":\"valid\",\"loss\":3.5,\"mcc\":0.25}\n"
             "{\"v\":1,\"step\":100,\"split\":\"valid\",\"loss\":2.8125,\"mcc\":null}\n");
  assert_int_equal(pipeline(arguments, output), 0);
  if (strstr(output, "    loss  best_by  kept by\n") == NULL ||
      strstr(output, " 3.50000  0.25000  best, every\n") == NULL ||
      strstr(output, " 2.81250        - \n") == NULL || strstr(output, "best_by: mcc\n") == NULL)
    fail_msg("%s", output);
  snprintf(arguments, sizeof arguments, "checkpoints --json '%s'", run_folder);
  assert_int_equal(pipeline(arguments, output), 0);
  assert_non_null(strstr(output, "\"judged_by\":\"mcc\",\"judged\":0.25,"));
  at = strstr(config, "sets: []");
  assert_non_null(at);
  (void)snprintf(judged, sizeof judged, "%.*ssets: [{name: o, corpus: /o, split: test}]%s",
                 (int)(at - config), config, at + strlen("sets: []"));
  write_text(run_folder, PLM_RUN_CONFIG, judged);
  snprintf(arguments, sizeof arguments, "checkpoints '%s'", run_folder);
  assert_int_equal(pipeline(arguments, output), 0);
  assert_non_null(strstr(output, "\nloss and best: set and split "));
  write_text(run_folder, PLM_RUN_CONFIG, config);
  write_text(run_folder, PLM_RUN_EVALUATOR_METRICS, reports);
  free(config);
}

static void a_row_has_80_columns(void **state)
{
  (void)state;
  char output[OUTPUT_SIZE], arguments[PLM_PATH_SIZE + 64], *rest = output, *line;
  int rows = 0;
  snprintf(arguments, sizeof arguments, "checkpoints --verify '%s'", run_folder);
  assert_int_equal(pipeline(arguments, output), 0);
  assert_non_null(strstr(output, "verified every byte of 5 checkpoints\n"));
  assert_non_null(strstr(output, "     71 B  "));
  while ((line = strsep(&rest, "\n")) != NULL) {
    if (line[0] != ' ') continue;
    assert_true(strlen(line) <= 80);
    /* with the longest reasons that one checkpoint can have */
    const char *kept = strstr(line, "newest, last, every");
    if (kept != NULL) assert_true(kept - line + strlen("newest, last, every, not evaluated") <= 80);
    rows++;
  }
  assert_int_equal(rows, STEPS + 1);
}

static void verifies_runs_and_single_checkpoints(void **state)
{
  (void)state;
  char output[OUTPUT_SIZE], arguments[3 * PLM_PATH_SIZE], one[PLM_PATH_SIZE];
  snprintf(arguments, sizeof arguments, "checkpoints --verify '%s'", run_folder);
  assert_int_equal(pipeline(arguments, output), 0);
  snprintf(one, sizeof one, "%.3000s/checkpoints/step_00000300", run_folder);
  write_text(one, "config.json", "{]\n");
  assert_int_equal(pipeline(arguments, output), 1);
  assert_non_null(strstr(output, "step_00000300: config.json differs from what was written"));
  assert_non_null(strstr(output, "1 checkpoint is damaged"));
  assert_non_null(strstr(output, "verified every byte of 4 checkpoints\n"));
  snprintf(arguments, sizeof arguments, "checkpoints --verify --json '%s'", one);
  assert_int_equal(pipeline(arguments, output), 1);
  assert_non_null(strstr(output, "\"valid\":false"));
  snprintf(arguments, sizeof arguments, "checkpoints '%s'", one); /* a list reads only MANIFESTs */
  assert_int_equal(pipeline(arguments, output), 0);
  write_text(one, "config.json", "{}\n");
  snprintf(arguments, sizeof arguments, "checkpoints --verify '%s/'", one);
  assert_int_equal(pipeline(arguments, output), 0);
  snprintf(arguments, sizeof arguments, "checkpoints --verify '%s/checkpoints' '%s'", run_folder,
           one);
  assert_int_equal(pipeline(arguments, output), 0);
}

/* Without its MANIFEST, a folder is known as a checkpoint by its name. */
static void a_name_says_what_is_a_checkpoint(void **state)
{
  (void)state;
  static const struct {
    const char *path, *says;
  } rows[] = {{"alone/step_00000012", "\n      12   damaged"},
              {"alone/step_00000012///", "\n      12   damaged"},
              {"alone/step_00000012.mine", "step_00000012.mine: no checkpoints"},
              {"alone", "\n      12   damaged"}};
  char output[OUTPUT_SIZE], arguments[3 * PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(scratch_path("alone/step_00000012"), NULL), PLM_OK);
  assert_int_equal(plm_directory_make(scratch_path("alone/step_00000012.mine"), NULL), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(arguments, sizeof arguments, "checkpoints '%s'", scratch_path(rows[i].path));
    assert_int_equal(pipeline(arguments, output), 0);
    if (strstr(output, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].path, output);
    snprintf(arguments, sizeof arguments, "checkpoints --verify '%s'", scratch_path(rows[i].path));
    assert_int_equal(pipeline(arguments, output), i != 2);
  }
}

/* Any other model folder is described; its identity takes --verify. */
static void a_model_is_described(void **state)
{
  (void)state;
  char output[OUTPUT_SIZE], arguments[3 * PLM_PATH_SIZE], folder[PLM_PATH_SIZE], expected[1000];
  struct inference_case model;
  snprintf(folder, sizeof folder, "%s", scratch_path("exported"));
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 2);
  inference_case_save(&model, folder);
  uint64_t parameters = 0;
  size_t count;
  const struct plm_parameter *table = plm_model_table(model.c.model, &count);
  for (size_t i = 0; i < count; i++) parameters += table[i].count;
  snprintf(arguments, sizeof arguments, "checkpoints --json '%s'", folder);
  assert_int_equal(pipeline(arguments, output), 0);
  snprintf(expected, sizeof expected,
           "[{\"path\":\"%.500s\",\"class\":\"PLMForMaskedLM\",\"architecture\":\"transformer\","
           "\"parameters\":%llu,\"dtype\":\"float32\",\"bytes\":%llu,\"files\":1,\"head\":true,"
           "\"contact_head\":false}]\n",
           folder, (unsigned long long)parameters, (unsigned long long)(4 * parameters));
  assert_string_equal(output, expected);
  snprintf(arguments, sizeof arguments, "checkpoints --json --verify '%s'", folder);
  assert_int_equal(pipeline(arguments, output), 0);
  const char *identity = strstr(output, "\"contact_head\":false,\"identity\":\"");
  assert_non_null(identity);
  identity += strlen("\"contact_head\":false,\"identity\":\"");
  assert_int_equal(strspn(identity, "0123456789abcdef"), 32);
  snprintf(expected, sizeof expected, "\nidentity %.32s\n", identity);
  snprintf(arguments, sizeof arguments, "checkpoints --verify '%s'", folder);
  assert_int_equal(pipeline(arguments, output), 0);
  assert_non_null(strstr(output, expected));
  char count_text[32];
  snprintf(expected, sizeof expected, ": transformer (PLMForMaskedLM), %s parameters in float32, ",
           plm_format_count(parameters, count_text));
  assert_non_null(strstr(output, expected));
  snprintf(arguments, sizeof arguments, "checkpoints '%s'", folder);
  assert_int_equal(pipeline(arguments, output), 0);
  assert_null(strstr(output, "identity"));
  inference_case_close(&model);
}

static void refuses_what_is_not_there(void **state)
{
  (void)state;
  char output[OUTPUT_SIZE], arguments[3 * PLM_PATH_SIZE];
  snprintf(arguments, sizeof arguments, "checkpoints '%s/absent'", run_folder);
  assert_int_equal(pipeline(arguments, output), 1);
  assert_non_null(strstr(output, "there is no folder"));
  assert_int_equal(pipeline("checkpoints --verfy", output), 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_what_keeps_each),
      cmocka_unit_test(best_by_has_a_column),
      cmocka_unit_test(a_row_has_80_columns),
      cmocka_unit_test(verifies_runs_and_single_checkpoints),
      cmocka_unit_test(a_name_says_what_is_a_checkpoint),
      cmocka_unit_test(a_model_is_described),
      cmocka_unit_test(refuses_what_is_not_there),
  };
  return cmocka_run_group_tests(tests, make_run, NULL);
}
