/* A packer's link and the consumer that it connects to, in one thread. */
#include "tests/support/peers/link_scene.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/packers.h"

static void plan_of(struct link_scene *s)
{
  struct plm_plan *plan;
  struct plm_window window = {0};
  s->parameters = packers_options().plan;
  assert_int_equal(plm_plan_open_corpus(&s->parameters, s->corpus, PLM_SPLIT_TRAIN, &plan, NULL),
                   PLM_OK);
  s->windows = plm_plan_windows(plan);
  assert_true(s->windows >= 2);
  for (uint64_t w = 0; w < 2; w++) {
    corpus_window(s->corpus, PLM_SPLIT_TRAIN, plan, 0, w, &window);
    s->chunks[w] = window.chunks;
    s->real_tokens[w] = window.real_tokens;
    assert_true(window.chunks >= 4);
  }
  plm_window_deinit(&window);
  plm_plan_close(plan);
}

static void send_proofs(struct link_scene *s)
{
  struct store_proof done;
  while (window_store_pop_proof(s->packer.store, &done)) {
    packer_link_proof(&s->link, &done);
    free(done.bytes);
  }
}

struct plm_message link_await(struct link_scene *s, enum plm_message_type type, bool serve)
{
  struct plm_message message;
  for (int waited = 0; waited < LINK_WAIT_MS; waited += LINK_TURN_MS) {
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
    (void)zmq_poll(items, 3, LINK_TURN_MS);
    if (items[2].revents != 0) window_store_woken(s->packer.store);
  }
  fail_msg("no %s in %d s", plm_message_name(type), LINK_WAIT_MS / 1000);
  return message;
}

void link_say(struct link_scene *s, struct plm_header header, const void *payload, size_t bytes)
{
  assert_int_equal(plm_message_send(s->consumer, s->hello.routing_id, s->hello.routing_id_bytes,
                                    &header, payload, bytes, NULL),
                   PLM_OK);
}

struct plm_header link_header(const struct link_scene *s, enum plm_message_type type)
{
  return (struct plm_header){.type = type,
                             .run_id = {5, 6},
                             .consumer = LINK_CONSUMER,
                             .packer = s->hello.header.packer,
                             .plan = plm_plan_hash(&s->parameters)};
}

void link_await_hello(struct link_scene *s)
{
  do {
    s->hello = link_await(s, PLM_MESSAGE_HELLO, false);
    zmq_msg_close(&s->hello.payload);
  } while (s->hello.header.packer != s->link.incarnation);
}

void link_until(struct link_scene *s, enum link_state state)
{
  for (int waited = 0; waited < LINK_WAIT_MS && s->link.state != state; waited += LINK_TURN_MS) {
    zmq_pollitem_t item = {s->link.socket, 0, ZMQ_POLLIN, 0};
    (void)zmq_poll(&item, s->link.socket != NULL, LINK_TURN_MS);
    (void)packer_link_receive(&s->link, &s->packer, s->now);
  }
  if (s->link.state != state)
    fail_msg("the link is not in state %d in %d s", state, LINK_WAIT_MS / 1000);
}

void link_welcome(struct link_scene *s)
{
  static uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  static struct plm_welcome welcome;
  link_await_hello(s);
  welcome.plan = s->parameters;
  link_say(s, link_header(s, PLM_MESSAGE_WELCOME), payload, plm_welcome_encode(&welcome, payload));
  link_until(s, LINK_SERVING);
}

void link_begin(struct link_scene *s)
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
  assert_int_equal(window_store_open(s->corpus, 1, STORE_REPLACED_MOST, &s->packer.store, &error),
                   PLM_OK);
  assert_int_equal(
      plm_socket_open(s->packer.zmq, ZMQ_ROUTER, PLM_WIRE_DATA_LIMIT, &s->consumer, &error),
      PLM_OK);
  assert_int_equal(
      plm_socket_bind(s->consumer, "tcp://127.0.0.1:*", NULL, s->link.endpoint, &error), PLM_OK);
  s->link.used = true;
}

void link_end(struct link_scene *s)
{
  packer_link_close(&s->link, false);
  zmq_close(s->consumer);
  zmq_ctx_term(s->packer.zmq);
  window_store_close(s->packer.store);
  plm_corpus_close(s->corpus);
}

void link_ask(struct link_scene *s, uint32_t window, uint64_t first, uint32_t count)
{
  uint8_t payload[16];
  const struct plm_get get = {LINK_DEADLINE_MS, window};
  struct plm_header header = link_header(s, PLM_MESSAGE_GET);
  header.request = ++s->requests;
  header.first = first;
  header.count = count;
  link_say(s, header, payload, plm_get_encode(&get, payload));
}

uint64_t link_served(struct link_scene *s, uint32_t window, uint64_t first, uint32_t count)
{
  link_ask(s, window, first, count);
  struct plm_message data = link_await(s, PLM_MESSAGE_DATA, true);
  assert_int_equal(data.header.request, s->requests);
  assert_int_equal(data.header.first, first);
  assert_int_equal(data.header.count, count);
  assert_int_equal(data.header.epoch, 0);
  assert_int_equal(data.header.split, PLM_SPLIT_TRAIN);
  assert_int_equal(data.header.max_length, s->parameters.max_length);
  zmq_msg_close(&data.payload);
  return data.header.real_tokens;
}

void link_nacked(struct link_scene *s, enum plm_nack_reason want, const char *said, bool serve)
{
  char text[PLM_WIRE_TEXT + 1];
  enum plm_nack_reason reason;
  struct plm_message message = link_await(s, PLM_MESSAGE_NACK, serve);
  assert_int_equal(plm_nack_decode(zmq_msg_data(&message.payload), zmq_msg_size(&message.payload),
                                   &reason, text, NULL),
                   PLM_OK);
  assert_int_equal(reason, want);
  assert_int_equal(message.header.request, s->requests);
  assert_non_null(strstr(text, said));
  zmq_msg_close(&message.payload);
}
