/* How a wait for chunks ends without them: by a failure, a signal, or because nobody comes. The
 * state of the feed is set by the test. The time of a wait is that of the test: it stands still
 * except that each slice of a wait takes 100 ms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/feed/feed_handle.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/packers.h"

enum { LONG_MS = 3600 * 1000, SLICE_MS = 100 };

static _Thread_local bool own_clock;
static int64_t now_ms = 1000; /* of the clock of the thread that waits */

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  if (!own_clock || clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, now);
  *now = (struct timespec){.tv_sec = now_ms / 1000, .tv_nsec = now_ms % 1000 * 1000000};
  return 0;
}

/* After each slice. */
static void slice_ends(void *context, uint32_t packers)
{
  (void)context, (void)packers;
  now_ms += SLICE_MS;
}

/* A feed of one corpus, or of two. */
static struct plm_feed *open_feed(bool mixture)
{
  struct plm_feed_options options = packers_options();
  options.waiting = slice_ends;
  const struct plm_feed_source_options sources[] = {{.plan = options.plan, .name = "a.corpus"},
                                                    {.plan = options.plan, .name = "b.corpus"}};
  if (mixture) {
    options.sources = sources;
    options.source_count = 2;
  }
  own_clock = true; /* no wait may begin later than now */
  struct plm_feed *feed = packers_feed(&options);
  own_clock = false;
  return feed;
}

static void fail_lane(struct plm_feed *feed, uint32_t lane, const char *where)
{
  struct plm_error failure = {0};
  plm_error_set(&failure, PLM_CORRUPT, "the plan is no plan");
  plm_error_where(&failure, "%s", where);
  pthread_mutex_lock(&feed->mutex);
  feed_fail(&feed->lanes[lane], &failure);
  pthread_mutex_unlock(&feed->mutex);
}

/* All functions that wait return the failure, for whichever source they wait. */
static void a_failure_ends_every_wait(void **state)
{
  struct plm_feed_corpus *corpus = must(malloc(sizeof *corpus));
  const struct plm_label_schema *schema;
  struct plm_batch batch;
  (void)state;
  for (int i = 0; i < 4; i++) {
    const bool mixture = i > 0, named = i == 3;
    struct plm_feed *feed = open_feed(mixture);
    const uint8_t sources[] = {0, 1};
    fail_lane(feed, i == 2, named ? "a place" : "");
    for (int function = 0; function < 4; function++) {
      struct plm_error error = {0};
      plm_status status = PLM_OK;
      switch (function) {
      case 0: status = plm_feed_corpus(feed, NULL, corpus, &error); break;
      case 1: status = plm_feed_labels(feed, mixture, NULL, &schema, &error); break;
      case 2:
        status = plm_feed_next(feed, mixture ? sources : NULL, 2, NULL, &batch, &error);
        break;
      default: status = plm_feed_next_of_epoch(feed, 2, NULL, &batch, &error); break;
      }
      assert_int_equal(status, PLM_CORRUPT);
      assert_int_equal(error.status, PLM_CORRUPT);
      assert_string_equal(error.what, "the plan is no plan");
      if (named)
        assert_string_equal(error.where, "a place");
      else if (mixture)
        assert_non_null(strstr(error.where, i == 2 ? "b.corpus" : "a.corpus"));
      else
        assert_string_equal(error.where, "");
    }
    assert_int_equal(plm_feed_corpus(feed, NULL, corpus, NULL), PLM_CORRUPT);
    fail_lane(feed, i == 2, "later"); /* the first failure counts */
    struct plm_error error = {0};
    assert_int_equal(plm_feed_corpus(feed, NULL, corpus, &error), PLM_CORRUPT);
    assert_string_not_equal(error.where, "later");
    plm_feed_close(feed);
  }
  free(corpus);
}

static void a_signal_ends_a_wait(void **state)
{
  const volatile int stop = 1;
  struct plm_error error = {0};
  struct plm_batch batch;
  (void)state;
  struct plm_feed *feed = open_feed(false);
  assert_int_equal(plm_feed_next(feed, NULL, 2, &stop, &batch, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "interrupted");
  plm_feed_close(feed);
}

/* Sets how long is waited, and since when the only source has had no packer. */
static void set_wait(struct plm_feed *feed, int64_t limit_ms, const char *lie)
{
  pthread_mutex_lock(&feed->mutex);
  feed->wait_packers_ms = limit_ms;
  snprintf(feed->lanes[0].lie, sizeof feed->lanes[0].lie, "%s", lie);
  pthread_mutex_unlock(&feed->mutex);
}

/* Waits for chunks of these sources. `waited_ms` is how long, by the clock of the test. */
static plm_status next_of(struct plm_feed *feed, const uint8_t *sources, int64_t *waited_ms,
                          struct plm_error *error)
{
  struct plm_batch batch;
  const int64_t begun_ms = now_ms;
  own_clock = true;
  const plm_status status = plm_feed_next(feed, sources, 1, NULL, &batch, error);
  own_clock = false;
  *waited_ms = now_ms - begun_ms;
  return status;
}

static void nobody_is_awaited_for_ever(void **state)
{
  struct plm_error error = {0};
  int64_t waited_ms;
  (void)state;
  struct plm_feed *feed = open_feed(false);
  set_wait(feed, 2500, "");
  assert_int_equal(next_of(feed, NULL, &waited_ms, &error), PLM_TIMEOUT);
  assert_int_equal(waited_ms, 2500);
  assert_string_equal(error.what, "no packer served the trainer for 2 s");
  assert_non_null(strstr(error.hint, "packers connect to tcp://127.0.0.1:"));
  set_wait(feed, 1, "packer h:1 was dropped for lying");
  assert_int_equal(next_of(feed, NULL, &waited_ms, &error), PLM_TIMEOUT);
  assert_string_equal(error.hint, "packer h:1 was dropped for lying; verify its corpus: "
                                  "plm-pipeline corpus DIR --verify");
  plm_feed_close(feed);
  feed = open_feed(true);
  set_wait(feed, 1, "");
  assert_int_equal(next_of(feed, (const uint8_t[]){1}, &waited_ms, &error), PLM_TIMEOUT);
  assert_non_null(strstr(error.what, "b.corpus"));
  plm_feed_close(feed);
}

/* Once the run has given up on its own packers, others have 30 s, unless the limit is shorter. */
static void little_is_awaited_of_packers_given_up(void **state)
{
  static const struct {
    int64_t limit_ms, waited_ms;
  } rows[] = {{200, 200},
              {FEED_GIVEN_UP_MS, FEED_GIVEN_UP_MS},
              {FEED_GIVEN_UP_MS + SLICE_MS, FEED_GIVEN_UP_MS},
              {LONG_MS, FEED_GIVEN_UP_MS}};
  (void)state;
  struct plm_feed *feed = open_feed(false);
  plm_feed_packers_given_up(feed, true);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_error error = {0};
    int64_t waited_ms;
    set_wait(feed, rows[i].limit_ms, "");
    assert_int_equal(next_of(feed, NULL, &waited_ms, &error), PLM_TIMEOUT);
    assert_int_equal(waited_ms, rows[i].waited_ms);
  }
  plm_feed_close(feed);
}

/* A long wait is said again and again, and whether packers are there. */
static void a_long_wait_is_said(void **state)
{
  (void)state;
  struct plm_feed *feed = open_feed(true);
  const uint8_t sources[] = {1};
  set_wait(feed, 3 * FEED_WAITING_MS - 1, "");
  for (uint32_t packers = 0; packers < 4; packers += 3) {
    struct plm_error error = {0};
    int64_t waited_ms;
    char what[200];
    pthread_mutex_lock(&feed->mutex);
    feed->lanes[1].peer_count = packers;
    pthread_mutex_unlock(&feed->mutex);
    captured_begin(STDERR_FILENO);
    plm_log_init("test", PLM_LOG_WARNING);
    const plm_status status = next_of(feed, sources, &waited_ms, &error);
    plm_log_init("test", PLM_LOG_ERROR);
    const char *said = captured_end();
    assert_int_equal(status, PLM_TIMEOUT);
    assert_int_equal(captured_times(said, "warning: "), 2);
    for (int times = 1; times < 3; times++) {
      snprintf(what, sizeof what, "has waited %d s for %s of source 1, b.corpus (fingerprint ",
               times * FEED_WAITING_MS / 1000, packers == 0 ? "a packer" : "chunks");
      if (captured_times(said, what) != 1) fail_msg("%s", said);
    }
    assert_int_equal(captured_times(said, packers == 0
                                              ? "; packers connect to tcp://127.0.0.1:"
                                              : "; 3 packers are connected to tcp://127.0.0.1:"),
                     2);
  }
  pthread_mutex_lock(&feed->mutex);
  feed->lanes[1].peer_count = 0;
  pthread_mutex_unlock(&feed->mutex);
  plm_feed_close(feed);
}

/* It waits a second for a packer, and no longer; otherwise the limit counts. */
static void a_feed_in_a_hurry_waits_a_second(void **state)
{
  struct plm_error error = {0};
  int64_t waited_ms;
  (void)state;
  struct plm_feed *feed = open_feed(false);
  plm_feed_hurry(feed);
  set_wait(feed, 200, "");
  assert_int_equal(next_of(feed, NULL, &waited_ms, &error), PLM_TIMEOUT);
  assert_int_equal(waited_ms, 200);
  set_wait(feed, LONG_MS, "");
  assert_int_equal(next_of(feed, NULL, &waited_ms, &error), PLM_INTERRUPTED);
  assert_int_equal(waited_ms, 1000);
  assert_string_equal(error.what, "interrupted, since there is no packer");
  plm_feed_close(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failure_ends_every_wait),
      cmocka_unit_test(a_signal_ends_a_wait),
      cmocka_unit_test(nobody_is_awaited_for_ever),
      cmocka_unit_test(little_is_awaited_of_packers_given_up),
      cmocka_unit_test(a_long_wait_is_said),
      cmocka_unit_test(a_feed_in_a_hurry_waits_a_second),
  };
  plm_log_init("test", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
