/* How a host fetches a file: what it asks a head for, which answers it takes, and what ends it. The
 * head is a thread of the test. */
#include "tests/support/harness/cmocka_all.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "common/base/clock.h"
#include "common/fetch/fetch_link.h"
#include "common/run/stop.h"
#include "common/wire/socket.h"
#include "tests/support/harness/captured.h"

enum { HANGS_S = 60, AHEAD = 8 };

static const uint64_t part_bytes = 1 << 20;

/* For the thread that fetches, two seconds pass with each part. */
static _Thread_local time_t passed_s;

int clock_gettime(clockid_t clock, struct timespec *now)
{
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  now->tv_sec += passed_s;
  return result;
}

/* What the head does before it answers each question in order. */
struct head {
  void *context, *router;
  char bound[256];
  pthread_t thread, fetching;
  uint64_t file_bytes;
  bool busy;                    /* refuses the first question */
  bool others;                  /* sends parts that nobody needs before the first one */
  enum plm_nack_reason refuses; /* PLM_NACK_NONE: nothing */
  /* what it has heard */
  int64_t waited_ms; /* after it was busy */
  unsigned questions, ahead, wrong;
  uint64_t last_request;
};

/* The next question; false: there is none for so long. */
static bool hear(struct head *head, int limit_ms, struct plm_message *message,
                 struct plm_fetch_request *request)
{
  zmq_pollitem_t item = {head->router, 0, ZMQ_POLLIN, 0};
  if (zmq_poll(&item, 1, limit_ms) <= 0) return false;
  if (plm_message_receive(head->router, true, message, NULL) != PLM_OK) return false;
  const plm_status status = plm_fetch_decode(zmq_msg_data(&message->payload),
                                             zmq_msg_size(&message->payload), request, NULL);
  zmq_msg_close(&message->payload);
  head->wrong += status != PLM_OK || message->header.type != PLM_MESSAGE_FETCH ||
                 request->source != 2 || request->file != PLM_FETCH_DATA ||
                 request->bytes != part_bytes || message->header.request <= head->last_request;
  head->last_request = message->header.request;
  head->questions++;
  return true;
}

static void answer(struct head *head, const struct plm_message *to,
                   struct plm_fetch_request request, uint64_t request_id)
{
  uint8_t *payload = malloc(PLM_FILE_PART_HEAD + part_bytes);
  const uint64_t left = head->file_bytes - request.offset;
  struct plm_file_part part = {.sources = 3, .of = request, .file_bytes = head->file_bytes};
  struct plm_header header = {.type = PLM_MESSAGE_FILE_PART, .request = request_id};
  part.of.bytes = (uint32_t)(left < part_bytes ? left : part_bytes);
  plm_file_part_encode(&part, payload);
  memset(payload + PLM_FILE_PART_HEAD, (int)(request.offset / part_bytes) + 1, part.of.bytes);
  (void)plm_message_send(head->router, to->routing_id, to->routing_id_bytes, &header, payload,
                         PLM_FILE_PART_HEAD + part.of.bytes, NULL);
  free(payload);
}

static void refuse(struct head *head, const struct plm_message *to, uint64_t request_id,
                   enum plm_nack_reason reason)
{
  uint8_t payload[4 + PLM_WIRE_TEXT];
  struct plm_header header = {.type = PLM_MESSAGE_NACK, .request = request_id};
  const size_t size = plm_nack_encode(reason, "the reason", payload);
  (void)plm_message_send(head->router, to->routing_id, to->routing_id_bytes, &header, payload, size,
                         NULL);
}

static void answer_others(struct head *head, const struct plm_message *to,
                          struct plm_fetch_request request)
{
  struct plm_fetch_request other = request;
  other.source = 1;
  answer(head, to, other, to->header.request);
  other = request;
  other.file = PLM_FETCH_DESCRIPTION;
  answer(head, to, other, to->header.request);
  other = request;
  other.offset += part_bytes;
  answer(head, to, other, to->header.request);
  refuse(head, to, 0, PLM_NACK_RANGE); /* of an earlier transfer */
}

static void on_signal(int number)
{
  (void)number;
}

/* Signals during the wait after PLM_NACK_BUSY. */
static void interrupt(pthread_t thread)
{
  const struct timespec pause = {.tv_nsec = 5000000};
  for (int i = 0; i < 20; i++) {
    nanosleep(&pause, NULL);
    pthread_kill(thread, SIGUSR2);
  }
}

static void *serve(void *context)
{
  struct head *head = context;
  struct plm_message message[AHEAD], more;
  struct plm_fetch_request request[AHEAD];
  if (!hear(head, 1000 * HANGS_S, &message[0], &request[0])) return NULL;
  if (head->refuses != PLM_NACK_NONE) {
    refuse(head, &message[0], message[0].header.request, head->refuses);
    return NULL;
  }
  if (head->busy) {
    const int64_t begin = plm_clock_ms();
    refuse(head, &message[0], message[0].header.request, PLM_NACK_BUSY);
    interrupt(head->fetching);
    if (!hear(head, 1000 * HANGS_S, &message[0], &request[0])) return NULL;
    head->waited_ms = plm_clock_ms() - begin;
  }
  if (head->others) answer_others(head, &message[0], request[0]);
  answer(head, &message[0], request[0], message[0].header.request);
  uint64_t told = request[0].offset + part_bytes;
  while (told < head->file_bytes) {
    unsigned count = 0;
    uint64_t left = (head->file_bytes - told + part_bytes - 1) / part_bytes;
    const unsigned wanted = left < AHEAD ? (unsigned)left : AHEAD;
    while (count < wanted && hear(head, 1000 * HANGS_S, &message[count], &request[count])) {
      head->wrong += request[count].offset != told + count * part_bytes;
      count++;
    }
    if (count < wanted) return NULL;
    if (count > head->ahead) head->ahead = count;
    if (count == AHEAD && hear(head, 0, &more, &request[0])) head->wrong++; /* too far ahead */
    for (unsigned i = 0; i < count; i++, told += part_bytes)
      answer(head, &message[i], request[i], message[i].header.request);
  }
  if (hear(head, 0, &more, &request[0])) head->wrong++; /* beyond the end */
  return NULL;
}

static void open_head(struct head *head)
{
  const struct sigaction interrupt = {.sa_handler = on_signal};
  sigaction(SIGUSR2, &interrupt, NULL);
  head->fetching = pthread_self();
  assert_int_equal(plm_context_open(&head->context, NULL), PLM_OK);
  assert_int_equal(plm_socket_open(head->context, ZMQ_ROUTER, 2 * part_bytes, &head->router, NULL),
                   PLM_OK);
  assert_int_equal(plm_socket_bind(head->router, "tcp://127.0.0.1:*", NULL, head->bound, NULL),
                   PLM_OK);
  assert_int_equal(pthread_create(&head->thread, NULL, serve, head), 0);
}

static void close_head(struct head *head)
{
  pthread_join(head->thread, NULL);
  zmq_close(head->router);
  zmq_ctx_term(head->context);
}

struct sunk {
  uint64_t offset, file_bytes;
  unsigned parts;
  bool full; /* refuses the second part */
};

static plm_status sink(void *context, const struct plm_file_part *part, const uint8_t *bytes,
                       struct plm_error *error)
{
  struct sunk *sunk = context;
  if (sunk->full && sunk->parts == 1) return plm_error_set(error, PLM_NO_SPACE, "no room");
  assert_int_equal(part->of.offset, sunk->offset);
  assert_int_equal(part->of.source, 2);
  for (uint32_t i = 0; i < part->of.bytes; i++)
    if (bytes[i] != part->of.offset / part_bytes + 1) fail_msg("byte %u is %u", i, bytes[i]);
  sunk->offset += part->of.bytes;
  sunk->file_bytes = part->file_bytes;
  sunk->parts++;
  passed_s += 2;
  return PLM_OK;
}

static plm_status fetch(struct head *head, uint64_t offset, struct sunk *sunk,
                        struct plm_error *error)
{
  struct plm_fetch_link *link;
  const struct plm_fetch_request from = {.source = 2, .file = PLM_FETCH_DATA, .offset = offset};
  uint16_t sources = 0;
  alarm(HANGS_S);
  open_head(head);
  assert_int_equal(plm_fetch_link_open(head->bound, NULL, &link, NULL), PLM_OK);
  sunk->offset = offset;
  const plm_status status =
      plm_fetch_file(link, &from, "; what is there is kept", sink, sunk, &sources, error);
  if (status == PLM_OK) assert_int_equal(sources, 3);
  plm_fetch_link_close(link);
  if (status == PLM_OK || head->refuses != PLM_NACK_NONE) close_head(head);
  alarm(0);
  return status;
}

static void parts_are_asked_for_ahead(void **state)
{
  (void)state;
  struct head head = {.file_bytes = (20 << 20) + 1};
  struct sunk sunk = {0};
  captured_begin(STDERR_FILENO);
  assert_int_equal(fetch(&head, 0, &sunk, NULL), PLM_OK);
  assert_string_equal(captured_end(), ""); /* nobody is silent */
  assert_int_equal(sunk.offset, head.file_bytes);
  assert_int_equal(sunk.file_bytes, head.file_bytes);
  assert_int_equal(sunk.parts, 21);
  assert_int_equal(head.questions, 21);
  assert_int_equal(head.ahead, AHEAD);
  assert_int_equal(head.wrong, 0);
}

static void a_file_may_be_continued(void **state)
{
  (void)state;
  struct head head = {.file_bytes = 3 << 20};
  struct sunk sunk = {0};
  assert_int_equal(fetch(&head, 2 << 20, &sunk, NULL), PLM_OK);
  assert_int_equal(sunk.offset, head.file_bytes);
  assert_int_equal(sunk.parts, 1);
  assert_int_equal(head.questions, 1); /* not beyond the end */
  assert_int_equal(head.wrong, 0);
}

static void other_parts_are_left_out(void **state)
{
  (void)state;
  struct head head = {.file_bytes = 2 << 20, .others = true};
  struct sunk sunk = {0};
  assert_int_equal(fetch(&head, 0, &sunk, NULL), PLM_OK);
  assert_int_equal(sunk.parts, 2);
  assert_int_equal(head.questions, 2);
  assert_int_equal(head.wrong, 0);
}

static void a_busy_head_is_asked_again_later(void **state)
{
  (void)state;
  struct head head = {.file_bytes = 2 << 20, .busy = true};
  struct sunk sunk = {0};
  assert_int_equal(fetch(&head, 0, &sunk, NULL), PLM_OK);
  assert_int_equal(sunk.parts, 2);
  assert_int_equal(head.questions, 3);
  assert_int_equal(head.wrong, 0);
  assert_true(head.waited_ms >= 190);
}

static void a_refusal_ends_it(void **state)
{
  (void)state;
  struct head head = {.file_bytes = 2 << 20, .refuses = PLM_NACK_RANGE};
  struct sunk sunk = {0};
  struct plm_error error = {0};
  char expected[400];
  assert_int_equal(fetch(&head, 0, &sunk, &error), PLM_NOT_FOUND);
  snprintf(expected, sizeof expected, "%s does not send the corpus: the reason", head.bound);
  assert_string_equal(error.what, expected);
  assert_string_equal(error.hint, "copy the corpus to this host, and name it with --corpus");
  assert_int_equal(sunk.parts, 0);
}

static void an_error_of_the_caller_ends_it(void **state)
{
  (void)state;
  struct head head = {.file_bytes = 2 << 20};
  struct sunk sunk = {.full = true};
  struct plm_error error = {0};
  assert_int_equal(fetch(&head, 0, &sunk, &error), PLM_NO_SPACE);
  assert_string_equal(error.what, "no room");
  assert_int_equal(sunk.parts, 1);
  close_head(&head);
}

static void a_stop_signal_ends_it(void **state)
{
  (void)state;
  struct plm_fetch_link *link = NULL;
  struct plm_error error = {0};
  struct sunk sunk = {0};
  uint16_t sources;
  const struct plm_fetch_request from = {.source = 2, .file = PLM_FETCH_DATA};
  assert_int_equal(plm_fetch_link_open("tcp://127.0.0.1:9", NULL, &link, NULL), PLM_OK);
  plm_stop_requested = SIGTERM;
  assert_int_equal(
      plm_fetch_file(link, &from, "; what is there is kept", sink, &sunk, &sources, &error),
      PLM_TERMINATED);
  plm_stop_requested = 0;
  assert_string_equal(error.what, "stopped by SIGTERM; what is there is kept");
  plm_fetch_link_close(link);
  plm_fetch_link_close(NULL);
  link = (struct plm_fetch_link *)&sunk;
  assert_int_equal(plm_fetch_link_open("tcp://10.0.0.1:9", NULL, &link, &error), PLM_CONFIG);
  assert_null(link);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_are_asked_for_ahead),
      cmocka_unit_test(a_file_may_be_continued),
      cmocka_unit_test(other_parts_are_left_out),
      cmocka_unit_test(a_busy_head_is_asked_again_later),
      cmocka_unit_test(a_refusal_ends_it),
      cmocka_unit_test(an_error_of_the_caller_ends_it),
      cmocka_unit_test(a_stop_signal_ends_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
