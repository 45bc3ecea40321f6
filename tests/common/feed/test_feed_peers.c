/* The feed against packers that are late, lie, refuse, or send nonsense. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/philox.h"
#include "common/base/thread.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_packer.h"
#include "tests/support/packers.h"

static void wait_peers(struct plm_feed *feed, uint32_t count)
{
  struct plm_feed_counters counters = {0};
  for (int i = 0; i < 1000; i++) {
    plm_feed_counters(feed, &counters);
    if (counters.peers == count) return;
    usleep(20000);
  }
  assert_int_equal(counters.peers, count);
}

static plm_status take(struct plm_feed *feed, uint32_t chunks, struct plm_error *error)
{
  struct plm_batch batch;
  struct plm_feed_position position;
  plm_feed_position(feed, 0, &position);
  PLM_TRY(plm_feed_next(feed, NULL, chunks, NULL, &batch, error));
  assert_true(fake_batch_right(&batch, &position.place));
  plm_feed_release(feed, &batch);
  return PLM_OK;
}

/* A feed, and the fake packers that serve it. */
struct meeting {
  struct plm_feed_options options;
  struct fake_packer packers[3];
  int count;
  struct plm_feed *feed;
};

/* Waits until the feed knows that many packers. */
static void join(struct meeting *meeting, int count)
{
  for (; meeting->count < count; meeting->count++)
    fake_packer_start(&meeting->packers[meeting->count], &meeting->options,
                      plm_feed_bound(meeting->feed), (uint64_t)meeting->count + 1);
  wait_peers(meeting->feed, (uint32_t)count);
}

/* credit_bytes: 0 for the default. */
static void meet(struct meeting *meeting, int count, uint64_t credit_bytes)
{
  meeting->options = packers_options();
  if (credit_bytes != 0) meeting->options.credit_bytes = credit_bytes;
  meeting->feed = packers_feed(&meeting->options);
  meeting->count = 0;
  join(meeting, count);
}

static void part(struct meeting *meeting)
{
  for (int i = 0; i < meeting->count; i++) fake_packer_stop(&meeting->packers[i]);
  plm_feed_close(meeting->feed);
}

/* The feed is asked for a chunk by its number in an epoch, and reports windows. */
static void crosses_windows_and_epochs(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  struct plm_feed_position position;
  meet(&meeting, 1, 0);
  struct small_corpus *corpus = fake_corpus();
  struct plm_plan_place place = {.epoch = 4, .chunk = small_corpus_epoch_chunks(corpus, 4) - 3};
  plm_feed_seek(meeting.feed, 0, PLM_SPLIT_TRAIN, &place);
  for (int i = 0; i < 400; i++) {
    assert_int_equal(take(meeting.feed, 7, &error), PLM_OK);
    plm_feed_position(meeting.feed, 0, &position);
    place.chunk += 7;
    small_corpus_settle(corpus, &place);
    assert_memory_equal(&position.place, &place, sizeof place);
    assert_int_equal(position.windows, 40);
    if (place.chunk > 0)
      assert_int_equal(position.window_chunks,
                       small_corpus_window(corpus, place.epoch, place.window)->window.chunks);
  }
  assert_true(place.epoch >= 5);
  part(&meeting);
}

/* plm_feed_next_of_epoch ends with the epoch, and then goes on with the next one. */
static void an_epoch_ends(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  meet(&meeting, 1, 0);
  const uint64_t chunks = small_corpus_epoch_chunks(fake_corpus(), 0);
  struct plm_plan_place place = {0};
  struct plm_batch batch;
  for (uint64_t left = chunks; left > 0;) {
    assert_int_equal(plm_feed_next_of_epoch(meeting.feed, 100, NULL, &batch, &error), PLM_OK);
    assert_int_equal(batch.chunks, left < 100 ? left : 100);
    assert_true(fake_batch_right(&batch, &place));
    place.chunk += batch.chunks;
    left -= batch.chunks;
    plm_feed_release(meeting.feed, &batch);
  }
  assert_int_equal(plm_feed_next_of_epoch(meeting.feed, 100, NULL, &batch, &error), PLM_OK);
  assert_int_equal(batch.chunks, 0);
  plm_feed_release(meeting.feed, &batch);
  assert_int_equal(plm_feed_next_of_epoch(meeting.feed, 100, NULL, &batch, &error), PLM_OK);
  assert_int_equal(batch.chunks, 100);
  assert_true(fake_batch_right(&batch, &(struct plm_plan_place){.epoch = 1}));
  plm_feed_release(meeting.feed, &batch);
  part(&meeting);
}

/* The chunks of the first packer that wait to be used. */
static int ahead(const struct meeting *meeting)
{
  char *peers = plm_feed_peers_json(meeting->feed);
  const char *found = strstr(peers, "\"ahead\":");
  const int chunks = found != NULL ? atoi(found + strlen("\"ahead\":")) : -1;
  free(peers);
  return chunks;
}

static void chunks_that_wait_are_counted(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  meet(&meeting, 1, 0);
  assert_int_equal(ahead(&meeting), 0); /* nothing was requested yet */
  assert_int_equal(take(meeting.feed, 1, &error), PLM_OK);
  const int64_t begin = plm_clock_ms();
  while (ahead(&meeting) < 8) {
    if (plm_clock_ms() - begin > 60000) fail_msg("only %d chunks are ahead", ahead(&meeting));
    usleep(1000);
  }
  part(&meeting);
}

/* Windows are asked of the packers in turn: their tables first, and then their chunks. */
static void windows_go_to_packers_in_turn(void **state)
{
  (void)state;
  enum { WINDOW_CHUNKS = 64 };
  for (int count = 1; count <= 2; count++) {
    struct meeting meeting;
    struct plm_error error = {0};
    meet(&meeting, count, 0);
    for (int i = 0; i < 8; i++) assert_int_equal(take(meeting.feed, WINDOW_CHUNKS, &error), PLM_OK);
    const int64_t begin = plm_clock_ms();
    for (int i = 0; i < count; i++)
      while (meeting.packers[i].gets < 3 || meeting.packers[i].soon < 3) {
        if (plm_clock_ms() - begin > 60000)
          fail_msg("packer %d of %d has %d requests and prepares %d windows", i, count,
                   meeting.packers[i].gets, meeting.packers[i].soon);
        usleep(1000);
      }
    part(&meeting);
  }
}

/* If one packer answers nothing, the other is asked. test_feed_simulated.c checks how soon. */
static void standby_is_asked_when_one_is_late(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  meet(&meeting, 2, 0);
  meeting.packers[0].deaf = true;
  for (int i = 0; i < 60; i++) assert_int_equal(take(meeting.feed, 16, &error), PLM_OK);
  struct plm_feed_counters counters;
  plm_feed_counters(meeting.feed, &counters);
  assert_true(meeting.packers[0].gets > 0); /* some ranges were asked of it first */
  assert_true(counters.retried > 0);
  part(&meeting);
}

static void second_answers_are_dropped(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  meet(&meeting, 2, 128 << 10);
  meeting.packers[0].delay_ms = 400;
  meeting.packers[1].delay_ms = 300;
  struct plm_feed_counters counters = {0};
  for (int i = 0; i < 100 && (counters.dropped == 0 || counters.retried == 0); i++) {
    assert_int_equal(take(meeting.feed, 64, &error), PLM_OK);
    plm_feed_counters(meeting.feed, &counters);
  }
  assert_true(counters.dropped > 0 && counters.retried > 0);
  assert_int_equal(counters.invalid, 0);
  part(&meeting);
}

/* A packer that lies is dropped for its first false answer; the other one serves what it was asked
 * for. */
static void a_liar_is_dropped(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  struct plm_feed_counters counters;
  meet(&meeting, 2, 0);
  meeting.packers[0].lies = true;
  for (int i = 0; i < 20; i++) assert_int_equal(take(meeting.feed, 64, &error), PLM_OK);
  plm_feed_counters(meeting.feed, &counters);
  assert_int_equal(counters.refused, 1);
  assert_int_equal(counters.peers, 1);
  char *peers = plm_feed_peers_json(meeting.feed);
  assert_null(strstr(peers, "\"fake:1\""));
  assert_non_null(strstr(peers, "\"fake:2\""));
  free(peers);
  part(&meeting);
}

/* If nobody else serves, the wait ends with an error that names the packer and the document. */
static void a_lone_liar_is_named(void **state)
{
  (void)state;
  struct meeting meeting = {.options = packers_options()};
  struct plm_error error = {0};
  meeting.options.wait_packers_s = 0.5;
  meeting.feed = packers_feed(&meeting.options);
  fake_packer_start(&meeting.packers[0], &meeting.options, plm_feed_bound(meeting.feed), 1);
  meeting.packers[0].lies = true;
  meeting.count = 1;
  plm_status status = PLM_OK;
  while (status == PLM_OK) status = take(meeting.feed, 16, &error);
  assert_int_equal(status, PLM_TIMEOUT);
  const struct small_window *window = small_corpus_window(fake_corpus(), 0, 0);
  char expected[64];
  snprintf(expected, sizeof expected, "document %llu ",
           (unsigned long long)window->window.documents[0].number);
  assert_non_null(strstr(error.what, "no packer served"));
  assert_non_null(strstr(error.hint, "packer fake:1 was dropped for false data"));
  assert_non_null(strstr(error.hint, expected));
  assert_non_null(strstr(error.hint, "corpus DIR --verify"));
  part(&meeting);
}

/* Ids of requests differ in most of their bits: who sees one cannot guess the next. */
static void request_ids_cannot_be_guessed(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  uint64_t before = 0;
  meet(&meeting, 1, 128 << 10);
  for (int i = 0; i < 4; i++) {
    const int gets = meeting.packers[0].gets;
    while (meeting.packers[0].gets == gets)
      assert_int_equal(take(meeting.feed, 64, &error), PLM_OK);
    pthread_mutex_lock(&meeting.packers[0].mutex);
    const uint64_t request = meeting.packers[0].last_get.request;
    pthread_mutex_unlock(&meeting.packers[0].mutex);
    assert_true(__builtin_popcountll(request ^ before) > 8);
    before = request;
  }
  part(&meeting);
}

static void credit_bounds_what_is_asked_for(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_options();
  options.credit_bytes = 1 << 20;
  struct fake_packer packer;
  struct plm_feed *feed = packers_feed(&options);
  fake_packer_start(&packer, &options, plm_feed_bound(feed), 1);
  packer.deaf = true;
  plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, &(struct plm_plan_place){0});
  wait_peers(feed, 1);
  for (int i = 0; i < 500 && packer.asked_bytes < options.credit_bytes / 2; i++) usleep(20000);
  usleep(200000); /* nothing more comes after that */
  assert_true(packer.gets > 1);
  assert_true(packer.asked_bytes <= options.credit_bytes);
  assert_true(packer.asked_bytes >= options.credit_bytes / 2);
  /* A batch larger than the credit also arrives. */
  struct plm_error error = {0};
  packer.deaf = false;
  fake_packer_stop(&packer);
  plm_feed_close(feed);
  feed = packers_feed(&options);
  fake_packer_start(&packer, &options, plm_feed_bound(feed), 1);
  assert_int_equal(take(feed, 6 * 1024, &error), PLM_OK);
  fake_packer_stop(&packer);
  plm_feed_close(feed);
}

static void nacks_are_asked_elsewhere(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  meet(&meeting, 2, 0);
  meeting.packers[0].nacks = true;
  for (int i = 0; i < 20; i++) assert_int_equal(take(meeting.feed, 64, &error), PLM_OK);
  part(&meeting);
}

/* ---- nonsense ----------------------------------------------------------------------------- */

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
  struct meeting meeting;
  struct plm_error error = {0};
  meet(&meeting, 1, 0);
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
    if (round % 20 == 0) assert_int_equal(take(meeting.feed, 16, &error), PLM_OK);
  }
  struct plm_feed_counters counters = {0};
  for (int i = 0; i < 500 && counters.invalid < ROUNDS; i++) {
    plm_feed_counters(meeting.feed, &counters);
    usleep(20000);
  }
  assert_int_equal(counters.invalid, ROUNDS);
  assert_int_equal(counters.peers, 1);
  assert_int_equal(take(meeting.feed, 16, &error), PLM_OK);
  zmq_close(socket);
  zmq_ctx_term(context);
  part(&meeting);
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

static void *stop_soon(void *stop)
{
  usleep(200000);
  __atomic_store_n((volatile int *)stop, 15, __ATOMIC_RELAXED);
  return NULL;
}

/* An interrupted call leaves the position where it was, so nothing is lost. */
static void interruption_loses_nothing(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_batch batch;
  struct plm_error error = {0};
  static volatile int stop;
  struct plm_feed_position position;
  pthread_t thread;
  meet(&meeting, 1, 128 << 10);
  assert_int_equal(take(meeting.feed, 16, &error), PLM_OK);
  meeting.packers[0].deaf = true; /* what was sent before still fills part of the batch */
  stop = 0;
  assert_int_equal(
      plm_thread_start(&thread, "stop soon", stop_soon, (void *)(uintptr_t)&stop, &error), PLM_OK);
  assert_int_equal(plm_feed_next(meeting.feed, NULL, 2000, &stop, &batch, &error), PLM_INTERRUPTED);
  pthread_join(thread, NULL);
  plm_feed_position(meeting.feed, 0, &position);
  assert_int_equal(position.place.epoch, 0);
  assert_int_equal(position.place.before + position.place.chunk, 16);
  meeting.packers[0].deaf = false;
  assert_int_equal(take(meeting.feed, 2000, &error), PLM_OK);
  part(&meeting);
}

/* A caller that wants to stop waits for packers that are connected, but not for one to come. */
static void a_hurried_caller_waits_for_no_other_packer(void **state)
{
  (void)state;
  struct meeting meeting;
  struct plm_error error = {0};
  meet(&meeting, 1, 128 << 10);
  plm_feed_hurry(meeting.feed);
  assert_int_equal(take(meeting.feed, 2000, &error), PLM_OK);
  fake_packer_stop(&meeting.packers[0]);
  meeting.count = 0;
  wait_peers(meeting.feed, 0);
  assert_int_equal(take(meeting.feed, 2000, &error), PLM_INTERRUPTED);
  struct plm_feed_position position;
  plm_feed_position(meeting.feed, 0, &position);
  assert_int_equal(position.place.before + position.place.chunk, 2000);
  part(&meeting);
}

static void a_port_in_use_names_its_owner(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_options();
  struct plm_error error = {0};
  struct plm_feed *feed = packers_feed(&options), *second;
  char pid[32], ipc[128];
  snprintf(pid, sizeof pid, "pid %d (test_feed_peers", (int)getpid());
  options.endpoint = plm_feed_bound(feed);
  assert_int_equal(plm_feed_open(&options, &second, &error), PLM_BUSY);
  assert_non_null(strstr(error.what, "pid "));
  assert_non_null(strstr(error.hint, "network"));
  plm_feed_close(feed);
  snprintf(ipc, sizeof ipc, "ipc://%s/plm-test-%d.sock", plm_temporary_folder(), (int)getpid());
  options.endpoint = ipc;
  feed = packers_feed(&options);
  assert_int_equal(plm_feed_open(&options, &second, &error), PLM_BUSY);
  assert_non_null(strstr(error.what, "pid "));
  plm_feed_close(feed);
  options.endpoint = "tcp://0.0.0.0:*"; /* beyond loopback without keys */
  assert_int_equal(plm_feed_open(&options, &second, &error), PLM_CONFIG);
  assert_non_null(strstr(error.hint, "plm-pipeline keys"));
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(crosses_windows_and_epochs),
      cmocka_unit_test(an_epoch_ends),
      cmocka_unit_test(chunks_that_wait_are_counted),
      cmocka_unit_test(windows_go_to_packers_in_turn),
      cmocka_unit_test(standby_is_asked_when_one_is_late),
      cmocka_unit_test(second_answers_are_dropped),
      cmocka_unit_test(a_liar_is_dropped),
      cmocka_unit_test(a_lone_liar_is_named),
      cmocka_unit_test(request_ids_cannot_be_guessed),
      cmocka_unit_test(credit_bounds_what_is_asked_for),
      cmocka_unit_test(nacks_are_asked_elsewhere),
      cmocka_unit_test(nonsense_is_counted_and_dropped),
      cmocka_unit_test(wrong_incarnations_and_breaches),
      cmocka_unit_test(interruption_loses_nothing),
      cmocka_unit_test(a_hurried_caller_waits_for_no_other_packer),
      cmocka_unit_test(a_port_in_use_names_its_owner),
  };
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
