/* How a feed answers hosts that fetch its corpora: one answer to each question, and a wake of the
 * I/O thread when it is ready. The answers themselves are those of test_fetch_server.c. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"
#include "common/feed/feed_loop.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

enum { QUESTIONS = 256, WAIT_MS = 15000 }; /* as many questions wait behind the one that is read */

/* A feed, and a host that asks it. */
struct host {
  struct plm_feed *feed;
  void *context, *socket;
};

static void meet_with(struct host *host, const struct plm_feed_options *options)
{
  host->feed = packers_feed(options);
  assert_int_equal(plm_context_open(&host->context, NULL), PLM_OK);
  assert_int_equal(
      plm_socket_open(host->context, ZMQ_DEALER, 2 * PLM_FILE_PART_BYTES, &host->socket, NULL),
      PLM_OK);
  assert_int_equal(plm_socket_secure_client(host->socket, options->keys, NULL, NULL), PLM_OK);
  assert_int_equal(plm_socket_connect(host->socket, plm_feed_bound(host->feed), NULL), PLM_OK);
}

static void meet(struct host *host, const char *const *folders, uint32_t count)
{
  struct plm_feed_options options = packers_options();
  options.folders = folders;
  options.folder_count = count;
  meet_with(host, &options);
}

static void part(struct host *host)
{
  zmq_close(host->socket);
  plm_feed_close(host->feed); /* it would wait for the host to hang up */
  zmq_ctx_term(host->context);
}

/* Asks for the first ten bytes of a corpus's description. */
static void ask(struct host *host, uint16_t source, uint64_t request)
{
  uint8_t payload[16];
  const struct plm_fetch_request of = {
      .source = source, .file = PLM_FETCH_DESCRIPTION, .bytes = 10};
  struct plm_header header = {.type = PLM_MESSAGE_FETCH, .request = request};
  zmq_pollitem_t item = {host->socket, 0, ZMQ_POLLOUT, 0};
  assert_int_equal(zmq_poll(&item, 1, WAIT_MS), 1);
  assert_int_equal(plm_message_send(host->socket, NULL, 0, &header, payload,
                                    plm_fetch_encode(&of, payload), NULL),
                   PLM_OK);
}

/* The next answer belongs to the request. The caller closes its payload. */
static struct plm_message answer(struct host *host, enum plm_message_type type, uint64_t request)
{
  struct plm_message message;
  zmq_pollitem_t item = {host->socket, 0, ZMQ_POLLIN, 0};
  if (zmq_poll(&item, 1, WAIT_MS) != 1) fail_msg("no answer to request %d", (int)request);
  assert_int_equal(plm_message_receive(host->socket, false, &message, NULL), PLM_OK);
  assert_int_equal(message.header.type, type);
  assert_int_equal(message.header.request, request);
  return message;
}

static void refused(struct host *host, uint64_t request, enum plm_nack_reason want,
                    const char *said)
{
  char text[PLM_WIRE_TEXT + 1];
  enum plm_nack_reason reason;
  struct plm_message message = answer(host, PLM_MESSAGE_NACK, request);
  assert_int_equal(plm_nack_decode(zmq_msg_data(&message.payload), zmq_msg_size(&message.payload),
                                   &reason, text, NULL),
                   PLM_OK);
  assert_int_equal(reason, want);
  if (strstr(text, said) == NULL) fail_msg("%s is not %s", text, said);
  zmq_msg_close(&message.payload);
}

static void each_question_gets_its_piece(void **state)
{
  (void)state;
  const char *const folders[] = {packers_corpus("corpus", 30, 3)};
  char path[PLM_PATH_SIZE], expected[10];
  struct host host;
  assert_int_equal(plm_path_join(path, folders[0], "corpus.json", NULL), PLM_OK);
  const int file = open(path, O_RDONLY);
  assert_int_equal(read(file, expected, sizeof expected), sizeof expected);
  close(file);
  meet(&host, folders, 1);
  for (uint64_t request = 5; request < 8; request++) {
    struct plm_file_part piece;
    ask(&host, 0, request);
    struct plm_message message = answer(&host, PLM_MESSAGE_FILE_PART, request);
    const uint8_t *bytes = zmq_msg_data(&message.payload);
    assert_int_equal(plm_file_part_decode(bytes, zmq_msg_size(&message.payload), &piece, NULL),
                     PLM_OK);
    assert_int_equal(piece.of.bytes, sizeof expected);
    assert_memory_equal(bytes + PLM_FILE_PART_HEAD, expected, sizeof expected);
    zmq_msg_close(&message.payload);
  }
  ask(&host, 1, 8); /* the one behind the last one */
  refused(&host, 8, PLM_NACK_FAILED, "the run has 1 corpora");
  part(&host);
}

/* A question that is none is counted, and those after it are answered. */
static void a_malformed_question_is_counted(void **state)
{
  (void)state;
  const char *const folders[] = {packers_corpus("corpus", 30, 3)};
  struct plm_header header = {.type = PLM_MESSAGE_FETCH, .request = 3};
  struct plm_feed_counters counters;
  struct host host;
  meet(&host, folders, 1);
  plm_feed_counters(host.feed, &counters);
  assert_int_equal(counters.invalid, 0);
  zmq_pollitem_t item = {host.socket, 0, ZMQ_POLLOUT, 0};
  assert_int_equal(zmq_poll(&item, 1, WAIT_MS), 1);
  assert_int_equal(plm_message_send(host.socket, NULL, 0, &header, "abc", 3, NULL), PLM_OK);
  ask(&host, 0, 4);
  struct plm_message message = answer(&host, PLM_MESSAGE_FILE_PART, 4);
  zmq_msg_close(&message.payload);
  plm_feed_counters(host.feed, &counters);
  assert_int_equal(counters.invalid, 1);
  part(&host);
}

/* The thread that reads is kept busy by a pipe in the place of corpus.json. */
static void only_so_many_questions_wait(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], pipe[PLM_PATH_SIZE];
  const char *const folders[] = {folder};
  struct host host;
  snprintf(folder, sizeof folder, "%s", scratch_path("piped"));
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(pipe, folder, "corpus.json", NULL), PLM_OK);
  assert_int_equal(mkfifo(pipe, 0600), 0);
  meet(&host, folders, 1);
  ask(&host, 0, 100);
  const int writer = open(pipe, O_WRONLY); /* returns when the thread has opened it too */
  assert_true(writer >= 0);
  for (uint64_t i = 1; i <= QUESTIONS + 1; i++) ask(&host, 0, 100 + i);
  refused(&host, 100 + QUESTIONS + 1, PLM_NACK_BUSY, "too many requests are waiting");
  unlink(pipe);
  close(writer);
  for (uint64_t i = 0; i <= QUESTIONS; i++) refused(&host, 100 + i, PLM_NACK_FAILED, "corpus.json");
  part(&host);
}

static void a_feed_without_corpora_says_so(void **state)
{
  (void)state;
  struct host host;
  meet(&host, NULL, 0);
  ask(&host, 0, 9);
  refused(&host, 9, PLM_NACK_FAILED, "this is not the address of the trainer's feed");
  part(&host);
}

/* A feed that knows its corpus by its root, or only by its fingerprint, sends no other one. */
static void another_corpus_than_asked_for_is_refused(void **state)
{
  (void)state;
  struct plm_corpus_description description;
  const char *const folders[] = {packers_corpus("corpus", 30, 3)};
  assert_int_equal(plm_corpus_description_read(folders[0], &description, NULL), PLM_OK);
  const struct plm_hash ours = description.info.fingerprint, other = {ours.low + 1, ours.high};
  plm_corpus_description_deinit(&description);
  for (int known = 0; known < 4; known++) {
    struct plm_feed_options options = packers_options();
    struct host host;
    options.folders = folders;
    options.folder_count = 1;
    options.fingerprint = known == 1 || known == 2 ? other : ours;
    if (known >= 2) options.root = known == 2 ? ours : other;
    meet_with(&host, &options);
    ask(&host, 0, 7);
    if (known % 2 == 1) {
      refused(&host, 7, PLM_NACK_FAILED, "holds another corpus");
    } else {
      struct plm_message message = answer(&host, PLM_MESSAGE_FILE_PART, 7);
      zmq_msg_close(&message.payload);
    }
    part(&host);
  }
}

static void a_key_that_was_removed_is_refused(void **state)
{
  (void)state;
  const char *const folders[] = {packers_corpus("corpus", 30, 3)};
  struct plm_feed_options options = packers_options();
  struct host host;
  options.folders = folders;
  options.folder_count = 1;
  options.keys = scratch_path("keys");
  assert_int_equal(plm_keys_write(options.keys, "host", NULL, NULL), PLM_OK);
  meet_with(&host, &options);
  ask(&host, 0, 1);
  struct plm_message message = answer(&host, PLM_MESSAGE_FILE_PART, 1);
  zmq_msg_close(&message.payload);
  assert_int_equal(unlink(scratch_path("keys/clients/host.pub")), 0);
  ask(&host, 0, 2);
  refused(&host, 2, PLM_NACK_FAILED, "its key is no longer allowed");
  part(&host);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_question_gets_its_piece),
      cmocka_unit_test(a_malformed_question_is_counted),
      cmocka_unit_test(only_so_many_questions_wait),
      cmocka_unit_test(another_corpus_than_asked_for_is_refused),
      cmocka_unit_test(a_key_that_was_removed_is_refused),
      cmocka_unit_test(a_feed_without_corpora_says_so),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
