/* The gate as libzmq asks it: who is let in, what it answers, and that secret keys are wiped. */
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/wire/security.h"
#include "common/wire/socket.h"
#include "tests/support/harness/scratch.h"

static size_t wiped;

/* Takes the place of libc's function in this program. */
void explicit_bzero(void *bytes, size_t size)
{
  memset(bytes, 0, size);
  wiped += size == sizeof(struct plm_keypair);
}

/* The time of the thread that answers, in ms; -1: the real one. */
static atomic_long own_ms = -1;

int clock_gettime(clockid_t clock, struct timespec *now)
{
  char name[16];
  if (own_ms < 0 || clock != CLOCK_MONOTONIC ||
      pthread_getname_np(pthread_self(), name, sizeof name) != 0 || strcmp(name, "keys") != 0)
    return (int)syscall(SYS_clock_gettime, clock, now);
  *now = (struct timespec){.tv_sec = own_ms / 1000, .tv_nsec = own_ms % 1000 * 1000000};
  return 0;
}

static char keys[PLM_PATH_SIZE];
static struct plm_keypair server, friend;
static void *context, *asking;
static struct plm_gate *gate;

static void read_pair(const char *name, struct plm_keypair *pair)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  assert_int_equal(plm_path_join(path, keys, name, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 100, &text, &size, NULL), PLM_OK);
  assert_true(size >= 40);
  snprintf(pair->public_text, sizeof pair->public_text, "%.40s", text);
  free(text);
}

static int begin(void **state)
{
  (void)state;
  int made;
  struct plm_error error = {0};
  scratch_run(keys);
  wiped = 0;
  if (plm_keys_write(keys, "friend", &made, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(made, 2);
  assert_int_equal(wiped, 2);
  assert_int_equal(plm_keys_write(keys, "friend", &made, &error), PLM_OK);
  assert_int_equal(made, 0);
  assert_int_equal(wiped, 4); /* those that are there are read */
  assert_int_equal(plm_keys_server(keys, &server, NULL), PLM_OK);
  read_pair("clients/friend.pub", &friend);
  assert_int_equal(plm_context_open(&context, NULL), PLM_OK);
  wiped = 0;
  assert_int_equal(plm_gate_open(context, keys, &gate, NULL), PLM_OK);
  assert_int_equal(wiped, 1);
  asking = zmq_socket(context, ZMQ_REQ);
  const int zero = 0, limit_ms = 30000;
  zmq_setsockopt(asking, ZMQ_LINGER, &zero, sizeof zero);
  zmq_setsockopt(asking, ZMQ_RCVTIMEO, &limit_ms, sizeof limit_ms);
  return zmq_connect(asking, "inproc://zeromq.zap.01");
}

static int end(void **state)
{
  (void)state;
  zmq_close(asking);
  plm_gate_close(gate);
  return zmq_ctx_term(context);
}

/* Asks with these frames, of which the last is the key in z85, and compares "STATUS TEXT USER".
 * Returns how often a peer that is refused was reported. */
static int expect(const char *const *frames, size_t count, const char *key, const char *expected)
{
  struct plm_text answer = {0};
  uint8_t raw[32];
  int got = 0, more = 1;
  if (key != NULL) assert_non_null(zmq_z85_decode(raw, key));
  captured_begin(STDERR_FILENO);
  for (size_t i = 0; i < count; i++)
    (void)zmq_send(asking, frames[i], strlen(frames[i]),
                   i + 1 < count || key != NULL ? ZMQ_SNDMORE : 0);
  if (key != NULL) (void)zmq_send(asking, raw, sizeof raw, 0);
  for (int i = 0; more && got >= 0; i++) {
    char frame[256];
    size_t size = sizeof more;
    got = zmq_recv(asking, frame, sizeof frame, 0);
    if (got >= 0) plm_text_printf(&answer, "%s%.*s", i == 0 ? "" : " ", got, frame);
    zmq_getsockopt(asking, ZMQ_RCVMORE, &more, &size);
  }
  const int reports = captured_times(captured_end(), "refused a peer at 10.0.0.1: its key (");
  if (got < 0) fail_msg("no answer");
  assert_string_equal(answer.data, expected);
  plm_text_deinit(&answer);
  return reports;
}

#define REFUSED "1.0 id7 400 key not on the list  "

static void only_keys_on_the_list_enter(void **state)
{
  (void)state;
  static const char *const good[] = {"1.0", "id7", "plm", "10.0.0.1", "", "CURVE"};
  static const char *const wrong[][6] = {{"1.1", "id7", "plm", "10.0.0.1", "", "CURVE"},
                                         {"1.0", "id7", "plm", "10.0.0.1", "", "PLAIN"}};
  char expected[200], other[41], secret[41];
  assert_int_equal(zmq_curve_keypair(other, secret), 0);
  snprintf(expected, sizeof expected, "1.0 id7 200 OK %s ", friend.public_text);
  expect(good, 6, friend.public_text, expected);
  snprintf(expected, sizeof expected, "1.0 id7 200 OK %s ", server.public_text);
  expect(good, 6, server.public_text, expected);
  assert_int_equal(plm_gate_refused(gate), 0);
  expect(good, 6, other, REFUSED);
  assert_int_equal(plm_gate_refused(gate), 1);
  for (size_t i = 0; i < 2; i++) expect(wrong[i], 6, friend.public_text, REFUSED);
  expect(good, 6, NULL, REFUSED); /* without a key */
  expect(good, 5, friend.public_text, REFUSED);
  static const char *const more[] = {"1.0", "id7", "plm", "10.0.0.1", "", "CURVE", "x"};
  expect(more, 7, friend.public_text, REFUSED);
  expect(more, 7, NULL, REFUSED); /* a key of one byte */
  assert_int_equal(plm_gate_refused(gate), 7);
  assert_int_equal(plm_gate_refused(NULL), 0);
  assert_string_equal(plm_gate_keys(gate), keys);
}

/* Whoever knocks again and again fills no log. */
static void a_second_passes_between_two_reports(void **state)
{
  (void)state;
  static const char *const frames[] = {"1.0", "id7", "plm", "10.0.0.1", "", "CURVE"};
  static const struct {
    long after_ms;
    int reports;
  } rows[] = {{0, 1}, {0, 0}, {999, 0}, {1000, 1}, {1999, 0}, {2000, 1}, {3500, 1}, {4499, 0}};
  const long later_ms = (long)plm_clock_ms() + 3600000; /* than the reports before */
  char other[41], secret[41];
  assert_int_equal(zmq_curve_keypair(other, secret), 0);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    own_ms = later_ms + rows[i].after_ms;
    const int reports = expect(frames, 6, other, REFUSED);
    if (reports != rows[i].reports) fail_msg("row %zu: %d", i, reports);
  }
  own_ms = -1;
}

static void put(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, keys, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static void a_key_is_in_a_file_of_its_own(void **state)
{
  (void)state;
  char other[41], secret[41], line[100];
  assert_int_equal(zmq_curve_keypair(other, secret), 0);
  snprintf(line, sizeof line, "%s\n", other);
  assert_false(plm_gate_allows(gate, other));
  put("clients/other.key", line);
  put("clients/.pub", line);
  put("clients/.hidden.pub", line);
  assert_false(plm_gate_allows(gate, other));
  snprintf(line, sizeof line, "%s\r\n\n", other);
  put("clients/x.pub", line);
  assert_true(plm_gate_allows(gate, other));
  snprintf(line, sizeof line, "%sx\n", other);
  put("clients/x.pub", line);
  assert_false(plm_gate_allows(gate, other));
  snprintf(line, sizeof line, "%.39s\n", other);
  put("clients/x.pub", line);
  assert_false(plm_gate_allows(gate, other));
  snprintf(line, sizeof line, "%.39s", other);
  assert_false(plm_gate_allows(gate, line)); /* no key, although it is in a file */
  assert_true(plm_gate_allows(gate, friend.public_text));
}

static void secret_keys_are_wiped(void **state)
{
  (void)state;
  struct plm_error error = {0};
  void *socket = zmq_socket(context, ZMQ_DEALER);
  wiped = 0;
  assert_int_equal(plm_socket_secure_server(socket, keys, NULL), PLM_OK);
  assert_int_equal(wiped, 1);
  assert_int_equal(plm_socket_secure_client(socket, keys, NULL, NULL), PLM_OK);
  assert_int_equal(wiped, 2);
  zmq_close(socket);
  struct plm_gate *second;
  assert_int_equal(plm_gate_open(context, keys, &second, &error), PLM_IO); /* there is one */
  assert_non_null(strstr(error.what, "cannot start the ZAP handler: "));
  assert_int_equal(wiped, 3);
}

/* A socket that has to be secured is not left open if a key is missing. */
static void a_missing_key_is_an_error(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char found[PLM_KEY_TEXT];
  size_t size = sizeof found;
  const char *empty = scratch_path("no-keys");
  void *socket = zmq_socket(context, ZMQ_DEALER);
  assert_int_equal(plm_directory_make(empty, NULL), PLM_OK);
  wiped = 0;
  assert_int_not_equal(plm_socket_secure_server(socket, empty, &error), PLM_OK);
  assert_non_null(strstr(error.what, "no-keys"));
  assert_int_not_equal(plm_socket_secure_client(socket, empty, NULL, &error), PLM_OK);
  assert_non_null(strstr(error.what, "no-keys"));
  assert_int_equal(plm_socket_secure_server(socket, NULL, &error), PLM_OK); /* without keys */
  assert_int_equal(plm_socket_secure_client(socket, NULL, NULL, &error), PLM_OK);
  assert_int_equal(wiped, 0);
  /* The key of a server may be given, and is otherwise in the folder. */
  for (int i = 0; i < 3; i++) {
    static const char *const given[] = {NULL, "", NULL};
    const char *key = i < 2 ? given[i] : friend.public_text;
    assert_int_equal(plm_socket_secure_client(socket, keys, key, &error), PLM_OK);
    size = sizeof found;
    assert_int_equal(zmq_getsockopt(socket, ZMQ_CURVE_SERVERKEY, found, &size), 0);
    assert_int_equal(strcmp(found, friend.public_text) == 0, i == 2);
  }
  zmq_close(socket);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(only_keys_on_the_list_enter),   TEST(a_second_passes_between_two_reports),
      TEST(a_key_is_in_a_file_of_its_own), TEST(secret_keys_are_wiped),
      TEST(a_missing_key_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
