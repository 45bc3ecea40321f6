/* Announcements byte by byte: what a trainer sends, and what an evaluator takes for one. */
#include "common/wire/announce.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_starts.h"

enum { LIMIT_MS = 60000, MOST = 1024, HEAD = 32 };

static void put(uint8_t *at, uint64_t value, int bytes)
{
  for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* Ends the first `size` bytes with their hash. */
static size_t seal(uint8_t *bytes, size_t size)
{
  put(bytes + size, plm_hash64_bytes(bytes, size), 8);
  return size + 8;
}

/* The announcement of a step, as it must be on the wire. */
static size_t expected_bytes(uint64_t step, const char *path, uint8_t bytes[MOST])
{
  const size_t length = strlen(path);
  memcpy(bytes, "PLMA\1\0", 6);
  put(bytes + 6, length, 2);
  put(bytes + 8, step, 8);
  put(bytes + 16, 0x1122334455667788ull, 8);
  put(bytes + 24, 0x99aabbccddeeff00ull, 8);
  memcpy(bytes + HEAD, path, length);
  return seal(bytes, HEAD + length);
}

static struct plm_announcement announcement(uint64_t step, const char *path)
{
  struct plm_announcement message = {
      .step = step, .manifest = {.low = 0x1122334455667788ull, .high = 0x99aabbccddeeff00ull}};
  snprintf(message.path, sizeof message.path, "%s", path);
  return message;
}

/* ---- the trainer's side ---------------------------------------------------------------------- */

/* A subscriber may come too late for the first announcements, so they are repeated. */
static void the_layout_is_fixed(void **state)
{
  (void)state;
  struct plm_announcer *announcer;
  uint8_t expected[MOST], bytes[MOST];
  const uint64_t step = 0x0102030405060708ull;
  const int wait_ms = 20;
  assert_int_equal(plm_announcer_open("tcp://127.0.0.1:*", NULL, &announcer, NULL), PLM_OK);
  assert_memory_equal(plm_announcer_bound(announcer), "tcp://127.0.0.1:", 16);
  void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_SUB);
  zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
  zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
  assert_int_equal(zmq_connect(socket, plm_announcer_bound(announcer)), 0);
  const struct plm_announcement message = announcement(step, "checkpoints/step_1");
  const int64_t until = plm_clock_ms() + LIMIT_MS;
  int size = -1;
  while (size < 0 && plm_clock_ms() < until) {
    plm_announcer_send(announcer, &message);
    size = zmq_recv(socket, bytes, sizeof bytes, 0);
  }
  assert_int_equal(size, expected_bytes(step, "checkpoints/step_1", expected));
  assert_memory_equal(bytes, expected, size);
  zmq_close(socket);
  zmq_ctx_term(context);
  plm_announcer_close(announcer);
  plm_announcer_close(NULL);
}

/* Time does not pass for the announcer. So it does not wait until it counts what came. */
static atomic_bool still;

int clock_gettime(clockid_t clock, struct timespec *now)
{
  extern const char __executable_start, etext;
  const char *caller = __builtin_return_address(0);
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (still && clock == CLOCK_MONOTONIC && caller >= &__executable_start && caller < &etext)
    *now = (struct timespec){.tv_sec = 1000};
  return result;
}

/* A subscriber that sends more than subscriptions need is disconnected at once. */
static void who_sends_too_much_is_disconnected(void **state)
{
  (void)state;
  enum { TOPICS = 1000, TOPIC = 120 };
  struct plm_announcer *announcer;
  char topic[TOPIC] = {0};
  still = true;
  assert_int_equal(plm_announcer_open("tcp://127.0.0.1:*", NULL, &announcer, NULL), PLM_OK);
  void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_SUB);
  assert_int_equal(zmq_socket_monitor(socket, "inproc://events", ZMQ_EVENT_DISCONNECTED), 0);
  void *events = zmq_socket(context, ZMQ_PAIR);
  assert_int_equal(zmq_connect(events, "inproc://events"), 0);
  for (int i = 0; i < TOPICS; i++) {
    snprintf(topic, sizeof topic, "%d", i);
    zmq_setsockopt(socket, ZMQ_SUBSCRIBE, topic, sizeof topic);
  }
  assert_int_equal(zmq_connect(socket, plm_announcer_bound(announcer)), 0);
  zmq_pollitem_t item = {events, 0, ZMQ_POLLIN, 0};
  assert_int_equal(zmq_poll(&item, 1, LIMIT_MS), 1);
  zmq_close(socket);
  zmq_close(events);
  zmq_ctx_term(context);
  plm_announcer_close(announcer);
  still = false;
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  struct plm_announcer *announcer;
  PLM_TRY(plm_announcer_open(context, NULL, &announcer, error));
  plm_announcer_close(announcer);
  return PLM_OK;
}

/* What was opened before an error is closed again. */
static void what_cannot_be_opened_is_an_error(void **state)
{
  struct plm_announcer *announcer;
  struct plm_announcement_listener *listener;
  struct plm_error error = {0};
  (void)state;
  assert_int_equal(failing_starts_try(open_and_close, "tcp://127.0.0.1:*"), 1);
  assert_int_equal(plm_announcer_open("tcp://127.0.0.1:*", NULL, &announcer, NULL), PLM_OK);
  assert_int_equal(open_and_close((void *)plm_announcer_bound(announcer), &error), PLM_BUSY);
  plm_announcer_close(announcer);
  assert_int_equal(plm_listener_open("tcp://127.0.0.1", NULL, &listener, &error), PLM_CONFIG);
  assert_string_equal(error.what, "\"tcp://127.0.0.1\" is not an endpoint");
}

/* ---- the evaluator's side -------------------------------------------------------------------- */

struct scene {
  void *context, *publisher;
  struct plm_announcement_listener *listener;
};

static uint64_t last_step;

/* A listener may connect too late for the first announcements, so they are repeated until the last
 * one arrives. From then on, nothing is lost. */
static void open_scene(struct scene *scene)
{
  char endpoint[256];
  size_t size = sizeof endpoint;
  struct plm_announcement received = {0};
  const int64_t until = plm_clock_ms() + LIMIT_MS;
  scene->context = zmq_ctx_new();
  scene->publisher = zmq_socket(scene->context, ZMQ_PUB);
  assert_int_equal(zmq_bind(scene->publisher, "tcp://127.0.0.1:*"), 0);
  zmq_getsockopt(scene->publisher, ZMQ_LAST_ENDPOINT, endpoint, &size);
  assert_int_equal(plm_listener_open(endpoint, NULL, &scene->listener, NULL), PLM_OK);
  do {
    uint8_t bytes[MOST];
    const size_t good = expected_bytes(++last_step, "first", bytes);
    assert_int_equal(zmq_send(scene->publisher, bytes, good, 0), good);
    while (received.step < last_step &&
           plm_listener_wait(scene->listener, 20, &received, NULL) == PLM_OK) {
    }
  } while (received.step < last_step && plm_clock_ms() < until);
  assert_int_equal(received.step, last_step);
}

static void close_scene(struct scene *scene)
{
  const int zero = 0;
  plm_listener_close(scene->listener);
  zmq_setsockopt(scene->publisher, ZMQ_LINGER, &zero, sizeof zero);
  zmq_close(scene->publisher);
  zmq_ctx_term(scene->context);
}

/* Sends the bytes, and then an announcement; only this one may arrive, unless `is_one`. */
static void expect(struct scene *scene, const uint8_t *bytes, size_t size, bool is_one,
                   struct plm_announcement *received)
{
  struct plm_announcement next;
  uint8_t good[MOST];
  const size_t good_size = expected_bytes(++last_step, "next", good);
  assert_int_equal(zmq_send(scene->publisher, bytes, size, 0), size);
  assert_int_equal(zmq_send(scene->publisher, good, good_size, 0), good_size);
  if (is_one)
    assert_int_equal(plm_listener_wait(scene->listener, LIMIT_MS, received, NULL), PLM_OK);
  assert_int_equal(plm_listener_wait(scene->listener, LIMIT_MS, &next, NULL), PLM_OK);
  assert_int_equal(next.step, last_step);
  assert_string_equal(next.path, "next");
}

static void every_flipped_bit_is_noticed(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_announcement received;
  uint8_t bytes[MOST + 1];
  open_scene(&scene);
  const size_t size = expected_bytes(77, "checkpoints/step_77", bytes);
  expect(&scene, bytes, size, true, &received);
  assert_int_equal(received.step, 77);
  assert_string_equal(received.path, "checkpoints/step_77");
  assert_true(received.manifest.low == 0x1122334455667788ull);
  assert_true(received.manifest.high == 0x99aabbccddeeff00ull);
  for (size_t i = 0; i < size; i++) {
    bytes[i] ^= (uint8_t)(1 << i % 8);
    expect(&scene, bytes, size, false, NULL);
    bytes[i] ^= (uint8_t)(1 << i % 8);
  }
  expect(&scene, bytes, size - 1, false, NULL);
  expect(&scene, bytes, size + 1, false, NULL);
  expect(&scene, bytes, 0, false, NULL);
  assert_int_equal(plm_listener_wait(scene.listener, 0, &received, NULL), PLM_AGAIN);
  close_scene(&scene);
}

/* The same with a right hash. */
static void what_is_no_announcement(void **state)
{
  (void)state;
  struct scene scene;
  uint8_t bytes[MOST];
  open_scene(&scene);
  for (int at = 0; at < 6; at++) { /* magic and version */
    expected_bytes(7, "path", bytes);
    bytes[at]++;
    expect(&scene, bytes, seal(bytes, HEAD + 4), false, NULL);
  }
  expected_bytes(7, "path", bytes);
  put(bytes + 6, 3, 2); /* the length of the path */
  expect(&scene, bytes, seal(bytes, HEAD + 4), false, NULL);
  put(bytes + 6, 5, 2);
  expect(&scene, bytes, seal(bytes, HEAD + 4), false, NULL);
  close_scene(&scene);
}

static void paths_are_judged(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_announcement received;
  char longest[sizeof received.path + 1];
  memset(longest, 'p', sizeof longest);
  longest[sizeof longest - 1] = '\0';
  const struct {
    const char *path;
    bool is_one;
  } rows[] = {{"a", true},     {"", false},      {"/a", false},      {"a/b", true},
              {"a b", false},  {"a\x7f", false}, {"a\x1f", false},   {"!~", true},
              {"..", false},   {"a..b", false},  {"a.b.c.", true},   {".", true},
              {"a/..", false}, {longest, false}, {longest + 1, true}};
  open_scene(&scene);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint8_t bytes[MOST];
    const size_t size = expected_bytes(1000000 + i, rows[i].path, bytes);
    expect(&scene, bytes, size, rows[i].is_one, &received);
    if (!rows[i].is_one) continue;
    assert_int_equal(received.step, 1000000 + i);
    assert_string_equal(received.path, rows[i].path);
  }
  close_scene(&scene);
}

/* A message of two frames is none, whatever is in them. */
static void frames_do_not_add_up(void **state)
{
  (void)state;
  struct scene scene;
  uint8_t bytes[MOST];
  open_scene(&scene);
  const size_t size = expected_bytes(5, "path", bytes);
  assert_int_equal(zmq_send(scene.publisher, bytes, size, ZMQ_SNDMORE), size);
  expect(&scene, bytes, size - 1, false, NULL);
  close_scene(&scene);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_sends_too_much_is_disconnected),
      cmocka_unit_test(the_layout_is_fixed),
      cmocka_unit_test(what_cannot_be_opened_is_an_error),
      cmocka_unit_test(every_flipped_bit_is_noticed),
      cmocka_unit_test(what_is_no_announcement),
      cmocka_unit_test(paths_are_judged),
      cmocka_unit_test(frames_do_not_add_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
