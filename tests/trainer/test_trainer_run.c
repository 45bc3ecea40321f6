/* The whole trainer in a test program: what a run writes, and that a run which is stopped and
 * resumed ends with the same weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "tests/support/cases/run_files.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/trainer_scene.h"

static cJSON *trainer_json_at(const struct trainer_scene *scene, const char *step)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  snprintf(path, sizeof path, "%.3000s/checkpoints/step_%s/trainer.json", scene->run, step);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  cJSON *json = cJSON_Parse(text);
  free(text);
  assert_non_null(json);
  return json;
}

/* Two runs have the same lines, except what depends on the clock. */
static void expect_same_lines(const struct trainer_scene *one, const struct trainer_scene *other)
{
  static const char *const names[] = {"step",   "loss",  "lr_hidden",        "grad_norm",
                                      "tokens", "epoch", "padding_fraction", "mask_rate"};
  cJSON *lines = trainer_scene_lines(one), *others = trainer_scene_lines(other);
  const int count = cJSON_GetArraySize(lines);
  assert_int_equal(count, cJSON_GetArraySize(others));
  for (int i = 0; i < count; i++)
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
      const double a = trainer_scene_number(cJSON_GetArrayItem(lines, i), names[k]),
                   b = trainer_scene_number(cJSON_GetArrayItem(others, i), names[k]);
      if (a != b) fail_msg("line %d: %s is %.9g and %.9g", i + 1, names[k], a, b);
    }
  cJSON_Delete(lines);
  cJSON_Delete(others);
}

/* ---- a run, and one that is stopped and resumed ---------------------------------------------- */

/* While a rank waits for the disk, the others wait without a limit. */
#define STEP(step) step " waiting for chunks\n" step " computing\n"
#define SNAPSHOT(step) \
  step " waiting for the writer of checkpoints, patient\n" step " collecting a checkpoint\n"
static const char notes[] = SNAPSHOT("0") STEP("0") STEP("1") SNAPSHOT("2")
    STEP("2") "3 writing a profile, patient\n" STEP("3") SNAPSHOT("4") STEP("4") STEP("5")
        SNAPSHOT("6") "6 writing a checkpoint, patient\n";

static const char settings[] =
    "steps: 6, ema: 0.9, checkpoint: {every: 2, keep_last: 9}, profile: {steps: 2-3}";
static struct trainer_scene whole; /* it stays for the tests below */

static void a_run_from_beginning_to_end(void **state)
{
  (void)state;
  struct plm_error error;
  struct plm_done done;
  trainer_scene_listen(&whole);
  assert_int_equal(trainer_scene_open(&whole, 0, &error), PLM_OK);
  struct plm_trainer *trainer = &whole.trainer;
  assert_true(run_files_has_endpoint(whole.run, "feed") &&
              run_files_has_endpoint(whole.run, "announcements"));
  assert_false(plm_trainer_is_complete(trainer));
  assert_int_equal(trainer_scene_run(&whole, &error), PLM_OK);
  assert_true(plm_trainer_is_complete(trainer));
  assert_true(trainer->state.step == 6 && trainer->saved && trainer->saved_step == 6);
  assert_true(trainer->state.updates == 6 && trainer->state.skipped_updates == 0);
  assert_true(trainer->state.exact && trainer->stepped && !trainer->snapshot_on_its_way);
  assert_int_equal(trainer->state.cursor.chunks, 6 * TRAINER_SCENE_CHUNKS);
  assert_true(trainer->last_step_s > 0);
  const uint64_t tokens = trainer->state.tokens;
  assert_string_equal(trainer_scene_told.data, notes);
  trainer_scene_close(&whole);
  assert_false(run_files_has_endpoint(whole.run, "feed") ||
               run_files_has_endpoint(whole.run, "announcements"));
  assert_int_equal(plm_done_read(whole.run, &done, NULL), PLM_OK);
  const struct plm_hash identity = trainer_scene_identity(&whole, 6);
  assert_true(done.step == 6 && done.patience == 0 && plm_hash_equal(done.identity, identity));
  trainer_scene_checkpoints(&whole, "0 2 4 6 ");
  cJSON *lines = trainer_scene_lines(&whole);
  assert_int_equal(cJSON_GetArraySize(lines), 6);
  double real = 0;
  for (int i = 0; i < 6; i++) {
    const cJSON *line = cJSON_GetArrayItem(lines, i);
    assert_true(trainer_scene_number(line, "step") == i + 1);
    assert_true(0 < trainer_scene_number(line, "loss") && trainer_scene_number(line, "loss") < 5);
    assert_true(trainer_scene_number(line, "skipped_updates") == 0);
    const double share = 1 - trainer_scene_number(line, "padding_fraction");
    real += share * (double)whole.config.trainer.batch_tokens;
    assert_true(fabs(trainer_scene_number(line, "tokens") - real) < 0.1);
    const struct plm_learning_rates rates = plm_optimizer_rates(&whole.config.trainer, (uint64_t)i);
    assert_true(fabs(trainer_scene_number(line, "lr_head") / rates.of[PLM_GROUP_HEAD] - 1) < 1e-6);
    assert_true(trainer_scene_number(line, "mask_rate") == 0.15);
    assert_true(trainer_scene_number(line, "step_ms") >=
                trainer_scene_number(line, "data_wait_ms"));
    assert_true(trainer_scene_number(line, "data_wait_ms") > 0);
    if (i % 2 == 1 || i == 0) assert_true(trainer_scene_number(line, "checkpoint_ms") > 0);
    assert_int_equal(cJSON_HasObjectItem(line, "weight_norms"), i % 3 == 2);
  }
  assert_true(trainer_scene_number(cJSON_GetArrayItem(lines, 5), "tokens") == (double)tokens);
  cJSON_Delete(lines);
  trainer_scene_says(&whole, "complete at step 6\n");
  assert_null(strstr(whole.said, " ranks, ")); /* there is one */
  struct plm_run_corpus pinned;
  char hex[PLM_HASH_HEX_SIZE], expected[200];
  assert_int_equal(plm_run_corpus_read(whole.run, &pinned, NULL), PLM_OK);
  assert_true(plm_hash_equal(pinned.fingerprint, pinned.root));
  plm_hash_to_hex(pinned.fingerprint, hex);
  snprintf(expected, sizeof expected,
           "the run trains on corpus %s, which its first packer serves\n", hex);
  trainer_scene_says(&whole, expected);
}

/* They are drawn from the seed of the configuration. */
static void its_first_weights(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  struct plm_parameter *table;
  struct plm_safetensors *file;
  size_t count, elements;
  assert_int_equal(plm_model_parameters(&whole.config.model, &table, &count, &elements, NULL),
                   PLM_OK);
  float *drawn = calloc(elements, sizeof *drawn);
  assert_non_null(drawn);
  plm_model_initialise(table, count, whole.config.seed, drawn);
  snprintf(path, sizeof path, "%.3000s/checkpoints/step_00000000/model.safetensors", whole.run);
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  for (size_t p = 0; p < count; p++) {
    const struct plm_tensor_info *tensor = plm_safetensors_find(file, table[p].name);
    if (tensor == NULL)
      fail_msg("no tensor %s", table[p].name);
    else
      assert_memory_equal(tensor->data, drawn + table[p].offset, table[p].count * sizeof *drawn);
  }
  plm_safetensors_close(file);
  free(drawn);
  free(table);
}

/* The events of the profiled steps, with their tracks. */
static void its_profile(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    int count;
  } expected[] = {{"\"step 2\"", 1},          {"\"step 3\"", 1},
                  {"\"step 1\"", 0},          {"\"step 4\"", 0},
                  {"\"data wait\"", 2},       {"\"take a snapshot\"", 1},
                  {"\"report the step\"", 2}, {"\"write checkpoint 2\"", 1},
                  {"\"agree to go on\"", 0}};
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  assert_int_equal(plm_path_join(path, whole.run, PLM_RUN_PROFILE, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &text, &size, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, expected[i].name)) != NULL; at++) count++;
    if (count != expected[i].count) fail_msg("%d times %s", count, expected[i].name);
  }
  assert_non_null(strstr(text, "\"first_step\":2,\"last_step\":3,"));
  assert_non_null(strstr(text, "\"copy_bytes_per_second\":"));
  assert_non_null(strstr(text, "\"device\":\"cpu\",\"isa\":\""));
  assert_non_null(strstr(text, "\",\"precision\":\"fp32\","));
  free(text);
}

/* After a stop signal the running step is finished and published; the rest gives the same bits. */
static void a_run_that_is_stopped_ends_the_same(void **state)
{
  (void)state;
  struct trainer_scene scene;
  trainer_scene_make(&scene, settings, "metrics: {norms: 3}\n");
  trainer_scene_trains(&scene, 3, false);
  trainer_scene_says(&scene, "stopped after step 3; the run resumes from there\n");
  trainer_scene_checkpoints(&scene, "0 2 3 ");
  trainer_scene_trains(&scene, 2, false); /* of steps 4 and 5 */
  trainer_scene_says(&scene, "resuming after step 3\n");
  trainer_scene_says(&scene, "nothing is profiled: the run continues after step 3, and "
                             "trainer.profile.steps ends at 3\n");
  trainer_scene_checkpoints(&scene, "0 2 3 4 5 ");
  trainer_scene_trains(&scene, 0, true);
  trainer_scene_says(&scene, "resuming after step 5\n");
  trainer_scene_checkpoints(&scene, "0 2 3 4 5 6 ");
  for (uint64_t step = 0; step <= 6; step += 2) {
    const struct plm_hash one = trainer_scene_identity(&whole, step),
                          other = trainer_scene_identity(&scene, step);
    assert_true(plm_hash_equal(one, other));
  }
  expect_same_lines(&whole, &scene);
  cJSON *lines = trainer_scene_lines(&scene), *json = trainer_json_at(&scene, "00000006");
  for (int i = 0; i < 6; i++) {
    const cJSON *line = cJSON_GetArrayItem(lines, i);
    assert_int_equal(cJSON_HasObjectItem(line, "resumed"), i == 3 || i == 5);
    assert_false(cJSON_HasObjectItem(line, "exact")); /* it is */
  }
  assert_true(trainer_scene_number(json, "step") == 6);
  cJSON_Delete(lines);
  cJSON_Delete(json);
  plm_config_deinit(&scene.config);
}

/* Before the first step, no norm is known yet. */
static void a_run_resumes_from_its_first_weights(void **state)
{
  (void)state;
  struct trainer_scene scene;
  char path[PLM_PATH_SIZE];
  trainer_scene_make(&scene, settings, "metrics: {norms: 3}\n");
  trainer_scene_trains(&scene, 1, false);
  trainer_scene_checkpoints(&scene, "0 1 ");
  assert_int_equal(plm_path_join(path, scene.run, "checkpoints/step_00000001", NULL), PLM_OK);
  assert_int_equal(plm_path_remove(path, NULL), PLM_OK);
  trainer_scene_trains(&scene, 2, false);
  trainer_scene_says(&scene, "resuming after step 0\n");
  const struct plm_hash one = trainer_scene_identity(&whole, 2),
                        other = trainer_scene_identity(&scene, 2);
  assert_true(plm_hash_equal(one, other));
  plm_config_deinit(&scene.config);
}

static void a_complete_run_opens_and_does_nothing(void **state)
{
  (void)state;
  struct plm_error error;
  static const char *const keys[] = {"feed", "announcements"};
  for (int i = 0; i < 2; i++)
    assert_int_equal(plm_endpoint_write(whole.run, keys[i], "tcp://127.0.0.1:9", NULL), PLM_OK);
  assert_int_equal(trainer_scene_open(&whole, 0, &error), PLM_OK);
  /* nobody serves there any more */
  assert_false(run_files_has_endpoint(whole.run, "feed") ||
               run_files_has_endpoint(whole.run, "announcements"));
  trainer_scene_says(&whole, "complete at step 6\n");
  assert_true(plm_trainer_is_complete(&whole.trainer));
  assert_null(whole.trainer.ops);
  assert_int_equal(trainer_scene_run(&whole, &error), PLM_OK);
  trainer_scene_close(&whole);
  trainer_scene_checkpoints(&whole, "0 2 4 6 ");
}

/* The first weights are the averages of another run's checkpoint. */
static void a_run_begins_with_other_weights(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  char trainer[PLM_PATH_SIZE + 100], expected[PLM_PATH_SIZE + 100];
  snprintf(trainer, sizeof trainer, "steps: 1, init_from: %.3000s/checkpoints/step_00000004",
           whole.run);
  trainer_scene_make(&scene, trainer, "");
  assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
  snprintf(expected, sizeof expected,
           "initial weights from %.3000s/checkpoints/step_00000004 (ema.safetensors, step 4)\n",
           whole.run);
  trainer_scene_says(&scene, expected);
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  trainer_scene_close(&scene);
  assert_true(trainer_scene_identity(&scene, 0).low != trainer_scene_identity(&whole, 0).low);
  plm_config_deinit(&scene.config);
}

static void a_folder_without_weights_is_refused(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  char trainer[PLM_PATH_SIZE + 100];
  const char *nothing = scratch_path("nothing");
  assert_int_equal(plm_directory_make(nothing, NULL), PLM_OK);
  snprintf(trainer, sizeof trainer, "steps: 1, init_from: %.3000s", nothing);
  trainer_scene_make(&scene, trainer, "");
  assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_CONFIG);
  assert_non_null(strstr(error.hint, "give a checkpoint (runs/NAME/checkpoints/step_"));
  plm_config_deinit(&scene.config);
}

/* ---- labels -----------------------------------------------------------------------------------
 */

/* Weights of classes are n / (K n_k), and the outputs have the names of the classes. */
static void a_run_predicts_classes(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  static const char *const names[] = {"Alpha", "Beta", "Ga\xce\xbcma"};
  trainer_scene_open_labelled(&scene, "steps: 2, objective: classification, labels: [family], "
                                      "class_weights: balanced");
  assert_string_equal(trainer_scene_told.data,
                      "0 waiting for a packer, which knows the labels, patient\n"
                      "0 starting\n");
  const struct plm_trainer *trainer = &scene.trainer;
  const struct plm_label_column *column = &trainer->label_schemas.schemas[0]->columns[1];
  assert_string_equal(column->name, "family");
  uint64_t all = 0;
  for (int k = 0; k < 3; k++) all += column->counts[k];
  assert_true(all > 0);
  for (int k = 0; k < 3; k++) {
    assert_string_equal(trainer->label_names.names[k], names[k]);
    const double weight =
        column->counts[k] == 0 ? 0 : (double)all / (3.0 * (double)column->counts[k]);
    assert_true(trainer->class_weights[k] == (float)weight);
  }
  assert_int_equal(trainer->label_names.count, 3);
  assert_null(trainer->label_names.mean);
  assert_int_equal(trainer->config->model.head.outputs, 3);
  assert_ptr_equal(trainer->labels, &trainer->label_source);
  assert_false(trainer->awaits_labels);
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  trainer_scene_close(&scene);
  trainer_scene_checkpoints(&scene, "0 2 ");
  plm_config_deinit(&scene.config);
}

/* A column of numbers is scaled by its mean and deviation, which the run keeps. */
static void a_run_predicts_numbers(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  trainer_scene_open_labelled(&scene, "steps: 1, objective: regression, labels: [stability]");
  const struct plm_trainer *trainer = &scene.trainer;
  const struct plm_label_column *column = &trainer->label_schemas.schemas[0]->columns[0];
  assert_int_equal(trainer->label_names.count, 1);
  assert_string_equal(trainer->label_names.names[0], "stability");
  assert_true(column->deviation > 0);
  assert_true(trainer->label_names.mean[0] == column->mean);
  assert_true(trainer->label_names.deviation[0] == column->deviation);
  assert_null(trainer->class_weights);
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  trainer_scene_close(&scene);
  plm_config_deinit(&scene.config);
}

static int setup(void **state)
{
  (void)trainer_scene_corpora(state);
  trainer_scene_make(&whole, settings, "metrics: {norms: 3}\n");
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  plm_config_deinit(&whole.config);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_from_beginning_to_end),
      cmocka_unit_test(its_first_weights),
      cmocka_unit_test(its_profile),
      cmocka_unit_test(a_run_that_is_stopped_ends_the_same),
      cmocka_unit_test(a_run_resumes_from_its_first_weights),
      cmocka_unit_test(a_complete_run_opens_and_does_nothing),
      cmocka_unit_test(a_run_begins_with_other_weights),
      cmocka_unit_test(a_folder_without_weights_is_refused),
      cmocka_unit_test(a_run_predicts_classes),
      cmocka_unit_test(a_run_predicts_numbers),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
