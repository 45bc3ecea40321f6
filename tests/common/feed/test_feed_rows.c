/* The rows of a feed's packers and its counters, of states that the test makes. */
#include "tests/support/harness/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/feed/feed.h"
#include "common/feed/feed_handle.h"

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  (void)clock;
  *now = (struct timespec){.tv_sec = 100, .tv_nsec = 500000000};
  return 0;
}

enum { LANES = 2 };

static struct feed_state *lanes;
static struct plm_feed feed;

static int begin(void **state)
{
  (void)state;
  lanes = calloc(LANES, sizeof *lanes);
  memset(&feed, 0, sizeof feed);
  feed.lanes = lanes;
  feed.lane_count = LANES;
  return pthread_mutex_init(&feed.mutex, NULL) != 0;
}

static int end(void **state)
{
  (void)state;
  free(lanes);
  return pthread_mutex_destroy(&feed.mutex);
}

static struct feed_peer *add_peer(int lane, int place, uint64_t packer, uint64_t serial)
{
  struct feed_peer *peer = &lanes[lane].peers[place];
  *peer = (struct feed_peer){.used = true,
                             .serial = serial,
                             .packer_id = packer,
                             .pid = 40 + (uint32_t)packer,
                             .joined_ms = 100000 - 1000 * (int64_t)serial,
                             .heard_ms = 100500 - 250 * (int64_t)serial};
  snprintf(peer->name, sizeof peer->name, "p%d", (int)packer);
  snprintf(peer->host, sizeof peer->host, "h%d", (int)packer);
  peer->counters = (struct plm_packer_counters){.windows = 1 + serial,
                                                .documents = 20 + serial,
                                                .tokens = 300 + serial,
                                                .padded_tokens = 4000 + serial,
                                                .queue = 50000 + serial};
  peer->rate.tokens_per_second = 0.5 + (double)serial;
  return peer;
}

static void expect_rows(const char *expected)
{
  char *text = plm_feed_peers_json(&feed);
  assert_string_equal(text, expected);
  free(text);
}

static void a_packer_has_a_row(void **state)
{
  (void)state;
  expect_rows("[]");
  add_peer(0, FEED_PEERS - 1, 1, 7);
  lanes[0].prepared = lanes[0].home = 7;
  expect_rows("[{\"packer\":\"p1\",\"host\":\"h1\",\"pid\":41,\"state\":\"serving\",\"windows\":8,"
              "\"documents\":27,\"tokens\":307,\"padded_tokens\":4007,\"queue\":50007,"
              "\"standby\":false,\"ahead\":0,\"rate\":7.5,\"sign_age_s\":1.75,\"age_s\":7.5}]");
  lanes[0].home = 8;
  lanes[0].peers[FEED_PEERS - 1].used = false;
  add_peer(1, 0, 2, 7);
  lanes[1].prepared = 7;
  lanes[1].home = 8;
  expect_rows("[{\"packer\":\"p2\",\"host\":\"h2\",\"pid\":42,\"state\":\"standby\",\"windows\":8,"
              "\"documents\":27,\"tokens\":307,\"padded_tokens\":4007,\"queue\":50007,"
              "\"standby\":true,\"ahead\":0,\"rate\":7.5,\"sign_age_s\":1.75,\"age_s\":7.5}]");
}

/* Packer 1 serves both sources, packer 2 only the second. The last message counts, of whichever
 * source. */
static void a_packer_of_several_sources_has_one_row(void **state)
{
  static const char *const folders[LANES] = {"/data/a", "/data/b"};
  (void)state;
  feed.folders = folders;
  feed.folder_count = LANES;
  strcpy(lanes[0].of_source, "source 0");
  strcpy(lanes[1].of_source, "source 1");
  add_peer(0, 2, 1, 1);
  add_peer(1, 0, 2, 3);
  add_peer(1, 5, 1, 2);
  lanes[0].prepared = 1;
  lanes[1].prepared = 3;
  struct feed_range ranges[4] = {{.request.state = REQUEST_DONE, .taken = 2, .count = 10},
                                 {.request.state = REQUEST_DONE, .taken = 0, .count = 100},
                                 {.request.state = REQUEST_WANTED, .taken = 0, .count = 1000},
                                 {.request.state = REQUEST_DONE, .taken = 1, .count = 5}};
  for (int i = 0; i < 4; i++) ranges[i].packer_id = i == 1 ? 2 : 1;
  for (int i = 0; i < 2; i++) ranges[i].next = &ranges[i + 1];
  lanes[1].head = &ranges[0];
  lanes[0].head = &ranges[3];
  expect_rows("[{\"packer\":\"p1\",\"host\":\"h1\",\"pid\":41,\"state\":\"serving\",\"windows\":5,"
              "\"documents\":43,\"tokens\":603,\"padded_tokens\":8003,\"queue\":100003,"
              "\"standby\":false,\"ahead\":12,\"rate\":4,\"sign_age_s\":0.25,\"age_s\":1.5,"
              "\"sources\":[0,1],"
              "\"corpora\":[\"/data/a\",\"/data/b\"]},"
              "{\"packer\":\"p2\",\"host\":\"h2\",\"pid\":42,\"state\":\"standby\",\"windows\":4,"
              "\"documents\":23,\"tokens\":303,\"padded_tokens\":4003,\"queue\":50003,"
              "\"standby\":true,\"ahead\":100,\"rate\":3.5,\"sign_age_s\":0.75,\"age_s\":3.5,"
              "\"sources\":[1],"
              "\"corpora\":[\"/data/b\"]}]");
  feed.folder_count = 1; /* the folder of the second source is not known */
  char *text = plm_feed_peers_json(&feed);
  assert_non_null(strstr(text, "\"corpora\":[\"/data/a\"]}"));
  assert_non_null(strstr(text, "\"corpora\":[]}"));
  assert_null(strstr(text, "/data/b"));
  free(text);
}

static void counters_are_those_of_all_sources(void **state)
{
  (void)state;
  struct plm_feed_counters counters;
  lanes[0].counters = (struct plm_feed_counters){.chunks = 1,
                                                 .real_tokens = 2,
                                                 .bytes = 3,
                                                 .refused = 4,
                                                 .dropped = 5,
                                                 .invalid = 6,
                                                 .retried = 8,
                                                 .peers = 9};
  lanes[1].counters = (struct plm_feed_counters){.chunks = 10,
                                                 .real_tokens = 20,
                                                 .bytes = 30,
                                                 .refused = 40,
                                                 .dropped = 50,
                                                 .invalid = 60,
                                                 .retried = 80,
                                                 .peers = 90};
  plm_feed_counters(&feed, &counters);
  assert_int_equal(counters.chunks, 11);
  assert_int_equal(counters.real_tokens, 22);
  assert_int_equal(counters.bytes, 33);
  assert_int_equal(counters.refused, 44);
  assert_int_equal(counters.dropped, 55);
  assert_int_equal(counters.invalid, 66);
  assert_int_equal(counters.retried, 88);
  assert_int_equal(counters.peers, 99);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(a_packer_has_a_row),
      TEST(a_packer_of_several_sources_has_one_row),
      TEST(counters_are_those_of_all_sources),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
