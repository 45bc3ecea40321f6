/* Packers of another version of the protocol are told so, and the others are served. */
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

enum { OTHER = PLM_WIRE_VERSION + 1, WAIT_MS = 20000 };

/* Sends HELLO as another version would: only magic, version and type are certain to be there. */
static void say_hello(void *socket, size_t header_bytes)
{
  uint8_t header[PLM_HEADER_BYTES + 8] = {'P', 'L', 'M', 'F', OTHER, 0, PLM_MESSAGE_HELLO, 0};
  assert_int_equal(zmq_send(socket, header, header_bytes, ZMQ_SNDMORE), header_bytes);
  assert_int_equal(zmq_send(socket, "other", 5, 0), 5);
}

/* The next message, which is a REJECT in this version; *text receives its reason. */
static void expect_reject(void *socket, char *text)
{
  struct plm_message message;
  struct plm_error error = {0};
  zmq_pollitem_t item = {socket, 0, ZMQ_POLLIN, 0};
  if (zmq_poll(&item, 1, WAIT_MS) != 1) fail_msg("no answer in %d s", WAIT_MS / 1000);
  assert_int_equal(plm_message_receive(socket, false, &message, &error), PLM_OK);
  assert_int_equal(message.header.type, PLM_MESSAGE_REJECT);
  assert_int_equal(message.header.request, PLM_REJECT_REFUSED);
  plm_reject_decode(zmq_msg_data(&message.payload), zmq_msg_size(&message.payload), text);
  zmq_msg_close(&message.payload);
}

static void other_versions_are_told(void **state)
{
  (void)state;
  static const size_t sizes[] = {6, PLM_HEADER_BYTES, PLM_HEADER_BYTES + 8};
  char text[PLM_WIRE_TEXT + 1];
  struct plm_error error;
  struct plm_feed_options options = packers_options();
  plm_log_init("test", PLM_LOG_WARNING);
  struct plm_feed *feed = packers_feed(&options);
  void *context = zmq_ctx_new();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *socket;
    assert_int_equal(plm_socket_open(context, ZMQ_DEALER, PLM_WIRE_DATA_LIMIT, &socket, &error),
                     PLM_OK);
    assert_int_equal(plm_socket_connect(socket, plm_feed_bound(feed), &error), PLM_OK);
    captured_begin(STDERR_FILENO);
    say_hello(socket, sizes[i]);
    expect_reject(socket, text);
    const char *said = captured_end();
    assert_string_equal(text, "protocol version 5, not 4; install the same version of "
                              "plm-pipeline on all hosts");
    if (i == 0) assert_non_null(strstr(said, "refused a packer: protocol version 5, not 4; "));
    say_hello(socket, sizes[i]); /* it is answered once a second at most */
    zmq_pollitem_t item = {socket, 0, ZMQ_POLLIN, 0};
    assert_int_equal(zmq_poll(&item, 1, 200), 0);
    zmq_close(socket);
  }
  struct plm_feed_counters counters;
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.invalid, 6);
  assert_int_equal(counters.refused, 3);
  assert_int_equal(counters.peers, 0);
  zmq_ctx_term(context);
  plm_feed_close(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(other_versions_are_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
