/* How a wait for chunks ends without them: by a failure, a signal, or because nobody comes. The
 * state of the feed is set by the test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/feed/feed_handle.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/packers.h"

enum { LONG_MS = 3600 * 1000 };

/* A feed of one corpus, or of two. */
static struct plm_feed *open_feed(bool mixture)
{
  struct plm_feed_options options = packers_options();
  const struct plm_feed_source_options sources[] = {{.plan = options.plan, .name = "a.corpus"},
                                                    {.plan = options.plan, .name = "b.corpus"}};
  if (mixture) {
    options.sources = sources;
    options.source_count = 2;
  }
  return packers_feed(&options);
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

static void nobody_is_awaited_for_ever(void **state)
{
  struct plm_batch batch;
  struct plm_error error = {0};
  (void)state;
  struct plm_feed *feed = open_feed(false);
  set_wait(feed, 1, "");
  assert_int_equal(plm_feed_next(feed, NULL, 2, NULL, &batch, &error), PLM_TIMEOUT);
  assert_string_equal(error.what, "no packer served the trainer for 0 s");
  assert_non_null(strstr(error.hint, "packers connect to tcp://127.0.0.1:"));
  set_wait(feed, 1, "packer h:1 was dropped for lying");
  assert_int_equal(plm_feed_next(feed, NULL, 2, NULL, &batch, &error), PLM_TIMEOUT);
  assert_string_equal(error.hint, "packer h:1 was dropped for lying; verify its corpus: "
                                  "plm-pipeline corpus DIR --verify");
  plm_feed_close(feed);
  feed = open_feed(true);
  set_wait(feed, 1, "");
  assert_int_equal(plm_feed_next(feed, (const uint8_t[]){1}, 1, NULL, &batch, &error), PLM_TIMEOUT);
  assert_non_null(strstr(error.what, "b.corpus"));
  plm_feed_close(feed);
}

/* Who wants to stop waits a second for a packer, and no longer; otherwise the limit counts. */
static void who_is_in_a_hurry_waits_a_second(void **state)
{
  struct plm_batch batch;
  struct plm_error error = {0};
  (void)state;
  struct plm_feed *feed = open_feed(false);
  plm_feed_hurry(feed);
  set_wait(feed, 200, "");
  assert_int_equal(plm_feed_next(feed, NULL, 2, NULL, &batch, &error), PLM_TIMEOUT);
  set_wait(feed, LONG_MS, "");
  assert_int_equal(plm_feed_next(feed, NULL, 2, NULL, &batch, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "interrupted, since there is no packer");
  plm_feed_close(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failure_ends_every_wait),
      cmocka_unit_test(a_signal_ends_a_wait),
      cmocka_unit_test(nobody_is_awaited_for_ever),
      cmocka_unit_test(who_is_in_a_hurry_waits_a_second),
  };
  plm_log_init("test", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
