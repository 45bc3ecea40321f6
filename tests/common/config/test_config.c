/* common/config: the defaults equal the shipped pipeline.yaml, a printed configuration loads as the
 * same one, inputs have their precedence, and a resume refuses what it must. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/config.h"
#include "common/config/settings.h"
#include "common/model/architecture.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static int enter_folder(void **state)
{
  (void)state;
  return chdir(scratch_directory());
}

static plm_status load_text(const char *text, struct plm_config *config,
                            struct plm_config_problems **problems)
{
  assert_int_equal(plm_file_write("pipeline.yaml", text, strlen(text), 0644, NULL), PLM_OK);
  return plm_config_load("./pipeline.yaml", NULL, 0, config, problems, NULL);
}

static void defaults_equal_the_shipped_file(void **state)
{
  (void)state;
  const char *root = getenv("PLM_ROOT");
  if (root == NULL) skip("PLM_ROOT is not set");
  struct plm_config bare, shipped;
  char path[PLM_PATH_SIZE], *a, *b;
  snprintf(path, sizeof path, "%s/pipeline.yaml", root);
  assert_int_equal(plm_config_load(NULL, NULL, 0, &bare, NULL, NULL), PLM_OK);
  assert_int_equal(plm_config_load(path, NULL, 0, &shipped, NULL, NULL), PLM_OK);
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  /* the shipped file is the demo's, which has its own run, corpus and sizes and tuned rates */
  static const char *const own[] = {
      "run",
      "corpus",
      "model.hidden_size",
      "trainer.steps",
      "trainer.masking.mask_rate",
      "trainer.masking.starting_mask_rate",
      "trainer.optimizer.lr_hidden",
      "trainer.optimizer.lr_embed",
      "trainer.optimizer.lr_head",
      "trainer.optimizer.lr_scalar",
  };
  for (size_t i = 0; i < count; i++) {
    bool is_own = false;
    for (size_t j = 0; j < sizeof own / sizeof own[0]; j++)
      is_own |= strcmp(own[j], table[i].key) == 0;
    if (is_own) continue;
    a = plm_setting_print(&table[i], &bare);
    b = plm_setting_print(&table[i], &shipped);
    if (strcmp(a, b) != 0) fail_msg("%s: default %s, file %s", table[i].key, a, b);
    free(a);
    free(b);
  }
  plm_config_deinit(&bare);
  plm_config_deinit(&shipped);
}

/* Every row has a value other than its default, except trainer.compress, whose other value is
 * refused. Printed and loaded again it must be the same. */
static const char all_different[] =
    "run: 'some: folder \"x\"'\nseed: 18446744073709551615\ncorpus: null\n"
    "network: {feed: 'tcp://127.0.0.1:*', feed_address: tcp://127.0.0.1:9, evaluation_feed: "
    "'ipc://sockets/e', announcements: tcp://127.0.0.1:0, keys: ./k, wait_packers_s: 0.1, "
    "credit_bytes: 1000000}\n"
    "data: {tokenizer: byte, max_length: 64, document_alignment: 8, packing: next_fit, "
    "window_groups: 3, truncate: split}\n"
    "packer: {instances: 2, restart: no}\n"
    "model: {preset: 8M, architecture: unet, hidden_size: 96, num_attention_heads: 6, "
    "num_hidden_layers: 4, "
    "num_unet_layers: 8, num_extra_layers: 0, expansion_ratio: 2.6666666666666665, "
    "soft_logit_cap: 0, tie_embeddings: true, token_dropout: true, attention: {pattern: "
    "[document, local+causal, block], window: {start: 130, end: 260, steps: 7}, block: 32}}\n"
    "trainer: {device: cpu, threads: 2, ranks: 2, hosts: [node-1.x:1, n_2:4], "
    "rank_timeout_s: 9.5, shares: 2, precision: fp32, "
    "steps: 7, batch_tokens: 256, "
    "micro_batch_tokens: 64, objective: masked_diffusion, masking: {mask_rate: 0.3, "
    "starting_mask_rate: 0.2, mask_rate_steps: 3, rate_scope: batch, random_fraction: 0.1, "
    "keep_fraction: 0.1, mlm_warmup_steps: 1}, loss: {label_smoothing: 0.01, z_loss: 1e-4}, "
    "optimizer: {name: adamw, lr_hidden: 1e-3, lr_embed: 2e-3, lr_head: 3e-3, lr_scalar: 4e-3, "
    "momentum: 0.9, momentum_warmup_steps: 5, scale: spectral, weight_decay: 0.1, betas: [0.85, "
    "0.99]}, schedule: {name: cosine, warmup_steps: 1, cooldown_steps: 2, min_lr_fraction: 0.1}, "
    "clip: {norm: 1.5}, ema: 0.999, checkpoint: {every: 2, keep_last: 1, keep_best: 0, "
    "keep_every: 4, max_unevaluated: 5, max_failed_checkpoints: 2}, stop_timeout_s: 5.5, "
    "recompute: mlp, init_from: /c, freeze: {embeddings: true, blocks: 1, trunk: true}, stop_when: "
    "{metric: accuracy, patience: 3}, "
    "max_skipped_steps: 3, restart: always}\n"
    "evaluator: {device: cpu, threads: 3, seed: 5, splits: [test, train], mask_rate: 0.25, "
    "mask_rates: [0.1, 0.5], max_tokens: null, restart: no}\n"
    "metrics: {tensorboard: false, prometheus: 127.0.0.1:9464}\n";

static void numbers_have_no_digits_too_many(void **state)
{
  static const struct {
    double value;
    const char *text;
  } rows[] = {{5, "5"},
              {0.1, "0.1"},
              {1e-4, "0.0001"},
              {1e300, "1e+300"},
              {1 / 3.0, "0.3333333333333333"},
              {0.1 + 0.2, "0.30000000000000004"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_text text = {0};
    plm_setting_print_number(&text, rows[i].value);
    assert_string_equal(text.data, rows[i].text);
    plm_text_deinit(&text);
  }
}

static void printing_and_loading_gives_the_same(void **state)
{
  (void)state;
  static const char *const texts[] = {"", all_different};
  for (size_t i = 0; i < 2; i++) {
    struct plm_config config, again;
    struct plm_config_problems *problems = NULL;
    char *first, *second;
    if (load_text(texts[i], &config, &problems) != PLM_OK) {
      fail_msg("%s", plm_config_problem(problems, 0));
    }
    first = plm_config_print(&config);
    if (load_text(first, &again, &problems) != PLM_OK) {
      fail_msg("%s\n%s", plm_config_problem(problems, 0), first);
    }
    second = plm_config_print(&again);
    assert_string_equal(first, second);
    assert_int_equal(plm_config_check_resume(&config, &again, NULL, NULL), PLM_OK);
    assert_memory_equal(&config.model, &again.model, sizeof config.model);
    free(first);
    free(second);
    plm_config_deinit(&config);
    plm_config_deinit(&again);
  }
}

static void values_land_in_their_fields(void **state)
{
  (void)state;
  struct plm_config config;
  char expected[PLM_PATH_SIZE + 32];
  assert_int_equal(load_text(all_different, &config, NULL), PLM_OK);
  snprintf(expected, sizeof expected, "%s/some: folder \"x\"", scratch_directory());
  assert_string_equal(config.run, expected);
  snprintf(expected, sizeof expected, "ipc://%s/sockets/e", scratch_directory());
  assert_string_equal(config.network.evaluation_feed, expected);
  snprintf(expected, sizeof expected, "%s/k", scratch_directory());
  assert_string_equal(config.network.keys, expected);
  assert_true(config.seed == UINT64_MAX);
  assert_null(config.corpus);
  assert_int_equal(config.model.vocab_size, 261);
  assert_int_equal(config.model.max_length, 64);
  assert_int_equal(config.model.pattern_count, 3);
  assert_int_equal(config.model.pattern[1],
                   PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL | PLM_ATTENTION_LOCAL);
  assert_true(config.trainer.optimizer.betas[1] == 0.99);
  assert_int_equal(config.trainer.restart, PLM_RESTART_ALWAYS);
  assert_int_equal(config.trainer.host_count, 2);
  assert_int_equal(plm_config_ranks_here(&config), 1);
  assert_string_equal(config.trainer.hosts[1], "n_2:4");
  assert_int_equal(config.evaluator.split_count, 2);
  assert_string_equal(config.evaluator.splits[0], "test");
  assert_int_equal(config.evaluator.max_tokens, 0);
  assert_int_equal(config.evaluator.mask_rate_count, 2);
  plm_config_deinit(&config);
}

static void later_inputs_win(void **state)
{
  (void)state;
  struct plm_config config;
  const struct plm_config_override overrides[] = {{"trainer.ema", "0.5"},
                                                  {"evaluator.splits", "valid, test"},
                                                  {"evaluator.sets", "[{name: b, corpus: y}]"},
                                                  {"trainer.schedule", "{name: linear}"},
                                                  {"run", "a#b: c"}};
  const char text[] = "trainer: {steps: 5, ema: 0.1, max_skipped_steps: 7}\n"
                      "evaluator: {sets: [{name: a, corpus: x}, {name: b, corpus: x}]}\n";
  setenv("PLM_TRAINER_STEPS", "6", 1);
  setenv("PLM_TRAINER_EMA", "0.2", 1);
  setenv("PLM_READY_FD", "not ours", 1);
  assert_int_equal(plm_file_write("pipeline.yaml", text, strlen(text), 0644, NULL), PLM_OK);
  assert_int_equal(plm_config_load("pipeline.yaml", overrides, 5, &config, NULL, NULL), PLM_OK);
  assert_int_equal(config.trainer.max_skipped_steps, 7);
  assert_int_equal(config.trainer.steps, 6);
  assert_true(config.trainer.ema == 0.5);
  assert_int_equal(config.evaluator.split_count, 2);
  assert_int_equal(config.evaluator.set_count, 1);
  assert_string_equal(config.evaluator.sets[0].name, "b");
  assert_int_equal(config.trainer.schedule.name, PLM_SCHEDULE_LINEAR);
  assert_string_equal(strrchr(config.run, '/'), "/a#b: c");
  const struct plm_setting *steps = plm_setting_find("trainer.steps");
  assert_int_equal(config.origins[plm_setting_index(steps)].kind, PLM_ORIGIN_ENVIRONMENT);
  plm_config_deinit(&config);
  unsetenv("PLM_TRAINER_EMA");
  unsetenv("PLM_READY_FD");

  struct plm_config_problems *problems = NULL;
  const struct plm_config_override wrong[] = {{"trainer.stepps", "5"}, {"seed", "x"}};
  setenv("PLM_TRAINER_STEPS", "none", 1);
  setenv("PLM_MODEL_HIDEN_SIZE", "1", 1);
  assert_int_equal(plm_config_load(NULL, wrong, 2, &config, &problems, NULL), PLM_CONFIG);
  struct plm_text all = {0};
  for (size_t i = 0; i < plm_config_problems_count(problems); i++) {
    plm_text_printf(&all, "%s\n", plm_config_problem(problems, i));
  }
  static const char *const lines[] = {
      "PLM_TRAINER_STEPS: trainer.steps: expected a whole number, found \"none\"\n",
      "PLM_MODEL_HIDEN_SIZE: unknown variable; did you mean \"PLM_MODEL_HIDDEN_SIZE\"?\n",
      "--set trainer.stepps: unknown key \"stepps\"; did you mean \"steps\"?\n",
      "--set seed: seed: expected a whole number, found \"x\"\n"};
  for (size_t i = 0; i < 4; i++) {
    if (strstr(all.data, lines[i]) == NULL) fail_msg("missing %s in\n%s", lines[i], all.data);
  }
  assert_int_equal(plm_config_problems_count(problems), 4);
  plm_text_deinit(&all);
  plm_config_problems_free(problems);
  unsetenv("PLM_TRAINER_STEPS");
  unsetenv("PLM_MODEL_HIDEN_SIZE");
}

static void defaults_follow_what_was_chosen(void **state)
{
  (void)state;
  struct plm_config config;
  assert_int_equal(
      load_text("trainer: {optimizer: {name: adamw}, batch_tokens: 1536}\n", &config, NULL),
      PLM_OK);
  assert_true(config.trainer.optimizer.betas[0] == 0.9);
  assert_int_equal(config.trainer.micro_batch_tokens, 1536);
  assert_int_equal(plm_config_alignment(&config), 4); /* 2^min(2, 9) */
  assert_false(plm_config_freeze(&config.trainer, &config.model).base);
  config.model.lora.rank = 1;
  assert_true(plm_config_freeze(&config.trainer, &config.model).base);
  plm_config_deinit(&config);
  assert_int_equal(load_text("data: {max_length: 4}\ntrainer: {batch_tokens: 40}\n"
                             "model: {num_unet_layers: 10}\n",
                             &config, NULL),
                   PLM_OK);
  assert_int_equal(plm_config_alignment(&config), 4); /* 2^min(4, 2) */
  assert_int_equal(config.trainer.micro_batch_tokens, 40);
  plm_config_deinit(&config);
}

/* Expects these warnings about a valid file; NULL: none. */
static void expect_advice(const char *text, const char *expected)
{
  struct plm_config config;
  struct plm_text advice = {0};
  assert_int_equal(load_text(text, &config, NULL), PLM_OK);
  plm_config_advise(&config, &advice);
  if (expected == NULL) assert_int_equal(advice.length, 0);
  if (expected != NULL) assert_string_equal(advice.data, expected);
  plm_text_deinit(&advice);
  plm_config_deinit(&config);
}

static void settings_without_effect_are_named(void **state)
{
  (void)state;
  expect_advice("", NULL);
  expect_advice("trainer: {masking: {mask_rate: 0.3}}\n", NULL);
  expect_advice("trainer: {schedule: {name: range_test, min_lr_fraction: 1e-6}}\n", NULL);
  expect_advice("trainer: {objective: masked_diffusion}\n", NULL);
  expect_advice("trainer: {objective: residues, labels: a}\n", NULL);
  expect_advice(
      "trainer: {objective: residues, labels: a, loss: {z_loss: 0.1}, masking: {mask_rate: "
      "0.1}}\n",
      "trainer.masking.mask_rate: has no effect, since residues predicts labels\n"
      "trainer.loss.z_loss: has no effect, since residues predicts labels\n");
  expect_advice("trainer: {objective: regression, labels: a}\n"
                "evaluator: {mask_rate: 0.3, mask_rates: [0.5], elbo_rates: 4, max_tokens: 100}\n",
                "evaluator.mask_rate: has no effect, since regression predicts labels\n"
                "evaluator.mask_rates: has no effect, since regression predicts labels\n"
                "evaluator.elbo_rates: has no effect, since regression predicts labels\n");
  expect_advice("trainer: {objective: masked_diffusion, masking: {mask_rate: 0.15, "
                "starting_mask_rate: 0.1, mask_rate_steps: 10}}\n",
                "trainer.masking.mask_rate: has no effect, since masked_diffusion draws its own "
                "mask rates and trainer.masking.mlm_warmup_steps is 0\n"
                "trainer.masking.starting_mask_rate: has no effect, since masked_diffusion draws "
                "its own mask rates and trainer.masking.mlm_warmup_steps is 0\n"
                "trainer.masking.mask_rate_steps: has no effect, since masked_diffusion draws its "
                "own mask rates and trainer.masking.mlm_warmup_steps is 0\n");
  expect_advice("trainer: {objective: masked_diffusion, masking: {mask_rate: 0.3, "
                "mlm_warmup_steps: 5}}\n",
                NULL);
  expect_advice("trainer: {stop_when: {metric: accuracy, patience: 1}}\n", NULL);
  expect_advice("trainer: {stop_when: {metric: accuracy}}\n",
                "trainer.stop_when.metric: has no effect, since trainer.stop_when.patience is 0\n");
  expect_advice(
      "trainer: {stop_when: {patience: 2}, checkpoint: {every: 0}}\n",
      "trainer.stop_when.patience: has no effect, since trainer.checkpoint.every is 0, so "
      "that no checkpoint is published during training\n");
  expect_advice("trainer: {checkpoint: {best_by: a.r2, keep_best: 0}}\n"
                "evaluator: {tasks: [{name: a, path: x, target: y}]}\n",
                "trainer.checkpoint.best_by: keeps no checkpoint, since "
                "trainer.checkpoint.keep_best is 0\n");
  expect_advice("data: {mixture_steps: 10}\n"
                "corpus: [{path: a, weight: 1}, {path: b, weight: 2}]\n",
                "data.mixture_steps: has no effect, since no corpus has a final_weight\n");
  expect_advice("data: {mixture_steps: 10}\n"
                "corpus: [{path: a, weight: 1}, {path: b, weight: 2, final_weight: 3}]\n",
                NULL);
}

static void what_is_probably_not_meant_is_said(void **state)
{
  (void)state;
  static const char random_weights[] =
      "trainer.lora: trains adapters of random weights, since trainer.init_from is not set\n";
  expect_advice("trainer: {lora: {rank: 4}, init_from: a, optimizer: {lr_hidden: 0.001}}\n", NULL);
  expect_advice("trainer: {lora: {rank: 4}, optimizer: {lr_hidden: 0.001}}\n", random_weights);
  expect_advice("trainer: {lora: {rank: 4}, init_from: a}\n",
                "trainer.optimizer.lr_hidden: the default of 0.005 is for Muon; adapters of "
                "trainer.lora usually need 1e-4 to 1e-3\n");
  expect_advice("corpus: null\n",
                "corpus: null, so the run takes the corpus of the first packer that joins\n");
  static const char blocks[] =
      "model.attention.pattern: `block` masks count from the beginning of the chunk, so a "
      "document's result depends on its position in the chunk\n";
  /* once, however many layers have such masks */
  expect_advice("model: {attention: {pattern: [document, document+block, document+block], block: "
                "64}}\n",
                blocks);
  expect_advice("model: {attention: {pattern: [document+block, document], block: 64}}\n", blocks);
  expect_advice("model: {architecture: patch_unet, num_unet_layers: 8}\n", NULL);
  expect_advice("model: {architecture: patch_unet, num_unet_layers: 8}\n"
                "data: {document_alignment: 8}\n",
                NULL);
  expect_advice("model: {architecture: patch_unet, num_unet_layers: 8}\n"
                "data: {document_alignment: 4}\n",
                "data.document_alignment: 4 is less than the 8 tokens that patch_unet merges, so "
                "neighbouring documents mix\n");
}

/* The shipped file has token_dropout: false, which stays when only the architecture is changed. */
static void esm2_without_token_dropout_is_named(void **state)
{
  static const char said[] =
      "model.token_dropout: false, so this esm2 trains without the token dropout of the published "
      "models; leave the key out for it. --set model.token_dropout=false says that it is meant\n";
  static const struct plm_config_override meant = {"model.token_dropout", "false"};
  struct plm_config config;
  struct plm_text advice = {0};
  (void)state;
  expect_advice("model: {architecture: esm2}\n", NULL);
  expect_advice("model: {architecture: esm2, token_dropout: true}\n", NULL);
  expect_advice("model: {architecture: esmc, token_dropout: false}\n", NULL);
  expect_advice("model: {architecture: transformer, token_dropout: false}\n", NULL);
  expect_advice("model: {architecture: esm2, token_dropout: false}\n"
                "trainer: {init_from: a}\n", /* what differs from the weights is listed instead */
                NULL);
  expect_advice("model: {architecture: esm2, token_dropout: false}\n", said);
  assert_int_equal(plm_config_load("./pipeline.yaml", &meant, 1, &config, NULL, NULL), PLM_OK);
  plm_config_advise(&config, &advice);
  assert_int_equal(advice.length, 0);
  plm_text_deinit(&advice);
  plm_config_deinit(&config);
}

static void a_resume_knows_what_may_change(void **state)
{
  (void)state;
  struct plm_config before, now;
  struct plm_error error = {0};
  struct plm_text changes = {0};
  assert_int_equal(load_text("", &before, NULL), PLM_OK);
  assert_int_equal(
      load_text("trainer: {steps: 400, restart: no}\nnetwork: {wait_packers_s: 1}\n", &now, NULL),
      PLM_OK);
  assert_int_equal(plm_config_check_resume(&before, &now, &changes, &error), PLM_OK);
  assert_string_equal(changes.data, "trainer.steps: 300 -> 400\n");
  plm_config_deinit(&now);
  assert_int_equal(load_text("model: {num_extra_layers: 2}\n", &now, NULL), PLM_OK);
  assert_int_equal(plm_config_check_resume(&before, &now, NULL, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "model.num_extra_layers changed from 1 to 2"));
  assert_non_null(strstr(error.hint, "trainer.init_from"));
  plm_text_deinit(&changes);
  plm_config_deinit(&before);
  plm_config_deinit(&now);
}

static void the_reference_widths(void **state)
{
  (void)state;
  const struct plm_model_config model = {.architecture = PLM_PATCH_UNET,
                                         .hidden_size = 768,
                                         .num_attention_heads = 12,
                                         .num_unet_layers = 12};
  /* unit = 192: 192 * ceil(768 (5 + k) / 960), at most 1536 */
  static const uint32_t widths[] = {768, 960, 1152, 1344, 1536, 1536};
  for (int k = 0; k < 6; k++) assert_int_equal(plm_architecture_width(&model, k), widths[k]);
}

static void a_model_goes_through_json(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_model_config back;
  assert_int_equal(load_text(all_different, &config, NULL), PLM_OK);
  cJSON *json = plm_model_config_to_json(&config.model);
  assert_int_equal(plm_model_config_from_json(json, &back, NULL), PLM_OK);
  config.model.lora = (struct plm_lora_config){0}; /* not among these keys */
  assert_memory_equal(&back, &config.model, sizeof back);
  cJSON_ReplaceItemInObject(json, "hidden_size", cJSON_CreateNumber(97));
  assert_int_equal(plm_model_config_from_json(json, &back, NULL), PLM_CONFIG);
  cJSON_ReplaceItemInObject(json, "hidden_size", cJSON_CreateNumber(-96));
  assert_int_equal(plm_model_config_from_json(json, &back, NULL), PLM_FORMAT);
  cJSON_DeleteItemFromObject(json, "attention");
  cJSON_ReplaceItemInObject(json, "hidden_size", cJSON_CreateNumber(96));
  assert_int_equal(plm_model_config_from_json(json, &back, NULL), PLM_FORMAT);
  cJSON_Delete(json);
  plm_config_deinit(&config);
}

static void variables_are_distinct(void **state)
{
  (void)state;
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    char a[96] = "PLM_X", b[96];
    const bool settable = strcmp(table[i].key, "version") != 0;
    assert_int_equal(plm_setting_variable(table[i].key, a), settable);
    assert_int_equal(a[0] == '\0', !settable);
    for (size_t j = 0; j < i; j++) {
      plm_setting_variable(table[j].key, b);
      assert_string_not_equal(a, b);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_equal_the_shipped_file),
      cmocka_unit_test(numbers_have_no_digits_too_many),
      cmocka_unit_test(printing_and_loading_gives_the_same),
      cmocka_unit_test(values_land_in_their_fields),
      cmocka_unit_test(later_inputs_win),
      cmocka_unit_test(defaults_follow_what_was_chosen),
      cmocka_unit_test(settings_without_effect_are_named),
      cmocka_unit_test(what_is_probably_not_meant_is_said),
      cmocka_unit_test(esm2_without_token_dropout_is_named),
      cmocka_unit_test(a_resume_knows_what_may_change),
      cmocka_unit_test(the_reference_widths),
      cmocka_unit_test(a_model_goes_through_json),
      cmocka_unit_test(variables_are_distinct),
  };
  return cmocka_run_group_tests_name("config", tests, enter_folder, NULL);
}
