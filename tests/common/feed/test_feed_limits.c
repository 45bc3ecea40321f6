/* What peers can cost a consumer, however hostile: descriptors, memory and lines of log. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/metrics/http.h"
#include "common/wire/announce.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"
#include "tests/support/peers/raw_peer.h"

/* AddressSanitizer keeps freed memory in a quarantine; a large one would count as growth. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
  return "quarantine_size_mb=4:thread_local_quarantine_size_kb=64";
}

enum { DESCRIPTORS = 256, CONNECTIONS = 1300, WAIT_MS = 20000 };
#define MEMORY_MOST ((size_t)96 << 20)

static int few_descriptors(void **state)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < CONNECTIONS + 100) return -1;
  limit.rlim_cur = DESCRIPTORS;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  return fake_corpus_open(state);
}

static void serve_a_batch(struct plm_feed *feed, const struct plm_feed_options *options)
{
  struct fake_packer packer;
  struct plm_batch batch;
  struct plm_error error = {0};
  struct plm_feed_position position;
  fake_packer_start(&packer, options, plm_feed_bound(feed), 1);
  plm_feed_position(feed, 0, &position);
  if (plm_feed_next(feed, NULL, 64, NULL, &batch, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_true(fake_batch_right(&batch, &position.place));
  plm_feed_release(feed, &batch);
  fake_packer_stop(&packer);
}

/* Waits until the peers' connections leave room for files. */
static void wait_for_descriptors(void)
{
  const int64_t until = plm_clock_ms() + WAIT_MS;
  int opened[32], count = 0;
  while (count < 32 && plm_clock_ms() < until) {
    opened[count] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (opened[count] >= 0)
      count++;
    else
      usleep(10000);
  }
  while (count > 0) close(opened[--count]);
  assert_true(plm_clock_ms() < until);
}

/* ---- connections that do nothing ---------------------------------------------------------- */

/* Each one that is broken comes back. */
static void idle(void *endpoint)
{
  static int open[CONNECTIONS];
  for (int i = 0; i < CONNECTIONS; i++) open[i] = raw_peer_connect(endpoint);
  for (;;) {
    for (int i = 0; i < CONNECTIONS; i++) {
      if (open[i] >= 0 && !raw_peer_hung_up(open[i], 0)) continue;
      if (open[i] >= 0) close(open[i]);
      open[i] = raw_peer_connect(endpoint);
    }
    usleep(100000);
  }
}

static void idle_connections_leave_descriptors(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_options();
  struct plm_feed *feed = packers_feed(&options);
  const pid_t peer = raw_peer_start(idle, (void *)(uintptr_t)plm_feed_bound(feed));
  sleep(1); /* it takes what it gets */
  wait_for_descriptors();
  assert_true(raw_peer_descriptors() < DESCRIPTORS - 32);
  serve_a_batch(feed, &options);
  raw_peer_stop(peer);
  plm_feed_close(feed);
}

static void idle_subscribers_leave_descriptors(void **state)
{
  (void)state;
  struct plm_announcer *announcer;
  struct plm_announcement_listener *listener;
  struct plm_announcement sent = {.step = 7, .path = "checkpoints/step_00000007"}, got;
  struct plm_error error = {0};
  assert_int_equal(plm_announcer_open("tcp://127.0.0.1:*", NULL, &announcer, &error), PLM_OK);
  const char *bound = plm_announcer_bound(announcer);
  const pid_t peer = raw_peer_start(idle, (void *)(uintptr_t)bound);
  sleep(1);
  wait_for_descriptors();
  assert_int_equal(plm_listener_open(bound, NULL, &listener, &error), PLM_OK);
  plm_status status = PLM_AGAIN;
  for (int i = 0; i < 100 && status == PLM_AGAIN; i++) {
    plm_announcer_send(announcer, &sent);
    status = plm_listener_wait(listener, 100, &got, &error);
  }
  assert_int_equal(status, PLM_OK);
  assert_int_equal(got.step, 7);
  plm_listener_close(listener);
  raw_peer_stop(peer);
  plm_announcer_close(announcer);
}

static void empty_page(void *context, struct plm_text *text)
{
  (void)context;
  plm_text_puts(text, "plm_ready 1\n");
}

static bool are_all_served(const struct pollfd items[PLM_HTTP_POLLS])
{
  for (int i = 1; i < PLM_HTTP_POLLS; i++)
    if (items[i].fd < 0) return false;
  return true;
}

static void idle_scrapers_leave_descriptors(void **state)
{
  (void)state;
  struct plm_http *http;
  struct plm_error error = {0};
  const unsigned before = raw_peer_descriptors();
  assert_int_equal(plm_http_open("127.0.0.1:0", empty_page, NULL, &http, &error), PLM_OK);
  const size_t memory = raw_peer_resident_bytes();
  const pid_t peer = raw_peer_start(idle, (void *)(uintptr_t)plm_http_address(http));
  bool full = false;
  for (int i = 0; i < 200; i++) {
    struct pollfd items[PLM_HTTP_POLLS];
    plm_http_fill(http, items);
    full |= are_all_served(items);
    /* those that wait must not end every poll at once */
    assert_int_equal(items[0].fd < 0, are_all_served(items));
    (void)poll(items, PLM_HTTP_POLLS, 5);
    plm_http_turn(http);
    assert_true(raw_peer_descriptors() <= before + 1 + PLM_HTTP_CLIENTS);
  }
  assert_true(full);
  assert_true(raw_peer_resident_bytes() < memory + (8 << 20));
  raw_peer_stop(peer);
  plm_http_close(http);
}

static void a_scraper_without_a_descriptor_waits(void **state)
{
  (void)state;
  struct plm_http *http;
  struct plm_error error = {0};
  struct pollfd items[PLM_HTTP_POLLS];
  struct rlimit limit, none = {0};
  assert_int_equal(plm_http_open("127.0.0.1:0", empty_page, NULL, &http, &error), PLM_OK);
  const pid_t peer = raw_peer_start(idle, (void *)(uintptr_t)plm_http_address(http));
  plm_http_fill(http, items);
  assert_int_equal(poll(items, 1, 10000), 1);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  none.rlim_max = limit.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  plm_http_turn(http);
  plm_http_fill(http, items);
  assert_int_equal(items[0].fd, -1);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (int i = 0; i < 100 && items[1].fd < 0; i++) { /* it is accepted later */
    plm_http_fill(http, items);
    (void)poll(items, PLM_HTTP_POLLS, 100);
    plm_http_turn(http);
    plm_http_fill(http, items);
  }
  assert_true(items[1].fd >= 0);
  raw_peer_stop(peer);
  plm_http_close(http);
}

/* ---- connections that send too much ------------------------------------------------------- */

struct attack {
  const struct plm_feed_options *options;
  const char *endpoint;
};

/* Runs an attack for a few seconds. Returns by how much the process has grown at the most. */
static size_t growth(void (*body)(void *context), const struct attack *attack)
{
  const size_t before = raw_peer_resident_bytes();
  const int64_t until = plm_clock_ms() + 3000;
  size_t most = before;
  const pid_t peer = raw_peer_start(body, (void *)(uintptr_t)attack);
  while (plm_clock_ms() < until) {
    const size_t now = raw_peer_resident_bytes();
    if (now > most) most = now;
    usleep(5000);
  }
  raw_peer_stop(peer);
  return most - before;
}

static void bounded(void (*body)(void *context))
{
  struct plm_feed_options options = packers_options();
  struct plm_feed *feed = packers_feed(&options);
  const struct attack attack = {&options, plm_feed_bound(feed)};
  const size_t grown = growth(body, &attack);
  print_message("grown by %zu MiB\n", grown >> 20);
  assert_true(grown <= MEMORY_MOST);
  serve_a_batch(feed, &options);
  plm_feed_close(feed);
}

/* Long handshake commands, none of which is ever complete. */
static void endless_handshakes(void *context)
{
  const struct attack *attack = context;
  static const unsigned char greeting[64] = {0xff, 0,    0, 0, 0,   0,   0,   0,
                                             0,    0x7f, 3, 0, 'N', 'U', 'L', 'L'};
  static const unsigned char command[9] = {6, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff}; /* 64 MiB */
  static const unsigned char small[9] = {6, 0, 0, 0, 0, 0, 0x0f, 0xff, 0xff};   /* 1 MiB */
  static char block[65536];
  for (int round = 0;; round++) {
    int open[24];
    for (int i = 0; i < 24; i++) {
      open[i] = raw_peer_connect(attack->endpoint);
      if (open[i] < 0 || !raw_peer_send(open[i], greeting, sizeof greeting)) continue;
      (void)raw_peer_send(open[i], round % 2 == 0 ? command : small, sizeof command);
    }
    for (int block_number = 0; block_number < 1000; block_number++)
      for (int i = 0; i < 24; i++)
        if (open[i] >= 0 && !raw_peer_send(open[i], block, sizeof block)) {
          close(open[i]);
          open[i] = -1;
        }
    for (int i = 0; i < 24; i++)
      if (open[i] >= 0) close(open[i]);
  }
}

static void handshakes_cost_little(void **state)
{
  (void)state;
  bounded(endless_handshakes);
}

/* At most 64 MiB a second, so a thread of the feed that has to wait for a processor for a few
 * tenths of a second does not decide the result. test_connection_limiter.c tests the limit itself.
 */
static void endless_parts(void *context)
{
  const struct attack *attack = context;
  static char part[65536];
  for (;;) {
    const int descriptor = raw_peer_connect(attack->endpoint);
    if (descriptor < 0 || !raw_peer_greet(descriptor)) continue;
    while (raw_peer_send_frame(descriptor, true, part, sizeof part)) usleep(1000);
    close(descriptor);
  }
}

static void a_message_that_never_ends_costs_little(void **state)
{
  (void)state;
  bounded(endless_parts);
}

static size_t encode_hello(uint64_t id, uint8_t *header, uint8_t *payload)
{
  struct plm_header fields;
  const size_t size = fake_hello(id, 5, &fields, payload);
  fields.payload_bytes = size;
  fields.payload_hash = plm_hash_bytes(payload, size);
  plm_header_encode(&fields, header);
  return size;
}

/* Many HELLOs of many processes, whose answers nobody reads. */
static void deaf_hellos(void *context)
{
  const struct attack *attack = context;
  static uint8_t header[PLM_HEADER_BYTES], payload[PLM_WIRE_CONTROL_LIMIT];
  for (uint64_t id = 1;; id++) {
    const size_t size = encode_hello(id, header, payload);
    const int descriptor = raw_peer_connect(attack->endpoint);
    if (descriptor < 0 || !raw_peer_greet(descriptor)) continue;
    for (int i = 0; i < 100000; i++)
      if (!raw_peer_send_frame(descriptor, true, header, sizeof header) ||
          !raw_peer_send_frame(descriptor, false, payload, size))
        break;
    close(descriptor);
  }
}

static void hellos_without_reading_cost_little(void **state)
{
  (void)state;
  bounded(deaf_hellos);
}

/* PINGs are answered as well. */
static void deaf_pings(void *context)
{
  const struct attack *attack = context;
  uint8_t header[PLM_HEADER_BYTES];
  const struct plm_header fields = {.type = PLM_MESSAGE_PING,
                                    .payload_hash = plm_hash_bytes("", 0)};
  plm_header_encode(&fields, header);
  for (;;) {
    const int descriptor = raw_peer_connect(attack->endpoint);
    if (descriptor < 0 || !raw_peer_greet(descriptor)) continue;
    while (raw_peer_send_frame(descriptor, true, header, sizeof header) &&
           raw_peer_send_frame(descriptor, false, "", 0))
      continue;
    close(descriptor);
  }
}

static void pings_without_reading_cost_little(void **state)
{
  (void)state;
  bounded(deaf_pings);
}

/* Packers that join and leave as fast as they can. */
static void many_joins(void *context)
{
  const struct attack *attack = context;
  static uint8_t header[PLM_HEADER_BYTES], payload[PLM_WIRE_CONTROL_LIMIT];
  for (uint64_t id = 1;; id++) {
    const size_t size = encode_hello(id, header, payload);
    const int descriptor = raw_peer_connect(attack->endpoint);
    if (descriptor < 0) continue;
    char reply[1024];
    if (raw_peer_greet(descriptor) &&
        raw_peer_send_frame(descriptor, true, header, sizeof header) &&
        raw_peer_send_frame(descriptor, false, payload, size))
      (void)recv(descriptor, reply, sizeof reply, 0);
    close(descriptor);
  }
}

static void packers_that_come_and_go_fill_no_log(void **state)
{
  (void)state;
  const char *path = scratch_path("feed.log");
  const int log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int before = dup(STDERR_FILENO);
  assert_true(log >= 0 && before >= 0);
  fflush(stderr);
  dup2(log, STDERR_FILENO);
  plm_log_init("test", PLM_LOG_INFO);
  struct plm_feed_options options = packers_options();
  struct plm_feed *feed = packers_feed(&options);
  const struct attack attack = {&options, plm_feed_bound(feed)};
  const size_t grown = growth(many_joins, &attack);
  plm_feed_close(feed);
  const off_t size = lseek(log, 0, SEEK_END);
  plm_log_init("test", PLM_LOG_ERROR);
  dup2(before, STDERR_FILENO);
  close(before);
  close(log);
  assert_true(size > 0);
  assert_true(size < 16384);
  assert_true(grown <= MEMORY_MOST);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(idle_connections_leave_descriptors),
      cmocka_unit_test(idle_subscribers_leave_descriptors),
      cmocka_unit_test(idle_scrapers_leave_descriptors),
      cmocka_unit_test(a_scraper_without_a_descriptor_waits),
      cmocka_unit_test(handshakes_cost_little),
      cmocka_unit_test(a_message_that_never_ends_costs_little),
      cmocka_unit_test(hellos_without_reading_cost_little),
      cmocka_unit_test(pings_without_reading_cost_little),
      cmocka_unit_test(packers_that_come_and_go_fill_no_log),
  };
  return cmocka_run_group_tests(tests, few_descriptors, NULL);
}
