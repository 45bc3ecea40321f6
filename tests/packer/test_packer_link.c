/* What a packer's link answers, and when it gives up a consumer and tries again. */
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/link_scene.h"

/* Chunks are served up to the last one of their window, and none beyond it. */
static void ranges_end_with_their_window(void **state)
{
  (void)state;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  const uint32_t c0 = s.chunks[0], c1 = s.chunks[1];
  assert_int_equal(link_served(&s, 0, 0, c0), s.real_tokens[0]);
  assert_int_equal(link_served(&s, 1, 0, c1), s.real_tokens[1]);
  assert_int_equal(link_served(&s, 0, 0, c0 - 1) + link_served(&s, 0, c0 - 1, 1), s.real_tokens[0]);
  assert_int_equal(link_served(&s, 1, 1, c1 - 1) + link_served(&s, 1, 0, 1), s.real_tokens[1]);
  static const char end_text[] = "beyond the window's chunks";
  static const char none_text[] = "no such plan, split or chunk";
  const struct {
    uint32_t window;
    uint64_t first;
    uint32_t count;
    const char *said;
  } beyond[] = {
      {0, 0, c0 + 1, end_text}, {0, 1, c0, end_text},
      {0, c0 - 1, 2, end_text}, {0, c0, 1, end_text},
      {0, c0 + 1, 1, end_text}, {0, UINT32_MAX, 1, end_text},
      {1, 0, c1 + 1, end_text}, {1, 1, c1, end_text},
      {1, c1, 1, end_text},     {0, (uint64_t)UINT32_MAX + 1, 1, none_text},
      {0, 0, 0, none_text},     {(uint32_t)s.windows, 0, 1, "does not exist"},
  };
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
    link_ask(&s, beyond[i].window, beyond[i].first, beyond[i].count);
    link_nacked(&s, PLM_NACK_RANGE, beyond[i].said, true);
  }
  assert_int_equal(s.packer.counters.chunks, 2 * (c0 + c1));
  assert_int_equal(s.packer.counters.tokens, 2 * (s.real_tokens[0] + s.real_tokens[1]));
  assert_int_equal(s.packer.counters.invalid, 0);
  link_end(&s);
}

/* What is sent is of the split and the epoch that were asked for, and says so. */
static void data_has_its_place(void **state)
{
  (void)state;
  enum { EPOCH = 3, FIRST = 1, COUNT = 2, END = FIRST + COUNT };
  uint8_t payload[16];
  const struct plm_get get = {LINK_DEADLINE_MS, 0};
  struct plm_window window = {0};
  struct plm_plan *plan;
  uint64_t tokens = 0;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  assert_int_equal(plm_plan_open_corpus(&s.parameters, s.corpus, PLM_SPLIT_VALID, &plan, NULL),
                   PLM_OK);
  corpus_window(s.corpus, PLM_SPLIT_VALID, plan, EPOCH, 0, &window);
  assert_true(window.chunks > END);
  const uint32_t begin = window.chunk_begin[FIRST], end = window.chunk_begin[END];
  for (uint32_t i = begin; i < end; i++) tokens += window.documents[i].tokens;
  struct plm_header header = link_header(&s, PLM_MESSAGE_GET);
  header.request = 99;
  header.split = PLM_SPLIT_VALID;
  header.epoch = EPOCH;
  header.first = FIRST;
  header.count = COUNT;
  link_say(&s, header, payload, plm_get_encode(&get, payload));
  struct plm_message data = link_await(&s, PLM_MESSAGE_DATA, true);
  const size_t bytes = zmq_msg_size(&data.payload);
  zmq_msg_close(&data.payload);
  assert_true(plm_hash_equal(data.header.run_id, header.run_id));
  assert_true(plm_hash_equal(data.header.plan, header.plan));
  assert_int_equal(data.header.consumer, LINK_CONSUMER);
  assert_int_equal(data.header.packer, s.link.incarnation);
  assert_int_equal(data.header.request, 99);
  assert_int_equal(data.header.split, PLM_SPLIT_VALID);
  assert_int_equal(data.header.epoch, EPOCH);
  assert_int_equal(data.header.first, FIRST);
  assert_int_equal(data.header.count, COUNT);
  assert_int_equal(data.header.max_length, s.parameters.max_length);
  assert_int_equal(data.header.real_tokens, tokens);
  const struct plm_packer_counters *counters = &s.packer.counters;
  assert_int_equal(counters->windows, 1);
  assert_int_equal(counters->chunks, COUNT);
  assert_int_equal(counters->documents, end - begin);
  assert_int_equal(counters->tokens, tokens);
  assert_int_equal(counters->padded_tokens, COUNT * s.parameters.max_length);
  assert_int_equal(counters->bytes, bytes);
  plm_window_deinit(&window);
  plm_plan_close(plan);
  link_end(&s);
}

/* The consumer says WELCOME, perhaps once more. */
static void welcome(struct link_scene *s)
{
  static uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  const struct plm_welcome welcome = {.plan = s->parameters};
  bool welcomed = false;
  link_say(s, link_header(s, PLM_MESSAGE_WELCOME), payload, plm_welcome_encode(&welcome, payload));
  for (int waited = 0; waited < LINK_WAIT_MS && !welcomed; waited += LINK_TURN_MS) {
    zmq_pollitem_t item = {s->link.socket, 0, ZMQ_POLLIN, 0};
    (void)zmq_poll(&item, 1, LINK_TURN_MS);
    welcomed = packer_link_receive(&s->link, &s->packer, s->now);
  }
  assert_true(welcomed);
}

/* Another WELCOME begins anew, and ends what waits only if it is of another plan. */
static void requests_end_with_their_plan(void **state)
{
  (void)state;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  for (int i = 0; i < 2; i++) link_ask(&s, 0, 0, 1);
  for (int other = 0; other < 2; other++) {
    s.parameters.seed += (uint64_t)other;
    s.link.prepare[1].wanted = true;
    s.link.backoff_ms = s.link.said_ms = s.link.ping_ms = 5;
    s.link.said_bye = true;
    welcome(&s);
    assert_int_equal(s.link.pending_count, other ? 0 : 2);
    assert_int_equal(s.link.prepare[1].wanted, !other);
    assert_true(plm_hash_equal(s.link.plan_hash, plm_plan_hash(&s.parameters)));
    assert_int_equal(s.link.welcome.plan.seed, s.parameters.seed);
    assert_true(s.link.consumer == LINK_CONSUMER && s.link.served_consumer == LINK_CONSUMER);
    assert_true(plm_hash_equal(s.link.run_id, (struct plm_hash){5, 6}));
    assert_true(s.link.backoff_ms == 0 && s.link.said_ms == 0 && s.link.ping_ms == s.now);
    assert_true(s.link.served_before && !s.link.said_bye);
  }
  link_end(&s);
}

/* A request is answered until its deadline, and refused after it. As many may wait as the link has
 * places. */
static void deadlines_and_places(void **state)
{
  (void)state;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  (void)link_served(&s, 0, 0, 1); /* now the window is ready */
  for (int late = 0; late < 2; late++) {
    link_ask(&s, 0, 0, 1);
    for (int waited = 0; waited < LINK_WAIT_MS && s.link.pending_count == 0;
         waited += LINK_TURN_MS) {
      zmq_pollitem_t item = {s.link.socket, 0, ZMQ_POLLIN, 0};
      (void)zmq_poll(&item, 1, LINK_TURN_MS);
      (void)packer_link_receive(&s.link, &s.packer, s.now);
    }
    assert_int_equal(s.link.pending_count, 1);
    s.now += LINK_DEADLINE_MS + late;
    packer_link_serve(&s.link, &s.packer, s.now);
    assert_int_equal(s.link.pending_count, 0);
    if (late) {
      link_nacked(&s, PLM_NACK_EXPIRED, "deadline", false);
    } else {
      struct plm_message data = link_await(&s, PLM_MESSAGE_DATA, false);
      assert_int_equal(data.header.dtype, 1); /* of esm */
      zmq_msg_close(&data.payload);
    }
  }
  for (int i = 0; i <= LINK_PENDING; i++) link_ask(&s, 0, 0, 1);
  link_nacked(&s, PLM_NACK_BUSY, "too many requests", false);
  assert_int_equal(s.link.pending_count, LINK_PENDING);
  link_end(&s);
}

/* The delay before the next attempt doubles from half a second to ten seconds, and a WELCOME resets
 * it. */
static void refused_links_wait_longer_each_time(void **state)
{
  (void)state;
  static const int64_t delays[] = {500, 1000, 2000, 4000, 8000, 10000, 10000};
  struct link_scene s;
  uint8_t text[] = "no";
  link_begin(&s);
  for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
    link_await_hello(&s);
    struct plm_header header = link_header(&s, PLM_MESSAGE_REJECT);
    link_say(&s, header, text, 2);
    link_until(&s, LINK_CLOSED);
    assert_int_equal(s.link.retry_ms - s.now, delays[i]);
    s.now += delays[i] - 1;
    packer_link_tick(&s.link, &s.packer, s.now);
    assert_int_equal(s.link.state, LINK_CLOSED);
    s.now++;
    packer_link_tick(&s.link, &s.packer, s.now);
    assert_int_equal(s.link.state, LINK_HELLO);
  }
  link_welcome(&s);
  link_say(&s, link_header(&s, PLM_MESSAGE_BYE), NULL, 0);
  link_until(&s, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms - s.now, delays[0]);
  assert_true(s.link.said_bye);
  /* who needs no chunks of this corpus is asked again after the longest time */
  s.now = s.link.retry_ms;
  link_await_hello(&s);
  struct plm_header header = link_header(&s, PLM_MESSAGE_REJECT);
  header.request = PLM_REJECT_NOT_NEEDED;
  link_say(&s, header, text, 2);
  link_until(&s, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms - s.now, 10000);
  link_end(&s);
}

/* REJECT for false data is followed by what to do, whatever its text says. */
static void false_data_is_to_be_verified(void **state)
{
  (void)state;
  static const struct {
    enum plm_reject_kind kind;
    const char *text;
    bool advice;
  } texts[] = {{PLM_REJECT_FALSE_DATA, "document 5 of train is another one", true},
               {PLM_REJECT_REFUSED, "false data: another corpus than the run's", false}};
  struct link_scene s;
  plm_log_init("test", PLM_LOG_WARNING);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    link_begin(&s);
    link_welcome(&s);
    captured_begin(STDERR_FILENO);
    struct plm_header header = link_header(&s, PLM_MESSAGE_REJECT);
    header.request = texts[i].kind;
    link_say(&s, header, texts[i].text, strlen(texts[i].text));
    link_until(&s, LINK_CLOSED);
    const char *said = captured_end();
    assert_non_null(strstr(said, texts[i].text));
    assert_int_equal(strstr(said, "plm-pipeline corpus DIR --verify") != NULL, texts[i].advice);
    link_end(&s);
  }
  plm_log_init("test", PLM_LOG_ERROR);
}

/* A consumer of another version cannot be understood, but it can be named. */
static void another_version_is_named(void **state)
{
  (void)state;
  static const uint8_t header[8] = {'P', 'L', 'M', 'F', PLM_WIRE_VERSION + 1, 0};
  struct link_scene s;
  plm_log_init("test", PLM_LOG_WARNING);
  link_begin(&s);
  link_await_hello(&s);
  captured_begin(STDERR_FILENO);
  zmq_send(s.consumer, s.hello.routing_id, s.hello.routing_id_bytes, ZMQ_SNDMORE);
  zmq_send(s.consumer, header, sizeof header, ZMQ_SNDMORE);
  assert_int_equal(zmq_send(s.consumer, "", 0, 0), 0);
  link_until(&s, LINK_CLOSED);
  assert_non_null(strstr(captured_end(), "protocol version 5, not 4; install the same version of "
                                         "plm-pipeline on all hosts"));
  assert_int_equal(s.link.retry_ms - s.now, 500);
  link_end(&s);
  plm_log_init("test", PLM_LOG_ERROR);
}

/* A consumer that says nothing for more than three seconds is left, and so is one that has
 * restarted. What is meant for another incarnation of the packer counts as invalid. */
static void silent_and_restarted_consumers_are_left(void **state)
{
  (void)state;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  struct plm_header header = link_header(&s, PLM_MESSAGE_PING);
  header.packer += 2;
  link_say(&s, header, NULL, 0);
  header.packer -= 2;
  link_say(&s, header, NULL, 0);
  struct plm_message pong = link_await(&s, PLM_MESSAGE_PONG, false); /* of the second */
  zmq_msg_close(&pong.payload);
  assert_int_equal(s.packer.counters.invalid, 1);
  s.now += 3000;
  packer_link_tick(&s.link, &s.packer, s.now);
  assert_int_equal(s.link.state, LINK_SERVING);
  s.now++;
  packer_link_tick(&s.link, &s.packer, s.now);
  assert_int_equal(s.link.state, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms, s.now);
  link_welcome(&s);
  header = link_header(&s, PLM_MESSAGE_PING);
  header.consumer++;
  link_say(&s, header, NULL, 0);
  link_until(&s, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms, s.now);
  link_end(&s);
}

/* A consumer that hangs up is looked for at once, without waiting for its silence. */
static void a_lost_connection_is_begun_anew(void **state)
{
  (void)state;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  plm_log_init("test", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  assert_int_equal(zmq_close(s.consumer), 0);
  s.consumer = NULL;
  link_until(&s, LINK_CLOSED);
  assert_non_null(strstr(captured_end(), "lost the connection to tcp://127.0.0.1:"));
  plm_log_init("test", PLM_LOG_ERROR);
  assert_int_equal(s.link.retry_ms, s.now);
  link_end(&s);
}

/* A link whose consumer another link serves is not opened until that one no longer serves it. */
static void a_link_rests_while_another_serves(void **state)
{
  (void)state;
  enum { REST_MS = 10000 };
  static struct packer_link other;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  other = (struct packer_link){.used = true, .state = LINK_SERVING, .consumer = LINK_CONSUMER};
  packer_link_suspend(&s.link, &other, s.now);
  assert_ptr_equal(s.link.same_as, &other);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(s.link.state, LINK_CLOSED);
    assert_int_equal(s.link.retry_ms - s.now, REST_MS);
    s.now += REST_MS;
    packer_link_tick(&s.link, &s.packer, s.now);
  }
  assert_int_equal(s.link.state, LINK_CLOSED);
  other.consumer++; /* it serves another one */
  s.now += REST_MS - 1;
  packer_link_tick(&s.link, &s.packer, s.now);
  assert_int_equal(s.link.state, LINK_CLOSED);
  s.now++;
  packer_link_tick(&s.link, &s.packer, s.now);
  assert_int_equal(s.link.state, LINK_HELLO);
  assert_null(s.link.same_as);
  link_welcome(&s);
  link_end(&s);
}

/* ---- what is not as agreed ------------------------------------------------------------------- */

/* Says it and waits until the link has counted it. */
static void expect_invalid(struct link_scene *s, struct plm_header header, const void *payload,
                           size_t bytes)
{
  const uint64_t before = s->packer.counters.invalid;
  const enum link_state state = s->link.state;
  link_say(s, header, payload, bytes);
  for (int waited = 0; waited < LINK_WAIT_MS && s->packer.counters.invalid == before;
       waited += LINK_TURN_MS) {
    zmq_pollitem_t item = {s->link.socket, 0, ZMQ_POLLIN, 0};
    (void)zmq_poll(&item, 1, LINK_TURN_MS);
    assert_false(packer_link_receive(&s->link, &s->packer, s->now));
  }
  assert_int_equal(s->packer.counters.invalid, before + 1);
  assert_int_equal(s->link.state, state);
}

/* A WELCOME has to be of the packer's corpus and tokenizer, and of the plan that its header names.
 * It is told each ten seconds. */
static void a_false_welcome_is_refused(void **state)
{
  (void)state;
  enum { SIZE, PARAMETERS, HASH, TOKENIZER, CORPUS, CASES };
  static const char other[] = "another plan, corpus or tokenizer",
                    *const says[CASES] = {"malformed payload of WELCOME", "max_length", other,
                                          other, other};
  static uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  static struct plm_welcome welcome;
  struct link_scene s;
  link_begin(&s);
  link_await_hello(&s);
  plm_log_init("test", PLM_LOG_WARNING);
  for (int i = 0; i < CASES; i++) {
    welcome.plan = s.parameters;
    if (i == PARAMETERS) welcome.plan.max_length = 0;
    if (i == TOKENIZER) welcome.plan.tokenizer = PLM_TOKENIZER_BYTE;
    if (i == CORPUS) welcome.plan.source = (struct plm_hash){1, 3};
    struct plm_header header = link_header(&s, PLM_MESSAGE_WELCOME);
    header.plan = plm_plan_hash(&welcome.plan);
    if (i == HASH) header.plan.low++;
    const size_t bytes = plm_welcome_encode(&welcome, payload) - (i == SIZE);
    for (int again = 0; again < 2; again++) {
      captured_begin(STDERR_FILENO);
      expect_invalid(&s, header, payload, bytes);
      const char *said = captured_end();
      assert_int_equal(captured_times(said, "sent an invalid WELCOME: "), !again);
      if (!again && strstr(said, says[i]) == NULL) fail_msg("%d says: %s", i, said);
      s.now += again ? 1 : 9999;
    }
  }
  plm_log_init("test", PLM_LOG_ERROR);
  s.parameters.source = (struct plm_hash){1, 2}; /* that of the packer */
  link_welcome(&s);
  link_end(&s);
}

/* They count, and change nothing else. */
static void messages_out_of_place_are_passed_over(void **state)
{
  (void)state;
  static const uint8_t proof[8] = {0, 0, 0, 0, 2}; /* neither soon nor not */
  struct link_scene s;
  link_begin(&s);
  link_await_hello(&s);
  expect_invalid(&s, link_header(&s, PLM_MESSAGE_GET), proof, 8); /* before WELCOME */
  s.now += 1000;                                                  /* HELLO is repeated */
  link_welcome(&s);
  expect_invalid(&s, link_header(&s, PLM_MESSAGE_PROVE), proof, 8);
  expect_invalid(&s, link_header(&s, PLM_MESSAGE_DATA), proof, 8);
  assert_int_equal(s.link.pending_count, 0);
  struct plm_header header = link_header(&s, PLM_MESSAGE_REHELLO);
  header.packer += 2; /* the consumer knows no packer */
  link_say(&s, header, NULL, 0);
  link_until(&s, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms, s.now);
  assert_int_equal(s.packer.counters.invalid, 3);
  link_end(&s);
}

/* What cannot be opened is told at once and then each ten seconds, and tried less and less often.
 * So is what takes connections and does not answer, which is left after three seconds. */
static void a_consumer_without_an_answer_is_told(void **state)
{
  (void)state;
  static const int64_t delays[] = {500, 1000, 2000, 4000, 8000, 10000};
  char endpoint[sizeof(((struct packer_link *)NULL)->endpoint)];
  struct link_scene s;
  link_begin(&s);
  memcpy(endpoint, s.link.endpoint, sizeof endpoint);
  strcpy(s.link.endpoint, "udp://here");
  plm_log_init("test", PLM_LOG_WARNING);
  for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
    captured_begin(STDERR_FILENO);
    packer_link_tick(&s.link, &s.packer, s.now);
    assert_int_equal(captured_times(captured_end(), "\"udp://here\" is not an endpoint"),
                     i == 0 || i == 5); /* at 0, and not before 10000 */
    assert_int_equal(s.link.state, LINK_CLOSED);
    assert_int_equal(s.link.retry_ms - s.now, delays[i]);
    s.now = s.link.retry_ms;
  }
  memcpy(s.link.endpoint, endpoint, sizeof endpoint);
  s.link.backoff_ms = s.link.said_ms = 0;
  link_await_hello(&s);
  while (!s.link.connected) (void)packer_link_receive(&s.link, &s.packer, s.now);
  static const int64_t steps[] = {999, 1, 2000, 1};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    s.now += steps[i];
    captured_begin(STDERR_FILENO);
    packer_link_tick(&s.link, &s.packer, s.now);
    assert_int_equal(captured_times(captured_end(), " does not answer HELLO"), i == 1);
    assert_int_equal(s.link.state, i < 3 ? LINK_HELLO : LINK_CLOSED);
  }
  assert_int_equal(s.link.retry_ms - s.now, 500);
  plm_log_init("test", PLM_LOG_ERROR);
  link_end(&s);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_end_with_their_window),
      cmocka_unit_test(data_has_its_place),
      cmocka_unit_test(requests_end_with_their_plan),
      cmocka_unit_test(deadlines_and_places),
      cmocka_unit_test(refused_links_wait_longer_each_time),
      cmocka_unit_test(false_data_is_to_be_verified),
      cmocka_unit_test(another_version_is_named),
      cmocka_unit_test(silent_and_restarted_consumers_are_left),
      cmocka_unit_test(a_lost_connection_is_begun_anew),
      cmocka_unit_test(a_link_rests_while_another_serves),
      cmocka_unit_test(a_false_welcome_is_refused),
      cmocka_unit_test(messages_out_of_place_are_passed_over),
      cmocka_unit_test(a_consumer_without_an_answer_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
