/* Which packers the feed's state machine admits, and what it tells the others. */
#include <string.h>
#include <unistd.h>

#include "common/feed/feed_machine.h"
#include "common/feed/feed_peers.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/machine_scene.h"

static struct machine_scene scene;

static void expect_refusal(const struct plm_hello *hello, const char *why)
{
  static unsigned route;
  const uint64_t refused = scene.feed.counters.refused;
  route++;
  machine_scene_greet(&scene, route, hello, 1000 + route, 0);
  assert_int_equal(scene.feed.counters.refused, refused + 1);
  assert_non_null(strstr(scene.sent[0].text, why));
  assert_int_equal(scene.sent[0].header.request, PLM_REJECT_REFUSED);
  assert_int_equal(scene.sent[0].header.packer, 1000 + route);
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, route);
}

static void only_packers_of_the_run_are_admitted(void **state)
{
  struct plm_hello hello = machine_scene_hello(1, 30);
  (void)state;
  hello.protocol_least = hello.protocol_most = PLM_WIRE_VERSION + 1;
  expect_refusal(&hello, "the packer speaks protocols 5 to 5, and this trainer speaks 4");
  hello.protocol_least = hello.protocol_most = PLM_WIRE_VERSION - 1;
  expect_refusal(&hello, "the packer speaks protocols 3 to 3, and this trainer speaks 4");
  hello = machine_scene_hello(1, 30);
  hello.tokenizer = PLM_TOKENIZER_BYTE;
  hello.fingerprint = plm_proof_corpus(1, hello.splits, NULL);
  expect_refusal(&hello, "another tokenizer");
  machine_scene_counters(&scene, 0, 0, 3, 0);
  hello = machine_scene_hello(1, 30);
  hello.protocol_most++;
  hello.protocol_least--;
  machine_scene_greet(&scene, 200, &hello, 1200, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 200);
  hello = machine_scene_hello(2, 31); /* the first one was of another corpus */
  expect_refusal(&hello, "another corpus than the run's: its fingerprint is ");
  hello.upgraded_from = machine_scene_hello(1, 30).fingerprint; /* no longer decides */
  expect_refusal(&hello, "another corpus than the run's: its fingerprint is ");
  machine_scene_counters(&scene, 0, 0, 5, 1);
}

/* With a fingerprint, a packer may have an upgraded corpus, but all of them the same one. */
static void a_known_corpus_may_be_upgraded(void **state)
{
  struct plm_feed_options options = machine_scene_options();
  struct plm_hello hello = machine_scene_hello(1, 30);
  (void)state;
  machine_scene_close(&scene);
  options.fingerprint = (struct plm_hash){0, 77};
  machine_scene_open(&scene, &options, false);
  expect_refusal(&hello, "another corpus than the run's: its fingerprint is ");
  hello.upgraded_from = options.fingerprint;
  machine_scene_greet(&scene, 201, &hello, 1201, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 201);
  hello = machine_scene_hello(2, 31);
  hello.upgraded_from = options.fingerprint;
  expect_refusal(&hello, "another corpus than the run's: its fingerprint is ");
  assert_true(plm_hash_equal(scene.feed.fingerprint, options.fingerprint));
  assert_true(plm_hash_equal(scene.feed.root, machine_scene_hello(1, 30).fingerprint));
  assert_int_equal(scene.feed.corpus.documents[0], 30);
}

/* A packer of another consumer's corpus is told that it is not needed here. */
static void packers_of_other_sources_are_sent_on(void **state)
{
  struct plm_feed_options options = machine_scene_options();
  struct plm_hello hello = machine_scene_hello(1, 31);
  (void)state;
  machine_scene_close(&scene);
  options.fingerprint = machine_scene_hello(1, 30).fingerprint;
  options.one_of_several = true;
  machine_scene_open(&scene, &options, false);
  machine_scene_greet(&scene, 1, &hello, 1001, 0);
  assert_int_equal(scene.sent[0].header.request, PLM_REJECT_NOT_NEEDED);
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 1);
  machine_scene_counters(&scene, 0, 0, 0, 0);
  hello.protocol_least = hello.protocol_most = PLM_WIRE_VERSION + 1; /* that is worse */
  machine_scene_greet(&scene, 2, &hello, 1002, 0);
  assert_int_equal(scene.sent[0].header.request, PLM_REJECT_REFUSED);
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 2);
  hello.protocol_least = hello.protocol_most = PLM_WIRE_VERSION - 1;
  machine_scene_greet(&scene, 3, &hello, 1003, 0);
  assert_int_equal(scene.sent[0].header.request, PLM_REJECT_REFUSED);
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 3);
  machine_scene_join(&scene, 4, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 4);
  /* Without a fingerprint, any corpus may be that of this consumer. */
  machine_scene_close(&scene);
  options.fingerprint = (struct plm_hash){0};
  machine_scene_open(&scene, &options, false);
  machine_scene_join(&scene, 5, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 5);
}

static void clusters_are_needed_to_sample_them(void **state)
{
  struct plm_feed_options options = machine_scene_options();
  struct plm_hello hello = machine_scene_hello(1, 30);
  (void)state;
  machine_scene_close(&scene);
  options.plan.sampling = PLM_SAMPLING_CLUSTERS;
  machine_scene_open(&scene, &options, false);
  expect_refusal(&hello, "keeps no clusters");
  hello.splits[0].clusters = 4;
  hello.splits[0].sum = 30;
  hello.splits[0].cluster_root[0] = 3;
  hello.fingerprint = plm_proof_corpus(0, hello.splits, NULL);
  machine_scene_greet(&scene, 202, &hello, 1202, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 202);
}

/* The schema is proven by the fingerprint, and still may be none. */
static void a_malformed_schema_is_invalid(void **state)
{
  struct plm_label_schema schema = {0};
  struct plm_hello hello = machine_scene_hello(1, 30);
  uint8_t bytes[1024];
  (void)state;
  label_schema_make(&schema);
  hello.schema = bytes;
  hello.schema_bytes = (uint32_t)plm_label_schema_bytes(&schema);
  assert_in_range(hello.schema_bytes, 1, sizeof bytes);
  plm_label_schema_encode(&schema, bytes);
  for (int wrong = 1; wrong >= 0; wrong--) {
    bytes[0] ^= (uint8_t)wrong; /* the version */
    const struct plm_proof_digest digest = plm_proof_schema(bytes, hello.schema_bytes);
    hello.fingerprint = plm_proof_corpus(0, hello.splits, &digest);
    machine_scene_greet(&scene, 2 - (unsigned)wrong, &hello, 1001, 0);
    bytes[0] ^= (uint8_t)wrong;
    assert_int_equal(scene.feed.corpus_known, !wrong);
    machine_scene_expect(&scene, wrong ? PLM_MESSAGE_NONE : PLM_MESSAGE_WELCOME, 2);
    machine_scene_counters(&scene, 0, 1, 0, !wrong);
  }
  assert_int_equal(scene.feed.labels.count, schema.count);
  plm_label_schema_deinit(&schema);
}

static void a_feed_has_at_most_256_packers(void **state)
{
  (void)state;
  for (unsigned n = 1; n <= FEED_PEERS; n++) machine_scene_join(&scene, n, 0);
  assert_int_equal(scene.sent_count, FEED_PEERS);
  machine_scene_counters(&scene, 0, 0, 0, FEED_PEERS);
  scene.sent_count = 0;
  machine_scene_join(&scene, FEED_PEERS + 1, 0);
  assert_string_equal(scene.sent[0].text, "256 packers are connected already");
  machine_scene_expect(&scene, PLM_MESSAGE_REJECT, FEED_PEERS + 1);
  machine_scene_say(&scene, FEED_PEERS, PLM_MESSAGE_BYE, 1000 + FEED_PEERS, 1);
  machine_scene_join(&scene, FEED_PEERS + 2, 1);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, FEED_PEERS + 2);
  machine_scene_counters(&scene, 0, 0, 1, FEED_PEERS);
  feed_machine_bye(&scene.feed);
  assert_int_equal(scene.sent_count, FEED_PEERS);
  for (int i = 0; i < FEED_PEERS; i++) assert_int_equal(scene.sent[i].header.type, PLM_MESSAGE_BYE);
}

/* A liar is dropped for its first lie and named to the user; what it sent before only counts. */
static void a_liar_is_refused(void **state)
{
  struct plm_error error = {0};
  (void)state;
  plm_error_set(&error, PLM_CORRUPT, "document 3 is another");
  machine_scene_join(&scene, 1, 0);
  machine_scene_join(&scene, 2, 0);
  scene.sent_count = 0;
  scene.feed.progress_ms = 7;
  feed_peer_lied(&scene.feed, 2, "host:72", &error);
  const struct scene_message *sent = machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 2);
  assert_string_equal(sent->text, "false data: document 3 is another");
  assert_int_equal(sent->header.request, PLM_REJECT_FALSE_DATA);
  assert_string_equal(scene.feed.lie,
                      "packer host:72 was dropped for false data: document 3 is another");
  machine_scene_counters(&scene, 0, 1, 1, 1);
  feed_peer_lied(&scene.feed, 2, "host:72", &error);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 2);
  machine_scene_counters(&scene, 0, 2, 1, 1);
  /* A liar that comes back is not progress, and neither is one that is dropped. */
  machine_scene_join(&scene, 3, 5);
  assert_int_equal(scene.feed.progress_ms, 7);
}

/* Packers are asked in turn, without those that were asked already. */
static void packers_take_turns(void **state)
{
  static const uint64_t two[] = {2, 9}, all[] = {1, 2, 3};
  uint64_t asked[7];
  (void)state;
  assert_null(feed_peer_next(&scene.feed, NULL, 0));
  for (unsigned n = 1; n <= 3; n++) machine_scene_join(&scene, n, 0);
  for (int i = 0; i < 7; i++) asked[i] = feed_peer_next(&scene.feed, NULL, 0)->packer_id;
  for (int i = 3; i < 7; i++) assert_int_equal(asked[i], asked[i - 3]);
  assert_int_equal(asked[0] + asked[1] + asked[2], 6);
  assert_true(asked[0] != asked[1] && asked[1] != asked[2]);
  for (int i = 0; i < 7; i++) asked[i] = feed_peer_next(&scene.feed, two, 2)->packer_id;
  for (int i = 0; i < 7; i++) assert_true(asked[i] == 1 || asked[i] == 3);
  for (int i = 1; i < 7; i++) assert_true(asked[i] != asked[i - 1]);
  assert_null(feed_peer_next(&scene.feed, all, 3));
  machine_scene_say(&scene, 1, PLM_MESSAGE_BYE, 1001, 1);
  assert_int_equal(feed_peer_next(&scene.feed, two, 2)->packer_id, 3);
  assert_int_equal(feed_peer_next(&scene.feed, two, 2)->packer_id, 3);
}

/* Peers are found by their connection and by their serial, which is never used again. */
static void peers_are_found(void **state)
{
  (void)state;
  machine_scene_join(&scene, 1, 0);
  machine_scene_join(&scene, 2, 0);
  const uint64_t first = scene.feed.peers[0].serial, second = scene.feed.peers[1].serial;
  assert_ptr_equal(feed_peer_find(&scene.feed, (const uint8_t[]){2, 0}, 2), &scene.feed.peers[1]);
  assert_null(feed_peer_find(&scene.feed, (const uint8_t[]){2, 0, 0}, 3));
  assert_null(feed_peer_find(&scene.feed, (const uint8_t[]){2, 1}, 2));
  assert_ptr_equal(feed_peer_serial(&scene.feed, first), &scene.feed.peers[0]);
  assert_ptr_equal(feed_peer_serial(&scene.feed, second), &scene.feed.peers[1]);
  assert_null(feed_peer_serial(&scene.feed, 0));
  scene.feed.home = first;
  scene.feed.prepared = second;
  machine_scene_say(&scene, 1, PLM_MESSAGE_BYE, 1001, 1);
  assert_null(feed_peer_serial(&scene.feed, first));
  assert_null(feed_peer_find(&scene.feed, (const uint8_t[]){1, 0}, 2));
  assert_int_equal(scene.feed.home, 0); /* it serves no window any longer */
  assert_int_equal(scene.feed.prepared, second);
  machine_scene_join(&scene, 3, 2);
  assert_true(scene.feed.peers[0].serial > second);
}

/* Refusals are logged once a second. */
static void refusals_are_logged_now_and_then(void **state)
{
  struct plm_hello hello = machine_scene_hello(1, 30);
  static const int64_t times[] = {0, 999, 1000, 1500, 2000};
  (void)state;
  hello.protocol_least = hello.protocol_most = PLM_WIRE_VERSION + 1;
  for (unsigned i = 0; i < 5; i++) {
    captured_begin(STDERR_FILENO);
    machine_scene_greet(&scene, 10 + i, &hello, 1010 + i, times[i]);
    const char *said = captured_end();
    machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 10 + i);
    assert_int_equal(strstr(said, "refused packer host:71: the packer speaks") != NULL,
                     times[i] % 1000 == 0);
  }
}

/* Each packer that comes or goes is logged while there are few of them. */
static void who_joins_is_logged(void **state)
{
  (void)state;
  captured_begin(STDERR_FILENO);
  machine_scene_join(&scene, 300, 0);
  machine_scene_say(&scene, 300, PLM_MESSAGE_BYE, 1300, 1);
  assert_string_equal(captured_end(), "plm: packer host:370 joined\n"
                                      "plm: packer host:370 is gone: it said BYE\n");
  scene.feed.log_left = 0;
  captured_begin(STDERR_FILENO);
  machine_scene_join(&scene, 2, 1);
  assert_string_equal(captured_end(), "");
  /* The whole id of a connection says which one it is. */
  scene.sent_count = 0;
  machine_scene_join(&scene, 300, FEED_GREET_MS - 1);
  machine_scene_expect(&scene, PLM_MESSAGE_NONE, 300);
  machine_scene_join(&scene, 300 - 256, FEED_GREET_MS - 1);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 300 - 256);
}

/* A packer that was dropped is remembered, even if many connections have said HELLO after it. */
static void who_was_dropped_is_remembered(void **state)
{
  static const uint8_t route[] = {1, 0};
  struct plm_hello other = machine_scene_hello(9, 30);
  (void)state;
  machine_scene_join(&scene, 1, 0);
  other.protocol_least = other.protocol_most = PLM_WIRE_VERSION + 1;
  scene.sent_count = 0;
  for (unsigned i = 0; i < FEED_GREETED; i++) {
    machine_scene_greet(&scene, 10 + i, &other, i + 1, 1);
    machine_scene_expect(&scene, PLM_MESSAGE_REJECT, 10 + i);
  }
  assert_false(feed_peer_dropped(&scene.feed, route, sizeof route));
  feed_peer_breaks_protocol(&scene.feed, scene.feed.peers[0].packer_id);
  assert_true(feed_peer_dropped(&scene.feed, route, sizeof route));
}

/* So many processes that broke the protocol are remembered; then the oldest is forgotten. */
static void many_processes_are_refused(void **state)
{
  (void)state;
  for (uint64_t id = 1; id <= FEED_BANNED + 1; id++)
    feed_peer_breaks_protocol(&scene.feed, 1000 + id);
  struct plm_hello hello = machine_scene_hello(1000 + FEED_BANNED + 1, 30);
  expect_refusal(&hello, "it gave a false answer or broke the protocol before");
  hello.packer_id = 1002;
  expect_refusal(&hello, "it gave a false answer or broke the protocol before");
  hello.packer_id = 1001;
  machine_scene_greet(&scene, 200, &hello, 1200, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 200);
  feed_peer_breaks_protocol(&scene.feed, 1003);
  hello.packer_id = scene.feed.banned_packers_next; /* the field behind them is no process */
  machine_scene_greet(&scene, 201, &hello, 1201, 0);
  machine_scene_expect(&scene, PLM_MESSAGE_WELCOME, 201);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      SCENE_TEST(only_packers_of_the_run_are_admitted),
      SCENE_TEST(a_known_corpus_may_be_upgraded),
      SCENE_TEST(packers_of_other_sources_are_sent_on),
      SCENE_TEST(clusters_are_needed_to_sample_them),
      SCENE_TEST(a_malformed_schema_is_invalid),
      SCENE_TEST(a_feed_has_at_most_256_packers),
      SCENE_TEST(a_liar_is_refused),
      SCENE_TEST(packers_take_turns),
      SCENE_TEST(peers_are_found),
      SCENE_TEST(refusals_are_logged_now_and_then),
      SCENE_TEST(who_joins_is_logged),
      SCENE_TEST(who_was_dropped_is_remembered),
      SCENE_TEST(many_processes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
