/* A lost connection is noticed at once, not only after a packer's silence. The time of the whole
 * program stands still until the end, so that nothing happens because time has passed. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

enum { HEARS_MS = 60000 };

struct peer {
  void *socket;
  uint64_t incarnation, consumer;
};

static atomic_bool stands_still;
static struct timespec stopped;

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  if (clock != CLOCK_MONOTONIC || !atomic_load(&stands_still))
    return (int)syscall(SYS_clock_gettime, clock, now);
  *now = stopped;
  return 0;
}

/* Waits for the next message and returns its type; PLM_MESSAGE_NONE: none came. */
static enum plm_message_type hear(struct peer *peer)
{
  struct plm_message message;
  plm_status status = PLM_AGAIN;
  for (int i = 0; i < HEARS_MS && status == PLM_AGAIN; i++) { /* zmq_poll would wait for ever */
    status = plm_message_receive(peer->socket, false, &message, NULL);
    if (status == PLM_AGAIN) usleep(1000);
  }
  if (status == PLM_AGAIN) return PLM_MESSAGE_NONE;
  assert_int_equal(status, PLM_OK);
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
  assert_int_equal(hear(&peer), PLM_MESSAGE_WELCOME);
  return peer;
}

static void say(const struct peer *peer, enum plm_message_type type)
{
  const struct plm_feed_options options = packers_options();
  struct plm_header header = {.type = type,
                              .run_id = options.run_id,
                              .consumer = peer->consumer,
                              .packer = peer->incarnation};
  assert_int_equal(plm_message_send(peer->socket, NULL, 0, &header, NULL, 0, NULL), PLM_OK);
}

/* When a connection is lost, all packers are sent PING, because it is not known whose it was. While
 * none is lost, nobody is asked. */
static void a_lost_connection_is_looked_for_at_once(void **state)
{
  const struct plm_feed_options options = packers_options();
  clock_gettime(CLOCK_MONOTONIC, &stopped);
  atomic_store(&stands_still, true);
  struct plm_feed *feed = packers_feed(&options);
  struct plm_feed_counters counters;
  void *context = zmq_ctx_new();
  (void)state;
  struct peer leaves = join(context, plm_feed_bound(feed));
  struct peer stays = join(context, plm_feed_bound(feed));
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.peers, 2);
  for (int i = 0; i < 2; i++) {
    say(&stays, PLM_MESSAGE_PING);
    assert_int_equal(hear(&stays), PLM_MESSAGE_PONG); /* and nothing before it */
  }
  zmq_close(leaves.socket);
  assert_int_equal(hear(&stays), PLM_MESSAGE_PING);
  atomic_store(&stands_still, false); /* messages to those who have left are dropped in time */
  zmq_close(stays.socket);
  zmq_ctx_term(context);
  plm_feed_close(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lost_connection_is_looked_for_at_once),
  };
  plm_log_init("test", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
