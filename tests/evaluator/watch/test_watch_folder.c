/* What the watching evaluator reports about checkpoints that it cannot evaluate: those that are
 * gone, those that were due and never came, and damaged ones. Without a packer. */
#include "common/run/done.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/config/config.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "evaluator/watch/watch.h"
#include "tests/support/harness/failing_starts.h"
#include "tests/support/harness/scratch.h"

enum { HANGS_S = 60 };

static char run[PLM_PATH_SIZE];

static int begin(void **state)
{
  (void)state;
  char checkpoints[PLM_PATH_SIZE];
  scratch_run(run);
  assert_int_equal(plm_path_join(checkpoints, run, PLM_RUN_CHECKPOINTS, NULL), PLM_OK);
  return plm_directory_make(checkpoints, NULL) != PLM_OK;
}

static void put(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  assert_int_equal(plm_path_parent(folder, path, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

/* Appends the lines of evaluator.jsonl without their times, and with RUN for the folder. */
static void read_lines(struct plm_text *lines)
{
  char path[PLM_PATH_SIZE], *text, *rest = NULL;
  size_t size;
  assert_int_equal(plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    cJSON *json = cJSON_Parse(line);
    assert_non_null(json);
    cJSON_DeleteItemFromObject(json, "time");
    char *printed = cJSON_PrintUnformatted(json), *from = printed;
    for (char *at; (at = strstr(from, run)) != NULL; from = at + strlen(run))
      plm_text_printf(lines, "%.*sRUN", (int)(at - from), from);
    plm_text_printf(lines, "%s\n", from);
    cJSON_free(printed);
    cJSON_Delete(json);
  }
  free(text);
}

/* A configuration of the run, which the caller releases. */
static void configure(unsigned every, const char *more, struct plm_config *config)
{
  char text[PLM_PATH_SIZE + 400];
  struct plm_error error = {0};
  snprintf(text, sizeof text,
           "run: %.4000s\ntrainer: {checkpoint: {every: %u}}\n"
           "network: {feed: 'tcp://127.0.0.1:*', evaluation_feed: 'tcp://127.0.0.1:*', "
           "announcements: 'tcp://127.0.0.1:*'}\n%s",
           run, every, more);
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

static const char without_board[] = "metrics: {tensorboard: false}\n";

static plm_status run_watch(const struct plm_config *config)
{
  struct plm_error error = {0};
  alarm(HANGS_S);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_watch(config, NULL, &error);
  captured_end();
  alarm(0);
  plm_descriptors_lend(); /* closes those in reserve */
  return status;
}

static void expect_lines(const char *expected)
{
  struct plm_text lines = {0};
  plm_text_puts(&lines, "");
  read_lines(&lines);
  assert_string_equal(lines.data, expected);
  plm_text_deinit(&lines);
}

/* Watches a run whose last step is 40 until everything is reported. `every` is checkpoint.every,
 * `earlier` the lines that are there before. */
static void watch(unsigned every, const char *more, const char *earlier, const char *expected)
{
  struct plm_config config;
  configure(every, more, &config);
  put(PLM_RUN_EVALUATOR_METRICS, earlier);
  assert_int_equal(plm_done_write(run, &(struct plm_done){.step = 40, .identity = {1, 2}}, NULL),
                   PLM_OK);
  assert_int_equal(run_watch(&config), PLM_OK);
  expect_lines(expected);
  plm_config_deinit(&config);
}

static void damage(const char *name)
{
  char path[64];
  snprintf(path, sizeof path, "checkpoints/%s/model.safetensors", name);
  put(path, "");
}

#define SKIPPED(step, why) "{\"v\":1,\"step\":" #step ",\"skipped\":\"" why "\"}\n"
#define GONE(step) SKIPPED(step, "deleted before evaluation")
#define DAMAGED(step)                                                                       \
  "{\"v\":1,\"step\":" #step ",\"skipped\":\"does not verify or load: cannot open "         \
  "RUN/checkpoints/step_000000" #step "/MANIFEST: No such file or directory\",\"corrupt\":" \
  "true}\n"
#define WAITS(step) \
  "{\"v\":1,\"step\":" #step ",\"skipped\":\"cannot be read yet: x\",\"corrupt\":false}\n"
#define SAME "00000000000000040000000000000003" /* the hash of with_manifest */
#define OTHER "00000000000000040000000000000002"
#define REPORT(step, split, identity) \
  "{\"v\":1,\"step\":" #step ",\"split\":\"" split "\",\"identity\":\"" identity "\"}\n"

static void steps_that_were_due_are_reported(void **state)
{
  (void)state;
  damage("step_00000040");
  watch(10, without_board, "", GONE(0) GONE(10) GONE(20) GONE(30) DAMAGED(40));
}

static void what_is_listed_is_not_gone(void **state)
{
  (void)state;
  damage("step_00000015");
  damage("step_00000020");
  damage("step_00000040");
  watch(10, without_board, "", GONE(0) GONE(10) GONE(30) DAMAGED(15) DAMAGED(20) DAMAGED(40));
}

static void without_a_rule_nothing_is_due(void **state)
{
  (void)state;
  damage("step_00000040");
  watch(0, without_board, "", DAMAGED(40));
}

/* Steps before the newest that was evaluated were looked for then. */
static void steps_are_due_after_the_newest_report(void **state)
{
  (void)state;
  damage("step_00000040");
  watch(10, without_board, REPORT(5, "valid", SAME) REPORT(15, "test", SAME),
        REPORT(5, "valid", SAME) REPORT(15, "test", SAME) GONE(20) GONE(30) DAMAGED(40));
}

static void a_reported_step_is_not_due_again(void **state)
{
  (void)state;
  damage("step_00000040");
  watch(10, without_board, REPORT(20, "valid", SAME),
        REPORT(20, "valid", SAME) GONE(30) DAMAGED(40));
}

static void a_step_is_skipped_once(void **state)
{
  (void)state;
  damage("step_00000040");
  watch(10, without_board, GONE(10) DAMAGED(40), GONE(10) DAMAGED(40) GONE(0) GONE(20) GONE(30));
}

/* An earlier evaluator could not read steps 25 and 40; the first is gone since. */
static void steps_that_waited_are_looked_for(void **state)
{
  (void)state;
  damage("step_00000040");
  watch(0, without_board, WAITS(25) WAITS(40), WAITS(25) WAITS(40) GONE(25) DAMAGED(40));
}

static void a_later_checkpoint_says_what_was_never_published(void **state)
{
  (void)state;
  damage("step_00000040");
  put("checkpoints/step_00000040/trainer.json",
      "{\"history\":[{\"step\":20,\"failed\":\"no space\"},{\"step\":30}]}");
  watch(20, without_board, "", GONE(0) SKIPPED(20, "not published: no space") DAMAGED(40));
}

/* Reports about other weights of the step, or about some of the splits, do not count. */
static void with_manifest(const char *more, const char *earlier, bool again)
{
  static char expected[2000];
  struct plm_manifest manifest = {.step = 40, .count = 1};
  strcpy(manifest.files[0].name, "model.safetensors");
  manifest.files[0].hash = (struct plm_hash){3, 4};
  manifest.files[0].size = 5;
  char *text = plm_manifest_print(&manifest);
  damage("step_00000040");
  put("checkpoints/step_00000040/MANIFEST", text);
  free(text);
  snprintf(expected, sizeof expected, "%s%s", earlier,
           again ? "{\"v\":1,\"step\":40,\"skipped\":\"does not verify or load: the MANIFEST "
                   "does not list config.json\",\"corrupt\":true}\n"
                 : "");
  watch(0, more, earlier, expected);
}

static void reports_of_the_same_weights_count(void **state)
{
  (void)state;
  with_manifest(without_board, REPORT(40, "valid", SAME), false);
}

static void reports_of_other_weights_do_not_count(void **state)
{
  (void)state;
  with_manifest(without_board, REPORT(40, "valid", OTHER), true);
}

static const char two_splits[] =
    "metrics: {tensorboard: false}\nevaluator: {splits: [valid, test]}\n";

static void some_of_the_splits_do_not_suffice(void **state)
{
  (void)state;
  with_manifest(two_splits, REPORT(40, "valid", SAME) REPORT(40, "train", SAME), true);
}

static void all_of_the_splits_suffice(void **state)
{
  (void)state;
  with_manifest(two_splits, REPORT(40, "valid", SAME) REPORT(40, "test", SAME), false);
}

static void *watch_in_thread(void *config)
{
  struct plm_error error = {0};
  assert_int_equal(plm_watch(config, NULL, &error), PLM_OK);
  return NULL;
}

/* Step 20 was seen and reported before it was deleted. */
static void what_was_reported_may_be_deleted(void **state)
{
  (void)state;
  struct plm_config config;
  pthread_t thread;
  char path[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  configure(0, without_board, &config);
  damage("step_00000020");
  assert_int_equal(plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_path_join(folder, run, "checkpoints/step_00000020", NULL), PLM_OK);
  alarm(HANGS_S);
  assert_int_equal(pthread_create(&thread, NULL, watch_in_thread, &config), 0);
  if (!scratch_appears(path, "\"step\":20", 1000 * HANGS_S)) fail_msg("step 20 is not reported");
  assert_int_equal(plm_path_remove(folder, NULL), PLM_OK);
  assert_int_equal(plm_done_write(run, &(struct plm_done){.step = 40, .identity = {1, 2}}, NULL),
                   PLM_OK);
  damage("step_00000040");
  pthread_join(thread, NULL);
  alarm(0);
  plm_descriptors_lend();
  expect_lines(DAMAGED(20) DAMAGED(40));
  plm_config_deinit(&config);
}

/* A second one in the same folder finds neither a lock nor an endpoint. */
static void a_stop_ends_it_whether_or_not_all_is_reported(void **state)
{
  (void)state;
  struct plm_config config;
  char bound[512];
  configure(10, without_board, &config);
  damage("step_00000040");
  plm_stop_requested = SIGTERM;
  assert_int_equal(run_watch(&config), PLM_TERMINATED);
  expect_lines("");
  assert_int_equal(plm_endpoint_read(run, "evaluation_feed", bound, NULL), PLM_NOT_FOUND);
  put(PLM_RUN_EVALUATOR_METRICS, REPORT(40, "valid", SAME));
  assert_int_equal(plm_done_write(run, &(struct plm_done){.step = 40, .identity = {1, 2}}, NULL),
                   PLM_OK);
  assert_int_equal(run_watch(&config), PLM_OK);
  plm_stop_requested = 0;
  expect_lines(REPORT(40, "valid", SAME));
  plm_config_deinit(&config);
}

static bool watchdog_failed;

/* Nothing of it stays. */
static plm_status watch_and_end(void *config, struct plm_error *error)
{
  char bound[512];
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_watch(config, NULL, error);
  captured_end();
  plm_descriptors_lend();
  watchdog_failed |= strstr(error->what, "\"watchdog\"") != NULL;
  assert_int_equal(plm_endpoint_read(run, "evaluation_feed", bound, NULL), PLM_NOT_FOUND);
  return status;
}

/* Whichever thread cannot be started, the next start succeeds. */
static void without_a_thread_it_does_not_start(void **state)
{
  (void)state;
  struct plm_config config;
  configure(0, without_board, &config);
  put(PLM_RUN_EVALUATOR_METRICS, REPORT(40, "valid", SAME));
  damage("step_00000040");
  assert_int_equal(plm_done_write(run, &(struct plm_done){.step = 40, .identity = {1, 2}}, NULL),
                   PLM_OK);
  watchdog_failed = false;
  assert_in_range(failing_starts_try(watch_and_end, &config), 2, 100);
  assert_true(watchdog_failed);
  plm_config_deinit(&config);
}

static void a_board_is_written_if_it_is_wanted(void **state)
{
  (void)state;
  char board[PLM_PATH_SIZE];
  damage("step_00000040");
  assert_int_equal(plm_path_join(board, run, PLM_RUN_TENSORBOARD "/evaluator", NULL), PLM_OK);
  watch(0, without_board, GONE(40), GONE(40));
  assert_false(plm_file_exists(board));
  watch(0, "metrics: {tensorboard: true}\n", GONE(40), GONE(40));
  char *bytes;
  size_t size;
  DIR *folder = opendir(board);
  assert_non_null(folder);
  int starts = 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char path[PLM_PATH_SIZE];
    if (strncmp(entry->d_name, "events.", 7) != 0) continue;
    assert_int_equal(plm_path_join(path, board, entry->d_name, NULL), PLM_OK);
    assert_int_equal(plm_file_read(path, 1 << 20, &bytes, &size, NULL), PLM_OK);
    starts +=
        memmem(bytes, size, "\20\51:\2\10\1", 6) != NULL; /* at step 41, behind the last one */
    free(bytes);
  }
  closedir(folder);
  assert_int_equal(starts, 1);
}

static void refused(const struct plm_config *config, plm_status expected, const char *what,
                    bool has_endpoints)
{
  struct plm_error error = {0};
  char bound[512], path[PLM_PATH_SIZE];
  alarm(HANGS_S);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_watch(config, NULL, &error);
  captured_end();
  alarm(0);
  plm_descriptors_lend();
  if (status != expected) fail_msg("%d, not %d: %s", (int)status, (int)expected, error.what);
  if (strstr(error.what, what) == NULL) fail_msg("\"%s\", not \"%s\"", error.what, what);
  assert_int_equal(plm_endpoint_read(run, "evaluation_feed", bound, NULL), PLM_NOT_FOUND);
  assert_int_equal(plm_path_join(path, run, "pulse.evaluator.json", NULL), PLM_OK);
  assert_false(plm_file_exists(path));
  assert_int_equal(plm_path_join(path, run, "endpoints.json", NULL), PLM_OK);
  assert_int_equal(plm_file_exists(path), has_endpoints);
}

/* Whatever is missing or in the way, it is told, and nothing that comes later is begun. */
static void starts_that_are_refused(void **state)
{
  struct plm_config config;
  struct plm_lock *lock;
  configure(0,
            "metrics: {tensorboard: false}\nevaluator: {tasks: [{name: a, kind: probe, "
            "path: /none/table.csv, target: y}]}\n",
            &config);
  refused(&config, PLM_UNAVAILABLE, "/none/table.csv", false);
  plm_config_deinit(&config);
  configure(0, without_board, &config);
  put("previous-1/MOVING", "");
  refused(&config, PLM_BUSY, "", false);
  plm_config_deinit(&config);
  assert_int_equal(begin(state), 0); /* another run */
  configure(0, "metrics: {tensorboard: true}\n", &config);
  assert_int_equal(plm_lock_acquire(run, "evaluator", &lock, NULL), PLM_OK);
  refused(&config, PLM_BUSY, "the evaluator of this run is process ", false);
  plm_lock_release(lock);
  put(PLM_RUN_TENSORBOARD, "");
  refused(&config, PLM_IO, PLM_RUN_TENSORBOARD, false);
  plm_config_deinit(&config);
  configure(0, without_board, &config);
  put("endpoints.json", "{\"run_id\":\"x\"}");
  refused(&config, PLM_FORMAT, "", true);
  plm_config_deinit(&config);
}

/* The evaluator of a mixture reads what its first corpus is. */
static void the_first_corpus_of_a_mixture_has_to_be_there(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_error error = {0};
  char bound[512];
  configure(10,
            "metrics: {tensorboard: false}\ncorpus: [{path: /none/first, weight: 1}, "
            "{path: /none/second, weight: 1}]\n",
            &config);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_watch(&config, NULL, &error);
  captured_end();
  plm_descriptors_lend();
  assert_int_equal(status, PLM_UNAVAILABLE);
  assert_string_equal(error.where, "corpus: source 0, /none/first");
  assert_non_null(strstr(error.hint, "must be able to read the corpus.json of its first corpus"));
  assert_int_equal(plm_endpoint_read(run, "evaluation_feed", bound, NULL), PLM_NOT_FOUND);
  plm_config_deinit(&config);
}

/* So has each further set. */
static void the_corpus_of_a_set_has_to_be_there(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_error error = {0};
  configure(10,
            "metrics: {tensorboard: false}\n"
            "evaluator: {sets: [{name: other, corpus: /none/other, split: test}]}\n",
            &config);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_watch(&config, NULL, &error);
  captured_end();
  plm_descriptors_lend();
  assert_int_equal(status, PLM_UNAVAILABLE);
  assert_non_null(strstr(error.what, "/none/other"));
  plm_config_deinit(&config);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(steps_that_were_due_are_reported),
      TEST(what_is_listed_is_not_gone),
      TEST(without_a_rule_nothing_is_due),
      TEST(steps_are_due_after_the_newest_report),
      TEST(a_reported_step_is_not_due_again),
      TEST(a_step_is_skipped_once),
      TEST(steps_that_waited_are_looked_for),
      TEST(a_later_checkpoint_says_what_was_never_published),
      TEST(reports_of_the_same_weights_count),
      TEST(reports_of_other_weights_do_not_count),
      TEST(some_of_the_splits_do_not_suffice),
      TEST(all_of_the_splits_suffice),
      TEST(what_was_reported_may_be_deleted),
      TEST(a_stop_ends_it_whether_or_not_all_is_reported),
      TEST(without_a_thread_it_does_not_start),
      TEST(a_board_is_written_if_it_is_wanted),
      TEST(starts_that_are_refused),
      TEST(the_first_corpus_of_a_mixture_has_to_be_there),
      TEST(the_corpus_of_a_set_has_to_be_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
