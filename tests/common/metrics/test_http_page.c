/* common/metrics/http: addresses, and what a client reads for each request. */
#include "tests/support/harness/cmocka_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/metrics/http.h"

enum { LIMIT_MS = 60000 };

static int64_t stopped_ms; /* what the monotonic clock shows; 0: the time */

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  if (clock != CLOCK_MONOTONIC || stopped_ms == 0)
    return (int)syscall(SYS_clock_gettime, clock, now);
  *now = (struct timespec){.tv_sec = stopped_ms / 1000, .tv_nsec = stopped_ms % 1000 * 1000000};
  return 0;
}

static int refused; /* why no connection can be accepted; 0: they can */

/* Takes the place of libc's function in this program. */
int accept4(int socket, struct sockaddr *address, socklen_t *size, int flags)
{
  errno = refused;
  return refused != 0 ? -1 : (int)syscall(SYS_accept4, socket, address, size, flags);
}

static size_t page_size;

static void page(void *context, struct plm_text *text)
{
  assert_ptr_equal(context, &page_size);
  if (page_size == 0) plm_text_puts(text, "plm_step 1\n");
  for (size_t i = 0; i < page_size; i++) plm_text_append(text, &"abcdefgh"[i % 8], 1);
}

static struct plm_http *open_http(const char *address)
{
  struct plm_http *http;
  struct plm_error error = {0};
  if (plm_http_open(address, page, &page_size, &http, &error) != PLM_OK)
    fail_msg("%s: %s", address, error.what);
  return http;
}

static int connect_to(const struct plm_http *http)
{
  const char *address = plm_http_address(http), *colon = strrchr(address, ':');
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)atoi(colon + 1)),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(client >= 0);
  assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof to), 0);
  return client;
}

static void say(int client, const char *text)
{
  assert_int_equal(send(client, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* One turn of the server, after it has something to do or after a moment. */
static void turn(struct plm_http *http)
{
  struct pollfd items[PLM_HTTP_POLLS];
  plm_http_fill(http, items);
  poll(items, PLM_HTTP_POLLS, 20);
  plm_http_turn(http);
}

/* Appends what the client can read now to text; false at the end of the stream. */
static bool read_some(int client, struct plm_text *text)
{
  char bytes[65536];
  ssize_t size;
  while ((size = recv(client, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
    plm_text_append(text, bytes, (size_t)size);
  return size != 0;
}

/* Serves until the client has read everything. */
static void read_all(struct plm_http *http, int client, struct plm_text *text)
{
  const int64_t end = plm_clock_ms() + LIMIT_MS;
  plm_text_clear(text);
  plm_text_puts(text, "");
  while (read_some(client, text)) {
    turn(http);
    if (plm_clock_ms() > end) fail_msg("the answer has not ended: %s", text->data);
  }
}

static void ask(struct plm_http *http, const char *request, struct plm_text *text)
{
  const int client = connect_to(http);
  say(client, request);
  read_all(http, client, text);
  close(client);
}

static void requests_have_answers(void **state)
{
  (void)state;
#define OK_HEAD                                                                   \
  "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n" \
  "Content-Length: 11\r\nConnection: close\r\n\r\n"
#define NOT_FOUND                                                                            \
  "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 28\r\nConnection: " \
  "close\r\n\r\n"
#define NOT_FOUND_BODY "the metrics are at /metrics\n"
  static const struct {
    const char *request, *answer;
  } cases[] = {
      {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", OK_HEAD "plm_step 1\n"},
      {"GET /metrics\r\n\r\n", OK_HEAD "plm_step 1\n"},
      {"GET /metrics?a=b HTTP/1.1\r\n\r\n", OK_HEAD "plm_step 1\n"},
      {"HEAD /metrics HTTP/1.1\r\n\r\n", OK_HEAD},
      {"HEAD / HTTP/1.1\r\n\r\n", NOT_FOUND},
      {"GET / HTTP/1.1\r\n\r\n", NOT_FOUND NOT_FOUND_BODY},
      {"GET /metric HTTP/1.1\r\n\r\n", NOT_FOUND NOT_FOUND_BODY},
      {"GET /metricz HTTP/1.1\r\n\r\n", NOT_FOUND NOT_FOUND_BODY},
      {"GET /metrics2 HTTP/1.1\r\n\r\n", NOT_FOUND NOT_FOUND_BODY},
      {"POST /metrics HTTP/1.1\r\n\r\n",
       "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n"
       "Connection: close\r\n\r\nGET /metrics\n"},
  };
  struct plm_http *http = open_http("127.0.0.1:0");
  struct plm_text text = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask(http, cases[i].request, &text);
    assert_string_equal(text.data, cases[i].answer);
  }
  plm_text_deinit(&text);
  plm_http_close(http);
}

static void a_request_may_come_in_parts(void **state)
{
  (void)state;
  struct plm_http *http = open_http("127.0.0.1:*");
  struct plm_text text = {0};
  const int client = connect_to(http);
  say(client, "GET /metrics HTTP");
  for (int i = 0; i < 3; i++) turn(http);
  say(client, "/1.1\r\nHost: x\r\n");
  for (int i = 0; i < 3; i++) turn(http);
  assert_true(read_some(client, &text));
  assert_int_equal(text.length, 0);
  say(client, "\r\n");
  read_all(http, client, &text);
  assert_string_equal(text.data, OK_HEAD "plm_step 1\n");
  close(client);
  plm_text_deinit(&text);
  plm_http_close(http);
}

/* A header of at most 4094 bytes is answered, one that is longer is not. */
static void requests_have_a_limit(void **state)
{
  (void)state;
  static char request[8192];
  struct plm_http *http = open_http("127.0.0.1:0");
  struct plm_text text = {0};
  for (size_t size = 4093; size <= 4096; size++) {
    memset(request, 'x', sizeof request);
    memcpy(request, "GET /metrics ", 13);
    memcpy(request + size - 4, "\r\n\r\n", 5);
    ask(http, request, &text);
    assert_int_equal(text.length > 0, size <= 4095);
  }
  plm_text_deinit(&text);
  plm_http_close(http);
}

/* More than a socket's buffers hold, while the client does not read yet. */
static void a_large_page_is_sent_in_parts(void **state)
{
  (void)state;
  struct plm_http *http = open_http("127.0.0.1:0");
  struct plm_text text = {0};
  page_size = 20 << 20;
  const int client = connect_to(http), other = connect_to(http);
  say(client, "GET /metrics\r\n\r\n");
  for (int i = 0; i < 5; i++) turn(http);
  say(client, "GET /metrics\r\n\r\n"); /* one answer is enough */
  say(other, "GET /nothing\r\n\r\n");  /* is not delayed */
  read_all(http, other, &text);
  assert_non_null(strstr(text.data, "404 Not Found"));
  read_all(http, client, &text);
  const char *body = strstr(text.data, "\r\n\r\n");
  assert_non_null(body);
  assert_non_null(strstr(text.data, "Content-Length: 20971520\r\n"));
  body += 4;
  assert_int_equal(text.length - (size_t)(body - text.data), page_size);
  for (size_t i = 0; i < page_size; i++)
    if (body[i] != "abcdefgh"[i % 8]) fail_msg("byte %zu is %c", i, body[i]);
  close(client);
  close(other);
  page_size = 0;
  plm_text_deinit(&text);
  plm_http_close(http);
}

/* Eight clients that say nothing; the ninth is served once one of them has left. */
static void serve_a_ninth(int leaves)
{
  struct plm_http *http = open_http("127.0.0.1:0");
  struct pollfd items[PLM_HTTP_POLLS];
  struct plm_text text = {0};
  int silent[PLM_HTTP_CLIENTS];
  for (int i = 0; i < PLM_HTTP_CLIENTS; i++) {
    plm_http_fill(http, items);
    assert_true(items[0].fd >= 0 && items[0].events == POLLIN);
    silent[i] = connect_to(http);
    turn(http);
  }
  plm_http_fill(http, items);
  assert_int_equal(items[0].fd, -1); /* the others wait to be accepted */
  for (int i = 1; i < PLM_HTTP_POLLS; i++)
    assert_true(items[i].fd >= 0 && items[i].events == POLLIN);
  const int ninth = connect_to(http);
  say(ninth, "GET /metrics\r\n\r\n");
  for (int i = 0; i < 3; i++) turn(http);
  assert_true(read_some(ninth, &text));
  assert_int_equal(text.length, 0);
  close(silent[leaves]);
  read_all(http, ninth, &text);
  assert_string_equal(text.data, OK_HEAD "plm_step 1\n");
  close(ninth);
  do {
    turn(http);
    plm_http_fill(http, items);
  } while (items[1 + leaves].fd >= 0);
  assert_true(items[0].fd >= 0 && items[0].events == POLLIN); /* its place is the only free one */
  for (int i = 0; i < PLM_HTTP_CLIENTS; i++)
    if (i != leaves) close(silent[i]);
  plm_text_deinit(&text);
  plm_http_close(http);
}

static void so_many_clients_at_once(void **state)
{
  (void)state;
  for (int i = 0; i < PLM_HTTP_CLIENTS; i++) serve_a_ninth(i);
}

/* Its place is free for the next one as soon as the end of its stream is read. */
static void a_client_that_leaves_is_dropped(void **state)
{
  (void)state;
  struct plm_http *http = open_http("127.0.0.1:0");
  struct pollfd items[PLM_HTTP_POLLS];
  const int client = connect_to(http);
  turn(http);
  plm_http_fill(http, items);
  assert_true(items[1].fd >= 0);
  stopped_ms = plm_clock_ms(); /* the deadline of a silent client does not come */
  close(client);
  for (int turns = 0; items[1].fd >= 0; turns++) {
    if (turns == LIMIT_MS / 20) fail_msg("the place of a client that left is not free");
    turn(http);
    plm_http_fill(http, items);
  }
  stopped_ms = 0;
  plm_http_close(http);
}

/* What a client has said before it left is no part of what the next one says. */
static void the_next_client_begins_anew(void **state)
{
  (void)state;
  struct plm_http *http = open_http("127.0.0.1:0");
  struct pollfd items[PLM_HTTP_POLLS];
  struct plm_text text = {0};
  const int client = connect_to(http);
  say(client, "GET /nothing");
  turn(http);
  close(client);
  do {
    turn(http);
    plm_http_fill(http, items);
  } while (items[1].fd >= 0);
  ask(http, "GET /metrics\r\n\r\n", &text);
  assert_string_equal(text.data, OK_HEAD "plm_step 1\n");
  plm_text_deinit(&text);
  plm_http_close(http);
}

/* After the answer, the connection stays until the client has read it and leaves. */
static void an_answered_client_leaves_first(void **state)
{
  (void)state;
  struct plm_http *http = open_http("127.0.0.1:0");
  struct pollfd items[PLM_HTTP_POLLS];
  struct plm_text text = {0};
  const int client = connect_to(http);
  say(client, "GET /metrics\r\n\r\n");
  read_all(http, client, &text);
  assert_string_equal(text.data, OK_HEAD "plm_step 1\n");
  for (int i = 0; i < 3; i++) turn(http);
  plm_http_fill(http, items);
  assert_true(items[1].fd >= 0 && items[1].events == POLLIN);
  close(client);
  plm_text_deinit(&text);
  plm_http_close(http);
}

/* A client that asks nothing is disconnected after five seconds, and not before. */
static void a_silent_client_is_disconnected(void **state)
{
  (void)state;
  struct plm_http *http = open_http("127.0.0.1:0");
  struct pollfd items[PLM_HTTP_POLLS];
  struct plm_text text = {0};
  stopped_ms = plm_clock_ms();
  const int client = connect_to(http);
  turn(http);
  stopped_ms += 4999;
  turn(http);
  plm_http_fill(http, items);
  assert_true(items[1].fd >= 0);
  assert_true(read_some(client, &text));
  stopped_ms += 1;
  turn(http);
  plm_http_fill(http, items);
  assert_int_equal(items[1].fd, -1);
  stopped_ms = 0;
  read_all(http, client, &text);
  assert_int_equal(text.length, 0);
  close(client);
  plm_text_deinit(&text);
  plm_http_close(http);
}

/* Without a descriptor for it, a connection waits for a second before the next attempt, so that the
 * server does not turn all the time. */
static void a_connection_that_cannot_be_accepted_waits(void **state)
{
  (void)state;
  static const struct {
    int cause;
    bool waits;
  } cases[] = {
      {EMFILE, true}, {ENOMEM, true}, {EAGAIN, false}, {EINTR, false}, {ECONNABORTED, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_http *http = open_http("127.0.0.1:0");
    struct pollfd items[PLM_HTTP_POLLS];
    struct plm_text text = {0};
    stopped_ms = plm_clock_ms();
    const int client = connect_to(http);
    refused = cases[i].cause;
    turn(http);
    refused = 0;
    plm_http_fill(http, items);
    assert_int_equal(items[0].fd < 0, cases[i].waits);
    stopped_ms += 999;
    plm_http_fill(http, items);
    assert_int_equal(items[0].fd < 0, cases[i].waits);
    stopped_ms += 1;
    plm_http_fill(http, items);
    assert_true(items[0].fd >= 0);
    stopped_ms = 0;
    say(client, "GET /metrics\r\n\r\n");
    read_all(http, client, &text);
    assert_string_equal(text.data, OK_HEAD "plm_step 1\n");
    close(client);
    plm_text_deinit(&text);
    plm_http_close(http);
  }
}

static void addresses_are_hosts_and_ports(void **state)
{
  (void)state;
  static const char *const wrong[] = {"127.0.0.1",       "127.0.0.1:",      "127.0.0.1:65536",
                                      "127.0.0.1:1x",    "127.0.0.1:-1",    "127.0.0.1:/",
                                      "not a host:9464", "127.0.0.1:99999", "",
                                      "[127.0.0.1:9464", "127.0.0.1]:9464", "[:9464",
                                      "]:9464"};
  struct plm_http *http;
  struct plm_error error;
  char wanted[400], longest[600];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    error = (struct plm_error){0};
    assert_int_equal(plm_http_open(wrong[i], page, &page_size, &http, &error), PLM_USAGE);
    snprintf(wanted, sizeof wanted, "cannot serve metrics on \"%s\", which is not an address",
             wrong[i]);
    assert_string_equal(error.what, wanted);
    assert_string_equal(error.hint, "use HOST:PORT, for example 127.0.0.1:9464");
  }
  memset(longest, '0', sizeof longest);
  memcpy(longest, "127.0.0.1:", 10);
  longest[300] = '\0';
  assert_int_equal(plm_http_open(longest, page, &page_size, &http, &error), PLM_USAGE);
  http = open_http("[127.0.0.1]:0"); /* brackets are for IPv6, which not every machine has */
  assert_int_equal(strncmp(plm_http_address(http), "127.0.0.1:", 10), 0);
  plm_http_close(http);
  http = open_http("127.0.0.1:0");
  assert_int_equal(strncmp(plm_http_address(http), "127.0.0.1:", 10), 0);
  assert_int_not_equal(atoi(plm_http_address(http) + 10), 0);
  struct plm_http *second;
  assert_int_equal(plm_http_open(plm_http_address(http), page, &page_size, &second, &error),
                   PLM_BUSY);
  snprintf(wanted, sizeof wanted, "cannot serve metrics on %s: the port is in use",
           plm_http_address(http));
  assert_string_equal(error.what, wanted);
  plm_http_close(http);
  plm_http_close(NULL);
  assert_int_equal(plm_http_open("192.0.2.1:0", page, &page_size, &http, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot serve metrics on 192.0.2.1:0: "));
}

static void all_interfaces_and_ipv6(void **state)
{
  (void)state;
  static const char *const everywhere[] = {":0", "*:0", ":*"};
  for (size_t i = 0; i < 3; i++) {
    struct plm_http *http = open_http(everywhere[i]);
    const char *address = plm_http_address(http);
    assert_true(strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0);
    plm_http_close(http);
  }
  struct plm_http *http;
  if (plm_http_open("[::1]:0", page, &page_size, &http, NULL) != PLM_OK) skip("there is no IPv6");
  assert_int_equal(strncmp(plm_http_address(http), "[::1]:", 6), 0);
  plm_http_close(http);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_have_answers),
      cmocka_unit_test(a_request_may_come_in_parts),
      cmocka_unit_test(requests_have_a_limit),
      cmocka_unit_test(a_large_page_is_sent_in_parts),
      cmocka_unit_test(so_many_clients_at_once),
      cmocka_unit_test(a_client_that_leaves_is_dropped),
      cmocka_unit_test(the_next_client_begins_anew),
      cmocka_unit_test(an_answered_client_leaves_first),
      cmocka_unit_test(a_silent_client_is_disconnected),
      cmocka_unit_test(a_connection_that_cannot_be_accepted_waits),
      cmocka_unit_test(addresses_are_hosts_and_ports),
      cmocka_unit_test(all_interfaces_and_ipv6),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
