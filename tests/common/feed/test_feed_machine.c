/* What the feed's state machine answers to each message, what it counts, and when. */
#include <string.h>
#include <unistd.h>

#include "common/feed/feed_machine.h"
#include "common/feed/feed_peers.h"
#include "common/wire/data.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/machine_scene.h"

static const struct plm_hash run_id = {1, 2};
static struct machine_scene scene;

/* ---- messages ----------------------------------------------------------------------------- */

static void strangers_are_asked_to_say_hello(void **state)
{
  (void)state;
  machine_scene_say(&scene, 1, PLM_MESSAGE_PING, 1001, 0);
  assert_int_equal(scene.sent[0].header.packer, 1001);
  machine_scene_expect(&scene, PLM_MESSAGE_REHELLO, 1);
  machine_scene_counters(&scene, 1, 0, 0, 0);
  machine_scene_say(&scene, 1, PLM_MESSAGE_BYE, 1001, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_counters(&scene, 2, 0, 0, 0);
  machine_scene_join(&scene, 1, 0);
  assert_int_equal(scene.sent[0].header.packer, 1001);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
  machine_scene_counters(&scene, 2, 0, 0, 1);
  assert_int_equal(scene.changed, 1); /* the corpus is known */
}

/* Each message names both incarnations and the run. */
static void messages_for_others_are_dropped(void **state)
{
  struct plm_header header = {
      .type = PLM_MESSAGE_PING, .run_id = run_id, .consumer = SCENE_CONSUMER, .packer = 1001};
  (void)state;
  machine_scene_join(&scene, 1, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
  machine_scene_give(&scene, 1, &header, NULL, 0, 1);
  assert_int_equal(scene.sent[0].header.packer, 1001);
  machine_scene_expect(&scene, PLM_MESSAGE_PONG, 1);
  machine_scene_counters(&scene, 0, 0, 0, 1);
  header.consumer ^= 2;
  machine_scene_give(&scene, 1, &header, NULL, 0, 2);
  machine_scene_counters(&scene, 1, 0, 0, 1);
  header.consumer ^= 2;
  header.packer++;
  machine_scene_give(&scene, 1, &header, NULL, 0, 3);
  machine_scene_counters(&scene, 2, 0, 0, 1);
  header.packer--;
  header.run_id.high++;
  machine_scene_give(&scene, 1, &header, NULL, 0, 4);
  machine_scene_counters(&scene, 3, 0, 0, 1);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  assert_int_equal(scene.feed.peers[0].heard_ms, SCENE_START_MS + 1);
  machine_scene_say(&scene, 1, PLM_MESSAGE_DATA, 1001, 5); /* nobody asked for it */
  machine_scene_counters(&scene, 4, 0, 0, 1);
  machine_scene_say(&scene, 1, PLM_MESSAGE_PROOF, 1001, 6);
  machine_scene_counters(&scene, 5, 0, 0, 1);
  assert_int_equal(scene.feed.peers[0].heard_ms, SCENE_START_MS + 6);
  assert_int_equal(scene.feed.peers[0].progress_ms, SCENE_START_MS + 6);
  machine_scene_say(&scene, 1, PLM_MESSAGE_BYE, 1001, 7);
  machine_scene_counters(&scene, 5, 0, 0, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
}

static void a_hello_is_answered_once_a_second(void **state)
{
  (void)state;
  const struct plm_hello hello = machine_scene_hello(1, 30);
  machine_scene_join(&scene, 1, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
  machine_scene_join(&scene, 1, FEED_GREET_MS - 1);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_counters(&scene, 1, 0, 0, 1);
  machine_scene_join(&scene, 1, FEED_GREET_MS);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
  machine_scene_join(&scene, 1, 2 * FEED_GREET_MS - 1);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_counters(&scene, 2, 0, 0, 1);
  machine_scene_join(&scene, 2, 2 * FEED_GREET_MS - 1); /* another connection */
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 2);
  machine_scene_counters(&scene, 2, 0, 0, 2);
  /* A new incarnation needs a new connection. */
  machine_scene_greet(&scene, 1, &hello, 1003, 5000);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_counters(&scene, 2, 1, 0, 2);
  /* It replaces the other connection of its process. */
  machine_scene_greet(&scene, 3, &hello, 1003, 5000);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 3);
  machine_scene_counters(&scene, 2, 1, 0, 2);
  machine_scene_say(&scene, 1, PLM_MESSAGE_PING, 1001, 5001);
  machine_scene_expect(&scene, PLM_MESSAGE_REHELLO, 1);
}

/* A HELLO may already name the consumer: another one than this is counted, and answered too. */
static void a_hello_for_an_earlier_feed_is_counted(void **state)
{
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  struct plm_hello hello = machine_scene_hello(1, 30);
  struct plm_header header = {
      .type = PLM_MESSAGE_HELLO, .packer = 1001, .consumer = SCENE_CONSUMER};
  (void)state;
  machine_scene_give(&scene, 1, &header, payload, plm_hello_encode(&hello, payload), 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
  machine_scene_counters(&scene, 0, 0, 0, 1);
  hello.packer_id = 2;
  header.consumer = SCENE_CONSUMER + 2;
  machine_scene_give(&scene, 2, &header, payload, plm_hello_encode(&hello, payload), 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 2);
  machine_scene_counters(&scene, 1, 0, 0, 2);
}

/* The corpus becomes known once, and a message of another version is answered once a second. */
static void the_corpus_is_learnt_once(void **state)
{
  (void)state;
  machine_scene_join(&scene, 1, 0);
  machine_scene_join(&scene, 2, 1);
  assert_int_equal(scene.changed, 1);
  const struct plm_hash fingerprint = machine_scene_hello(1, 30).fingerprint;
  assert_true(scene.feed.corpus_known && plm_hash_equal(scene.feed.root, fingerprint));
  assert_true(plm_hash_equal(scene.feed.fingerprint, fingerprint));
  assert_int_equal(scene.feed.corpus.documents[0], 30);
  assert_int_equal(scene.feed.splits[0].documents, 30);
  assert_null(scene.feed.corpus.labels);
  assert_int_equal(scene.feed.peers[1].pid, 72);
  assert_string_equal(scene.feed.peers[1].name, "host:72");
  assert_string_equal(scene.feed.peers[1].host, "host");
  assert_int_equal(scene.feed.peers[1].packer_id, 2);
  assert_int_equal(scene.feed.peers[1].incarnation, 1002);
  assert_int_equal(scene.feed.peers[1].joined_ms, SCENE_START_MS + 1);
}

static void another_version_is_refused(void **state)
{
  const struct plm_message message = {
      .routing_id = {9, 0}, .routing_id_bytes = 2, .header = {.packer = 1009}, .connection = 109};
  (void)state;
  feed_machine_other_version(&scene.feed, &message, "version 9", SCENE_START_MS);
  const struct scene_message *sent = machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 9);
  assert_string_equal(sent->text,
                      "version 9; install the same version of plm-pipeline on all hosts");
  machine_scene_counters(&scene, 0, 1, 1, 0);
  feed_machine_other_version(&scene.feed, &message, "version 9",
                             SCENE_START_MS + FEED_GREET_MS - 1);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 9);
  machine_scene_counters(&scene, 0, 2, 1, 0);
  feed_machine_other_version(&scene.feed, &message, "version 9", SCENE_START_MS + FEED_GREET_MS);
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 9);
  machine_scene_counters(&scene, 0, 3, 2, 0);
}

static void what_is_no_hello_is_invalid(void **state)
{
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  const struct plm_hello hello = machine_scene_hello(1, 30);
  const struct plm_header header = {.type = PLM_MESSAGE_HELLO, .packer = 1001};
  const size_t size = plm_hello_encode(&hello, payload);
  (void)state;
  machine_scene_give(&scene, 1, &header, payload, size - 1, 0);
  machine_scene_counters(&scene, 0, 1, 0, 0);
  machine_scene_give(&scene, 1, &header, payload, 0, 0);
  machine_scene_counters(&scene, 0, 2, 0, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_give(&scene, 1, &header, payload, size, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
  machine_scene_counters(&scene, 0, 2, 0, 1);
}

static void the_eighth_invalid_message_is_the_last(void **state)
{
  (void)state;
  machine_scene_join(&scene, 1, 0);
  machine_scene_join(&scene, 2, 0);
  scene.sent_count = 0;
  for (int i = 1; i < FEED_INVALID_MOST; i++)
    machine_scene_say(&scene, 1, PLM_MESSAGE_GET, 1001, i);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_counters(&scene, 0, FEED_INVALID_MOST - 1, 0, 2);
  machine_scene_say(&scene, 1, PLM_MESSAGE_PONG, 1001, 20); /* without counters */
  assert_string_equal(scene.sent[0].text, "it breaks the protocol");
  assert_int_equal(scene.sent[0].header.request, PLM_REJECT_REFUSED);
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 1);
  machine_scene_counters(&scene, 0, FEED_INVALID_MOST, 1, 1);
  assert_int_equal(scene.dismissed, 1);
  assert_int_equal(scene.last_dismissed, 101);
  /* Neither its connection nor its process is heard again. */
  machine_scene_say(&scene, 1, PLM_MESSAGE_PING, 1001, 21);
  machine_scene_join(&scene, 1, 2000);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_counters(&scene, 2, FEED_INVALID_MOST, 1, 1);
  const struct plm_hello hello = machine_scene_hello(1, 30);
  machine_scene_greet(&scene, 3, &hello, 1003, 2000);
  assert_string_equal(scene.sent[0].text,
                      "it gave a false answer or broke the protocol before; see the trainer's log");
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 3);
  machine_scene_counters(&scene, 2, FEED_INVALID_MOST, 2, 1);
  machine_scene_say(&scene, 2, PLM_MESSAGE_PING, 1002, 22);
  machine_scene_expect(&scene, PLM_MESSAGE_PONG, 2);
}

static void pong_brings_counters(void **state)
{
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  const struct plm_packer_counters counters = {.windows = 3, .tokens = 50, .age_ms = 7};
  const struct plm_header header = {
      .type = PLM_MESSAGE_PONG, .run_id = run_id, .consumer = SCENE_CONSUMER, .packer = 1001};
  (void)state;
  machine_scene_join(&scene, 1, 0);
  machine_scene_give(&scene, 1, &header, payload, plm_counters_encode(&counters, payload), 1);
  machine_scene_counters(&scene, 0, 0, 0, 1);
  assert_memory_equal(&scene.feed.peers[0].counters, &counters, sizeof counters);
}

/* A refusal says why; without a reason it is invalid. */
static void a_nack_needs_a_reason(void **state)
{
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  const struct plm_header header = {.type = PLM_MESSAGE_NACK,
                                    .run_id = run_id,
                                    .consumer = SCENE_CONSUMER,
                                    .packer = 1001,
                                    .request = 5};
  (void)state;
  machine_scene_join(&scene, 1, 0);
  machine_scene_give(&scene, 1, &header, payload, plm_nack_encode(PLM_NACK_BUSY, "busy", payload),
                     1);
  machine_scene_counters(&scene, 0, 0, 0, 1);
  machine_scene_give(&scene, 1, &header, payload, 0, 1);
  machine_scene_counters(&scene, 0, 1, 0, 1);
}

/* ---- time ---------------------------------------------------------------------------------- */

static void a_silent_packer_is_pinged_and_forgotten(void **state)
{
  (void)state;
  machine_scene_join(&scene, 1, 0);
  scene.sent_count = 0;
  feed_machine_turn(&scene.feed, SCENE_START_MS + FEED_PING_MS - 1);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  feed_machine_turn(&scene.feed, SCENE_START_MS + FEED_PING_MS);
  machine_scene_expect(&scene, PLM_MESSAGE_PING, 1);
  feed_machine_turn(&scene.feed, SCENE_START_MS + 2 * FEED_PING_MS - 1);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  machine_scene_say(&scene, 1, PLM_MESSAGE_PING, 1001, 2500);
  machine_scene_expect(&scene, PLM_MESSAGE_PONG, 1);
  feed_machine_lost(&scene.feed, SCENE_START_MS + 2500); /* whose connection it was is found out */
  machine_scene_expect(&scene, PLM_MESSAGE_PING, 1);
  feed_machine_turn(&scene.feed, SCENE_START_MS + 2500 + FEED_SILENCE_MS);
  machine_scene_counters(&scene, 0, 0, 0, 1);
  feed_machine_turn(&scene.feed, SCENE_START_MS + 2500 + FEED_SILENCE_MS + 1);
  machine_scene_counters(&scene, 0, 0, 0, 0);
  assert_int_equal(scene.feed.progress_ms, SCENE_START_MS + 2500 + FEED_SILENCE_MS + 1);
}

/* A packer that does not read is disconnected, one that has left is only forgotten. */
static void a_packer_that_cannot_be_told_is_forgotten(void **state)
{
  (void)state;
  machine_scene_join(&scene, 1, 0);
  machine_scene_join(&scene, 2, 0);
  scene.send_status = PLM_AGAIN;
  machine_scene_say(&scene, 1, PLM_MESSAGE_PING, 1001, 1);
  machine_scene_counters(&scene, 0, 0, 0, 1);
  assert_int_equal(scene.dismissed, 1);
  assert_int_equal(scene.last_dismissed, 101);
  scene.send_status = PLM_NOT_FOUND;
  machine_scene_say(&scene, 2, PLM_MESSAGE_PING, 1002, 1);
  machine_scene_counters(&scene, 0, 0, 0, 0);
  assert_int_equal(scene.dismissed, 1);
}

/* Keys are looked at once a second. */
static void a_packer_whose_key_is_removed_is_dropped(void **state)
{
  const struct plm_feed_options options = machine_scene_options();
  (void)state;
  machine_scene_close(&scene);
  machine_scene_open(&scene, &options, true);
  machine_scene_join(&scene, 1, 0);
  machine_scene_join(&scene, 2, 0);
  feed_machine_turn(&scene.feed, SCENE_START_MS);
  scene.sent_count = 0;
  scene.removed_key = "key 2";
  feed_machine_turn(&scene.feed, SCENE_START_MS + 999);
  machine_scene_counters(&scene, 0, 0, 0, 2);
  machine_scene_say(&scene, 1, PLM_MESSAGE_PING, 1001, 999);
  machine_scene_expect(&scene, PLM_MESSAGE_PONG, 1);
  scene.feed.peers[0].pinged_ms = SCENE_START_MS + 999;
  feed_machine_turn(&scene.feed, SCENE_START_MS + 1000);
  assert_string_equal(scene.sent[0].text, "its key is no longer on the list");
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 2);
  machine_scene_counters(&scene, 0, 0, 1, 1);
  assert_int_equal(scene.last_dismissed, 102);
}

/* Packers hear of the run's other consumers, once each time these change. */
static void others_are_announced_in_the_next_turn(void **state)
{
  static const char *const addresses[] = {"tcp://a:1", "tcp://b:2"};
  static const char key[] = "0123456789012345678901234567890123456789";
  static const char *const keys[] = {NULL, key};
  struct plm_welcome welcome;
  (void)state;
  machine_scene_join(&scene, 1, 0);
  scene.sent_count = 0;
  feed_machine_others(&scene.feed, addresses, keys, 2);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  feed_machine_turn(&scene.feed, SCENE_START_MS + 1);
  assert_int_equal(plm_welcome_decode(scene.sent[0].payload, scene.sent[0].bytes, &welcome, NULL),
                   PLM_OK);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
  assert_int_equal(welcome.peers, 2);
  assert_string_equal(welcome.address[0], "tcp://a:1");
  assert_string_equal(welcome.address[1], "tcp://b:2");
  assert_string_equal(welcome.key[0], "");
  assert_string_equal(welcome.key[1], key);
  assert_int_equal(welcome.plan.max_length, 64);
  feed_machine_turn(&scene.feed, SCENE_START_MS + 2);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 1);
  feed_machine_others(&scene.feed, addresses, NULL, 1);
  feed_machine_turn(&scene.feed, SCENE_START_MS + 3);
  assert_int_equal(plm_welcome_decode(scene.sent[0].payload, scene.sent[0].bytes, &welcome, NULL),
                   PLM_OK);
  assert_int_equal(welcome.peers, 1);
  assert_string_equal(welcome.key[0], "");
  /* A message has room for so many; the others are left out. */
  const char *all[PLM_WIRE_PEERS + 1];
  for (int i = 0; i <= PLM_WIRE_PEERS; i++) all[i] = addresses[i % 2];
  scene.sent_count = 0;
  for (uint32_t count = PLM_WIRE_PEERS; count <= PLM_WIRE_PEERS + 1; count++) {
    feed_machine_others(&scene.feed, all, NULL, count);
    assert_int_equal(scene.feed.welcome.peers, PLM_WIRE_PEERS);
  }
  feed_machine_turn(&scene.feed, SCENE_START_MS + 4);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 1);
}

/* The credit is 2.5 seconds of what is used, measured four times a second at most. */
static void the_credit_follows_the_rate(void **state)
{
  struct feed_state *feed = &scene.feed;
  (void)state;
  const uint64_t start = FEED_CREDIT_START, most = 8 << 20;
  assert_int_equal(feed->credit, start);
  feed->consumed_bytes = 600000;
  feed_machine_turn(feed, SCENE_START_MS + 249);
  assert_true(feed->rate == 0);
  feed_machine_turn(feed, SCENE_START_MS + 250);
  assert_true(feed->rate == 2400000);
  assert_int_equal(feed->credit, 6000000);
  feed->consumed_bytes += 600000; /* a second time, it is a mean */
  feed_machine_turn(feed, SCENE_START_MS + 750);
  assert_true(feed->rate > 2039999 && feed->rate < 2040001);
  assert_int_equal(feed->credit, 6000000 - (6000000 - 5100000) / 8);
  feed->starved = true;
  feed_machine_turn(feed, SCENE_START_MS + 1000);
  assert_int_equal(feed->credit, most);
  assert_false(feed->starved);
  for (int i = 1; i <= 100; i++) feed_machine_turn(feed, SCENE_START_MS + 1000 + 250 * i);
  assert_int_equal(feed->credit, start);
}

/* Another packer is asked when the first is late: after half the time for which the credit lasts,
 * but not before 10 ms are over. */
static void a_fast_user_asks_another_packer_soon(void **state)
{
  static const struct {
    double rate;
    int64_t late;
  } rows[] = {{1e12, 10}, {500.0 * (8 << 20) / 11, 11}, {1, FEED_LATE_MS}};
  struct feed_state *feed = &scene.feed;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    machine_scene_join(&scene, 1, 0);
    machine_scene_join(&scene, 2, 0);
    feed->wanted = true;
    feed->credit = 8 << 20;
    feed->rate = rows[i].rate;
    feed->rate_ms = SCENE_START_MS + rows[i].late; /* it is measured later */
    feed_machine_turn(feed, SCENE_START_MS);
    assert_int_equal(feed->counters.retried, 0);
    feed_machine_turn(feed, SCENE_START_MS + rows[i].late);
    assert_int_equal(feed->counters.retried, 0);
    feed_machine_turn(feed, SCENE_START_MS + rows[i].late + 1);
    assert_true(feed->counters.retried > 0);
    machine_scene_end(state);
    machine_scene_begin(state);
  }
}

/* At most FEED_LOG_MOST lines at once, and then one each half second. */
static void lines_about_packers_are_few(void **state)
{
  struct feed_state *feed = &scene.feed;
  (void)state;
  for (int i = 0; i < FEED_LOG_MOST; i++) assert_true(feed_may_log(feed));
  assert_false(feed_may_log(feed));
  feed->now_ms = SCENE_START_MS + FEED_LOG_EVERY_MS - 1;
  assert_false(feed_may_log(feed));
  assert_int_equal(feed->log_omitted, 2);
  feed->now_ms++;
  assert_true(feed_may_log(feed));
  assert_int_equal(feed->log_omitted, 0);
  assert_false(feed_may_log(feed));
  feed->now_ms += 3 * FEED_LOG_EVERY_MS;
  for (int i = 0; i < 3; i++) assert_true(feed_may_log(feed));
  assert_false(feed_may_log(feed));
  feed->now_ms += 1000 * FEED_LOG_EVERY_MS;
  for (int i = 0; i < FEED_LOG_MOST; i++) assert_true(feed_may_log(feed));
  assert_false(feed_may_log(feed));
  feed->now_ms -= 10 * FEED_LOG_EVERY_MS; /* calls of several threads may come in another order */
  assert_false(feed_may_log(feed));
}

/* Also those about packers that are refused for their version, or dropped. */
static void what_is_not_logged_is_counted(void **state)
{
  const struct plm_message message = {
      .routing_id = {9, 0}, .routing_id_bytes = 2, .header = {.packer = 1009}, .connection = 109};
  (void)state;
  for (unsigned left = 0; left < 2; left++) {
    machine_scene_join(&scene, 1 + left, 0);
    scene.feed.log_left = left;
    scene.feed.log_omitted = 0;
    captured_begin(STDERR_FILENO);
    feed_peer_breaks_protocol(&scene.feed, 1 + left);
    const char *said = captured_end();
    assert_int_equal(captured_times(said, "is dropped: it breaks the protocol"), left);
    assert_int_equal(scene.feed.log_omitted, 1 - left);
    scene.feed.log_left = left;
    scene.feed.log_omitted = 0;
    captured_begin(STDERR_FILENO);
    feed_machine_other_version(&scene.feed, &message, "version 9",
                               SCENE_START_MS + left * FEED_GREET_MS);
    said = captured_end();
    assert_int_equal(captured_times(said, "refused a packer: version 9"), left);
    assert_int_equal(scene.feed.log_omitted, 1 - left);
  }
}

/* The payload of a plan's greatest chunk and its labels, but never more than a message has. */
static void no_message_is_larger_than_the_protocol_allows(void **state)
{
  struct plm_plan_parameters plan = scene.feed.plan;
  (void)state;
  assert_int_equal(feed_data_most(&plan), plm_data_chunk_most(&plan) + FEED_LABELS_MOST);
  assert_true(feed_data_most(&plan) < PLM_WIRE_DATA_LIMIT);
  plan.max_length = 1 << 30;
  assert_int_equal(feed_data_most(&plan), PLM_WIRE_DATA_LIMIT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      SCENE_TEST(strangers_are_asked_to_say_hello),
      SCENE_TEST(messages_for_others_are_dropped),
      SCENE_TEST(a_hello_is_answered_once_a_second),
      SCENE_TEST(a_hello_for_an_earlier_feed_is_counted),
      SCENE_TEST(the_corpus_is_learnt_once),
      SCENE_TEST(another_version_is_refused),
      SCENE_TEST(what_is_no_hello_is_invalid),
      SCENE_TEST(the_eighth_invalid_message_is_the_last),
      SCENE_TEST(pong_brings_counters),
      SCENE_TEST(a_nack_needs_a_reason),
      SCENE_TEST(a_silent_packer_is_pinged_and_forgotten),
      SCENE_TEST(a_packer_that_cannot_be_told_is_forgotten),
      SCENE_TEST(a_packer_whose_key_is_removed_is_dropped),
      SCENE_TEST(others_are_announced_in_the_next_turn),
      SCENE_TEST(the_credit_follows_the_rate),
      SCENE_TEST(a_fast_user_asks_another_packer_soon),
      SCENE_TEST(lines_about_packers_are_few),
      SCENE_TEST(what_is_not_logged_is_counted),
      SCENE_TEST(no_message_is_larger_than_the_protocol_allows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
