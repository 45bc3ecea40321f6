/* How a packer finds its consumers: by what they say of each other, under several names of one, and
 * in the run folder. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

enum { DOCUMENTS = 3000, CHUNKS = 5 };

/* A packer that was told only where the trainer is also serves the evaluator. */
static void welcome_names_the_others(void **state)
{
  (void)state;
  const char *corpus = packers_corpus("corpus", DOCUMENTS, 1);
  struct plm_feed_options options = packers_keyed_options(), evaluation = packers_keyed_options();
  evaluation.role = "evaluator";
  evaluation.split = PLM_SPLIT_VALID;
  evaluation.plan.shuffle = false;
  evaluation.plan.token_limit = 20000;
  evaluation.plan.seed = 0;
  struct plm_feed *second = packers_feed(&evaluation);
  const char *address = plm_feed_bound(second);
  options.other_addresses = &address;
  options.other_count = 1;
  struct plm_feed *first = packers_feed(&options);
  const pid_t packer = packers_start(corpus, plm_feed_bound(first), NULL, NULL);
  const struct plm_hash trained = packers_expected(&options, corpus, 0, 50, CHUNKS);
  const struct plm_hash evaluated = packers_expected(&evaluation, corpus, 0, 100, 3);
  assert_true(plm_hash_equal(packers_consume(first, 50, CHUNKS), trained));
  assert_true(
      plm_hash_equal(packers_consume(second, 100, 3), evaluated)); /* reaches into the next epoch */
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  plm_feed_close(first);
  plm_feed_close(second);
}

static size_t lines_with(const char *path, const char *text)
{
  char *all;
  size_t size, count = 0;
  struct plm_error error = {0};
  assert_int_equal(plm_file_read(path, 1 << 20, &all, &size, &error), PLM_OK);
  for (const char *at = all; (at = strstr(at, text)) != NULL; at++) count++;
  free(all);
  return count;
}

/* A packer reaches the trainer by its address, and the evaluator names the trainer in another way.
 * The trainer names an evaluator that listens on every address. The packer keeps one connection to
 * each.
 */
static void one_consumer_by_two_names(void **state)
{
  (void)state;
  char trainer[64], evaluator[64];
  const char *others[] = {trainer, evaluator}, *log = scratch_path("names.log");
  const char *corpus = packers_corpus("corpus", DOCUMENTS, 1);
  struct plm_feed_options options = packers_keyed_options(), evaluation = packers_keyed_options();
  evaluation.role = "evaluator";
  options.endpoint = "tcp://127.0.0.1:*";
  evaluation.endpoint = "tcp://127.0.0.1:*";
  struct plm_feed *first = packers_feed(&options), *second = packers_feed(&evaluation);
  snprintf(trainer, sizeof trainer, "tcp://localhost:%s", strrchr(plm_feed_bound(first), ':') + 1);
  snprintf(evaluator, sizeof evaluator, "tcp://0.0.0.0:%s",
           strrchr(plm_feed_bound(second), ':') + 1);
  plm_feed_others(first, &others[1], NULL, 1);
  plm_feed_others(second, &others[0], NULL, 1);
  const pid_t packer = packers_start(corpus, plm_feed_bound(first), NULL, log);
  assert_true(scratch_appears(log, "serving tcp://localhost:", 15000));
  const struct plm_hash want = packers_expected(&options, corpus, 0, 50, CHUNKS);
  assert_true(plm_hash_equal(packers_consume(first, 50, CHUNKS), want));
  sleep(3); /* three PINGs: a peer that was replaced would be answered with REHELLO */
  assert_true(plm_hash_equal(packers_consume(second, 50, CHUNKS), want));
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  assert_int_equal(lines_with(log, "serving tcp://"),
                   4); /* each consumer once under each of two names */
  assert_int_equal(lines_with(log, "again"), 0);
  assert_int_equal(lines_with(log, "0.0.0.0"), 0);
  plm_feed_close(first);
  plm_feed_close(second);
}

/* Without --connect, a packer follows endpoints.json in the run folder, even if a port changes. */
static void follows_the_run_folder(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], set[PLM_PATH_SIZE + 16];
  struct plm_error error = {0};
  const char *corpus = packers_corpus("corpus", DOCUMENTS, 1);
  snprintf(run, sizeof run, "%s", scratch_path("run"));
  assert_int_equal(plm_directory_make(run, &error), PLM_OK);
  snprintf(set, sizeof set, "--run=%s", run);
  char keys[PLM_PATH_SIZE];
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  struct plm_feed_options options = packers_options();
  options.keys = keys;
  const struct plm_hash want = packers_expected(&options, corpus, 0, 50, CHUNKS);
  const char *const argv[] = {packers_program("plm-packer"), "--corpus", corpus, set, NULL};
  const pid_t packer = packers_spawn(argv, NULL);
  for (int i = 0; i < 2; i++) {
    struct plm_feed *feed = packers_feed(&options);
    assert_int_equal(plm_endpoint_write(run, "feed", plm_feed_bound(feed), &error), PLM_OK);
    assert_true(plm_hash_equal(packers_consume(feed, 50, CHUNKS), want));
    plm_feed_close(feed);
  }
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  char *lines;
  size_t size;
  assert_int_equal(plm_file_read(scratch_path("run/packers.jsonl"), 1 << 20, &lines, &size, &error),
                   PLM_OK);
  assert_int_equal(strncmp(lines, "{\"v\":1,", 7), 0);
  assert_non_null(strstr(lines, "\"padding_fraction\":"));
  free(lines);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(welcome_names_the_others),
      cmocka_unit_test(one_consumer_by_two_names),
      cmocka_unit_test(follows_the_run_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
