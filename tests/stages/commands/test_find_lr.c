/* `up --find-lr`: which ranges and numbers of steps it takes, and the configuration of its test. */
#include "stages/commands/find_lr.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

static const struct plm_option options[] = {
    {0, "lr-range", "LOW:HIGH", ""}, {0, "lr-steps", "N", ""}, {0, NULL, NULL, NULL}};

static plm_status read_options(const char *range, const char *steps, struct plm_find_lr *find,
                               struct plm_error *error)
{
  const char *words[6] = {"up"};
  int count = 1;
  struct plm_arguments arguments;
  if (range != NULL) words[count++] = "--lr-range", words[count++] = range;
  if (steps != NULL) words[count++] = "--lr-steps", words[count++] = steps;
  assert_int_equal(plm_arguments_parse(count, (char **)words, options, &arguments, NULL), PLM_OK);
  const plm_status status = plm_find_lr_options(&arguments, find, error);
  plm_arguments_deinit(&arguments);
  return status;
}

static void ranges_and_steps_have_bounds(void **state)
{
  static const struct {
    const char *range, *steps;
    double low, high;
    unsigned long long count; /* 0: it is refused */
  } cases[] = {{NULL, NULL, 1e-6, 1, 100},
               {"1e-4:100", NULL, 1e-4, 100, 100},
               {"0.5:0.6", "10", 0.5, 0.6, 10},
               {NULL, "100000", 1e-6, 1, 100000},
               {NULL, "9", 0, 0, 0},
               {NULL, "100001", 0, 0, 0},
               {"1e-4:100.1", NULL, 0, 0, 0},
               {"0:1", NULL, 0, 0, 0},
               {"-1:1", NULL, 0, 0, 0},
               {"1:1", NULL, 0, 0, 0},
               {"2:1", NULL, 0, 0, 0},
               {"1", NULL, 0, 0, 0},
               {":1", NULL, 0, 0, 0},
               {"1:", NULL, 0, 0, 0},
               {"1:2x", NULL, 0, 0, 0},
               {"1x:2", NULL, 0, 0, 0},
               {"nan:1", NULL, 0, 0, 0},
               {"1e-6:nan", NULL, 0, 0, 0},
               {"1e-6:inf", NULL, 0, 0, 0}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_find_lr find;
    struct plm_error error = {0};
    const plm_status status = read_options(cases[i].range, cases[i].steps, &find, &error);
    if (cases[i].count > 0) {
      assert_int_equal(status, PLM_OK);
      assert_true(find.low == cases[i].low && find.high == cases[i].high);
      assert_int_equal(find.steps, cases[i].count);
      continue;
    }
    char expected[100];
    assert_int_equal(status, PLM_USAGE);
    if (cases[i].range == NULL) continue;
    snprintf(expected, sizeof expected, "--lr-range needs LOW:HIGH, not \"%s\"", cases[i].range);
    assert_string_equal(error.what, expected);
  }
}

static void load(const char *yaml, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(yaml, strlen(yaml), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

#define RATES(hidden, embed, head, scalar)                                              \
  "trainer: {optimizer: {lr_hidden: " #hidden ", lr_embed: " #embed ", lr_head: " #head \
  ", lr_scalar: " #scalar "}}\n"

/* The rates end at HIGH, in their ratio to that of the hidden matrices. */
static void the_test_has_its_own_configuration(void **state)
{
  static const char yaml[] =
      "run: /runs/one\ncorpus: /c\npacker: {instances: 0}\n"
      "metrics: {tensorboard: true, norms: 5}\n"
      "trainer: {steps: 77, restart: on-failure, ema: 0.9, checkpoint: {every: 5}, "
      "profile: {steps: 10-12}, optimizer: {lr_hidden: 0.5, lr_embed: 0.25, lr_head: 1, "
      "lr_scalar: 0.5}}\n";
  struct plm_config config;
  const struct plm_find_lr find = {.low = 1e-5, .high = 2, .steps = 50};
  struct plm_error error = {0};
  (void)state;
  load(yaml, &config);
  if (plm_find_lr_configure(&find, "/runs/one.find", &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  assert_string_equal(config.run, "/runs/one.find");
  assert_int_equal(config.trainer.steps, 50);
  assert_int_equal(config.trainer.checkpoint.every, 50);
  assert_int_equal(config.trainer.schedule.name, PLM_SCHEDULE_RANGE_TEST);
  assert_true(config.trainer.schedule.min_lr_fraction == 1e-5 / 2);
  assert_int_equal(config.trainer.restart, PLM_RESTART_NO);
  assert_true(config.trainer.ema == 0);
  assert_int_equal(config.trainer.profile.first, 0);
  assert_int_equal(config.packer_instances, 1);
  assert_false(config.tensorboard);
  assert_int_equal(config.norms, 0);
  const struct plm_config_optimizer *optimizer = &config.trainer.optimizer;
  assert_true(optimizer->lr_hidden == 2 && optimizer->lr_embed == 1 && optimizer->lr_head == 4 &&
              optimizer->lr_scalar == 2);
  plm_config_deinit(&config);
  load("corpus: /c\npacker: {instances: 3}\n", &config);
  assert_int_equal(plm_find_lr_configure(&find, "/x", &config, NULL), PLM_OK);
  assert_int_equal(config.packer_instances, 3);
  plm_config_deinit(&config);
}

/* No rate may be above the most that a setting takes, and 0 has no ratio. */
static void rates_have_a_limit(void **state)
{
  static const struct {
    const char *yaml;
    double high;
    const char *what; /* NULL: it is taken */
  } cases[] = {
      {"corpus: /c\n" RATES(1, 1, 1, 1), 100, NULL},
      {"corpus: /c\n" RATES(1, 2, 1, 1), 50, NULL},
      {"corpus: /c\n" RATES(1, 2, 1, 1), 51,
       "--find-lr: with lr_hidden at 51, another rate would be 102, but 100 is the most"},
      {"corpus: /c\n" RATES(1, 1, 4, 1), 50,
       "--find-lr: with lr_hidden at 50, another rate would be 200, but 100 is the most"},
      {"corpus: /c\n" RATES(1, 1, 1, 8), 50,
       "--find-lr: with lr_hidden at 50, another rate would be 400, but 100 is the most"},
      {"corpus: /c\n" RATES(0, 1, 1, 1), 1,
       "--find-lr: trainer.optimizer.lr_hidden is 0, so the other rates have no ratio to it"},
      {"corpus: /c\n" RATES(1, 0, 0, 0), 1, NULL},
      {"corpus: null\n" RATES(1, 1, 1, 1), 1,
       "--find-lr needs a corpus on this host, but `corpus` is null"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_find_lr find = {.low = 1e-6, .high = cases[i].high, .steps = 50};
    struct plm_config config;
    struct plm_error error = {0};
    load(cases[i].yaml, &config);
    const double before = config.trainer.optimizer.lr_embed;
    const plm_status status = plm_find_lr_configure(&find, "/x", &config, &error);
    assert_int_equal(status, cases[i].what == NULL ? PLM_OK : PLM_CONFIG);
    if (cases[i].what != NULL) {
      assert_string_equal(error.what, cases[i].what);
      assert_true(config.trainer.optimizer.lr_embed == before);
    }
    plm_config_deinit(&config);
  }
}

/* What rounding adds is no rate beyond the limit. */
static void rounding_does_not_exceed_the_limit(void **state)
{
  const struct plm_find_lr find = {.low = 1e-6, .high = 100, .steps = 50};
  struct plm_config config;
  (void)state;
  for (int i = 1; i < 60; i++) {
    load("corpus: /c\n", &config);
    struct plm_config_optimizer *optimizer = &config.trainer.optimizer;
    optimizer->lr_hidden = optimizer->lr_embed = optimizer->lr_head = optimizer->lr_scalar =
        0.01 * i;
    assert_int_equal(plm_find_lr_configure(&find, "/x", &config, NULL), PLM_OK);
    assert_true(optimizer->lr_hidden <= 100 && optimizer->lr_hidden > 99.99);
    plm_config_deinit(&config);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_and_steps_have_bounds),
      cmocka_unit_test(the_test_has_its_own_configuration),
      cmocka_unit_test(rates_have_a_limit),
      cmocka_unit_test(rounding_does_not_exceed_the_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
