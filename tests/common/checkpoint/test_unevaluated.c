/* Which checkpoints are left to evaluate, from the folder of checkpoints and evaluator.jsonl. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/unevaluated.h"
#include "common/run/run.h"
#include "tests/support/harness/scratch.h"

#define VALID(step) "{\"step\":" step ",\"split\":\"valid\"}\n"

static char run[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return 0;
}

static void in_run(const char *name, char path[PLM_PATH_SIZE])
{
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
}

/* Its MANIFEST says that its weights are `weights`; NULL: it has no MANIFEST. */
static void publish(const char *name, uint64_t step, const char *weights)
{
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  in_run(name, folder);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  if (weights == NULL) return;
  struct plm_manifest *manifest = calloc(1, sizeof *manifest);
  assert_non_null(manifest);
  manifest->step = step;
  manifest->count = 1;
  snprintf(manifest->files[0].name, sizeof manifest->files[0].name, "model.safetensors");
  manifest->files[0].size = 1;
  manifest->files[0].hash = plm_hash_bytes(weights, strlen(weights));
  char *text = plm_manifest_print(manifest);
  assert_non_null(text);
  assert_int_equal(plm_path_join(path, folder, "MANIFEST", NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
  free(text);
  free(manifest);
}

static void report(const char *text)
{
  char path[PLM_PATH_SIZE];
  in_run(PLM_RUN_EVALUATOR_METRICS, path);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

static void expect(const struct plm_config_evaluator *evaluator, size_t count, uint64_t first)
{
  struct plm_unevaluated left;
  assert_int_equal(plm_unevaluated_read(run, evaluator, &left, NULL), PLM_OK);
  assert_int_equal(left.count, count);
  assert_int_equal(left.first, first);
}

static void every_published_checkpoint_counts_until_it_is_reported(void **state)
{
  const struct plm_config_evaluator evaluator = {.splits = {(char *)"valid"}, .split_count = 1};
  (void)state;
  expect(&evaluator, 0, 0); /* nothing is published */
  publish("checkpoints/step_00000003", 3, NULL);
  publish("checkpoints/step_00000006", 6, NULL);
  publish("checkpoints/.tmp-9", 9, NULL); /* not published */
  expect(&evaluator, 2, 3);
  report(VALID("3"));
  expect(&evaluator, 1, 6);
  report("{\"step\":3,\"skipped\":\"deleted\"}\n" VALID("6"));
  expect(&evaluator, 0, 0);
}

static void every_split_and_set_is_needed(void **state)
{
  const struct plm_config_evaluator evaluator = {
      .splits = {(char *)"valid", (char *)"test"},
      .split_count = 2,
      .sets = {{.name = "other", .split = PLM_SPLIT_VALID}},
      .set_count = 1,
  };
  (void)state;
  publish("checkpoints/step_00000003", 3, NULL);
  report(VALID("3") "{\"step\":3,\"split\":\"test\"}\n");
  expect(&evaluator, 1, 3);
  report(VALID("3") "{\"step\":3,\"set\":\"other\",\"split\":\"valid\"}\n");
  expect(&evaluator, 1, 3);
  report(VALID("3") "{\"step\":3,\"split\":\"test\"}\n"
                    "{\"step\":3,\"set\":\"other\",\"split\":\"valid\"}\n");
  expect(&evaluator, 0, 0);
}

/* A step that was trained again with other weights is another checkpoint. */
static void a_report_counts_for_its_weights_only(void **state)
{
  const struct plm_config_evaluator evaluator = {.splits = {(char *)"valid"}, .split_count = 1};
  char line[128], hex[PLM_HASH_HEX_SIZE];
  (void)state;
  plm_hash_to_hex(plm_hash_bytes("a", 1), hex);
  snprintf(line, sizeof line, "{\"step\":3,\"split\":\"valid\",\"identity\":\"%s\"}\n", hex);
  report(line);
  publish("checkpoints/step_00000003", 3, "b");
  expect(&evaluator, 1, 3);
  publish("checkpoints/step_00000003", 3, "a");
  expect(&evaluator, 0, 0);
}

static void a_folder_that_cannot_be_listed_is_an_error(void **state)
{
  const struct plm_config_evaluator evaluator = {.splits = {(char *)"valid"}, .split_count = 1};
  struct plm_unevaluated left;
  struct plm_error error;
  char path[PLM_PATH_SIZE];
  (void)state;
  in_run(PLM_RUN_CHECKPOINTS, path);
  assert_int_equal(plm_file_write(path, "", 0, 0644, NULL), PLM_OK);
  assert_int_equal(plm_unevaluated_read(run, &evaluator, &left, &error), PLM_IO);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(every_published_checkpoint_counts_until_it_is_reported),
      TEST(every_split_and_set_is_needed),
      TEST(a_report_counts_for_its_weights_only),
      TEST(a_folder_that_cannot_be_listed_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
