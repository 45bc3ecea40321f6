/* common/checkpoint/retention: the decision in many cases, and reading evaluator.jsonl. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/retention.h"
#include "common/config/config.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

/* A case: rules, checkpoints and the steps that must be kept. */
struct retention_case {
  const char *name;
  struct plm_config_checkpoint rules;
  bool has_evaluator;
  size_t count;
  uint64_t steps[8];
  double losses[8]; /* -1: reported without a loss; -2: not reported */
  uint64_t newest_valid;
  uint64_t stays[9]; /* ended by UINT64_MAX */
};

#define NONE UINT64_MAX
static const struct plm_retention_judge valid = {.split = "valid"};
static const struct retention_case cases[] = {
    {"keep_last",
     {.keep_last = 2},
     false,
     4,
     {0, 10, 20, 30},
     {-2, -2, -2, -2},
     30,
     {20, 30, NONE}},
    {"fewer than keep_last", {.keep_last = 9}, false, 2, {0, 10}, {-2, -2}, 10, {0, 10, NONE}},
    {"the newest valid stays",
     {.keep_last = 0},
     false,
     3,
     {0, 10, 20},
     {-1, -1, -1},
     20,
     {20, NONE}},
    {"a corrupt one is newer than the newest valid",
     {.keep_last = 1},
     false,
     3,
     {0, 10, 20},
     {-1, -1, -1},
     10,
     {10, 20, NONE}},
    {"keep_best",
     {.keep_last = 1, .keep_best = 2},
     true,
     5,
     {0, 10, 20, 30, 40},
     {3, 2.5, 2.9, 2.6, 2.7},
     40,
     {10, 30, 40, NONE}},
    {"a tie goes to the first",
     {.keep_last = 1, .keep_best = 1},
     true,
     3,
     {0, 10, 20},
     {2, 2, 3},
     20,
     {0, 20, NONE}},
    {"keep_every",
     {.keep_last = 1, .keep_every = 20},
     false,
     5,
     {10, 20, 30, 40, 50},
     {-1, -1, -1, -1, -1},
     50,
     {20, 40, 50, NONE}},
    {"unreported ones wait for the evaluator",
     {.keep_last = 1, .max_unevaluated = 16},
     true,
     4,
     {0, 10, 20, 30},
     {3, -2, -2, -2},
     30,
     {10, 20, 30, NONE}},
    {"a report without a loss is a report",
     {.keep_last = 1, .max_unevaluated = 16},
     true,
     3,
     {0, 10, 20},
     {-1, -1, -2},
     20,
     {20, NONE}},
    {"beyond max_unevaluated the oldest goes",
     {.keep_last = 1, .max_unevaluated = 3},
     true,
     5,
     {0, 10, 20, 30, 40},
     {-2, -2, -2, -2, -2},
     40,
     {20, 30, 40, NONE}},
    {"without an evaluator nobody waits",
     {.keep_last = 1, .max_unevaluated = 16},
     false,
     3,
     {0, 10, 20},
     {-2, -2, -2},
     20,
     {20, NONE}},
    {"max_unevaluated never takes what another rule keeps",
     {.keep_last = 3, .max_unevaluated = 1},
     true,
     4,
     {0, 10, 20, 30},
     {-2, -2, -2, -2},
     30,
     {10, 20, 30, NONE}},
};

static void decisions_follow_the_rules(void **state)
{
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const struct retention_case *wanted = &cases[c];
    struct plm_retained checkpoints[8];
    for (size_t i = 0; i < wanted->count; i++)
      checkpoints[i] = (struct plm_retained){
          .step = wanted->steps[i],
          .reported = wanted->losses[i] > -2,
          .value = wanted->losses[i] < 0 ? NAN : wanted->losses[i],
          .newest_valid = wanted->steps[i] == wanted->newest_valid,
      };
    plm_retention_decide(&wanted->rules, wanted->has_evaluator, checkpoints, wanted->count);
    size_t next = 0;
    for (size_t i = 0; i < wanted->count; i++) {
      const bool stays = wanted->stays[next] == wanted->steps[i];
      next += stays;
      if (checkpoints[i].remove == stays)
        fail_msg("%s: step %llu is %s", wanted->name, (unsigned long long)wanted->steps[i],
                 stays ? "removed" : "kept");
    }
    assert_true(wanted->stays[next] == NONE);
  }
}

static void reports_are_read_line_by_line(void **state)
{
  (void)state;
  const char *path = scratch_path("reports");
  static const char text[] = "{\"v\":1,\"step\":10,\"split\":\"valid\",\"loss\":2.5}\n"
                             "{\"v\":1,\"step\":10,\"split\":\"test\",\"loss\":1.5}\n"
                             "{\"v\":1,\"step\":10.5,\"split\":\"valid\",\"loss\":9}\n"
                             "this is not JSON\n"
                             "{\"v\":1,\"step\":20,\"skipped\":\"deleted before evaluation\"}\n"
                             "{\"v\":1,\"step\":40,\"split\":\"valid\",\"loss\":2.2}\n"
                             "{\"v\":1,\"step\":40,\"skipped\":\"why\"}\n"
                             "{\"v\":1,\"step\":50,\"skipped\":\"why\",\"corrupt\":true}\n"
                             "{\"v\":1,\"step\":60,\"skipped\":\"why\",\"corrupt\":false}\n"
                             "{\"v\":1,\"step\":30,\"split\":\"valid\",\"loss\":2.4}";
  scratch_write(path, text, sizeof text - 1);
  struct plm_retained checkpoints[] = {{.step = 10, .loss = NAN}, {.step = 20, .loss = NAN},
                                       {.step = 30, .loss = NAN}, {.step = 40, .loss = NAN},
                                       {.step = 50, .loss = NAN}, {.step = 60, .loss = NAN}};
  assert_int_equal(plm_retention_read_reports(path, &valid, checkpoints, 6, NULL), PLM_OK);
  unlink(path);
  assert_true(checkpoints[0].reported && checkpoints[0].loss == 2.5);
  assert_true(checkpoints[0].value == 2.5 && isnan(checkpoints[3].value));
  assert_true(checkpoints[1].reported && isnan(checkpoints[1].loss));
  assert_false(checkpoints[2].reported); /* an incomplete line is not a report */
  assert_true(checkpoints[3].reported && isnan(checkpoints[3].loss)); /* the last line counts */
  assert_true(checkpoints[4].reported);
  assert_false(checkpoints[5].reported); /* it could not be read, which may pass */
  assert_int_equal(plm_retention_read_reports("/nonexistent/file", &valid, checkpoints, 3, NULL),
                   PLM_OK);
}

static plm_status read_two(void *context, struct plm_error *error)
{
  struct plm_retained checkpoints[] = {{.step = 10, .value = NAN}, {.step = 20, .value = NAN}};
  PLM_TRY(plm_retention_read_reports(context, &valid, checkpoints, 2, error));
  const long at = checked_memory_pause();
  assert_true(checkpoints[0].value == 2.5 && checkpoints[1].value == 2.25);
  checked_memory_resume(at);
  return PLM_OK;
}

/* A line that cannot be parsed for lack of memory is not left out: its checkpoint may be the best.
 */
static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  char path[200];
  static const char text[] = "{\"step\":10,\"split\":\"valid\",\"loss\":2.5}\n"
                             "{\"step\":20,\"split\":\"valid\",\"loss\":2.25}\n";
  snprintf(path, sizeof path, "%.199s", scratch_path("reports"));
  scratch_write(path, text, sizeof text - 1);
  failing_memory_try(read_two, path, 10);
  unlink(path);
}

/* A checkpoint that was published again is only reported by lines about its own weights. */
static void reports_of_other_weights_are_ignored(void **state)
{
  (void)state;
  const char *path = scratch_path("reports");
  static const char text[] = "{\"step\":10,\"identity\":\"0000000000000000000000000000000a\","
                             "\"split\":\"valid\",\"loss\":2.5}\n"
                             "{\"step\":20,\"identity\":\"0000000000000000000000000000000a\","
                             "\"split\":\"valid\",\"loss\":2.4}\n"
                             "{\"step\":20,\"identity\":\"0000000000000000000000000000000b\","
                             "\"split\":\"valid\",\"loss\":2.3}\n";
  scratch_write(path, text, sizeof text - 1);
  struct plm_retained checkpoints[] = {
      {.step = 10, .loss = NAN, .identified = true, .identity = {.low = 11}},
      {.step = 20, .loss = NAN, .identified = true, .identity = {.low = 11}}};
  assert_int_equal(plm_retention_read_reports(path, &valid, checkpoints, 2, NULL), PLM_OK);
  unlink(path);
  assert_true(!checkpoints[0].reported && isnan(checkpoints[0].loss));
  assert_true(checkpoints[1].reported && checkpoints[1].loss == 2.3);
}

/* A task is due for the steps 0, 20, 40 and 50, which is the last. */
static void a_task_may_judge(void **state)
{
  static const char config_text[] =
      "trainer: {steps: 50, schedule: {warmup_steps: 1, cooldown_steps: 1}, checkpoint: {every: "
      "10, "
      "best_by: %s}}\n"
      "evaluator: {tasks: [{name: a.b, path: x, target: y, every: 2}]}\n";
  static const char text[] = "{\"step\":0,\"split\":\"valid\",\"loss\":2.5}\n"
                             "{\"step\":10,\"split\":\"valid\",\"loss\":2.4}\n"
                             "{\"step\":20,\"set\":\"a.b\",\"spearman\":0.5,\"rmse\":2}\n"
                             "{\"step\":40,\"set\":\"a.b\",\"task_skipped\":\"a newer waits\"}\n"
                             "{\"step\":50,\"set\":\"c\",\"spearman\":0.9}\n";
  static const struct {
    const char *best_by;
    double value;
  } judges[] = {{"a.b.spearman", -0.5}, {"a.b.rmse", 2}};
  const char *path = scratch_path("reports");
  (void)state;
  scratch_write(path, text, sizeof text - 1);
  for (size_t k = 0; k < 2; k++) {
    struct plm_config config;
    char yaml[512];
    snprintf(yaml, sizeof yaml, config_text, judges[k].best_by);
    assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
    const struct plm_retention_judge judge = plm_retention_judge_of(&config);
    assert_ptr_equal(judge.config, &config);
    struct plm_retained checkpoints[5];
    static const uint64_t steps[] = {0, 10, 20, 40, 50};
    for (size_t i = 0; i < 5; i++)
      checkpoints[i] = (struct plm_retained){.step = steps[i], .loss = NAN, .value = NAN};
    assert_int_equal(plm_retention_read_reports(path, &judge, checkpoints, 5, NULL), PLM_OK);
    /* a loss is not enough where the task is due */
    assert_true(!checkpoints[0].reported && checkpoints[0].loss == 2.5);
    assert_true(checkpoints[1].reported && isnan(checkpoints[1].value));
    assert_true(checkpoints[2].reported && checkpoints[2].value == judges[k].value);
    assert_true(checkpoints[3].reported && isnan(checkpoints[3].value));
    assert_true(!checkpoints[4].reported && isnan(checkpoints[4].value));
    plm_config_deinit(&config);
  }
  unlink(path);
}

/* A measure of the split itself: a larger value is better, but not of rmse. A line without it, for
 * which it does not exist, leaves the checkpoint without a value. */
static void a_measure_of_the_split_may_judge(void **state)
{
  static const char text[] =
      "{\"step\":10,\"split\":\"valid\",\"loss\":2.5,\"mcc\":0.25,\"rmse\":3}\n"
      "{\"step\":10,\"set\":\"c\",\"split\":\"valid\",\"mcc\":0.75,\"rmse\":1}\n"
      "{\"step\":20,\"split\":\"test\",\"loss\":2.4,\"mcc\":0.5,\"rmse\":2}\n"
      "{\"step\":30,\"split\":\"valid\",\"loss\":2.3,\"mcc\":null,\"rmse\":null}\n";
  static const struct plm_retention_judge judges[] = {{.split = "valid", .measure = "mcc"},
                                                      {.split = "valid", .measure = "rmse"}};
  static const double values[] = {-0.25, 3};
  const char *path = scratch_path("reports");
  (void)state;
  scratch_write(path, text, sizeof text - 1);
  for (size_t k = 0; k < 2; k++) {
    struct plm_retained checkpoints[3];
    for (uint64_t i = 0; i < 3; i++)
      checkpoints[i] = (struct plm_retained){.step = 10 * (i + 1), .loss = NAN, .value = NAN};
    assert_int_equal(plm_retention_read_reports(path, &judges[k], checkpoints, 3, NULL), PLM_OK);
    assert_true(checkpoints[0].loss == 2.5 && checkpoints[0].value == values[k]);
    assert_true(isnan(checkpoints[1].loss) && isnan(checkpoints[1].value));
    assert_true(checkpoints[2].loss == 2.3 && isnan(checkpoints[2].value));
    for (int i = 0; i < 3; i++) assert_true(checkpoints[i].reported);
  }
  unlink(path);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decisions_follow_the_rules),
      cmocka_unit_test(a_task_may_judge),
      cmocka_unit_test(a_measure_of_the_split_may_judge),
      cmocka_unit_test(reports_are_read_line_by_line),
      cmocka_unit_test(a_lack_of_memory_is_said),
      cmocka_unit_test(reports_of_other_weights_are_ignored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
