/* How a feed takes leave of packers that are sending. */
#include <pthread.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

/* Sends PINGs as fast as the socket takes them, and ends when it was told BYE or the
 * connection was lost. */
struct talker {
  const struct plm_feed_options *options;
  const char *endpoint;
  atomic_bool welcome;
  bool bye;
};

static void *talk(void *argument)
{
  struct talker *talker = argument;
  struct plm_error error;
  struct plm_header header;
  struct plm_message message;
  struct plm_link_report report;
  uint8_t hello[PLM_WIRE_CONTROL_LIMIT];
  void *context, *socket;
  struct plm_monitor *monitor;
  bool lost = false;
  assert_int_equal(plm_context_open(&context, &error), PLM_OK);
  assert_int_equal(plm_socket_open(context, ZMQ_DEALER, PLM_WIRE_CONTROL_LIMIT, &socket, &error),
                   PLM_OK);
  assert_int_equal(plm_monitor_open(context, socket, &monitor, &error), PLM_OK);
  assert_int_equal(plm_socket_connect(socket, talker->endpoint, &error), PLM_OK);
  const size_t size = fake_hello(1, 77, &header, hello);
  struct plm_header ping = header;
  ping.type = PLM_MESSAGE_PING;
  while (!talker->bye && !lost) {
    if (!talker->welcome) { /* the first ones come before the connection */
      (void)plm_message_send(socket, NULL, 0, &header, hello, size, NULL);
      usleep(10000);
    }
    for (int i = 0; i < 64 && talker->welcome; i++)
      (void)plm_message_send(socket, NULL, 0, &ping, NULL, 0, NULL);
    while (plm_monitor_next(monitor, &report)) lost = lost || report.event == PLM_LINK_LOST;
    /* what came before the connection was lost */
    while (plm_message_receive(socket, false, &message, &error) == PLM_OK) {
      if (message.header.type == PLM_MESSAGE_WELCOME) talker->welcome = true;
      if (message.header.type == PLM_MESSAGE_BYE) talker->bye = true;
      zmq_msg_close(&message.payload);
    }
  }
  plm_monitor_close(monitor, socket);
  zmq_close(socket);
  zmq_ctx_term(context);
  return NULL;
}

/* A feed that closes tells its packers so, even if they were sending just then. */
static void bye_arrives(void **state)
{
  enum { ROUNDS = 20 };
  (void)state;
  for (int i = 0; i < ROUNDS; i++) {
    pthread_t thread;
    struct plm_feed_options options = packers_options();
    struct plm_feed *feed = packers_feed(&options);
    struct talker talker = {.options = &options, .endpoint = plm_feed_bound(feed)};
    assert_int_equal(pthread_create(&thread, NULL, talk, &talker), 0);
    while (!talker.welcome) usleep(1000);
    usleep(20000);
    plm_feed_close(feed);
    pthread_join(thread, NULL);
    assert_true(talker.bye);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bye_arrives),
  };
  plm_log_init("test", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
