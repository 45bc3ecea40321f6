/* The feed against peers that send nonsense or break the protocol. */
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

static void *raw_dealer(void *context, const char *endpoint)
{
  struct plm_error error;
  void *socket;
  assert_int_equal(plm_socket_open(context, ZMQ_DEALER, PLM_WIRE_DATA_LIMIT, &socket, &error),
                   PLM_OK);
  assert_int_equal(plm_socket_connect(socket, endpoint, &error), PLM_OK);
  return socket;
}

static void send_frames(void *socket, const uint8_t *header, size_t header_bytes,
                        const uint8_t *payload, size_t payload_bytes, int frames)
{
  const int blocking = 0; /* sending waits for the connection */
  zmq_send(socket, header, header_bytes, frames > 1 ? ZMQ_SNDMORE : blocking);
  for (int i = 1; i < frames; i++)
    zmq_send(socket, payload, payload_bytes, i + 1 < frames ? ZMQ_SNDMORE : blocking);
}

/* Damaged copies of valid messages, wrong numbers of frames and noise are counted and dropped. */
static void nonsense_is_counted_and_dropped(void **state)
{
  (void)state;
  enum { ROUNDS = 400 };
  struct fake_meeting meeting;
  struct plm_error error = {0};
  fake_meet(&meeting, 1, 0);
  void *context = zmq_ctx_new();
  void *socket = raw_dealer(context, plm_feed_bound(meeting.feed));
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT], bytes[PLM_HEADER_BYTES];
  struct plm_header header;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    const struct plm_philox_words w = plm_philox(9, round, 0, 100);
    size_t size = fake_hello(77, 5, &header, payload), header_bytes = PLM_HEADER_BYTES;
    header.payload_bytes = size;
    header.payload_hash = plm_hash_bytes(payload, size);
    plm_header_encode(&header, bytes);
    int frames = 2;
    switch (round % 5) {
    case 0: bytes[w.w[0] % PLM_HEADER_BYTES] ^= (uint8_t)(1u << (w.w[1] % 8)); break;
    case 1: payload[w.w[0] % size] ^= (uint8_t)(1u << (w.w[1] % 8)); break;
    case 2: header_bytes = w.w[0] % PLM_HEADER_BYTES; break;
    case 3: size = w.w[0] % size; break;
    default: frames = w.w[0] % 2 == 0 ? 1 : 3 + (int)(w.w[1] % 4); break;
    }
    send_frames(socket, bytes, header_bytes, payload, size, frames);
    if (round % 20 == 0) assert_int_equal(fake_take(meeting.feed, 16, &error), PLM_OK);
  }
  struct plm_feed_counters counters = {0};
  for (int i = 0; i < 500 && counters.invalid < ROUNDS; i++) {
    plm_feed_counters(meeting.feed, &counters);
    usleep(20000);
  }
  assert_int_equal(counters.invalid, ROUNDS);
  assert_int_equal(counters.peers, 1);
  assert_int_equal(fake_take(meeting.feed, 16, &error), PLM_OK);
  zmq_close(socket);
  zmq_ctx_term(context);
  fake_part(&meeting);
}

/* Sends on a peer's connection what it was not asked for. */
static void say(void *socket, const struct plm_feed_options *options, enum plm_message_type type,
                uint64_t consumer, uint64_t packer, const void *payload, size_t size)
{
  struct plm_header header = {.type = type,
                              .run_id = options->run_id,
                              .consumer = consumer,
                              .packer = packer,
                              .request = 12345,
                              .count = 1};
  uint8_t bytes[PLM_HEADER_BYTES];
  header.payload_bytes = size;
  header.payload_hash = plm_hash_bytes(payload, size);
  plm_header_encode(&header, bytes);
  send_frames(socket, bytes, sizeof bytes, payload, size, 2);
}

static enum plm_message_type hear(void *socket, uint64_t *consumer)
{
  struct plm_message message;
  for (int i = 0; i < 1000; i++) {
    const plm_status status = plm_message_receive(socket, false, &message, NULL);
    if (status == PLM_OK) {
      zmq_msg_close(&message.payload);
      if (message.header.type == PLM_MESSAGE_PING) continue;
      if (consumer != NULL) *consumer = message.header.consumer;
      return message.header.type;
    }
    usleep(10000);
  }
  return PLM_MESSAGE_NONE;
}

static void wrong_incarnations_and_breaches(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_options();
  struct plm_feed *feed = packers_feed(&options);
  void *context = zmq_ctx_new();
  void *socket = raw_dealer(context, plm_feed_bound(feed));
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT], bytes[PLM_HEADER_BYTES];
  struct plm_header header;
  struct plm_feed_counters counters;
  uint64_t consumer = 0;
  /* An unknown peer is told to say HELLO. */
  say(socket, &options, PLM_MESSAGE_PING, 1, 5, "", 0);
  assert_int_equal(hear(socket, &consumer), PLM_MESSAGE_REHELLO);
  const size_t size = fake_hello(77, 5, &header, payload);
  header.payload_bytes = size;
  header.payload_hash = plm_hash_bytes(payload, size);
  plm_header_encode(&header, bytes);
  send_frames(socket, bytes, sizeof bytes, payload, size, 2);
  assert_int_equal(hear(socket, &consumer), PLM_MESSAGE_WELCOME);
  /* Messages of another incarnation of either side are counted and not answered. */
  plm_feed_counters(feed, &counters);
  const uint64_t dropped = counters.dropped;
  say(socket, &options, PLM_MESSAGE_PING, consumer ^ 2, 5, "", 0);
  say(socket, &options, PLM_MESSAGE_PING, consumer, 6, "", 0);
  say(socket, &options, PLM_MESSAGE_PING, consumer, 5, "", 0);
  assert_int_equal(hear(socket, NULL), PLM_MESSAGE_PONG);
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.dropped, dropped + 2);
  /* A peer that keeps breaking the protocol is dropped. */
  for (int i = 0; i < 8; i++) say(socket, &options, PLM_MESSAGE_GET, consumer, 5, payload, 16);
  assert_int_equal(hear(socket, NULL), PLM_MESSAGE_REJECT);
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.peers, 0);
  /* Its process is not let in again, on another connection either. */
  zmq_close(socket);
  socket = raw_dealer(context, plm_feed_bound(feed));
  send_frames(socket, bytes, sizeof bytes, payload, size, 2);
  assert_int_equal(hear(socket, NULL), PLM_MESSAGE_REJECT);
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.peers, 0);
  zmq_close(socket);
  zmq_ctx_term(context);
  plm_feed_close(feed);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nonsense_is_counted_and_dropped),
      cmocka_unit_test(wrong_incarnations_and_breaches),
  };
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
