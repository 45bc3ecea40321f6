/* What a watching evaluator writes about steps that it does not evaluate: skipped ones, those that
 * it tries again, and those whose checkpoints are gone. */
#include "evaluator/watch/watch_journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/run/run.h"
#include "evaluator/watch/missing_steps.h"
#include "tests/support/cases/run_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { VALID = 1u << PLM_SPLIT_VALID, TEST = 1u << PLM_SPLIT_TEST };

static const struct plm_hash weights = {.low = 1, .high = 2}, others = {.low = 3, .high = 4};

struct scene {
  char run[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_watch_journal journal;
  struct plm_seen_list seen;
};

static void open_scene(struct scene *scene)
{
  *scene = (struct scene){0};
  scratch_run(scene->run);
  assert_int_equal(plm_path_join(scene->folder, scene->run, "checkpoints", NULL), PLM_OK);
  assert_int_equal(plm_config_load_text("version: 1\n", 11, &scene->config, NULL), PLM_OK);
  free(scene->config.run);
  scene->config.run = strdup(scene->run);
  assert_int_equal(plm_lock_acquire(scene->run, "evaluator", &scene->journal.lock, NULL), PLM_OK);
  assert_int_equal(plm_watch_journal_open(&scene->journal, &scene->config, NULL), PLM_OK);
}

static void close_scene(struct scene *scene)
{
  plm_watch_journal_close(&scene->journal);
  plm_lock_release(scene->journal.lock);
  plm_seen_deinit(&scene->seen);
  plm_config_deinit(&scene->config);
}

/* What the lines say, without version and time: the caller frees it. */
static char *lines_of(const struct scene *scene)
{
  char *lines = calloc(1, 1 << 14);
  size_t used = 0;
  cJSON *list = run_files_metrics(scene->run, PLM_RUN_EVALUATOR_METRICS), *json;
  cJSON_ArrayForEach(json, list)
  {
    assert_true(cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(json, "v")));
    assert_true(cJSON_GetObjectItemCaseSensitive(json, "time")->valuedouble > 1.6e9);
    cJSON_DeleteItemFromObjectCaseSensitive(json, "v");
    cJSON_DeleteItemFromObjectCaseSensitive(json, "time");
    char *words = cJSON_PrintUnformatted(json);
    used += (size_t)snprintf(lines + used, (1 << 14) - used, "%s\n", words);
    cJSON_free(words);
  }
  cJSON_Delete(list);
  return lines;
}

static void expect_lines(const struct scene *scene, const char *expected)
{
  char *lines = lines_of(scene);
  assert_string_equal(lines, expected);
  free(lines);
}

/* ---- skipped steps --------------------------------------------------------------------------- */

static void each_skip_has_its_kind(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene);
  captured_begin(STDERR_FILENO);
  const plm_status missing =
      plm_watch_skip(&scene.journal, 3, PLM_SKIP_MISSING, "it is gone", NULL);
  const char *said = captured_end();
  assert_int_equal(missing, PLM_OK);
  assert_non_null(strstr(said, "warning: step 3 is skipped: it is gone\n"));
  assert_int_equal(plm_watch_skip(&scene.journal, 4, PLM_SKIP_CORRUPT, "bad", NULL), PLM_OK);
  assert_int_equal(plm_watch_skip(&scene.journal, 5, PLM_SKIP_UNREAD, "slow", NULL), PLM_OK);
  expect_lines(&scene, "{\"step\":3,\"skipped\":\"it is gone\"}\n"
                       "{\"step\":4,\"skipped\":\"bad\",\"corrupt\":true}\n"
                       "{\"step\":5,\"skipped\":\"slow\",\"corrupt\":false}\n");
  assert_int_equal(scene.journal.lines, 3);
  for (uint64_t step = 2; step <= 6; step++) {
    const struct plm_history_entry *entry = plm_history_find(&scene.journal.history, step);
    assert_int_equal(entry != NULL && entry->skipped, 3 <= step && step <= 5);
  }
  close_scene(&scene);
}

/* A step that is tried again has one line, and none once it was skipped. */
static void a_wait_is_told_once(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene);
  plm_watch_wait(&scene.journal, 7, "an I/O error");
  plm_watch_wait(&scene.journal, 7, "another one");
  plm_history_add(&scene.journal.history, 8, &weights, PLM_SPLIT_VALID);
  plm_watch_wait(&scene.journal, 8, "it was evaluated, and is there again");
  assert_int_equal(plm_watch_skip(&scene.journal, 9, PLM_SKIP_CORRUPT, "bad", NULL), PLM_OK);
  plm_watch_wait(&scene.journal, 9, "not told");
  expect_lines(&scene, "{\"step\":7,\"skipped\":\"an I/O error\",\"corrupt\":false}\n"
                       "{\"step\":8,\"skipped\":\"it was evaluated, and is there "
                       "again\",\"corrupt\":false}\n"
                       "{\"step\":9,\"skipped\":\"bad\",\"corrupt\":true}\n");
  assert_true(plm_history_find(&scene.journal.history, 7)->waits);
  assert_true(plm_history_find(&scene.journal.history, 8)->waits);
  assert_false(plm_history_find(&scene.journal.history, 9)->waits);
  close_scene(&scene);
}

/* A line needs the lock; without it none is written, and a step that waits goes on without. */
static void without_the_lock_nothing_is_written(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE];
  open_scene(&scene);
  assert_int_equal(plm_path_join(path, scene.run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(unlink(path), 0); /* somebody has removed the file */
  assert_int_equal(plm_watch_skip(&scene.journal, 3, PLM_SKIP_CORRUPT, "bad", &error), PLM_BUSY);
  assert_null(plm_history_find(&scene.journal.history, 3));
  captured_begin(STDERR_FILENO);
  plm_watch_wait(&scene.journal, 4, "slow");
  assert_true(strlen(captured_end()) > 0);
  assert_null(plm_history_find(&scene.journal.history, 4));
  assert_int_equal(scene.journal.lines, 0);
  close_scene(&scene);
}

static void the_history_of_earlier_evaluators_is_read(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene);
  assert_int_equal(plm_watch_skip(&scene.journal, 3, PLM_SKIP_CORRUPT, "bad", NULL), PLM_OK);
  plm_watch_wait(&scene.journal, 4, "slow");
  plm_watch_journal_close(&scene.journal);
  struct plm_lock *lock = scene.journal.lock;
  scene.journal = (struct plm_watch_journal){.lock = lock};
  assert_int_equal(plm_watch_journal_open(&scene.journal, &scene.config, NULL), PLM_OK);
  assert_true(plm_history_find(&scene.journal.history, 3)->skipped);
  assert_true(plm_history_find(&scene.journal.history, 4)->waits);
  assert_ptr_equal(scene.journal.history.evaluator, &scene.config.evaluator);
  close_scene(&scene);
}

/* ---- checkpoints that are gone --------------------------------------------------------------- */

static void report(struct scene *scene, uint64_t every, const uint64_t *steps, size_t count,
                   unsigned bits)
{
  const struct plm_published published = {
      .folder = scene->folder, .every = every, .steps = steps, .count = count};
  assert_int_equal(plm_missing_report(&scene->journal, &scene->seen, &published, bits, NULL),
                   PLM_OK);
}

#define GONE(step) "{\"step\":" #step ",\"skipped\":\"deleted before evaluation\"}\n"

/* Every tenth step before the newest one was due, and is reported once. */
static void steps_that_were_due_are_missing(void **state)
{
  (void)state;
  static const uint64_t newest[] = {20, 40, 45};
  struct scene scene;
  open_scene(&scene);
  report(&scene, 10, newest, 0, VALID); /* there is no checkpoint yet */
  report(&scene, 0, newest, 3, VALID);  /* no step is due */
  expect_lines(&scene, "");
  report(&scene, 10, newest, 3, VALID);
  expect_lines(&scene, GONE(0) GONE(10) GONE(30));
  report(&scene, 10, newest, 3, VALID);
  expect_lines(&scene, GONE(0) GONE(10) GONE(30));
  report(&scene, 10, newest + 1, 1, VALID);
  expect_lines(&scene, GONE(0) GONE(10) GONE(30) GONE(20));
  close_scene(&scene);
}

/* What was due before the newest step that was evaluated was looked for then. */
static void only_later_steps_are_looked_for(void **state)
{
  (void)state;
  static const uint64_t newest[] = {61};
  struct scene scene;
  open_scene(&scene);
  plm_history_add(&scene.journal.history, 25, &weights, PLM_SPLIT_VALID);
  plm_history_add_skip(&scene.journal.history, 42); /* it was not evaluated */
  plm_history_add(&scene.journal.history, 40, &weights, PLM_SPLIT_VALID);
  plm_history_add(&scene.journal.history, 50, NULL, PLM_SPLIT_TEST);
  plm_history_add_skip(&scene.journal.history, 60);
  report(&scene, 10, newest, 1, VALID);
  expect_lines(&scene, "");
  report(&scene, 7, newest, 1, VALID);
  expect_lines(&scene, GONE(56));
  close_scene(&scene);
}

/* Unless the newest checkpoint says that it was never published. */
static void a_step_that_was_not_published_has_its_reason(void **state)
{
  (void)state;
  static const char json[] = "{\"history\":[{\"step\":10,\"failed\":\"no space\"}]}";
  static const uint64_t newest[] = {30};
  struct scene scene;
  char path[PLM_PATH_SIZE];
  open_scene(&scene);
  assert_int_equal(plm_path_join(path, scene.folder, "step_00000030", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, scene.folder, "step_00000030/trainer.json", NULL), PLM_OK);
  scratch_write(path, json, sizeof json - 1);
  report(&scene, 10, newest, 1, VALID);
  expect_lines(&scene, GONE(0) "{\"step\":10,\"skipped\":\"not published: no space\"}\n" GONE(20));
  close_scene(&scene);
}

/* Steps that this evaluator has seen are due whatever their number. */
static void steps_that_were_seen_are_missing(void **state)
{
  (void)state;
  static const uint64_t there[] = {4};
  struct scene scene;
  open_scene(&scene);
  for (uint64_t step = 1; step <= 6; step++) {
    struct plm_seen *seen = plm_seen_at(&scene.seen, step);
    seen->identified = true;
    seen->identity = weights;
  }
  plm_history_add(&scene.journal.history, 1, &weights, PLM_SPLIT_VALID); /* it is evaluated */
  plm_history_add(&scene.journal.history, 2, &others, PLM_SPLIT_VALID);  /* as it was before */
  plm_history_add(&scene.journal.history, 3, &weights, PLM_SPLIT_TEST);  /* only in part */
  plm_history_add_skip(&scene.journal.history, 5);
  report(&scene, 0, there, 1, VALID);
  expect_lines(&scene, GONE(2) GONE(3) GONE(6));
  report(&scene, 0, there, 1, VALID);
  expect_lines(&scene, GONE(2) GONE(3) GONE(6));
  report(&scene, 0, there, 1, VALID | TEST); /* step 1 is not complete */
  expect_lines(&scene, GONE(2) GONE(3) GONE(6) GONE(1));
  close_scene(&scene);
}

/* So are those that an earlier evaluator could not read. */
static void steps_that_wait_are_missing(void **state)
{
  (void)state;
  static const uint64_t there[] = {8};
  struct scene scene;
  open_scene(&scene);
  plm_history_add_wait(&scene.journal.history, 7);
  plm_history_add_wait(&scene.journal.history, 8);
  plm_history_add(&scene.journal.history, 6, &weights, PLM_SPLIT_VALID);
  report(&scene, 0, there, 1, VALID);
  report(&scene, 0, there, 1, VALID);
  expect_lines(&scene, GONE(7));
  assert_false(plm_history_find(&scene.journal.history, 7)->waits);
  close_scene(&scene);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_skip_has_its_kind),
      cmocka_unit_test(a_wait_is_told_once),
      cmocka_unit_test(without_the_lock_nothing_is_written),
      cmocka_unit_test(the_history_of_earlier_evaluators_is_read),
      cmocka_unit_test(steps_that_were_due_are_missing),
      cmocka_unit_test(only_later_steps_are_looked_for),
      cmocka_unit_test(a_step_that_was_not_published_has_its_reason),
      cmocka_unit_test(steps_that_were_seen_are_missing),
      cmocka_unit_test(steps_that_wait_are_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
