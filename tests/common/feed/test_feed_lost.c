/* A lost connection is noticed at once, not only after a packer's silence. */
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

enum { WAIT_MS = 20000, SOON_MS = 700, TRIES = 20 };

struct peer {
  void *socket;
  uint64_t incarnation, consumer;
};

/* The type of the next message within a time; PLM_MESSAGE_NONE: none came. */
static enum plm_message_type hear(struct peer *peer, int64_t until_ms)
{
  struct plm_message message;
  const int64_t left = until_ms - plm_clock_ms();
  zmq_pollitem_t item = {peer->socket, 0, ZMQ_POLLIN, 0};
  if (zmq_poll(&item, 1, left > 0 ? left : 0) != 1) return PLM_MESSAGE_NONE;
  assert_int_equal(plm_message_receive(peer->socket, false, &message, NULL), PLM_OK);
  zmq_msg_close(&message.payload);
  peer->consumer = message.header.consumer;
  return message.header.type;
}

/* Joins the feed as another packer each time. */
static struct peer join(void *context, const char *endpoint)
{
  static uint64_t joined;
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  struct plm_header header;
  struct peer peer = {.incarnation = 2 * ++joined + 1};
  assert_int_equal(plm_socket_open(context, ZMQ_DEALER, PLM_WIRE_DATA_LIMIT, &peer.socket, NULL),
                   PLM_OK);
  assert_int_equal(plm_socket_connect(peer.socket, endpoint, NULL), PLM_OK);
  const size_t size = fake_hello(500 + joined, peer.incarnation, &header, payload);
  while (plm_message_send(peer.socket, NULL, 0, &header, payload, size, NULL) != PLM_OK)
    usleep(1000);
  assert_int_equal(hear(&peer, plm_clock_ms() + WAIT_MS), PLM_MESSAGE_WELCOME);
  return peer;
}

/* When a connection is lost, all packers are sent PING, because it is not known whose it was. The
 * others are otherwise sent one each second. A busy machine may be late, so one of some tries is
 * enough. */
static void a_lost_connection_is_looked_for_at_once(void **state)
{
  struct plm_feed_options options = packers_options();
  struct plm_feed *feed = packers_feed(&options);
  struct plm_feed_counters counters;
  void *context = zmq_ctx_new();
  bool soon = false;
  (void)state;
  for (int i = 0; i < TRIES && !soon; i++) {
    struct peer leaves = join(context, plm_feed_bound(feed));
    const int64_t joins_ms = plm_clock_ms();
    struct peer stays = join(context, plm_feed_bound(feed));
    plm_feed_counters(feed, &counters);
    assert_int_equal(counters.peers, 2);
    zmq_close(leaves.socket);
    soon = hear(&stays, joins_ms + SOON_MS) == PLM_MESSAGE_PING;
    if (soon) {
      plm_feed_counters(feed, &counters);
      assert_int_equal(counters.peers, 1);
    }
    struct plm_header bye = {.type = PLM_MESSAGE_BYE,
                             .run_id = options.run_id,
                             .consumer = stays.consumer,
                             .packer = stays.incarnation};
    assert_int_equal(plm_message_send(stays.socket, NULL, 0, &bye, NULL, 0, NULL), PLM_OK);
    fake_wait_peers(feed, 0);
    zmq_close(stays.socket);
  }
  assert_true(soon);
  zmq_ctx_term(context);
  plm_feed_close(feed);
}

/* While nothing is lost, nobody is asked more than once a second. */
static void others_are_left_in_peace(void **state)
{
  struct plm_feed_options options = packers_options();
  struct plm_feed *feed = packers_feed(&options);
  void *context = zmq_ctx_new();
  int pings = 0;
  (void)state;
  const int64_t begun_ms = plm_clock_ms();
  struct peer peer = join(context, plm_feed_bound(feed));
  while (plm_clock_ms() < begun_ms + 300) pings += hear(&peer, begun_ms + 300) == PLM_MESSAGE_PING;
  assert_true(pings <= (plm_clock_ms() - begun_ms) / 1000);
  zmq_close(peer.socket);
  zmq_ctx_term(context);
  plm_feed_close(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lost_connection_is_looked_for_at_once),
      cmocka_unit_test(others_are_left_in_peace),
  };
  plm_log_init("test", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
