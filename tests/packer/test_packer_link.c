/* A packer's side of a connection, with a consumer in the same thread that says what ordinary ones
 * do not. The clock is the test's. */
#include "packer/packer_link.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/wire/tables.h"
#include "tests/support/captured.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/packers.h"

enum { CONSUMER = 77, WAIT_MS = 20000, TURN_MS = 5, DEADLINE_MS = 400 };

struct scene {
  struct plm_corpus *corpus;
  struct plm_plan_parameters parameters;
  uint32_t chunks[2];      /* of windows 0 and 1 */
  uint64_t real_tokens[2]; /* likewise */
  uint64_t windows;
  struct packer_context packer;
  struct packer_link link;
  void *consumer;
  struct plm_message hello;
  int64_t now;
};

static void plan_of(struct scene *s)
{
  struct plm_plan *plan;
  struct plm_window window = {0};
  s->parameters = packers_options().plan;
  assert_int_equal(plm_plan_open_corpus(&s->parameters, s->corpus, PLM_SPLIT_TRAIN, &plan, NULL),
                   PLM_OK);
  s->windows = plm_plan_windows(plan);
  assert_true(s->windows >= 2);
  for (uint64_t w = 0; w < 2; w++) {
    assert_int_equal(plm_plan_window(plan, 0, w, &window, NULL), PLM_OK);
    s->chunks[w] = window.chunks;
    s->real_tokens[w] = window.real_tokens;
    assert_true(window.chunks >= 4);
  }
  plm_window_deinit(&window);
  plm_plan_close(plan);
}

static void send_proofs(struct scene *s)
{
  struct store_proof done;
  while (window_store_take_proof(s->packer.store, &done)) {
    packer_link_proof(&s->link, &done);
    free(done.bytes);
  }
}

/* The next message of a type that the consumer gets. Others are passed over. With `serve`, the
 * packer answers requests meanwhile. */
static struct plm_message await(struct scene *s, enum plm_message_type type, bool serve)
{
  struct plm_message message;
  for (int waited = 0; waited < WAIT_MS; waited += TURN_MS) {
    packer_link_tick(&s->link, &s->packer, s->now);
    (void)packer_link_receive(&s->link, &s->packer, s->now);
    window_store_pass(s->packer.store);
    if (serve) send_proofs(s);
    if (serve) packer_link_serve(&s->link, &s->packer, s->now);
    while (plm_message_receive(s->consumer, true, &message, NULL) == PLM_OK) {
      if (message.header.type == type) return message;
      zmq_msg_close(&message.payload);
    }
    zmq_pollitem_t items[] = {{s->consumer, 0, ZMQ_POLLIN, 0},
                              {s->link.socket, 0, ZMQ_POLLIN, 0},
                              {NULL, window_store_wake(s->packer.store), ZMQ_POLLIN, 0}};
    if (s->link.socket == NULL) items[1] = items[0];
    (void)zmq_poll(items, 3, TURN_MS);
    if (items[2].revents != 0) window_store_woken(s->packer.store);
  }
  fail_msg("no %s in %d s", plm_message_name(type), WAIT_MS / 1000);
  return message;
}

static void say(struct scene *s, struct plm_header header, const void *payload, size_t bytes)
{
  assert_int_equal(plm_message_send(s->consumer, s->hello.identity, s->hello.identity_bytes,
                                    &header, payload, bytes, NULL),
                   PLM_OK);
}

static struct plm_header header_of(const struct scene *s, enum plm_message_type type)
{
  return (struct plm_header){.type = type,
                             .run_id = {5, 6},
                             .consumer = CONSUMER,
                             .packer = s->hello.header.packer,
                             .plan = plm_plan_hash(&s->parameters)};
}

/* Of this incarnation: an earlier one may have said HELLO twice. */
static void await_hello(struct scene *s)
{
  do {
    s->hello = await(s, PLM_MESSAGE_HELLO, false);
    zmq_msg_close(&s->hello.payload);
  } while (s->hello.header.packer != s->link.incarnation);
}

/* Until the link has taken what was said. */
static void until_state(struct scene *s, enum link_state state)
{
  for (int waited = 0; waited < WAIT_MS && s->link.state != state; waited += TURN_MS) {
    zmq_pollitem_t item = {s->link.socket, 0, ZMQ_POLLIN, 0};
    (void)zmq_poll(&item, s->link.socket != NULL, TURN_MS);
    (void)packer_link_receive(&s->link, &s->packer, s->now);
  }
  if (s->link.state != state)
    fail_msg("the link is not in state %d in %d s", state, WAIT_MS / 1000);
}

static void welcome(struct scene *s)
{
  static uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  static struct plm_welcome welcome;
  await_hello(s);
  welcome.plan = s->parameters;
  say(s, header_of(s, PLM_MESSAGE_WELCOME), payload, plm_welcome_encode(&welcome, payload));
  until_state(s, LINK_SERVING);
}

static void begin(struct scene *s)
{
  const struct plm_corpus_options opening = {0};
  struct plm_error error = {0};
  memset(s, 0, sizeof *s);
  assert_int_equal(plm_corpus_open(packers_corpus("corpus", 3000, 3), &opening, &s->corpus, &error),
                   PLM_OK);
  plan_of(s);
  s->now = 1000000;
  s->packer.zmq = zmq_ctx_new();
  s->packer.hello = (struct plm_hello){.protocol_least = PLM_WIRE_VERSION,
                                       .protocol_most = PLM_WIRE_VERSION,
                                       .host = "here",
                                       .tokenizer = s->parameters.tokenizer,
                                       .fingerprint = {1, 2}};
  assert_int_equal(window_store_open(s->corpus, 1, &s->packer.store, &error), PLM_OK);
  assert_int_equal(
      plm_socket_open(s->packer.zmq, ZMQ_ROUTER, PLM_WIRE_DATA_LIMIT, &s->consumer, &error),
      PLM_OK);
  assert_int_equal(
      plm_socket_bind(s->consumer, "tcp://127.0.0.1:*", NULL, s->link.endpoint, &error), PLM_OK);
  s->link.used = true;
}

static void end(struct scene *s)
{
  packer_link_close(&s->link, false);
  zmq_close(s->consumer);
  zmq_ctx_term(s->packer.zmq);
  window_store_close(s->packer.store);
  plm_corpus_close(s->corpus);
}

/* Requests are numbered by the order of their calls. */
static uint64_t requests;

static void ask(struct scene *s, uint32_t window, uint64_t first, uint32_t count)
{
  uint8_t payload[16];
  const struct plm_get get = {DEADLINE_MS, window};
  struct plm_header header = header_of(s, PLM_MESSAGE_GET);
  header.request = ++requests;
  header.first = first;
  header.count = count;
  say(s, header, payload, plm_get_encode(&get, payload));
}

/* The number of real tokens of the answer. */
static uint64_t served(struct scene *s, uint32_t window, uint64_t first, uint32_t count)
{
  ask(s, window, first, count);
  struct plm_message data = await(s, PLM_MESSAGE_DATA, true);
  assert_int_equal(data.header.request, requests);
  assert_int_equal(data.header.first, first);
  assert_int_equal(data.header.count, count);
  assert_int_equal(data.header.epoch, 0);
  assert_int_equal(data.header.split, PLM_SPLIT_TRAIN);
  assert_int_equal(data.header.max_length, s->parameters.max_length);
  zmq_msg_close(&data.payload);
  return data.header.real_tokens;
}

/* said: a part of the reason's text. */
static void nacked(struct scene *s, enum plm_nack_reason want, const char *said, bool serve)
{
  char text[PLM_WIRE_TEXT + 1];
  enum plm_nack_reason reason;
  struct plm_message message = await(s, PLM_MESSAGE_NACK, serve);
  assert_int_equal(plm_nack_decode(zmq_msg_data(&message.payload), zmq_msg_size(&message.payload),
                                   &reason, text, NULL),
                   PLM_OK);
  assert_int_equal(reason, want);
  assert_int_equal(message.header.request, requests);
  assert_non_null(strstr(text, said));
  zmq_msg_close(&message.payload);
}

/* Chunks are served up to the last one of their window, and none beyond it. */
static void ranges_end_with_their_window(void **state)
{
  (void)state;
  struct scene s;
  begin(&s);
  welcome(&s);
  const uint32_t c0 = s.chunks[0], c1 = s.chunks[1];
  assert_int_equal(served(&s, 0, 0, c0), s.real_tokens[0]);
  assert_int_equal(served(&s, 1, 0, c1), s.real_tokens[1]);
  assert_int_equal(served(&s, 0, 0, c0 - 1) + served(&s, 0, c0 - 1, 1), s.real_tokens[0]);
  assert_int_equal(served(&s, 1, 1, c1 - 1) + served(&s, 1, 0, 1), s.real_tokens[1]);
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
    ask(&s, beyond[i].window, beyond[i].first, beyond[i].count);
    nacked(&s, PLM_NACK_RANGE, beyond[i].said, true);
  }
  assert_int_equal(s.packer.counters.chunks, 2 * (c0 + c1));
  assert_int_equal(s.packer.counters.tokens, 2 * (s.real_tokens[0] + s.real_tokens[1]));
  assert_int_equal(s.packer.counters.invalid, 0);
  end(&s);
}

/* A request is answered until its deadline, and refused after it. As many may wait as the link has
 * places. */
static void deadlines_and_places(void **state)
{
  (void)state;
  struct scene s;
  begin(&s);
  welcome(&s);
  (void)served(&s, 0, 0, 1); /* now the window is ready */
  for (int late = 0; late < 2; late++) {
    ask(&s, 0, 0, 1);
    for (int waited = 0; waited < WAIT_MS && s.link.pending_count == 0; waited += TURN_MS) {
      zmq_pollitem_t item = {s.link.socket, 0, ZMQ_POLLIN, 0};
      (void)zmq_poll(&item, 1, TURN_MS);
      (void)packer_link_receive(&s.link, &s.packer, s.now);
    }
    assert_int_equal(s.link.pending_count, 1);
    s.now += DEADLINE_MS + late;
    packer_link_serve(&s.link, &s.packer, s.now);
    assert_int_equal(s.link.pending_count, 0);
    if (late) {
      nacked(&s, PLM_NACK_EXPIRED, "deadline", false);
    } else {
      struct plm_message data = await(&s, PLM_MESSAGE_DATA, false);
      zmq_msg_close(&data.payload);
    }
  }
  for (int i = 0; i <= LINK_PENDING; i++) ask(&s, 0, 0, 1);
  nacked(&s, PLM_NACK_BUSY, "too many requests", false);
  assert_int_equal(s.link.pending_count, LINK_PENDING);
  end(&s);
}

/* ---- proofs ------------------------------------------------------------------------------- */

static void prove(struct scene *s, uint64_t window, uint32_t group, uint32_t count, bool soon)
{
  uint8_t payload[16];
  const struct plm_prove prove = {group, soon};
  struct plm_header header = header_of(s, PLM_MESSAGE_PROVE);
  header.request = ++requests;
  header.first = window;
  header.count = count;
  say(s, header, payload, plm_prove_encode(&prove, payload));
}

/* Takes the tables that were asked for, and proves them. */
static void proven(struct scene *s, uint64_t window, uint32_t count, struct plm_tables *tables)
{
  const struct plm_corpus_info *info = plm_corpus_info(s->corpus);
  const struct plm_proof_split split = plm_corpus_proof_split(info, PLM_SPLIT_TRAIN);
  struct plm_plan *plan;
  struct plm_message proof = await(s, PLM_MESSAGE_PROOF, true);
  assert_int_equal(proof.header.request, requests);
  assert_int_equal(proof.header.first, window);
  assert_int_equal(proof.header.count, count);
  assert_int_equal(proof.header.epoch, 0);
  assert_int_equal(proof.header.split, PLM_SPLIT_TRAIN);
  assert_int_equal(plm_plan_open_unread(&s->parameters, split.documents, 0, &plan, NULL), PLM_OK);
  const struct plm_tables_window of = {plan, 0, window};
  assert_int_equal(plm_tables_read(&of, &split, count, zmq_msg_data(&proof.payload),
                                   zmq_msg_size(&proof.payload), tables, NULL),
                   PLM_OK);
  plm_plan_close(plan);
  zmq_msg_close(&proof.payload);
}

/* The groups of a window come at once or one after another, and none that it does not have. */
static void windows_are_proven(void **state)
{
  (void)state;
  static const struct {
    uint64_t window;
    uint32_t group, count;
  } beyond[] = {{0, 0, 3}, {0, 1, 2}, {0, 2, 1}, {0, 0, 0}, {1000, 0, 1}, {UINT64_MAX, 0, 1}};
  struct scene s;
  struct plm_tables whole = {0}, parts = {0};
  begin(&s);
  welcome(&s);
  prove(&s, 1, 0, 2, false);
  proven(&s, 1, 2, &whole);
  for (uint32_t group = 0; group < 2; group++) {
    prove(&s, 1, group, 1, false);
    proven(&s, 1, 1, &parts);
  }
  assert_int_equal(parts.begin[2], whole.begin[2]);
  assert_memory_equal(parts.numbers, whole.numbers, whole.begin[2] * sizeof *whole.numbers);
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
    prove(&s, beyond[i].window, beyond[i].group, beyond[i].count, false);
    nacked(&s, PLM_NACK_RANGE, "an epoch has no window", true);
  }
  s.parameters.seed++; /* of another plan */
  prove(&s, 0, 0, 1, false);
  nacked(&s, PLM_NACK_RANGE, "no such plan", true);
  assert_int_equal(s.packer.counters.invalid, 0);
  assert_int_equal(s.packer.counters.chunks, 0);
  plm_tables_deinit(&whole);
  plm_tables_deinit(&parts);
  end(&s);
}

/* A consumer is told why there is no proof. */
static void failures_are_told(void **state)
{
  (void)state;
  static const struct {
    plm_status status;
    enum plm_nack_reason reason;
  } failures[] = {{PLM_CORRUPT, PLM_NACK_CORRUPT},
                  {PLM_NOT_FOUND, PLM_NACK_RANGE},
                  {PLM_NO_MEMORY, PLM_NACK_FAILED}};
  struct scene s;
  begin(&s);
  welcome(&s);
  for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
    struct store_proof proof = {.request = ++requests};
    (void)plm_error_set(&proof.error, failures[i].status, "record 5 of train.digests");
    packer_link_proof(&s.link, &proof);
    nacked(&s, failures[i].reason, "record 5 of train.digests", false);
  }
  end(&s);
}

/* The state of a window that nobody gets. */
static enum window_state look(struct scene *s, uint64_t window)
{
  struct packed_window *packed;
  return window_store_get(s->packer.store, s->link.plans[PLM_SPLIT_TRAIN], 0, window, false,
                          &packed, NULL);
}

/* Until a window that was said to be needed soon is made. */
static void until_made(struct scene *s, uint64_t window)
{
  for (int waited = 0; waited < WAIT_MS && look(s, window) != WINDOW_READY; waited += TURN_MS) {
    zmq_pollitem_t item = {NULL, window_store_wake(s->packer.store), ZMQ_POLLIN, 0};
    window_store_pass(s->packer.store);
    packer_link_serve(&s->link, &s->packer, s->now);
    (void)zmq_poll(&item, 1, TURN_MS);
    if (item.revents != 0) window_store_woken(s->packer.store);
  }
  assert_int_equal(look(s, window), WINDOW_READY);
}

/* A window is made before its chunks are asked for if the consumer says that they will be. */
static void what_is_needed_soon_is_made(void **state)
{
  (void)state;
  struct scene s;
  struct plm_tables tables = {0};
  begin(&s);
  welcome(&s);
  prove(&s, 0, 0, 2, false);
  proven(&s, 0, 2, &tables);
  prove(&s, 1, 0, 1, true);
  plm_tables_deinit(&tables);
  proven(&s, 1, 1, &tables);
  until_made(&s, 1);
  assert_int_equal(look(&s, 0), WINDOW_ABSENT);
  assert_int_equal(window_store_standby(s.packer.store), 1);
  plm_tables_deinit(&tables);
  end(&s);
}

/* While the store is full of windows that are still to be sent, the link remembers the latest
 * LINK_PREPARE windows, and has them made in that order as others are sent. */
static void the_latest_that_are_needed_soon_are_remembered(void **state)
{
  (void)state;
  static const uint64_t later[LINK_PREPARE + 1] = {5, 3, 4, 0, 1};
  static const uint64_t made[] = {3, 4, 0}; /* in the places of 0, 1 and 2 */
  struct scene s;
  struct plm_tables tables = {0};
  begin(&s);
  welcome(&s);
  assert_int_equal(s.windows, 6);
  for (uint64_t i = 0; i < STORE_WINDOWS + LINK_PREPARE + 1; i++) {
    const uint64_t soon = i < STORE_WINDOWS ? i : later[i - STORE_WINDOWS];
    prove(&s, soon, 0, 1, true);
    plm_tables_deinit(&tables);
    proven(&s, soon, 1, &tables);
    if (i < STORE_WINDOWS) until_made(&s, soon);
  }
  for (uint32_t window = 0; window < STORE_WINDOWS; window++) {
    (void)served(&s, window, 0, 1);
    until_made(&s, made[window]);
    assert_int_equal(look(&s, window), WINDOW_ABSENT);
    assert_int_equal(look(&s, 5), WINDOW_ABSENT);
    assert_int_equal(window_store_standby(s.packer.store), STORE_WINDOWS);
  }
  plm_tables_deinit(&tables);
  end(&s);
}

/* As many proofs may be open as the store has places. Windows of those that are refused are not
 * made. */
static void too_many_proofs_are_refused(void **state)
{
  (void)state;
  struct scene s;
  begin(&s);
  welcome(&s);
  for (int i = 0; i < STORE_PROOFS; i++) prove(&s, 0, 0, 1, false);
  prove(&s, 1, 0, 1, true);
  nacked(&s, PLM_NACK_BUSY, "too many requests", false);
  for (int i = 0; i < LINK_PREPARE; i++) assert_false(s.link.prepare[i].wanted);
  end(&s);
}

/* ---- consumers that end or refuse --------------------------------------------------------- */

/* The delay before the next attempt doubles from half a second to ten seconds, and a WELCOME resets
 * it. */
static void refused_links_wait_longer_each_time(void **state)
{
  (void)state;
  static const int64_t delays[] = {500, 1000, 2000, 4000, 8000, 10000, 10000};
  struct scene s;
  uint8_t text[] = "no";
  begin(&s);
  for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
    await_hello(&s);
    struct plm_header header = header_of(&s, PLM_MESSAGE_REJECT);
    say(&s, header, text, 2);
    until_state(&s, LINK_CLOSED);
    assert_int_equal(s.link.retry_ms - s.now, delays[i]);
    s.now += delays[i] - 1;
    packer_link_tick(&s.link, &s.packer, s.now);
    assert_int_equal(s.link.state, LINK_CLOSED);
    s.now++;
    packer_link_tick(&s.link, &s.packer, s.now);
    assert_int_equal(s.link.state, LINK_HELLO);
  }
  welcome(&s);
  say(&s, header_of(&s, PLM_MESSAGE_BYE), NULL, 0);
  until_state(&s, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms - s.now, delays[0]);
  assert_true(s.link.said_bye);
  /* who needs no chunks of this corpus is asked again after the longest time */
  s.now = s.link.retry_ms;
  await_hello(&s);
  struct plm_header header = header_of(&s, PLM_MESSAGE_REJECT);
  header.request = PLM_REJECT_NOT_NEEDED;
  say(&s, header, text, 2);
  until_state(&s, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms - s.now, 10000);
  end(&s);
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
  struct scene s;
  plm_log_init("test", PLM_LOG_WARNING);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    begin(&s);
    welcome(&s);
    captured_begin(STDERR_FILENO);
    struct plm_header header = header_of(&s, PLM_MESSAGE_REJECT);
    header.request = texts[i].kind;
    say(&s, header, texts[i].text, strlen(texts[i].text));
    until_state(&s, LINK_CLOSED);
    const char *said = captured_end();
    assert_non_null(strstr(said, texts[i].text));
    assert_int_equal(strstr(said, "plm-pipeline corpus DIR --verify") != NULL, texts[i].advice);
    end(&s);
  }
  plm_log_init("test", PLM_LOG_ERROR);
}

/* A consumer of another version cannot be understood, but it can be named. */
static void another_version_is_named(void **state)
{
  (void)state;
  static const uint8_t header[8] = {'P', 'L', 'M', 'F', PLM_WIRE_VERSION + 1, 0};
  struct scene s;
  plm_log_init("test", PLM_LOG_WARNING);
  begin(&s);
  await_hello(&s);
  captured_begin(STDERR_FILENO);
  zmq_send(s.consumer, s.hello.identity, s.hello.identity_bytes, ZMQ_SNDMORE);
  zmq_send(s.consumer, header, sizeof header, ZMQ_SNDMORE);
  assert_int_equal(zmq_send(s.consumer, "", 0, 0), 0);
  until_state(&s, LINK_CLOSED);
  assert_non_null(strstr(captured_end(), "protocol version 4, not 3; install the same version of "
                                         "plm-pipeline on all hosts"));
  assert_int_equal(s.link.retry_ms - s.now, 500);
  end(&s);
  plm_log_init("test", PLM_LOG_ERROR);
}

/* A consumer that says nothing for more than three seconds is left, and so is one that has
 * restarted. What is meant for another incarnation of the packer counts as invalid. */
static void silent_and_restarted_consumers_are_left(void **state)
{
  (void)state;
  struct scene s;
  begin(&s);
  welcome(&s);
  struct plm_header header = header_of(&s, PLM_MESSAGE_PING);
  header.packer += 2;
  say(&s, header, NULL, 0);
  header.packer -= 2;
  say(&s, header, NULL, 0);
  struct plm_message pong = await(&s, PLM_MESSAGE_PONG, false); /* of the second */
  zmq_msg_close(&pong.payload);
  assert_int_equal(s.packer.counters.invalid, 1);
  s.now += 3000;
  packer_link_tick(&s.link, &s.packer, s.now);
  assert_int_equal(s.link.state, LINK_SERVING);
  s.now++;
  packer_link_tick(&s.link, &s.packer, s.now);
  assert_int_equal(s.link.state, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms, s.now);
  welcome(&s);
  header = header_of(&s, PLM_MESSAGE_PING);
  header.consumer++;
  say(&s, header, NULL, 0);
  until_state(&s, LINK_CLOSED);
  assert_int_equal(s.link.retry_ms, s.now);
  end(&s);
}

/* A link whose consumer another link serves is not opened until that one no longer serves it. */
static void a_link_rests_while_another_serves(void **state)
{
  (void)state;
  enum { REST_MS = 10000 };
  static struct packer_link other;
  struct scene s;
  begin(&s);
  welcome(&s);
  other = (struct packer_link){.used = true, .state = LINK_SERVING, .consumer = CONSUMER};
  packer_link_rest(&s.link, &other, s.now);
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
  welcome(&s);
  end(&s);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_end_with_their_window),
      cmocka_unit_test(deadlines_and_places),
      cmocka_unit_test(windows_are_proven),
      cmocka_unit_test(failures_are_told),
      cmocka_unit_test(what_is_needed_soon_is_made),
      cmocka_unit_test(the_latest_that_are_needed_soon_are_remembered),
      cmocka_unit_test(too_many_proofs_are_refused),
      cmocka_unit_test(refused_links_wait_longer_each_time),
      cmocka_unit_test(false_data_is_to_be_verified),
      cmocka_unit_test(another_version_is_named),
      cmocka_unit_test(silent_and_restarted_consumers_are_left),
      cmocka_unit_test(a_link_rests_while_another_serves),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
