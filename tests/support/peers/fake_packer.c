/* The thread of the fake packer, which answers the feed that it is connected to. */
#include "tests/support/peers/fake_packer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/process/thread.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/packers.h"

static struct small_corpus corpus;
static atomic_int running; /* fake packers */

enum { WINDOWS = 40, SHORTEST = 10, LONGEST = 50 };

int fake_corpus_open(void **state)
{
  const struct plm_plan_parameters plan = packers_options().plan;
  (void)state;
  small_corpus_open(&corpus, &plan, WINDOWS * plan.window_groups * PLM_GROUP_DOCUMENTS, SHORTEST,
                    LONGEST, 1);
  return 0;
}

int fake_labelled_corpus_open(void **state)
{
  const struct plm_plan_parameters plan = packers_options().plan;
  (void)state;
  small_corpus_open_labelled(&corpus, &plan, WINDOWS * plan.window_groups * PLM_GROUP_DOCUMENTS,
                             SHORTEST, LONGEST, 1);
  return 0;
}

struct small_corpus *fake_corpus(void)
{
  return &corpus;
}

bool fake_batch_right(const struct plm_batch *batch, const struct plm_plan_place *place)
{
  return small_corpus_batch_right(&corpus, batch, *place);
}

size_t fake_hello(uint64_t id, uint64_t incarnation, struct plm_header *header, uint8_t *payload)
{
  struct plm_hello hello = {.packer_id = id, .pid = (uint32_t)id, .host = "fake"};
  small_corpus_hello(&corpus, &hello);
  *header = (struct plm_header){.type = PLM_MESSAGE_HELLO, .packer = incarnation};
  const size_t size = plm_hello_encode(&hello, payload);
  free((void *)hello.schema);
  return size;
}

static void send_to(struct fake_packer *packer, struct plm_header *header, const void *payload,
                    size_t size)
{
  header->run_id = packer->options.run_id;
  header->consumer = packer->consumer;
  header->packer = packer->incarnation;
  (void)plm_message_send(packer->socket, NULL, 0, header, payload, size, NULL);
}

static void send_nack(struct fake_packer *packer, const struct plm_header *asked)
{
  uint8_t payload[4 + PLM_WIRE_TEXT];
  struct plm_header header = *asked;
  header.type = PLM_MESSAGE_NACK;
  send_to(packer, &header, payload, plm_nack_encode(PLM_NACK_FAILED, "no", payload));
}

static void answer_prove(struct fake_packer *packer, struct plm_message *message)
{
  struct plm_header header = message->header;
  struct plm_prove prove;
  PLM_ASSERT(plm_prove_decode(zmq_msg_data(&message->payload), (size_t)header.payload_bytes, &prove,
                              NULL) == PLM_OK);
  packer->proves++;
  packer->soon += prove.soon;
  uint8_t *payload = malloc(PLM_WIRE_PROOF_LIMIT);
  const size_t size =
      small_corpus_proof(&corpus, header.epoch, header.first, prove.group, &header.count, payload);
  header.type = PLM_MESSAGE_PROOF;
  send_to(packer, &header, payload, size);
  free(payload);
}

static void answer_get(struct fake_packer *packer, struct plm_message *message)
{
  struct plm_header header = message->header;
  struct plm_get get;
  PLM_ASSERT(plm_get_decode(zmq_msg_data(&message->payload), (size_t)header.payload_bytes, &get,
                            NULL) == PLM_OK);
  const struct small_window *window = small_corpus_window(&corpus, header.epoch, get.window);
  const uint64_t begin = window->offset[header.first];
  const size_t size = window->offset[header.first + header.count] - begin;
  packer->gets++;
  pthread_mutex_lock(&packer->mutex);
  packer->last_get = header;
  pthread_mutex_unlock(&packer->mutex);
  if (packer->deaf) packer->asked_bytes += size;
  if (packer->deaf) return;
  if (packer->nacks) {
    send_nack(packer, &header);
    return;
  }
  if (packer->delay_ms > 0) usleep((useconds_t)packer->delay_ms * 1000);
  uint8_t *payload = malloc(size);
  memcpy(payload, window->bytes + begin, size);
  if (packer->lies) payload[3] ^= 1;
  header.type = PLM_MESSAGE_DATA;
  packer->data++;
  send_to(packer, &header, payload, size);
  free(payload);
}

static void answer(struct fake_packer *packer, struct plm_message *message)
{
  struct plm_header reply = message->header;
  uint8_t payload[256];
  switch (reply.type) {
  case PLM_MESSAGE_WELCOME:
    packer->consumer = reply.consumer;
    packer->welcomes++;
    break;
  case PLM_MESSAGE_REJECT: packer->rejects++; break;
  case PLM_MESSAGE_PROVE: answer_prove(packer, message); break;
  case PLM_MESSAGE_GET: answer_get(packer, message); break;
  case PLM_MESSAGE_PING:
    reply.type = PLM_MESSAGE_PONG;
    send_to(packer, &reply, payload,
            plm_counters_encode(&(struct plm_packer_counters){.age_ms = 1}, payload));
    break;
  default: break;
  }
}

static void *run(void *argument)
{
  struct fake_packer *packer = argument;
  int64_t hello_ms = 0;
  while (!packer->stop) {
    zmq_pollitem_t item = {packer->socket, 0, ZMQ_POLLIN, 0};
    (void)zmq_poll(&item, 1, 10);
    struct plm_message message;
    while (!packer->stop && plm_message_receive(packer->socket, false, &message, NULL) == PLM_OK) {
      answer(packer, &message);
      zmq_msg_close(&message.payload);
    }
    const int64_t now = plm_clock_ms();
    if (packer->welcomes == 0 && now - hello_ms > 50) {
      uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
      struct plm_header header;
      const size_t size = fake_hello(packer->id, packer->incarnation, &header, payload);
      hello_ms = now;
      (void)plm_message_send(packer->socket, NULL, 0, &header, payload, size, NULL);
    }
  }
  return NULL;
}

void fake_packer_start(struct fake_packer *packer, const struct plm_feed_options *options,
                       const char *endpoint, uint64_t id)
{
  struct plm_error error;
  memset(packer, 0, sizeof *packer);
  running++;
  packer->options = *options;
  packer->id = id;
  packer->incarnation = 1000 + id;
  pthread_mutex_init(&packer->mutex, NULL);
  packer->context = zmq_ctx_new();
  PLM_ASSERT(plm_socket_open(packer->context, ZMQ_DEALER, PLM_WIRE_CONTROL_LIMIT, &packer->socket,
                             &error) == PLM_OK);
  PLM_ASSERT(plm_socket_connect(packer->socket, endpoint, &error) == PLM_OK);
  PLM_ASSERT(plm_thread_start(&packer->thread, "fake packer", run, packer, NULL) == PLM_OK);
}

void fake_packer_stop(struct fake_packer *packer)
{
  packer->stop = true;
  pthread_join(packer->thread, NULL);
  zmq_close(packer->socket);
  zmq_ctx_term(packer->context);
  pthread_mutex_destroy(&packer->mutex);
  if (--running == 0) small_corpus_forget(&corpus);
}

/* ---- meetings ---- */

void fake_wait_peers(struct plm_feed *feed, uint32_t count)
{
  struct plm_feed_counters counters = {0};
  for (int i = 0; i < 1000; i++) {
    plm_feed_counters(feed, &counters);
    if (counters.peers == count) return;
    usleep(20000);
  }
  assert_int_equal(counters.peers, count);
}

plm_status fake_take(struct plm_feed *feed, uint32_t chunks, struct plm_error *error)
{
  struct plm_batch batch;
  struct plm_feed_position position;
  plm_feed_position(feed, 0, &position);
  PLM_TRY(plm_feed_next(feed, NULL, chunks, NULL, &batch, error));
  assert_true(fake_batch_right(&batch, &position.place));
  plm_feed_release(feed, &batch);
  return PLM_OK;
}

void fake_join(struct fake_meeting *meeting, int count)
{
  for (; meeting->count < count; meeting->count++)
    fake_packer_start(&meeting->packers[meeting->count], &meeting->options,
                      plm_feed_bound(meeting->feed), (uint64_t)meeting->count + 1);
  fake_wait_peers(meeting->feed, (uint32_t)count);
}

void fake_meet(struct fake_meeting *meeting, int count, uint64_t credit_bytes)
{
  meeting->options = packers_options();
  if (credit_bytes != 0) meeting->options.credit_bytes = credit_bytes;
  meeting->feed = packers_feed(&meeting->options);
  meeting->count = 0;
  fake_join(meeting, count);
}

void fake_part(struct fake_meeting *meeting)
{
  for (int i = 0; i < meeting->count; i++) fake_packer_stop(&meeting->packers[i]);
  plm_feed_close(meeting->feed);
}
