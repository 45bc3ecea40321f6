/* `up --find-lr`: which ranges and numbers of steps it takes, the configuration of its test, and
 * what becomes of the test, whose run is a script here. */
#include "stages/commands/find_lr.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/text/strict_json.h"
#include "common/run/stop.h"
#include "stages/views/rate_range.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

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

/* ---- the test -------------------------------------------------------------------------------- */

enum { STEPS = 12 };

static char folder[PLM_PATH_SIZE], file[PLM_PATH_SIZE];

/* A folder with a configuration, whose run would be FOLDER/runs/a, and the program: it executes a
 * line of the shell, says how it was started, writes the lines as metrics, and goes on with these
 * words of the shell. As soon as the metrics are there, it may be told to stop. */
static void begin_after(const char *first, const char *lines, const char *then)
{
  char yaml[PLM_PATH_SIZE + 200], script[1000];
  scratch_run(folder);
  assert_int_equal(chdir(folder), 0);
  assert_int_equal(plm_path_join(file, folder, "its.yaml", NULL), PLM_OK);
  snprintf(yaml, sizeof yaml,
           "run: runs/a\ncorpus: %s\ntrainer: {optimizer: {lr_hidden: 0.5, lr_embed: 0.25, "
           "lr_head: 1, lr_scalar: 2}}\n",
           scratch_path("corpus.0"));
  scratch_write(file, yaml, strlen(yaml));
  scratch_write("lines", lines, strlen(lines));
  snprintf(script, sizeof script,
           "#!/bin/sh\n%s\nfor i; do echo \"$i\"; done >words\ncp \"$2\" used.yaml\n"
           "echo \"${PLM_TRAINER_STEPS-unset}\" >variable\n"
           "cp lines \"$(dirname \"$2\")/trainer.jsonl\"\n%s\n",
           first, then);
  command_case_program("plm-pipeline", script);
}

static void begin(const char *lines, const char *then)
{
  begin_after("", lines, then);
}

/* The rate of a step rises to 0.5 by sqrt(2) at each; the smoothed loss is what the range itself
 * makes of these losses. */
static char *lines_of(const double *losses, size_t count, struct plm_rate_range *range)
{
  static char lines[STEPS * 100];
  size_t used = 0;
  lines[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    const double rate = 0.5 / pow(2, (double)(STEPS - 1 - i) / 2);
    used += (size_t)snprintf(lines + used, sizeof lines - used,
                             "{\"step\":%zu,\"lr_hidden\":%.17g,\"loss\":%.17g}\n", i + 1, rate,
                             losses[i]);
    if (range != NULL) plm_rate_range_add(range, rate, losses[i]);
  }
  return lines;
}

static const double falling[STEPS] = {5, 5, 5, 4, 3, 3, 2.5, 2, 2, 3, 4, 5};

/* Nothing is left of the test's folder, and the run's was not made. */
static void expect_nothing_left(void)
{
  assert_true(scratch_is_empty("runs"));
}

static void json_has_every_step_and_the_suggestions(void **state)
{
  (void)state;
  struct plm_rate_range range = {0};
  struct plm_rate_suggestion found = {0};
  begin(lines_of(falling, STEPS, &range), "exit 0");
  assert_true(plm_rate_range_suggest(&range, &found));
  assert_int_equal(setenv("PLM_TRAINER_STEPS", "60", 1), 0);
  assert_int_equal(
      COMMAND("up", file, "--find-lr", "--lr-range", "0.001:0.5", "--lr-steps", "12", "--json"), 0);
  assert_int_equal(unsetenv("PLM_TRAINER_STEPS"), 0);
  cJSON *json = plm_json_line(command_out);
  const cJSON *rates = cJSON_GetObjectItem(json, "lr_hidden"),
              *losses = cJSON_GetObjectItem(json, "smoothed_loss");
  assert_int_equal(cJSON_GetArraySize(rates), STEPS);
  assert_int_equal(cJSON_GetArraySize(losses), STEPS);
  for (int i = 0; i < STEPS; i++) {
    assert_float_equal(cJSON_GetArrayItem(rates, i)->valuedouble, range.rates[i], 1e-12);
    assert_float_equal(cJSON_GetArrayItem(losses, i)->valuedouble, range.smoothed[i], 1e-12);
  }
  assert_true(cJSON_IsFalse(cJSON_GetObjectItem(json, "diverged")));
  assert_float_equal(cJSON_GetObjectItem(json, "steepest_descent")->valuedouble, found.steepest,
                     1e-12);
  assert_float_equal(cJSON_GetObjectItem(json, "minimum_tenth")->valuedouble, found.tenth, 1e-12);
  cJSON_Delete(json);
  plm_rate_range_deinit(&range);
  expect_nothing_left();
}

/* A run of its own with the rates of the test, ports of its own, and no setting of the
 * environment. */
static void the_test_is_a_run_of_its_own(void **state)
{
  (void)state;
  begin(lines_of(falling, STEPS, NULL), "exit 0");
  assert_int_equal(setenv("PLM_TRAINER_STEPS", "60", 1), 0);
  assert_int_equal(COMMAND("up", file, "--find-lr", "--lr-range", "0.001:0.5", "--lr-steps", "12"),
                   0);
  assert_int_equal(unsetenv("PLM_TRAINER_STEPS"), 0);
  assert_string_equal(scratch_contents("variable"), "unset\n");
  const char *words = scratch_contents("words");
  char expected[2 * PLM_PATH_SIZE];
  snprintf(expected, sizeof expected, "up\n%s/runs/a.find-lr-", folder);
  assert_int_equal(strncmp(words, expected, strlen(expected)), 0);
  const char *rest = words + strlen(expected) + 6;
  static const char after[] = "/find-lr.yaml\ntrainer\npacker\n--quiet\n--set\nnetwork.feed=";
  assert_int_equal(strncmp(rest, after, strlen(after)), 0);
  const char *yaml = scratch_contents("used.yaml");
  snprintf(expected, sizeof expected, "run: %.*s\n", (int)strcspn(words + 3, "\n") - 13, words + 3);
  assert_non_null(strstr(yaml, expected));
  assert_non_null(strstr(yaml, "  steps: 12\n"));
  static const char said[] =
      "training 12 steps while lr_hidden grows from 0.001 to 0.5; nothing is "
      "written into the run's folder\n";
  assert_non_null(strstr(command_err, said));
  expect_nothing_left();
  assert_int_equal(COMMAND("up", file, "--find-lr", "--lr-steps", "12", "--quiet"), 0);
  assert_string_equal(command_err, "");
}

/* A curve, and the rates of all groups in the ratio that the configuration gives. */
static void people_see_a_curve_and_settings(void **state)
{
  (void)state;
  struct plm_rate_range range = {0};
  struct plm_rate_suggestion found = {0};
  begin(lines_of(falling, STEPS, &range), "exit 0");
  assert_true(plm_rate_range_suggest(&range, &found));
  assert_int_equal(COMMAND("up", file, "--find-lr", "--lr-steps", "12"), 0);
  char expected[1000];
  const double s = found.steepest, t = found.tenth;
  snprintf(expected, sizeof expected,
           "steepest descent: %.2g\n  --set trainer.optimizer.lr_hidden=%.2g --set "
           "trainer.optimizer.lr_embed=%.2g --set trainer.optimizer.lr_head=%.2g --set "
           "trainer.optimizer.lr_scalar=%.2g\n"
           "a tenth of the rate with the least loss: %.2g\n  --set "
           "trainer.optimizer.lr_hidden=%.2g --set trainer.optimizer.lr_embed=%.2g --set "
           "trainer.optimizer.lr_head=%.2g --set trainer.optimizer.lr_scalar=%.2g\n",
           s, s, s / 2, 2 * s, 4 * s, t, t, t / 2, 2 * t, 4 * t);
  const char *settings = strstr(command_out, "steepest");
  assert_non_null(settings);
  assert_string_equal(settings, expected);
  static const char curve[] = "          loss over lr_hidden  - smoothed\n   4.929 |⠉⠉⠉⠉";
  assert_int_equal(strncmp(command_out, curve, strlen(curve)), 0);
  snprintf(expected, sizeof expected, "\n          0.0110485%58s0.5\n", "");
  assert_non_null(strstr(command_out, expected)); /* 80 columns */
  size_t rows = 0;
  for (const char *c = command_out; (c = strchr(c, '|')) != NULL; c++) rows++;
  assert_int_equal(rows, 13);
  plm_rate_range_deinit(&range);
}

/* Not even a test that would go on: it is stopped. What it has shown counts, and so do the lines
 * that were written at its end. */
static void a_loss_that_diverges_ends_the_test(void **state)
{
  (void)state;
  double losses[STEPS];
  memcpy(losses, falling, sizeof losses);
  losses[10] = 1000;
  begin_after("trap 'echo asked >asked; exit 9' INT", lines_of(losses, 11, NULL), STAYS);
  assert_int_equal(COMMAND("up", file, "--find-lr", "--lr-steps", "12"), 0);
  assert_non_null(strstr(command_out, "\nthe loss diverged after 11 of 12 steps\nsteepest "));
  assert_string_equal(scratch_contents("asked"), "asked\n");
  begin(lines_of(losses, 11, NULL), "exit 9");
  assert_int_equal(COMMAND("up", file, "--find-lr", "--lr-steps", "12", "--json"), 0);
  assert_non_null(strstr(command_out, "\"diverged\":true,\"steepest_descent\":"));
  expect_nothing_left();
}

static void a_loss_that_never_falls_suggests_nothing(void **state)
{
  (void)state;
  static const double rising[STEPS] = {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.1};
  static const char said[] = "plm-pipeline: the loss never fell, so that no learning rate is "
                             "suggested\n";
  begin(lines_of(rising, STEPS, NULL), "exit 0");
  assert_int_equal(COMMAND("up", file, "--find-lr", "--lr-steps", "12", "--quiet"), 1);
  assert_int_equal(strncmp(command_err, said, strlen(said)), 0);
  assert_null(strstr(command_out, "steepest"));
  assert_null(strstr(command_out, "diverged"));
  assert_int_equal(COMMAND("up", file, "--find-lr", "--lr-steps", "12", "--json"), 0);
  assert_null(strstr(command_out, "steepest"));
  begin("", "exit 0"); /* not even a step */
  assert_int_equal(COMMAND("up", file, "--find-lr", "--json"), 0);
  assert_string_equal(command_out, "{\"lr_hidden\":[],\"smoothed_loss\":[],\"diverged\":false}\n");
}

static void a_failure_is_reported_with_what_was_printed(void **state)
{
  (void)state;
  begin(lines_of(falling, 3, NULL), "echo 'why it failed'\nexit 5");
  assert_int_equal(COMMAND("up", file, "--find-lr", "--quiet"), 1);
  assert_string_equal(command_err, "why it failed\nplm-pipeline: the test failed after 3 steps "
                                   "(exit code 5); the lines above say why\n");
  expect_nothing_left();
}

/* Nothing is started without a folder for it. */
static void a_folder_that_cannot_be_made_is_an_error(void **state)
{
  (void)state;
  begin("", "exit 0");
  assert_int_equal(COMMAND("up", file, "--find-lr", "--set", "run=its.yaml/a"), 1);
  assert_non_null(strstr(command_err, "its.yaml"));
  char set[4 + PLM_PATH_SIZE], what[256];
  memset(set, '/', sizeof set);
  memcpy(set, "run=", 4);
  memcpy(set + 4, scratch_directory(), strlen(scratch_directory()));
  for (int beyond = 0; beyond < 2; beyond++) { /* 15 bytes more are the most, or too long */
    memset(set + 4 + 4079, '/', 2);
    strcpy(set + 4 + 4079 + beyond, "a");
    snprintf(what, sizeof what, "path %.200s is too long", set + 4);
    assert_int_equal(COMMAND("up", file, "--find-lr", "--set", set), 1);
    assert_int_equal(strstr(command_err, what) != NULL, beyond);
  }
  assert_false(plm_file_exists("words"));
}

static void a_signal_ends_the_test(void **state)
{
  (void)state;
  begin_after("trap 'exit 0' TERM", lines_of(falling, 3, NULL), "kill -TERM $PPID\n" STAYS);
  assert_int_equal(COMMAND("up", file, "--find-lr", "--quiet"), 143);
  assert_non_null(strstr(command_err, "; no learning rate was found\n"));
  plm_stop_requested = 0;
  expect_nothing_left();
}

int main(void)
{
  static const struct written_corpus small = {.documents = {20, 20}, .longest = 10};
  unsetenv("PLM_CONFIG");
  written_corpora(1, &small);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_and_steps_have_bounds),
      cmocka_unit_test(the_test_has_its_own_configuration),
      cmocka_unit_test(rates_have_a_limit),
      cmocka_unit_test(rounding_does_not_exceed_the_limit),
      cmocka_unit_test(json_has_every_step_and_the_suggestions),
      cmocka_unit_test(the_test_is_a_run_of_its_own),
      cmocka_unit_test(people_see_a_curve_and_settings),
      cmocka_unit_test(a_loss_that_diverges_ends_the_test),
      cmocka_unit_test(a_loss_that_never_falls_suggests_nothing),
      cmocka_unit_test(a_failure_is_reported_with_what_was_printed),
      cmocka_unit_test(a_folder_that_cannot_be_made_is_an_error),
      cmocka_unit_test(a_signal_ends_the_test),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
