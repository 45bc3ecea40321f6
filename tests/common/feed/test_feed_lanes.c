/* The lanes of a mixture: for which a message is, which ones are waited for, and their places. */
#include "common/feed/feed_lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/machine_scene.h"

enum { LANES = 3, START_MS = 50000 };

static struct plm_feed *feed;
static struct machine_scene *scenes;

/* Three lanes of corpora with 10, 11 and 12 documents; nothing sends. */
static int begin(void **state)
{
  (void)state;
  scenes = must(calloc(LANES, sizeof *scenes));
  feed = must(calloc(1, sizeof *feed));
  feed->lanes = must(calloc(LANES, sizeof *feed->lanes));
  feed->lane_count = LANES;
  snprintf(feed->bound, sizeof feed->bound, "tcp://here:1");
  for (uint32_t k = 0; k < LANES; k++) {
    struct plm_feed_options options = machine_scene_options();
    struct plm_feed_source_options sources[LANES] = {0};
    options.sources = sources;
    options.source_count = LANES;
    sources[k].plan = options.plan;
    sources[k].plan.seed = 70 + k;
    sources[k].fingerprint = machine_scene_hello(1, 10 + k).fingerprint;
    sources[k].name = "/a/corpus";
    machine_scene_open(&scenes[k], &options, false);
    feed_machine_init(&feed->lanes[k], &options, &sources[k], &scenes[k].feed.network, START_MS);
  }
  return 0;
}

static int end(void **state)
{
  (void)state;
  for (uint32_t k = 0; k < LANES; k++) machine_scene_close(&scenes[k]);
  feed_lanes_close(feed);
  free(feed);
  free(scenes);
  return 0;
}

/* The lane that a function finds for a message with this payload. */
static uint32_t lane_of(struct feed_state *(*find)(struct plm_feed *, const struct plm_message *),
                        struct plm_message *message, const void *payload, size_t bytes)
{
  assert_int_equal(zmq_msg_init_size(&message->payload, bytes), 0);
  if (bytes > 0) memcpy(zmq_msg_data(&message->payload), payload, bytes);
  const struct feed_state *found = find(feed, message);
  zmq_msg_close(&message->payload);
  return (uint32_t)(found - feed->lanes);
}

static void a_hello_is_for_its_corpus(void **state)
{
  (void)state;
  for (uint32_t k = 0; k <= LANES; k++) { /* the last one is of no source */
    uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
    struct plm_message message = {.header = {.type = PLM_MESSAGE_HELLO}};
    struct plm_hello hello = machine_scene_hello(1, 10 + k);
    assert_int_equal(lane_of(feed_lane_of, &message, payload, plm_hello_encode(&hello, payload)),
                     k < LANES ? k : 0);
    hello = machine_scene_hello(1, 40); /* upgraded since */
    hello.upgraded_from = machine_scene_hello(1, 10 + k).fingerprint;
    assert_int_equal(lane_of(feed_lane_of, &message, payload, plm_hello_encode(&hello, payload)),
                     k < LANES ? k : 0);
    payload[4]++; /* what is not a HELLO is refused by the first one */
    assert_int_equal(lane_of(feed_lane_of, &message, payload, 7), 0);
  }
}

static void others_are_for_their_plan(void **state)
{
  (void)state;
  for (uint32_t k = 0; k < LANES; k++) {
    struct plm_message message = {
        .header = {.type = PLM_MESSAGE_DATA, .plan = feed->lanes[k].plan_hash}};
    assert_int_equal(lane_of(feed_lane_of, &message, NULL, 0), k);
    message.header.plan.low++;
    assert_int_equal(lane_of(feed_lane_of, &message, NULL, 0), 0);
  }
  struct plm_message message = {
      .header = {.type = PLM_MESSAGE_DATA, .plan = feed->lanes[2].plan_hash}};
  feed->lane_count = 1; /* without a mixture, all are for the only one */
  assert_int_equal(lane_of(feed_lane_of, &message, NULL, 0), 0);
  feed->lane_count = LANES;
}

static void a_connection_belongs_to_one_lane(void **state)
{
  struct plm_message message = {.routing_id = {7, 8}, .routing_id_bytes = 2};
  (void)state;
  assert_int_equal(lane_of(feed_lane_of_peer, &message, NULL, 0), 0);
  for (uint32_t k = 0; k < LANES; k++) {
    struct feed_peer *peer = &feed->lanes[k].peers[5];
    *peer = (struct feed_peer){.used = true, .routing_id = {7, 8}, .routing_id_bytes = 2};
    assert_int_equal(lane_of(feed_lane_of_peer, &message, NULL, 0), k);
    peer->routing_id[1]++;
    assert_int_equal(lane_of(feed_lane_of_peer, &message, NULL, 0), 0);
    peer->routing_id[1]--;
    peer->used = false;
    assert_int_equal(lane_of(feed_lane_of_peer, &message, NULL, 0), 0);
  }
}

/* What is said in a turn, `after` milliseconds after the start. */
static const char *watched(int64_t after)
{
  captured_begin(STDERR_FILENO);
  feed_lanes_watch(feed, START_MS + after);
  return captured_end();
}

static void expect_alone(const char *said, uint32_t source, uint32_t peers)
{
  char expected[200], hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(machine_scene_hello(1, 10 + source).fingerprint, hex);
  snprintf(expected, sizeof expected,
           "no packer of source %u, /a/corpus (fingerprint %s) is connected, but %u of other "
           "sources; ",
           source, hex, peers);
  assert_non_null(strstr(said, expected));
}

static void a_source_without_packers_is_reported(void **state)
{
  (void)state;
  assert_string_equal(watched(FEED_SILENCE_MS), ""); /* nobody is here at all */
  feed->lanes[1].peer_count = 2;
  const int64_t since = FEED_SILENCE_MS;
  assert_string_equal(watched(since + FEED_SILENCE_MS - 1), "");
  const char *said = watched(since + FEED_SILENCE_MS);
  expect_alone(said, 0, 2);
  expect_alone(said, 2, 2);
  assert_non_null(strstr(said, "--connect tcp://here:1\n"));
  assert_null(strstr(said, "source 1"));
  /* again after ten seconds */
  const int64_t told = since + FEED_SILENCE_MS;
  assert_string_equal(watched(told + FEED_WAITING_MS - 1), "");
  feed->lanes[0].peer_count = 1;
  said = watched(told + FEED_WAITING_MS);
  assert_null(strstr(said, "no packer of source 0"));
  expect_alone(said, 2, 3);
  feed->lane_count = 1;
  feed->lanes[0].peer_count = 0;
  assert_string_equal(watched(told + 100 * FEED_WAITING_MS), "");
  feed->lane_count = LANES;
}

/* Only lanes that have moved are moved back, since that forgets what was requested. */
static void lanes_return_to_their_places(void **state)
{
  struct feed_place places[PLM_MAX_SOURCES];
  (void)state;
  for (uint32_t k = 0; k < LANES; k++) {
    feed->lanes[k].split = PLM_SPLIT_VALID;
    feed->lanes[k].place = (struct plm_plan_place){.epoch = 1, .window = 2, .chunk = 3 + k};
  }
  feed_lanes_places(feed, places);
  for (int field = 0; field < 4; field++) {
    for (uint32_t k = 0; k < LANES; k++) feed->lanes[k].seeking = false;
    struct plm_plan_place *place = &feed->lanes[field % LANES].place;
    if (field == 0) place->epoch++;
    if (field == 1) place->window++;
    if (field == 2) place->chunk++;
    feed_lanes_return(feed, places);
    for (uint32_t k = 0; k < LANES; k++) {
      assert_int_equal(feed->lanes[k].seeking, field < 3 && k == (uint32_t)field);
      assert_int_equal(feed->lanes[k].split, PLM_SPLIT_VALID);
      assert_int_equal(feed->lanes[k].place.epoch, 1);
      assert_int_equal(feed->lanes[k].place.window, 2);
      assert_int_equal(feed->lanes[k].place.chunk, 3 + k);
    }
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_hello_is_for_its_corpus),        TEST(others_are_for_their_plan),
      TEST(a_connection_belongs_to_one_lane), TEST(a_source_without_packers_is_reported),
      TEST(lanes_return_to_their_places),
  };
  plm_log_init("test", PLM_LOG_WARNING);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
