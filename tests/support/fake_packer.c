/* The thread of the fake packer, which answers the feed that it is connected to. */
#include "tests/support/fake_packer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/wire/data.h"

uint32_t fake_chunk_length(const struct plm_feed_options *options, uint64_t chunk)
{
  return options->plan.max_length - (uint32_t)(chunk % 50);
}

void fake_chunk_tokens(const struct plm_feed_options *options, uint64_t epoch, uint64_t chunk,
                       uint8_t *tokens)
{
  const uint32_t length = fake_chunk_length(options, chunk);
  memset(tokens, 1, options->plan.max_length); /* <pad> */
  for (uint32_t i = 0; i < length; i++) tokens[i] = (uint8_t)(4 + (epoch + chunk * 7 + i) % 20);
}

bool fake_batch_right(const struct plm_feed_options *options, const struct plm_batch *batch,
                      uint64_t epoch, uint64_t first)
{
  const uint32_t length = options->plan.max_length;
  const uint64_t epoch_chunks = FAKE_WINDOWS * FAKE_WINDOW_CHUNKS;
  uint8_t *want = malloc(length);
  bool right = true;
  for (uint32_t i = 0; i < batch->chunks; i++) {
    const uint64_t e = epoch + (first + i) / epoch_chunks, c = (first + i) % epoch_chunks;
    fake_chunk_tokens(options, e, c, want);
    right &= memcmp((const uint8_t *)batch->tokens + (size_t)i * length, want, length) == 0;
    right &= batch->document_begin[i + 1] - batch->document_begin[i] == 1;
    right &= batch->documents[batch->document_begin[i]].number == c;
  }
  free(want);
  return right;
}

size_t fake_hello(const struct plm_feed_options *options, uint64_t id, uint64_t incarnation,
                  struct plm_header *header, uint8_t *payload)
{
  struct plm_hello hello = {.protocol_least = PLM_WIRE_VERSION,
                            .protocol_most = PLM_WIRE_VERSION,
                            .packer_id = id,
                            .pid = (uint32_t)id,
                            .host = "fake",
                            .tokenizer = options->plan.tokenizer,
                            .fingerprint = {11, 22},
                            .documents = {FAKE_WINDOWS * FAKE_WINDOW_CHUNKS, 0, 0}};
  *header = (struct plm_header){.type = PLM_MESSAGE_HELLO, .packer = incarnation};
  return plm_hello_encode(&hello, payload);
}

static void send_to(struct fake_packer *packer, struct plm_header *header, const void *payload,
                    size_t size)
{
  header->run_id = packer->options.run_id;
  header->consumer = packer->consumer;
  header->packer = packer->incarnation;
  (void)plm_message_send(packer->socket, NULL, 0, header, payload, size, NULL);
}

static void send_data(struct fake_packer *packer, const struct plm_header *get)
{
  const uint32_t length = packer->options.plan.max_length;
  const size_t chunk_bytes = 4 + PLM_DATA_DOCUMENT_BYTES + length;
  uint8_t *payload = malloc(get->count * chunk_bytes);
  struct plm_header header = *get;
  header.type = PLM_MESSAGE_DATA;
  header.plan = plm_plan_hash(&packer->options.plan);
  header.max_length = length;
  header.dtype = 1;
  header.real_tokens = 0;
  for (uint32_t i = 0; i < get->count; i++) {
    uint8_t *at = payload + i * chunk_bytes;
    const uint64_t chunk = get->first + i;
    const uint32_t tokens = fake_chunk_length(&packer->options, chunk);
    const struct plm_chunk_document document = {chunk, 0, tokens, 0, tokens};
    plm_data_write_count(1, at);
    plm_data_write_document(&document, at + 4);
    fake_chunk_tokens(&packer->options, get->epoch, chunk, at + 4 + PLM_DATA_DOCUMENT_BYTES);
    if (packer->lies) at[4 + PLM_DATA_DOCUMENT_BYTES + 3] ^= 1;
    header.real_tokens += tokens;
  }
  packer->data++;
  send_to(packer, &header, payload, get->count * chunk_bytes);
  free(payload);
}

static void answer(struct fake_packer *packer, const struct plm_header *header)
{
  struct plm_header reply = *header;
  uint8_t payload[4 * FAKE_WINDOWS];
  switch (header->type) {
  case PLM_MESSAGE_WELCOME:
    packer->consumer = header->consumer;
    packer->welcomes++;
    break;
  case PLM_MESSAGE_REJECT: packer->rejects++; break;
  case PLM_MESSAGE_PREPARE: packer->prepares++; break;
  case PLM_MESSAGE_SIZES:
    reply.type = PLM_MESSAGE_SIZED;
    reply.count = header->first >= FAKE_WINDOWS ? 0 : (uint32_t)(FAKE_WINDOWS - header->first);
    if (reply.count > header->count) reply.count = header->count;
    for (uint32_t i = 0; i < reply.count; i++)
      plm_data_write_count(FAKE_WINDOW_CHUNKS + packer->lies_sizes, payload + 4 * i);
    send_to(packer, &reply, payload, 4 * (size_t)reply.count);
    break;
  case PLM_MESSAGE_GET:
    packer->gets++;
    pthread_mutex_lock(&packer->mutex);
    packer->last_get = *header;
    pthread_mutex_unlock(&packer->mutex);
    if (packer->deaf) {
      packer->asked_bytes += (uint64_t)header->count * packer->options.plan.max_length;
      break;
    }
    if (packer->nacks) {
      reply.type = PLM_MESSAGE_NACK;
      send_to(packer, &reply, payload, plm_nack_encode(PLM_NACK_FAILED, "no", payload));
      break;
    }
    if (packer->delay_ms > 0) usleep((useconds_t)packer->delay_ms * 1000);
    send_data(packer, header);
    break;
  case PLM_MESSAGE_PING:
    reply.type = PLM_MESSAGE_PONG;
    send_to(packer, &reply, payload,
            plm_counters_encode(&(struct plm_packer_counters){.age_ms = 1}, payload));
    break;
  default: break;
  }
}

static void forge(struct fake_packer *packer)
{
  struct fake_packer *victim = packer->forges;
  if (victim == NULL) return;
  pthread_mutex_lock(&victim->mutex);
  const struct plm_header get = victim->last_get;
  pthread_mutex_unlock(&victim->mutex);
  if (get.request == packer->forged) return;
  packer->forged = get.request;
  send_data(packer, &get);
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
      answer(packer, &message.header);
      zmq_msg_close(&message.payload);
    }
    forge(packer);
    const int64_t now = plm_clock_ms();
    if (packer->welcomes == 0 && now - hello_ms > 50) {
      uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
      struct plm_header header;
      const size_t size =
          fake_hello(&packer->options, packer->id, packer->incarnation, &header, payload);
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
}
