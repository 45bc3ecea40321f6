/* Which packers the feed's state machine admits, and what it tells the others. */
#include <string.h>

#include "common/feed/feed_machine.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/machine_scene.h"

static struct machine_scene scene;

static int begin(void **state)
{
  const struct feed_machine_options options = machine_scene_options();
  (void)state;
  machine_scene_open(&scene, &options, false);
  return 0;
}

static int end(void **state)
{
  (void)state;
  machine_scene_close(&scene);
  return 0;
}

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
  expect_refusal(&hello, "the packer speaks protocols 4 to 4, and this trainer speaks 3");
  hello.protocol_least = hello.protocol_most = PLM_WIRE_VERSION - 1;
  expect_refusal(&hello, "the packer speaks protocols 2 to 2, and this trainer speaks 3");
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
  struct feed_machine_options options = machine_scene_options();
  struct plm_hello hello = machine_scene_hello(1, 30);
  (void)state;
  end(NULL);
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
  struct feed_machine_options options = machine_scene_options();
  struct plm_hello hello = machine_scene_hello(1, 31);
  (void)state;
  end(NULL);
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
}

static void clusters_are_needed_to_sample_them(void **state)
{
  struct feed_machine_options options = machine_scene_options();
  struct plm_hello hello = machine_scene_hello(1, 30);
  (void)state;
  end(NULL);
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

static void there_is_room_for_so_many_packers(void **state)
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(only_packers_of_the_run_are_admitted), TEST(a_known_corpus_may_be_upgraded),
      TEST(packers_of_other_sources_are_sent_on), TEST(clusters_are_needed_to_sample_them),
      TEST(there_is_room_for_so_many_packers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
