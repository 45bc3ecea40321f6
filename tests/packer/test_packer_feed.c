/* The feed in this process, packers in others: the chunks are those of the plan, whoever serves
 * them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

enum { DOCUMENTS = 3000, CHUNKS = 5 };

static void serves_the_plan_over_tcp_and_ipc(void **state)
{
  (void)state;
  const char *corpus = packers_corpus("corpus", DOCUMENTS, 1);
  struct plm_feed_options options = packers_keyed_options();
  /* about three epochs, so that some batches reach into the next */
  const struct plm_hash want = packers_expected(&options, corpus, 0, 1500, CHUNKS);
  char ipc[256];
  snprintf(ipc, sizeof ipc, "ipc://%s/plm-test-%d.sock", plm_temporary_folder(), (int)getpid());
  for (int kind = 0; kind < 2; kind++) {
    if (kind == 1) options.endpoint = ipc;
    struct plm_feed *feed = packers_feed(&options);
    const pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
    assert_true(plm_hash_equal(packers_consume(feed, 1500, CHUNKS), want));
    struct plm_feed_position position;
    plm_feed_position(feed, 0, &position);
    assert_true(position.place.epoch >= 2);
    assert_int_equal(packers_stop(packer, SIGTERM), 143);
    plm_feed_close(feed);
  }
}

static void wait_for_packer(struct plm_feed *feed, pid_t pid)
{
  char field[32];
  bool joined = false;
  snprintf(field, sizeof field, "\"pid\":%d,", (int)pid);
  for (int i = 0; i < 500 && !joined; i++) {
    char *peers = plm_feed_peers_json(feed);
    joined = strstr(peers, field) != NULL;
    free(peers);
    if (!joined) usleep(20000);
  }
  assert_true(joined);
}

/* Two packers that are killed and restarted again and again give what one undisturbed packer gives.
 */
static void kill_packers(const char *corpus, struct plm_feed_options options)
{
  enum { ROUNDS = 10, BATCHES = 120 };
  options.credit_bytes = 256 << 10; /* so little ahead that a kill hits what was asked for */
  struct plm_feed *feed = packers_feed(&options);
  pid_t packers[2];
  for (int i = 0; i < 2; i++) packers[i] = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  uint64_t done = 0;
  for (int round = 0; round < ROUNDS; round++) {
    const struct plm_hash want = packers_expected(&options, corpus, done * CHUNKS, BATCHES, CHUNKS);
    assert_true(plm_hash_equal(packers_consume(feed, BATCHES, CHUNKS), want));
    done += BATCHES;
    pid_t *victim = &packers[round % 2];
    assert_int_equal(packers_stop(*victim, SIGKILL), 128 + SIGKILL);
    *victim = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
    if (round == ROUNDS / 2) { /* both at the same time */
      packers_stop(packers[0], SIGKILL);
      packers_stop(packers[1], SIGKILL);
      for (int i = 0; i < 2; i++)
        packers[i] = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
    }
  }
  struct plm_feed_counters counters;
  for (int i = 0; i < 2; i++)
    wait_for_packer(feed, packers[i]); /* the last ones have just started */
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.invalid, 0);
  for (int i = 0; i < 2; i++) assert_int_equal(packers_stop(packers[i], SIGTERM), 143);
  plm_feed_close(feed);
}

static void killed_packers_change_nothing(void **state)
{
  (void)state;
  kill_packers(packers_corpus("corpus", DOCUMENTS, 1), packers_keyed_options());
}

/* A trainer comes back on the same port and continues where it stopped; the packers stay. */
static void restart_consumer(const char *corpus, struct plm_feed_options options)
{
  const struct plm_hash want = packers_expected(&options, corpus, 200 * CHUNKS, 100, CHUNKS);
  char endpoint[256];
  struct plm_feed *feed = packers_feed(&options);
  snprintf(endpoint, sizeof endpoint, "%s", plm_feed_bound(feed));
  const pid_t packer = packers_start(corpus, endpoint, NULL, NULL);
  const struct plm_plan_place counted = {.chunk = 200 * CHUNKS};
  struct plm_feed_position stopped, position;
  packers_consume(feed, 200, CHUNKS);
  plm_feed_position(feed, 0, &stopped);
  plm_feed_close(feed);
  options.endpoint = endpoint;
  feed = packers_feed(&options);
  plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, &stopped.place);
  assert_true(plm_hash_equal(packers_consume(feed, 100, CHUNKS), want));
  /* Seeking by the number of chunks since epoch 0 leads to the same place. */
  plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, &counted);
  assert_true(plm_hash_equal(packers_consume(feed, 100, CHUNKS), want));
  plm_feed_position(feed, 0, &position);
  plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, &stopped.place);
  assert_true(plm_hash_equal(packers_consume(feed, 100, CHUNKS), want));
  plm_feed_position(feed, 0, &stopped);
  assert_memory_equal(&stopped.place, &position.place, sizeof position.place);
  assert_int_equal(stopped.window_chunks, position.window_chunks);
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  plm_feed_close(feed);
}

static void consumer_restarts(void **state)
{
  (void)state;
  restart_consumer(packers_corpus("corpus", DOCUMENTS, 1), packers_keyed_options());
}

static void clusters_are_sampled_by_any_packer(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_keyed_options();
  options.plan.sampling = PLM_SAMPLING_CLUSTERS;
  kill_packers(packers_clusters("clusters", DOCUMENTS, 1), options);
}

static void consumer_of_clusters_restarts(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_keyed_options();
  options.plan.sampling = PLM_SAMPLING_CLUSTERS;
  restart_consumer(packers_clusters("clusters", DOCUMENTS, 1), options);
}

static void a_corpus_without_clusters_is_refused(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_keyed_options();
  options.plan.sampling = PLM_SAMPLING_CLUSTERS;
  struct plm_feed *feed = packers_feed(&options);
  const char *log = scratch_path("no-clusters.log");
  const pid_t packer =
      packers_start(packers_corpus("corpus", DOCUMENTS, 1), plm_feed_bound(feed), NULL, log);
  assert_true(scratch_appears(log,
                              "data.sampling is clusters, but the packer's corpus keeps no "
                              "clusters",
                              15000));
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  plm_feed_close(feed);
}

/* The number of chunks of an epoch. */
static uint64_t epoch_chunks(const struct plm_feed_options *options, const char *corpus_path,
                             uint64_t epoch, uint64_t *windows)
{
  struct plm_corpus *corpus;
  struct plm_plan *plan;
  uint64_t chunks = 0;
  assert_int_equal(plm_corpus_open(corpus_path, NULL, &corpus, NULL), PLM_OK);
  assert_int_equal(plm_plan_open_corpus(&options->plan, corpus, options->split, &plan, NULL),
                   PLM_OK);
  *windows = plm_plan_windows(plan);
  for (uint64_t w = 0; w < *windows; w++)
    chunks += corpus_window_chunks(corpus, options->split, plan, epoch, w);
  plm_plan_close(plan);
  plm_corpus_close(corpus);
  return chunks;
}

/* Takes chunks until the epoch ends, and returns their number. */
static uint64_t consume_epoch(struct plm_feed *feed)
{
  uint64_t taken = 0;
  struct plm_error error = {0};
  for (;;) {
    struct plm_batch batch;
    if (plm_feed_next_of_epoch(feed, 64, NULL, &batch, &error) != PLM_OK)
      fail_msg("%s", error.what);
    const uint32_t chunks = batch.chunks;
    plm_feed_release(feed, &batch);
    if (chunks == 0) return taken;
    taken += chunks;
  }
}

static void tells_epochs_corpus_and_peers(void **state)
{
  (void)state;
  const char *corpus = packers_corpus("corpus", DOCUMENTS, 1);
  struct plm_feed_options options = packers_keyed_options();
  struct plm_error error = {0};
  struct plm_feed *feed = packers_feed(&options);
  const pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  struct plm_feed_corpus known;
  assert_int_equal(plm_feed_corpus(feed, NULL, &known, &error), PLM_OK);
  assert_int_equal(known.documents[0] + known.documents[1], DOCUMENTS);
  assert_int_equal(known.documents[PLM_SPLIT_TEST], 0);
  static const struct plm_plan_place first, fourth = {.epoch = 3}, fifth = {.epoch = 4};
  struct plm_feed_position position;
  uint64_t windows;
  const uint64_t chunks = epoch_chunks(&options, corpus, 3, &windows);
  plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, &fourth);
  assert_int_equal(consume_epoch(feed), chunks);
  plm_feed_position(feed, 0, &position);
  assert_memory_equal(&position.place, &fifth, sizeof fifth);
  assert_int_equal(position.windows, windows);
  char *peers = plm_feed_peers_json(feed);
  assert_non_null(strstr(peers, "\"pid\""));
  free(peers);
  /* Asking for an empty split is an error. The feed still works with another split. */
  struct plm_batch batch;
  plm_feed_seek(feed, 0, PLM_SPLIT_TEST, &first);
  assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_NOT_FOUND);
  assert_int_equal(plm_feed_next_of_epoch(feed, 1, NULL, &batch, &error), PLM_NOT_FOUND);
  plm_feed_seek(feed, 0, PLM_SPLIT_VALID, &first);
  assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_OK);
  plm_feed_release(feed, &batch);
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  plm_feed_close(feed);
}

/* An epoch ends with the last document within the token limit, which the feed finds by the proven
 * lengths. */
static void an_epoch_ends_at_the_token_limit(void **state)
{
  (void)state;
  static const uint64_t limits[] = {1000, 100000, 200000, 1 << 30};
  const char *corpus = packers_corpus("corpus", DOCUMENTS, 1);
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    struct plm_feed_options options = packers_keyed_options();
    uint64_t windows;
    options.plan.shuffle = false;
    options.plan.token_limit = limits[i];
    const uint64_t chunks = epoch_chunks(&options, corpus, 0, &windows);
    struct plm_feed *feed = packers_feed(&options);
    const pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
    for (int epoch = 0; epoch < 2; epoch++) assert_int_equal(consume_epoch(feed), chunks);
    assert_int_equal(packers_stop(packer, SIGTERM), 143);
    plm_feed_close(feed);
  }
}

static void another_corpus_is_refused(void **state)
{
  (void)state;
  char right[PLM_PATH_SIZE], wrong[PLM_PATH_SIZE];
  snprintf(right, sizeof right, "%s", packers_corpus("corpus", DOCUMENTS, 1));
  snprintf(wrong, sizeof wrong, "%s", packers_corpus("other", 300, 2));
  struct plm_feed_options options = packers_keyed_options();
  const struct plm_hash want = packers_expected(&options, right, 0, 50, CHUNKS);
  struct plm_feed_corpus known;
  struct plm_error error = {0};
  struct plm_feed *feed = packers_feed(&options);
  const char *log = scratch_path("refused.log");
  const pid_t first = packers_start(right, plm_feed_bound(feed), NULL, NULL);
  assert_int_equal(plm_feed_corpus(feed, NULL, &known, &error), PLM_OK);
  const pid_t second = packers_start(wrong, plm_feed_bound(feed), NULL, log);
  assert_true(scratch_appears(log, "another corpus than the run's: its fingerprint is", 15000));
  char ours[PLM_HASH_HEX_SIZE]; /* is not for packers that do not have the corpus */
  plm_hash_to_hex(known.fingerprint, ours);
  assert_false(scratch_appears(log, ours, 0));
  assert_true(plm_hash_equal(packers_consume(feed, 50, CHUNKS), want));
  struct plm_feed_counters counters;
  plm_feed_counters(feed, &counters);
  assert_true(counters.refused >= 1);
  assert_int_equal(counters.peers, 1);
  assert_int_equal(packers_stop(first, SIGTERM), 143);
  assert_int_equal(packers_stop(second, SIGTERM), 143); /* it kept trying until it was stopped */
  plm_feed_close(feed);
  /* If the fingerprint is known beforehand, no packer with another corpus is let in. */
  options.fingerprint = known.fingerprint;
  options.wait_packers_s = 1.0;
  feed = packers_feed(&options);
  const pid_t third = packers_start(wrong, plm_feed_bound(feed), NULL, log);
  struct plm_batch batch;
  assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_TIMEOUT);
  assert_int_equal(packers_stop(third, SIGTERM), 143);
  plm_feed_close(feed);
}

/* A packer that cannot read what it must prove says so, and ends. */
static void a_damaged_record_ends_the_packer(void **state)
{
  (void)state;
  char corpus[PLM_PATH_SIZE];
  struct plm_feed_options options = packers_keyed_options();
  struct plm_error error = {0};
  struct plm_batch batch;
  snprintf(corpus, sizeof corpus, "%s", packers_corpus("damaged", 300, 4));
  forged_corpus_cut_digests(corpus, 200);
  options.wait_packers_s = 2.0;
  struct plm_feed *feed = packers_feed(&options);
  const char *log = scratch_path("damaged-packer.log");
  const pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, log);
  assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_TIMEOUT);
  assert_true(scratch_appears(log, "record 0 of train.digests is too short", 15000));
  assert_int_equal(packers_stop(packer, 0), 1); /* by itself */
  plm_feed_close(feed);
}

static void stops_when_told(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_keyed_options();
  volatile int stop = SIGTERM;
  struct plm_error error = {0};
  struct plm_batch batch;
  struct plm_feed *feed = packers_feed(&options);
  assert_int_equal(plm_feed_next(feed, NULL, 1, &stop, &batch, &error), PLM_INTERRUPTED);
  plm_feed_close(feed);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(serves_the_plan_over_tcp_and_ipc),
      cmocka_unit_test(killed_packers_change_nothing),
      cmocka_unit_test(consumer_restarts),
      cmocka_unit_test(clusters_are_sampled_by_any_packer),
      cmocka_unit_test(consumer_of_clusters_restarts),
      cmocka_unit_test(a_corpus_without_clusters_is_refused),
      cmocka_unit_test(tells_epochs_corpus_and_peers),
      cmocka_unit_test(an_epoch_ends_at_the_token_limit),
      cmocka_unit_test(another_corpus_is_refused),
      cmocka_unit_test(a_damaged_record_ends_the_packer),
      cmocka_unit_test(stops_when_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
