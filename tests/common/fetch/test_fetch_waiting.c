/* What is said while a host waits for the head, and how often it asks again. The time is that of
 * the test: a turn of the fetch, which waits for messages for 100 ms, takes a millisecond. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>
#include <zmq.h>

#include "common/base/log/log.h"
#include "common/fetch/fetch_link.h"
#include "common/run/stop.h"
#include "common/wire/socket.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

enum { TURN_MS = 100, STOPS_MS = 36000, ASKS_MS = 5000, QUESTIONS = 1 + STOPS_MS / ASKS_MS };
enum { ARRIVES_MS = 60000 }; /* of the real clock, for a question that was sent */

static _Thread_local bool own_clock;
static long now_ms;        /* of the clock of the thread that fetches */
static void *head;         /* a router that answers nothing; NULL: nobody is there */
static unsigned questions; /* that it was asked */

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  if (!own_clock || clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, now);
  *now = (struct timespec){.tv_sec = 1000 + now_ms / 1000, .tv_nsec = now_ms % 1000 * 1000000};
  return 0;
}

static int real_poll(zmq_pollitem_t *items, int count, long timeout)
{
  int (*real)(zmq_pollitem_t *, int, long);
  *(void **)&real = dlsym(RTLD_NEXT, "zmq_poll");
  return real(items, count, timeout);
}

static void count_questions(void)
{
  char frame[256];
  while (head != NULL && zmq_recv(head, frame, sizeof frame, ZMQ_DONTWAIT) >= 0) {
    int more = 1;
    size_t size = sizeof more;
    while (zmq_getsockopt(head, ZMQ_RCVMORE, &more, &size) == 0 && more)
      zmq_recv(head, frame, sizeof frame, 0);
    questions++;
  }
}

/* The same for libzmq's: it takes a turn, which counts once the head was reached. */
int zmq_poll(zmq_pollitem_t *items, int count, long timeout)
{
  own_clock = false;
  count_questions();
  const int result = real_poll(items, count, 1);
  own_clock = true;
  if (head == NULL || questions > 0) now_ms += timeout;
  if (now_ms >= STOPS_MS) plm_stop_requested = SIGTERM;
  return result;
}

static plm_status no_part(void *context, const struct plm_file_part *part, const uint8_t *bytes,
                          struct plm_error *error)
{
  (void)context, (void)part, (void)bytes;
  return plm_error_set(error, PLM_FAILURE, "nobody sends one");
}

/* The last questions may still be on their way, and closing the link would drop them. */
static void take_questions(void)
{
  zmq_pollitem_t item = {head, 0, ZMQ_POLLIN, 0};
  while (head != NULL && questions < QUESTIONS && real_poll(&item, 1, ARRIVES_MS) == 1)
    count_questions();
}

/* Fetches for 36 seconds of the clock. Returns what was said. */
static const char *fetch(const char *endpoint)
{
  struct plm_fetch_link *link;
  struct plm_error error = {0};
  uint16_t sources;
  const struct plm_fetch_request from = {.source = 0, .file = PLM_FETCH_DATA};
  assert_int_equal(plm_fetch_link_open(endpoint, NULL, &link, &error), PLM_OK);
  questions = 0;
  now_ms = 0;
  own_clock = true;
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_fetch_file(link, &from, "", no_part, NULL, &sources, &error);
  own_clock = false;
  const char *said = captured_end();
  plm_stop_requested = 0;
  assert_int_equal(status, PLM_TERMINATED);
  take_questions();
  plm_fetch_link_close(link);
  return said;
}

/* After five seconds, and then every ten. */
static void nobody_is_there(void **state)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  char endpoint[64], text[128];
  (void)state;
  /* A port that is taken, but where nobody listens. */
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(taken, (struct sockaddr *)&address, size), 0);
  assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &size), 0);
  snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
  head = NULL;
  const char *said = fetch(endpoint);
  assert_int_equal(captured_times(said, "\n"), 4);
  snprintf(text, sizeof text, "nobody answers at %s yet; is the run started", endpoint);
  assert_int_equal(captured_times(said, text), 4);
  close(taken);
}

/* A head that does not answer is asked again every five seconds, and another one may answer then.
 */
static void the_head_is_silent(void **state)
{
  char bound[256];
  (void)state;
  void *context = zmq_ctx_new();
  assert_int_equal(plm_socket_open(context, ZMQ_ROUTER, 1 << 16, &head, NULL), PLM_OK);
  assert_int_equal(plm_socket_bind(head, "tcp://127.0.0.1:*", NULL, bound, NULL), PLM_OK);
  const char *said = fetch(bound);
  assert_int_equal(captured_times(said, "\n"), 4);
  assert_int_equal(captured_times(said, " is silent; asking again\n"), 1);
  assert_int_equal(captured_times(said, " is silent; is it the run's network.feed, and of this"),
                   3);
  assert_true(strstr(said, "asking again") < strstr(said, "network.feed"));
  assert_int_equal(questions, QUESTIONS);
  zmq_close(head);
  zmq_ctx_term(context);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nobody_is_there),
      cmocka_unit_test(the_head_is_silent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
