/* The head's thread, and its corpora. */
#include "tests/support/peers/fetch_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zmq.h>

#include "common/wire/socket.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { TURN_MS = 20, HANGS_S = 60 };

atomic_ulong fetch_head_lies, fetch_head_data_bytes;
atomic_long fetch_head_parts;

static void wake(void *context)
{
  sem_post(context);
}

static void answer(struct fetch_head *head, const struct plm_message *message)
{
  struct plm_fetch_question question = {.request_id = message->header.request,
                                        .routing_id_bytes = message->routing_id_bytes};
  struct plm_fetch_answer made;
  struct timespec until;
  memcpy(question.routing_id, message->routing_id, message->routing_id_bytes);
  if (plm_fetch_decode(zmq_msg_data((zmq_msg_t *)&message->payload),
                       zmq_msg_size((zmq_msg_t *)&message->payload), &question.request,
                       NULL) != PLM_OK ||
      !plm_fetch_server_ask(head->server, &question))
    return;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += HANGS_S;
  if (sem_timedwait(&head->ready, &until) != 0 || !plm_fetch_server_pop(head->server, &made))
    return;
  struct plm_header header = {.type = made.refused ? PLM_MESSAGE_NACK : PLM_MESSAGE_FILE_PART,
                              .request = message->header.request};
  fetch_head_parts += !made.refused;
  if (fetch_head_lies == 1) made.payload[PLM_FILE_PART_HEAD] ^= 1;
  const bool of_data = question.request.file == PLM_FETCH_DATA && fetch_head_data_bytes != 0;
  const uint64_t stated = of_data ? fetch_head_data_bytes : fetch_head_lies;
  for (int byte = 0; stated > 1 && !made.refused && byte < 6; byte++)
    made.payload[PLM_FILE_PART_HEAD - 6 + byte] = (uint8_t)(stated >> 8 * byte);
  (void)plm_message_send(head->router, message->routing_id, message->routing_id_bytes, &header,
                         made.payload, made.payload_bytes, NULL);
  free(made.payload);
}

static void *serve(void *context)
{
  struct fetch_head *head = context;
  while (!head->stop) {
    struct plm_message message;
    zmq_pollitem_t item = {head->router, 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, TURN_MS) <= 0 ||
        plm_message_receive(head->router, true, &message, NULL) != PLM_OK)
      continue;
    answer(head, &message);
    zmq_msg_close(&message.payload);
  }
  return NULL;
}

static void write_corpus(const char *path, int documents)
{
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {.directory = path, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int i = 0; i < documents; i++)
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_VALID, "x", 1,
                                           (const uint8_t *)"LAGVSERT", 8, NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
}

void fetch_head_open(struct fetch_head *head, uint32_t count)
{
  *head = (struct fetch_head){0};
  for (int k = 0; k < FETCH_HEAD_CORPORA; k++) {
    char name[16];
    snprintf(name, sizeof name, "corpus%d", k);
    snprintf(head->folders[k], sizeof head->folders[k], "%s", scratch_path(name));
    if (k < 2 && !plm_file_exists(head->folders[k])) write_corpus(head->folders[k], k + 1);
  }
  for (uint32_t k = 0; k < count; k++)
    head->paths[k] = head->folders[count > FETCH_HEAD_CORPORA ? k % 2 : k];
  assert_int_equal(sem_init(&head->ready, 0, 0), 0);
  assert_int_equal(
      plm_fetch_server_open(head->paths, count, wake, &head->ready, &head->server, NULL), PLM_OK);
  assert_int_equal(plm_context_open(&head->context, NULL), PLM_OK);
  assert_int_equal(
      plm_socket_open(head->context, ZMQ_ROUTER, PLM_WIRE_CONTROL_LIMIT, &head->router, NULL),
      PLM_OK);
  assert_int_equal(plm_socket_bind(head->router, "tcp://127.0.0.1:*", NULL, head->bound, NULL),
                   PLM_OK);
  assert_int_equal(pthread_create(&head->thread, NULL, serve, head), 0);
}

void fetch_head_close(struct fetch_head *head)
{
  head->stop = true;
  pthread_join(head->thread, NULL);
  zmq_close(head->router);
  zmq_ctx_term(head->context);
  plm_fetch_server_close(head->server);
  sem_destroy(&head->ready);
}
