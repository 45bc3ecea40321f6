/* Whether the evaluator's reports end a run, and what DONE says about it. */
#include "trainer/checkpoint/stop_when.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

/* The best loss is that of step 10, the best accuracy that of step 20, and on the split test the
 * best loss is that of step 40. */
static const char reports[] = "{\"step\":10,\"split\":\"valid\",\"loss\":1,\"accuracy\":0.1}\n"
                              "{\"step\":10,\"split\":\"test\",\"loss\":4}\n"
                              "{\"step\":20,\"split\":\"valid\",\"loss\":2,\"accuracy\":0.4}\n"
                              "{\"step\":20,\"split\":\"test\",\"loss\":3}\n"
                              "{\"step\":30,\"split\":\"valid\",\"loss\":3,\"accuracy\":0.3}\n"
                              "{\"step\":30,\"split\":\"test\",\"loss\":2}\n"
                              "{\"step\":40,\"split\":\"valid\",\"loss\":4,\"accuracy\":0.2}\n"
                              "{\"step\":40,\"split\":\"test\",\"loss\":1}\n";

static struct plm_config configure(const char *split, const char *when)
{
  char yaml[256];
  struct plm_config config;
  struct plm_error error = {0};
  snprintf(yaml, sizeof yaml, "trainer: {stop_when: {%s}}\nevaluator: {splits: [%s]}\n", when,
           split);
  must_work(plm_config_load_text(yaml, strlen(yaml), &config, &error), &error);
  return config;
}

static bool stops(const char *split, const char *when, uint64_t step)
{
  char run[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_early_stop_reports read = {0};
  struct plm_config config = configure(split, when);
  scratch_run(run);
  assert_int_equal(plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  scratch_write(path, reports, sizeof reports - 1);
  const bool stopped = plm_stop_when(run, &config, step, &read);
  plm_early_stop_deinit(&read);
  plm_config_deinit(&config);
  return stopped;
}

/* Both sides of patience: since step 10, three checkpoints had no better loss. */
static void patience_is_counted_in_checkpoints(void **state)
{
  (void)state;
  assert_true(stops("valid", "metric: loss, patience: 3", 40));
  assert_false(stops("valid", "metric: loss, patience: 4", 40));
  assert_true(stops("valid", "metric: loss, patience: 2", 40));
  assert_false(stops("valid", "metric: loss, patience: 3", 39)); /* later reports do not count */
  assert_true(stops("valid", "metric: loss, patience: 2", 39));
  assert_false(stops("valid", "metric: loss, patience: 1", 10));
}

static void the_metric_says_what_is_better(void **state)
{
  (void)state;
  assert_true(stops("valid", "metric: accuracy, patience: 2", 40));
  assert_false(stops("valid", "metric: accuracy, patience: 3", 40));
  assert_false(stops("valid", "metric: mcc, patience: 1", 40)); /* nobody reports it */
}

static void the_first_split_counts(void **state)
{
  (void)state;
  assert_false(stops("test", "metric: loss, patience: 1", 40));
  assert_false(stops("test, valid", "metric: loss, patience: 1", 40));
  assert_true(stops("valid, test", "metric: loss, patience: 3", 40));
}

static void without_patience_or_a_file_it_does_not_stop(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_early_stop_reports read = {0};
  assert_false(stops("valid", "metric: loss, patience: 0", 40));
  struct plm_config config = configure("valid", "metric: loss, patience: 1");
  scratch_run(run);
  assert_false(plm_stop_when(run, &config, 40, &read)); /* no report yet */
  assert_int_equal(plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  assert_false(plm_stop_when(run, &config, 40, &read)); /* only a warning */
  plm_early_stop_deinit(&read);
  plm_config_deinit(&config);
}

static void done_says_what_ended_the_run(void **state)
{
  (void)state;
  struct plm_config config = configure("valid", "metric: accuracy, patience: 7");
  struct plm_done done = {.step = 9, .identity = {1, 2}};
  plm_stop_when_note(&config, &done);
  assert_string_equal(done.metric, "accuracy");
  assert_int_equal(done.patience, 7);
  assert_true(done.step == 9 && done.identity.low == 1 && done.identity.high == 2);
  plm_config_deinit(&config);
}

static int quiet(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(patience_is_counted_in_checkpoints),
      cmocka_unit_test(the_metric_says_what_is_better),
      cmocka_unit_test(the_first_split_counts),
      cmocka_unit_test(without_patience_or_a_file_it_does_not_stop),
      cmocka_unit_test(done_says_what_ended_the_run),
  };
  return cmocka_run_group_tests(tests, quiet, NULL);
}
