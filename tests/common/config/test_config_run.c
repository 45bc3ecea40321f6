/* What a configuration says about a run as a whole: lengths that follow the number of steps, and
 * what stays of it where no step runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/config.h"
#include "tests/support/harness/cmocka_all.h"

static plm_status load(const char *text, struct plm_config *config)
{
  return plm_config_load_text(text, strlen(text), config, NULL);
}

static void expect_schedule(const char *trainer, uint64_t warmup, uint64_t cooldown,
                            const char *key, const char *message)
{
  struct plm_config config;
  char text[512], fault[PLM_CONFIG_FAULT_SIZE] = "";
  snprintf(text, sizeof text, "trainer: {%s}\n", trainer);
  assert_int_equal(load(text, &config), PLM_OK);
  assert_int_equal(config.trainer.schedule.warmup_steps, warmup);
  assert_int_equal(config.trainer.schedule.cooldown_steps, cooldown);
  const char *found = plm_config_schedule_fault(&config, fault);
  assert_int_equal(found == NULL, key == NULL);
  if (key != NULL) assert_string_equal(found, key);
  if (key != NULL) assert_string_equal(fault, message);
  plm_config_deinit(&config);
}

/* A share follows trainer.steps wherever it stands, and a default that does not fit becomes one. */
static void a_schedule_follows_the_steps(void **state)
{
  (void)state;
  expect_schedule("steps: 120", 20, 100, NULL, NULL);
  expect_schedule("steps: 119", 7, 39, NULL, NULL);
  expect_schedule("steps: 1", 0, 0, NULL, NULL);
  expect_schedule("steps: 40, schedule: {name: linear}", 20, 100, NULL, NULL);
  expect_schedule("steps: 19, schedule: {name: cosine}", 1, 6, NULL, NULL);
  expect_schedule("schedule: {warmup_steps: 6.7%, cooldown_steps: 33.3%}, steps: 300", 20, 100,
                  NULL, NULL);
  expect_schedule("steps: 1000, schedule: {warmup_steps: 0%, cooldown_steps: 100%}", 0, 1000, NULL,
                  NULL);
  expect_schedule("steps: 40, schedule: {warmup_steps: 30}", 30, 10, NULL, NULL);
  expect_schedule("steps: 40, schedule: {cooldown_steps: 39}", 1, 39, NULL, NULL);
  expect_schedule("steps: 40, schedule: {warmup_steps: 1, cooldown_steps: 39}", 1, 39, NULL, NULL);
  expect_schedule(
      "steps: 40, schedule: {warmup_steps: 2, cooldown_steps: 39}", 2, 39,
      "trainer.schedule.cooldown_steps",
      "39 steps of cool-down and 2 of warm-up are more than the 40 of trainer.steps, so "
      "the learning rate would drop at once");
  expect_schedule("steps: 40, schedule: {warmup_steps: 0, cooldown_steps: 41}", 0, 41,
                  "trainer.schedule.cooldown_steps",
                  "41 steps of cool-down are more than the 40 of trainer.steps, so the learning "
                  "rate would drop at once; a share, such as 25%, follows trainer.steps");
  expect_schedule("steps: 40, schedule: {warmup_steps: 41, cooldown_steps: 0}", 41, 0,
                  "trainer.schedule.warmup_steps",
                  "41 steps of warm-up are more than the 40 of trainer.steps; a share, such as 5%, "
                  "follows trainer.steps");
  expect_schedule("steps: 40, schedule: {name: linear, warmup_steps: 40}", 40, 100, NULL, NULL);
  expect_schedule("steps: 40, schedule: {name: linear, warmup_steps: 41}", 41, 0,
                  "trainer.schedule.warmup_steps",
                  "41 steps of warm-up are more than the 40 of trainer.steps; a share, such as 5%, "
                  "follows trainer.steps");
}

static void other_lengths_may_be_shares(void **state)
{
  (void)state;
  struct plm_config config;
  assert_int_equal(load("trainer: {steps: 200, masking: {mask_rate_steps: 50%, "
                        "mlm_warmup_steps: 1%}, optimizer: {momentum_warmup_steps: 2.5e1%}}\n"
                        "data: {mixture_steps: 100%}\n"
                        "model: {attention: {window: {steps: 10%}}}\n",
                        &config),
                   PLM_OK);
  assert_int_equal(config.trainer.masking.mask_rate_steps, 100);
  assert_int_equal(config.trainer.masking.mlm_warmup_steps, 2);
  assert_int_equal(config.trainer.optimizer.momentum_warmup_steps, 50);
  assert_int_equal(config.data.mixture_steps, 200);
  assert_int_equal(config.model.window_steps, 20);
  plm_config_deinit(&config);
}

/* Only what does not describe training is taken from the later configuration. */
static void training_is_kept_where_no_step_runs(void **state)
{
  (void)state;
  struct plm_config before, now, kept;
  struct plm_error error = {0};
  char *yaml = NULL;
  assert_int_equal(load("run: /old\ncorpus: /c\ntrainer: {steps: 300, threads: 2}\n"
                        "evaluator: {seed: 1}\n",
                        &before),
                   PLM_OK);
  assert_int_equal(load("run: /new\ncorpus: /moved\nseed: 9\ndata: {max_length: 64}\n"
                        "model: {hidden_size: 64}\ntrainer: {steps: 400, threads: 3}\n"
                        "evaluator: {seed: 2}\nmetrics: {norms: 5}\n",
                        &now),
                   PLM_OK);
  assert_int_equal(plm_config_print_kept(&before, &now, &yaml, &error), PLM_OK);
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &kept, &error), PLM_OK);
  assert_string_equal(kept.run, "/new");
  assert_string_equal(kept.corpus, "/moved");
  assert_int_equal(kept.seed, before.seed);
  assert_int_equal(kept.data.max_length, before.data.max_length);
  assert_int_equal(kept.model.hidden_size, before.model.hidden_size);
  assert_int_equal(kept.trainer.steps, 300);
  assert_int_equal(kept.trainer.threads, 2);
  assert_int_equal(kept.evaluator.seed, 2);
  assert_int_equal(kept.norms, 5);
  free(yaml);
  plm_config_deinit(&kept);
  plm_config_deinit(&now);
  /* a corpus that moved is found, but weights that changed have not been trained with */
  assert_int_equal(load("corpus: [{path: /c, weight: 2}]\n", &now), PLM_OK);
  assert_int_equal(plm_config_print_kept(&before, &now, &yaml, &error), PLM_OK);
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &kept, &error), PLM_OK);
  assert_int_equal(kept.source_count, 0);
  free(yaml);
  plm_config_deinit(&kept);
  plm_config_deinit(&now);
  plm_config_deinit(&before);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_schedule_follows_the_steps),
      cmocka_unit_test(other_lengths_may_be_shares),
      cmocka_unit_test(training_is_kept_where_no_step_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
