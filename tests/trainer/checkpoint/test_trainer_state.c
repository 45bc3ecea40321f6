/* trainer.json: written, read back, and errors in it; and the decision about the grace time. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/plan/batch_history.h"
#include "common/plan/plan.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/trainer.h"
#include "trainer/trainer_options.h"

static const char yaml[] =
    "run: /tmp/r\nseed: 18446744073709551615\ncorpus: /tmp/c\n"
    "trainer: {steps: 50, schedule: {warmup_steps: 5, cooldown_steps: 10}}\n";

static void fill(struct plm_trainer_state *state, const struct plm_config *config)
{
  const struct plm_plan_parameters plan = plm_config_training_plan(config);
  *state = (struct plm_trainer_state){
      .step = 12,
      .updates = 11,
      .tokens = 123456789012,
      .skipped_updates = 1,
      .skipped_in_a_row = 1,
      .exact = true,
      .metrics_bytes = 4321,
      .resolved = {.device = "cpu",
                   .precision = "fp32",
                   .isa = "avx512",
                   .level = "avx512_bf16",
                   .threads = 2,
                   .ranks = 1,
                   .step_chunks = 8,
                   .micro_chunks = 4,
                   .shares = 2,
                   .product_flops = 123.456e9,
                   .processor = "A processor",
                   .version = "0.0.1",
                   .build = "0123456789abcdef",
                   .products = "oneDNN 2.6.0",
                   .bf16_products = "fp32"},
  };
  plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), config->seed);
}

/* Keys that the trainer does not read itself. */
static void trainer_json_tells_readers_the_run_and_the_epoch(void **unused)
{
  (void)unused;
  struct plm_config config;
  struct plm_trainer_state state;
  char *text = NULL;
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  fill(&state, &config);
  state.cursor.sources[0].next = (struct plm_feed_position){
      .place = {.epoch = 2, .window = 1, .chunk = 1}, .windows = 4, .window_chunks = 2};
  text = plm_trainer_state_print(&state, &config, (struct plm_hash){3, 4});
  cJSON *json = cJSON_Parse(text);
  char run_id[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex((struct plm_hash){3, 4}, run_id);
  assert_string_equal(cJSON_GetObjectItem(json, "run_id")->valuestring, run_id);
  assert_true(cJSON_GetObjectItem(json, "epoch")->valuedouble == 2 + (1 + 0.5) / 4);
  cJSON_Delete(json);
  free(text);
  plm_config_deinit(&config);
  plm_trainer_state_deinit(&state);
}

static void trainer_json_reads_back(void **unused)
{
  (void)unused;
  struct plm_config config, before;
  struct plm_trainer_state state, back = {0};
  struct plm_error error = {0};
  char *text = NULL, *saved = NULL, *printed[2] = {0};
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, &error), PLM_OK);
  fill(&state, &config);
  plm_trainer_state_remember(&state, "a: 1 -> 2\nb: x -> y\n", 8, 8);
  plm_trainer_state_remember_failure(&state, 8, "no space");
  text = plm_trainer_state_print(&state, &config, (struct plm_hash){3, 4});
  assert_non_null(strstr(text, "\"seed\":\t18446744073709551615"));
  assert_int_equal(plm_file_write(scratch_path("trainer.json"), text, strlen(text), 0644, &error),
                   PLM_OK);

  const struct plm_plan_parameters plan = plm_config_training_plan(&config);
  plm_data_cursor_init(&back.cursor, plm_plan_hash(&plan), config.seed);
  assert_int_equal(plm_trainer_state_read(scratch_directory(), &back, &saved, &error), PLM_OK);
  assert_int_equal(back.step, 12);
  assert_int_equal(back.updates, 11);
  assert_int_equal(back.tokens, 123456789012);
  assert_int_equal(back.skipped_in_a_row, 1);
  assert_true(back.exact);
  assert_int_equal(back.metrics_bytes, 4321);
  assert_memory_equal(&back.resolved, &state.resolved, sizeof state.resolved);
  assert_int_equal(
      cJSON_GetArraySize(cJSON_GetObjectItem(cJSON_GetArrayItem(back.history, 0), "changes")), 2);
  assert_null(cJSON_GetObjectItem(cJSON_GetArrayItem(back.history, 0), "step_chunks"));
  const cJSON *failure = cJSON_GetArrayItem(back.history, 1);
  assert_true(cJSON_GetObjectItem(failure, "step")->valuedouble == 8.0);
  assert_string_equal(cJSON_GetObjectItem(failure, "failed")->valuestring, "no space");

  /* the configuration inside is complete, so the environment has no influence */
  setenv("PLM_TRAINER_STEPS", "7", 1);
  assert_int_equal(plm_config_load_text(saved, strlen(saved), &before, &error), PLM_OK);
  unsetenv("PLM_TRAINER_STEPS");
  printed[0] = plm_config_print(&config);
  printed[1] = plm_config_print(&before);
  assert_string_equal(printed[0], printed[1]);
  free(printed[0]);
  free(printed[1]);
  free(text);
  free(saved);
  plm_config_deinit(&config);
  plm_config_deinit(&before);
  plm_trainer_state_deinit(&state);
  plm_trainer_state_deinit(&back);
}

static void wrong_trainer_json_is_named(void **unused)
{
  (void)unused;
  static const char *const wrong[] = {
      "", "[]", "{\"format\":1}", "{\"format\":2}", "{\"format\":1,\"step\":-1}",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct plm_trainer_state state = {0};
    struct plm_error error = {0};
    char *saved = NULL;
    assert_int_equal(
        plm_file_write(scratch_path("trainer.json"), wrong[i], strlen(wrong[i]), 0644, &error),
        PLM_OK);
    assert_int_equal(plm_trainer_state_read(scratch_directory(), &state, &saved, &error),
                     PLM_FORMAT);
    assert_non_null(strstr(error.where, "trainer.json"));
    assert_null(saved);
    plm_trainer_state_deinit(&state);
  }
}

/* Parts of what was written are replaced. */
static void each_part_of_trainer_json_is_checked(void **unused)
{
  (void)unused;
  static const char algorithms[] = "trainer.json has no valid \"algorithms\"",
                    others[] = "trainer.json has no configuration or no history";
  static const struct {
    const char *section, *name, *json, *says;
  } rows[] = {
      {"resolved", "algorithms", "5", algorithms},
      {"resolved", "algorithms", "[\"head\", 5]", algorithms},
      {"resolved", "algorithms", "[\"head\", \"line\"]", NULL},
      {NULL, "step", "9007199254740994", "trainer.json has no valid \"step\""},
      {"resolved", "threads", "4294967296", "trainer.json has no valid \"threads\""},
      {"resolved", "product_flops_per_second", "\"1e9\"",
       "trainer.json has no valid \"product_flops_per_second\""},
      {"resolved", "processor", "5", "trainer.json has no valid \"processor\""},
      {"resolved", "precision", "\"0123456789abcdef\"", "trainer.json has no valid \"precision\""},
      {NULL, "configuration", "{}", others},
      {NULL, "history", "{}", others},
      {NULL, "format", "\"1\"", "trainer.json is not of format 1"},
      {NULL, "format", "2", "trainer.json is not of format 1"}};
  struct plm_config config;
  struct plm_trainer_state state;
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  fill(&state, &config);
  state.algorithms = strdup("first\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_trainer_state back = {0};
    struct plm_error error = {0};
    char *saved = NULL, *text = plm_trainer_state_print(&state, &config, (struct plm_hash){3, 4});
    cJSON *json = cJSON_Parse(text);
    cJSON *part = rows[i].section == NULL ? json : cJSON_GetObjectItem(json, rows[i].section);
    assert_true(cJSON_ReplaceItemInObject(part, rows[i].name, cJSON_Parse(rows[i].json)));
    free(text);
    text = cJSON_Print(json);
    plm_data_cursor_init(&back.cursor, (struct plm_hash){1, 2}, config.seed);
    const plm_status status = plm_trainer_state_parse(text, strlen(text), &back, &saved, &error);
    assert_int_equal(status, rows[i].says == NULL ? PLM_OK : PLM_FORMAT);
    if (rows[i].says != NULL) assert_string_equal(error.what, rows[i].says);
    if (rows[i].says == NULL) assert_string_equal(back.algorithms, "head\nline\n");
    free(text);
    free(saved);
    cJSON_Delete(json);
    plm_trainer_state_deinit(&back);
  }
  plm_trainer_state_deinit(&state);
  plm_config_deinit(&config);
}

/* Earlier builds did not say how a CPU multiplied in bf16. */
static void bf16_products_are_named(void **unused)
{
  static const struct {
    const char *given, *device, *precision, *named;
  } rows[] = {{"", "cpu", "bf16", "native"},
              {"f", "cpu", "bf16", "f"},
              {"", "cuda", "bf16", ""},
              {"", "cpu", "fp32", ""}};
  struct plm_config config;
  (void)unused;
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_trainer_state state, back = {0};
    char *saved;
    fill(&state, &config);
    strcpy(state.resolved.bf16_products, rows[i].given);
    strcpy(state.resolved.device, rows[i].device);
    strcpy(state.resolved.precision, rows[i].precision);
    char *text = plm_trainer_state_print(&state, &config, (struct plm_hash){3, 4});
    plm_data_cursor_init(&back.cursor, (struct plm_hash){1, 2}, config.seed);
    assert_int_equal(plm_trainer_state_parse(text, strlen(text), &back, &saved, NULL), PLM_OK);
    assert_string_equal(back.resolved.bf16_products, rows[i].named);
    free(text);
    free(saved);
    plm_trainer_state_deinit(&back);
    plm_trainer_state_deinit(&state);
  }
  plm_config_deinit(&config);
}

static void grace_is_judged_by_the_last_step(void **unused)
{
  (void)unused;
  struct plm_grace grace = {
      .limit_s = 25, .since_stop_s = 1, .step_s = 10, .last_step_s = 20, .done = 1, .total = 2};
  assert_false(plm_grace_is_short(&grace)); /* 1 + 10 left */
  grace.last_step_s = 40;
  assert_true(plm_grace_is_short(&grace)); /* 1 + 30 left */
  grace.last_step_s = 30;
  assert_false(plm_grace_is_short(&grace)); /* 1 + 20 */
  grace.since_stop_s = 5;
  assert_false(plm_grace_is_short(&grace)); /* 5 + 20, the whole time */
  grace.since_stop_s = 5.5;
  assert_true(plm_grace_is_short(&grace));
  grace.since_stop_s = 1;
  grace.publish_s = 6;
  assert_true(plm_grace_is_short(&grace)); /* and writing the checkpoint */
  grace = (struct plm_grace){.limit_s = 25, .step_s = 10, .done = 1, .total = 4};
  assert_true(plm_grace_is_short(&grace)); /* the first step is judged by its own pace: 30 left */
  grace.done = 2;
  assert_false(plm_grace_is_short(&grace));
  grace = (struct plm_grace){.limit_s = 25, .step_s = 10, .total = 4};
  assert_false(plm_grace_is_short(&grace)); /* nothing is known of its pace */
  grace = (struct plm_grace){.limit_s = 25, .since_stop_s = 25, .step_s = 30, .last_step_s = 20};
  assert_false(plm_grace_is_short(&grace)); /* it should have ended: never less than 0 left */
}

/* The same sums on another number of ranks are exact, unless each rank rounds its own. */
static void ranks_that_round_are_inexact(void **unused)
{
  (void)unused;
  struct plm_config config;
  struct plm_trainer_state state;
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  fill(&state, &config);
  strcpy(state.resolved.device, "cpu");
  state.resolved.shares = 4;
  state.resolved.ranks = 2;
  struct plm_resolved today = state.resolved;
  struct plm_resume_options options = plm_resume_options_of(&config);
  today.ranks = 4;
  plm_resume_compare(&state, &options, &today);
  assert_true(state.exact);
  config.trainer.compress = PLM_COMPRESS_BF16;
  options = plm_resume_options_of(&config);
  plm_resume_compare(&state, &options, &today);
  assert_false(state.exact);
  state.exact = true;
  today.ranks = 2;
  plm_resume_compare(&state, &options, &today);
  assert_true(state.exact);
  plm_trainer_state_deinit(&state);
  plm_config_deinit(&config);
}

/* Older checkpoints do not name build, library and level, and call the algorithms plans. */
static void an_older_checkpoint_is_read(void **unused)
{
  (void)unused;
  struct plm_config config;
  struct plm_trainer_state state, back = {0};
  char *text = NULL, *saved = NULL;
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  fill(&state, &config);
  free(state.algorithms);
  state.algorithms = strdup("head\nline\n");
  text = plm_trainer_state_print(&state, &config, (struct plm_hash){3, 4});
  cJSON *json = cJSON_Parse(text);
  free(text);
  cJSON *resolved = cJSON_GetObjectItem(json, "resolved");
  cJSON_DeleteItemFromObject(resolved, "build");
  cJSON_DeleteItemFromObject(resolved, "products");
  cJSON_DeleteItemFromObject(resolved, "bf16_products");
  cJSON_DeleteItemFromObject(resolved, "level");
  cJSON *algorithms = cJSON_DetachItemFromObject(resolved, "algorithms");
  assert_non_null(algorithms);
  cJSON_AddItemToObject(resolved, "plans", algorithms);
  text = cJSON_Print(json);
  assert_int_equal(plm_file_write(scratch_path("trainer.json"), text, strlen(text), 0644, NULL),
                   PLM_OK);
  const struct plm_plan_parameters plan = plm_config_training_plan(&config);
  plm_data_cursor_init(&back.cursor, plm_plan_hash(&plan), config.seed);
  assert_int_equal(plm_trainer_state_read(scratch_directory(), &back, &saved, NULL), PLM_OK);
  assert_string_equal(back.resolved.build, "");
  assert_string_equal(back.resolved.version, "0.0.1");
  assert_string_equal(back.algorithms, "head\nline\n");
  free(text);
  free(saved);
  cJSON_Delete(json);
  plm_trainer_state_deinit(&back);
  plm_trainer_state_deinit(&state);
  plm_config_deinit(&config);
}

/* A resume that changes the batch reads the history to which it has just added. */
static void what_is_remembered_can_be_read(void **state)
{
  (void)state;
  struct plm_trainer_state remembered = {.step = 3};
  struct plm_mixture_history history = {0};
  plm_trainer_state_remember(&remembered, "a: 1 -> 2\n", 2, 8);
  assert_int_equal(plm_batch_history_read(&history, remembered.history, 64, 8, NULL), PLM_OK);
  assert_int_equal(history.count, 2);
  assert_int_equal(history.parts[0].chunks, 2);
  assert_int_equal(history.parts[1].first, 3);
  assert_int_equal(history.parts[1].chunks, 8);
  plm_mixture_history_deinit(&history);
  cJSON_Delete(remembered.history);
}

/* Builds that did not name the way of bf16 products only had bf16 instructions for a CPU. */
static void older_bf16_products_were_native(void **unused)
{
  (void)unused;
  static const struct {
    const char *device, *precision, *saved, *wanted;
  } cases[] = {{"cpu", "bf16", NULL, "native"}, {"cpu", "bf16", "", "native"},
               {"cpu", "bf16", "fp32", "fp32"}, {"cpu", "bf16", "native", "native"},
               {"cpu", "fp32", NULL, ""},       {"cuda", "bf16", NULL, ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    struct plm_trainer_state state, back = {0};
    char *saved = NULL;
    assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
    fill(&state, &config);
    strcpy(state.resolved.device, cases[i].device);
    strcpy(state.resolved.precision, cases[i].precision);
    strcpy(state.resolved.bf16_products, cases[i].saved != NULL ? cases[i].saved : "");
    char *text = plm_trainer_state_print(&state, &config, (struct plm_hash){3, 4});
    cJSON *json = cJSON_Parse(text);
    free(text);
    if (cases[i].saved == NULL)
      cJSON_DeleteItemFromObject(cJSON_GetObjectItem(json, "resolved"), "bf16_products");
    text = cJSON_Print(json);
    const struct plm_plan_parameters plan = plm_config_training_plan(&config);
    plm_data_cursor_init(&back.cursor, plm_plan_hash(&plan), config.seed);
    assert_int_equal(plm_trainer_state_parse(text, strlen(text), &back, &saved, NULL), PLM_OK);
    assert_string_equal(back.resolved.bf16_products, cases[i].wanted);
    free(text);
    free(saved);
    cJSON_Delete(json);
    plm_trainer_state_deinit(&back);
    plm_trainer_state_deinit(&state);
    plm_config_deinit(&config);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trainer_json_tells_readers_the_run_and_the_epoch),
      cmocka_unit_test(trainer_json_reads_back),
      cmocka_unit_test(ranks_that_round_are_inexact),
      cmocka_unit_test(an_older_checkpoint_is_read),
      cmocka_unit_test(older_bf16_products_were_native),
      cmocka_unit_test(wrong_trainer_json_is_named),
      cmocka_unit_test(each_part_of_trainer_json_is_checked),
      cmocka_unit_test(bf16_products_are_named),
      cmocka_unit_test(grace_is_judged_by_the_last_step),
      cmocka_unit_test(what_is_remembered_can_be_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
