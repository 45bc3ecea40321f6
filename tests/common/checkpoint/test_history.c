/* What a watching evaluator reads from evaluator.jsonl: which splits of which steps are reported,
 * for which weights. */
#include "tests/support/harness/cmocka_all.h"

#include "common/base/files/file.h"
#include "common/checkpoint/history.h"
#include "tests/support/harness/scratch.h"

static void history_reads_what_was_reported(void **state)
{
  (void)state;
  static const char lines[] = "{\"v\":1,\"step\":100,\"split\":\"valid\",\"loss\":2}\n"
                              "{\"v\":1,\"step\":0,\"split\":\"valid\",\"loss\":3}\n"
                              "not JSON\n"
                              "{\"v\":1,\"step\":1e300,\"split\":\"test\",\"loss\":3}\n"
                              "{\"v\":1,\"step\":100.5,\"split\":\"test\",\"loss\":3}\n"
                              "{\"v\":1,\"step\":200,\"skipped\":\"why\"}\n"
                              "{\"v\":1,\"step\":0,\"split\":\"test\",\"loss\":3}\n"
                              "{\"v\":1,\"step\":300,\"split\":\"valid\""; /* a torn line */
  const char *path = scratch_path("evaluator.jsonl");
  struct plm_history history = {0};
  assert_int_equal(plm_file_write(path, lines, sizeof lines - 1, 0644, NULL), PLM_OK);
  assert_int_equal(plm_history_read(&history, path, NULL), PLM_OK);
  const unsigned valid = 1u << PLM_SPLIT_VALID, test = 1u << PLM_SPLIT_TEST;
  assert_int_equal(history.count, 3);
  assert_true(plm_history_settled(&history, 0, NULL, valid | test));
  assert_true(plm_history_settled(&history, 100, NULL, valid));
  assert_false(plm_history_settled(&history, 100, NULL, valid | test));
  assert_true(plm_history_settled(&history, 200, NULL, valid));
  assert_false(plm_history_settled(&history, 300, NULL, valid));
  plm_history_deinit(&history);
}

static void sets_are_reported_one_by_one(void **state)
{
  (void)state;
  static const char lines[] =
      "{\"step\":4,\"set\":\"corpus\",\"split\":\"valid\"}\n"
      "{\"step\":4,\"set\":\"other\",\"split\":\"valid\"}\n" /* a set of an earlier configuration */
      "{\"step\":4,\"set\":\"second\",\"split\":\"test\"}\n"
      "{\"step\":8,\"set\":\"first\",\"split\":\"train\"}\n"; /* its split has changed since */
  static const struct plm_config_evaluator evaluator = {
      .sets = {{.name = "first", .split = PLM_SPLIT_VALID},
               {.name = "second", .split = PLM_SPLIT_TEST}},
      .set_count = 2,
  };
  const char *path = scratch_path("sets.jsonl");
  struct plm_history history = {.evaluator = &evaluator};
  assert_int_equal(plm_file_write(path, lines, sizeof lines - 1, 0644, NULL), PLM_OK);
  assert_int_equal(plm_history_read(&history, path, NULL), PLM_OK);
  const unsigned valid = 1u << PLM_SPLIT_VALID, first = 1u << PLM_SPLIT_COUNT, second = first << 1;
  assert_true(plm_history_settled(&history, 4, NULL, valid | second));
  assert_false(plm_history_settled(&history, 4, NULL, first));
  assert_false(plm_history_settled(&history, 8, NULL, first));
  assert_int_equal(plm_history_splits(&history, 8, NULL), 1u << PLM_HISTORY_OTHER);
  plm_history_deinit(&history);
}

static void a_step_with_other_weights_is_another_checkpoint(void **state)
{
  (void)state;
  enum { VALID = 1u << PLM_SPLIT_VALID, TEST = 1u << PLM_SPLIT_TEST };
  static const char lines[] =
      "{\"step\":4,\"identity\":\"0000000000000000000000000000000a\",\"split\":\"valid\"}\n"
      "{\"step\":4,\"identity\":\"0000000000000000000000000000000a\",\"split\":\"test\"}\n"
      "{\"step\":4,\"identity\":\"0000000000000000000000000000000b\",\"split\":\"valid\"}\n"
      "{\"step\":8,\"split\":\"valid\"}\n"
      "{\"step\":9,\"identity\":\"0000000000000000000000000000000a\",\"split\":\"valid\"}\n"
      "{\"step\":9,\"skipped\":\"why\"}\n"
      "{\"step\":10,\"skipped\":\"why\",\"corrupt\":true}\n"
      "{\"step\":11,\"skipped\":\"why\",\"corrupt\":false}\n"
      "{\"step\":12,\"skipped\":\"why\",\"corrupt\":false}\n"
      "{\"step\":12,\"split\":\"valid\"}\n";
  const struct plm_hash a = {.low = 10}, b = {.low = 11};
  const char *path = scratch_path("anew.jsonl");
  struct plm_history history = {0};
  assert_int_equal(plm_file_write(path, lines, sizeof lines - 1, 0644, NULL), PLM_OK);
  assert_int_equal(plm_history_read(&history, path, NULL), PLM_OK);
  assert_int_equal(plm_history_splits(&history, 4, &b), VALID); /* only the last weights count */
  assert_int_equal(plm_history_splits(&history, 4, &a), 0);
  assert_true(plm_history_settled(&history, 4, &b, VALID));
  assert_false(plm_history_settled(&history, 4, &b, VALID | TEST));
  assert_false(plm_history_settled(&history, 4, &a, VALID));
  assert_true(
      plm_history_settled(&history, 8, &a, VALID)); /* the line does not say which weights */
  assert_true(plm_history_settled(&history, 9, &b, VALID));
  assert_int_equal(plm_history_splits(&history, 9, &a),
                   0); /* the last line says that it was skipped */
  assert_true(plm_history_settled(&history, 10, &a, VALID));
  assert_false(plm_history_settled(&history, 11, &a, VALID)); /* tried again after a restart */
  assert_true(plm_history_find(&history, 11)->waits);
  assert_false(plm_history_find(&history, 12)->waits); /* evaluated in the meantime */
  assert_true(plm_history_settled(&history, 12, &a, VALID));
  plm_history_deinit(&history);
}

/* A task has its own interval, in checkpoints, and the last checkpoint is of every task. */
static void tasks_are_due_in_their_intervals(void **state)
{
  static struct plm_config config = {.trainer = {.steps = 35, .checkpoint = {.every = 10}},
                                     .evaluator = {.task_count = 2}};
  const unsigned first = 1u << PLM_HISTORY_TASK, second = 2u << PLM_HISTORY_TASK;
  (void)state;
  config.evaluator.tasks[0].every = 1;
  config.evaluator.tasks[1].every = 3;
  assert_int_equal(plm_history_tasks_due(&config, 9), 0);
  assert_int_equal(plm_history_tasks_due(&config, 10), first);
  assert_int_equal(plm_history_tasks_due(&config, 30), first | second);
  assert_int_equal(plm_history_tasks_due(&config, 35), first | second);
  config.trainer.checkpoint.every = 0; /* any step may have a checkpoint that was asked for */
  assert_int_equal(plm_history_tasks_due(&config, 8), first);
  assert_int_equal(plm_history_tasks_due(&config, 9), first | second);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(history_reads_what_was_reported),
      cmocka_unit_test(sets_are_reported_one_by_one),
      cmocka_unit_test(tasks_are_due_in_their_intervals),
      cmocka_unit_test(a_step_with_other_weights_is_another_checkpoint),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
