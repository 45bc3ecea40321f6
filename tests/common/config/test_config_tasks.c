/* evaluator.tasks: what is printed of them is read again as the same tasks. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/best_by.h"
#include "common/config/config.h"

static void load(const char *yaml, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(yaml, strlen(yaml), config, &error) != PLM_OK)
    fail_msg("%s\n%s", error.what, yaml);
}

static void same_text(const char *a, const char *b)
{
  if (a == NULL || b == NULL) assert_true(a == b);
  if (a != NULL && b != NULL) assert_string_equal(a, b);
}

static void check(const struct plm_config_task *task, const struct plm_config_task *expected)
{
  same_text(task->name, expected->name);
  same_text(task->path, expected->path);
  same_text(task->reference, expected->reference);
  same_text(task->target, expected->target);
  same_text(task->split, expected->split);
  same_text(task->column, expected->column);
  assert_int_equal(task->kind, expected->kind);
  assert_int_equal(task->every, expected->every);
  assert_int_equal(task->labels, expected->labels);
  assert_int_equal(task->max_variants, expected->max_variants);
  assert_int_equal(task->id_count, expected->id_count);
  for (uint32_t i = 0; i < task->id_count; i++) same_text(task->ids[i], expected->ids[i]);
}

static void printed_tasks_are_the_same(void **state)
{
  (void)state;
  static const char yaml[] =
      "version: 1\n"
      "evaluator:\n"
      "  tasks:\n"
      "    - {name: first, path: /t.csv, kind: probe, target: y, split: set, sequence_column: s,\n"
      "       task: classification, every: 3}\n"
      "    - {name: second, path: /u.csv, kind: probe, target: z}\n"
      "    - {name: third, path: /assays, kind: assays, reference: /list.csv, ids: [A, B],\n"
      "       max_variants: 7}\n"
      "    - {name: fourth, path: /proteins, kind: contacts}\n";
  static const struct plm_config_task expected[] = {
      {.name = "first",
       .path = "/t.csv",
       .kind = PLM_TASK_PROBE,
       .every = 3,
       .target = "y",
       .split = "set",
       .column = "s",
       .labels = 2},
      {.name = "second", .path = "/u.csv", .kind = PLM_TASK_PROBE, .every = 1, .target = "z"},
      {.name = "third",
       .path = "/assays",
       .kind = PLM_TASK_ASSAYS,
       .every = 1,
       .reference = "/list.csv",
       .ids = {"A", "B"},
       .id_count = 2,
       .max_variants = 7},
      {.name = "fourth", .path = "/proteins", .kind = PLM_TASK_CONTACTS, .every = 1},
  };
  struct plm_config config, again;
  load(yaml, &config);
  char *printed = plm_config_print(&config);
  load(printed, &again);
  assert_int_equal(config.evaluator.task_count, 4);
  assert_int_equal(again.evaluator.task_count, 4);
  for (int i = 0; i < 4; i++) {
    check(&config.evaluator.tasks[i], &expected[i]);
    check(&again.evaluator.tasks[i], &expected[i]);
  }
  free(printed);
  plm_config_deinit(&config);
  plm_config_deinit(&again);
}

/* What judges checkpoints: a metric of the evaluation, or one of a task. */
static void best_by_names_a_measure(void **state)
{
  (void)state;
  static const struct {
    const char *best_by;
    int32_t task;
    const char *measure;
  } cases[] = {{"accuracy", PLM_NO_TASK, "accuracy"}, {"t.r2", 0, "r2"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    char yaml[200];
    int32_t task = 7;
    const char *measure = NULL;
    snprintf(yaml, sizeof yaml,
             "trainer: {checkpoint: {best_by: %s}}\n"
             "evaluator: {tasks: [{name: t, path: /t.csv, kind: probe, target: y}]}\n",
             cases[i].best_by);
    load(yaml, &config);
    assert_true(plm_config_best_by(&config, &task, &measure));
    assert_int_equal(task, cases[i].task);
    same_text(measure, cases[i].measure);
    plm_config_deinit(&config);
  }
}

/* Without best_by, the metric that may end the run judges, so that its best checkpoint is kept. */
static void stop_when_names_a_measure(void **state)
{
  (void)state;
  static const struct {
    const char *trainer, *measure; /* NULL: the loss */
  } cases[] = {
      {"stop_when: {metric: mcc, patience: 2}", "mcc"},
      {"stop_when: {metric: mcc, patience: 0}", NULL},
      {"stop_when: {metric: loss, patience: 2}", NULL},
      {"stop_when: {metric: mcc, patience: 2}, checkpoint: {best_by: accuracy}", "accuracy"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    char yaml[200];
    int32_t task = 7;
    const char *measure = NULL;
    snprintf(yaml, sizeof yaml, "trainer: {%s}\n", cases[i].trainer);
    load(yaml, &config);
    assert_int_equal(plm_config_best_by(&config, &task, &measure), cases[i].measure != NULL);
    if (cases[i].measure != NULL) {
      assert_int_equal(task, PLM_NO_TASK);
      same_text(measure, cases[i].measure);
    }
    plm_config_deinit(&config);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(printed_tasks_are_the_same),
                                     cmocka_unit_test(best_by_names_a_measure),
                                     cmocka_unit_test(stop_when_names_a_measure)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
