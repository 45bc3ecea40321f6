/* The parts of corpora that a head hands out, what it refuses, and how many questions may wait. */
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"
#include "common/fetch/fetch_server.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/harness/failing_starts.h"
#include "tests/support/harness/scratch.h"

static sem_t ready; /* how many answers wait */

static void wake(void *context)
{
  sem_post(context);
}

static void await_answer(void)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 60;
  if (sem_timedwait(&ready, &until) != 0) fail_msg("still waiting for an answer after 60 s");
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

static struct plm_fetch_server *server;

static void open_server(void)
{
  static char paths[3][200];
  static const char *const folders[3] = {paths[0], paths[1], paths[2]};
  plm_log_init("t", PLM_LOG_ERROR);
  for (int k = 0; k < 3; k++) {
    snprintf(paths[k], sizeof paths[k], "%.180s%d", scratch_path("corpus"), k);
    if (k < 2 && !plm_file_exists(paths[k])) write_corpus(paths[k], k + 1);
  }
  assert_int_equal(sem_init(&ready, 0, 0), 0);
  assert_int_equal(plm_fetch_server_open(folders, 3, wake, &ready, &server, NULL), PLM_OK);
}

static void close_server(void)
{
  plm_fetch_server_close(server);
  sem_destroy(&ready);
}

static struct plm_fetch_request part_of(uint16_t source, enum plm_fetch_file file, uint64_t offset,
                                        uint32_t bytes)
{
  return (struct plm_fetch_request){
      .source = source, .file = file, .bytes = bytes, .offset = offset};
}

/* Asks and takes the answer, which belongs to the question. */
static struct plm_fetch_answer answer_to(struct plm_fetch_request request)
{
  static uint64_t ids;
  const struct plm_fetch_question question = {
      .routing_id = "me", .routing_id_bytes = 2, .request_id = ++ids, .request = request};
  struct plm_fetch_answer answer;
  assert_false(plm_fetch_server_pop(server, &answer));
  assert_true(plm_fetch_server_ask(server, &question));
  await_answer();
  assert_true(plm_fetch_server_pop(server, &answer));
  assert_int_equal(answer.question.request_id, ids);
  assert_int_equal(answer.question.routing_id_bytes, 2);
  assert_memory_equal(answer.question.routing_id, "me", 2);
  return answer;
}

/* The part is that of the file: `bytes` of them from the offset on. */
static void is_part(struct plm_fetch_request request, const char *file, uint32_t bytes)
{
  char path[300], *expected;
  size_t size;
  struct plm_file_part part;
  struct plm_fetch_answer answer = answer_to(request);
  snprintf(path, sizeof path, "%.180s%u/%s", scratch_path("corpus"), request.source, file);
  assert_int_equal(plm_file_read(path, 1 << 24, &expected, &size, NULL), PLM_OK);
  assert_false(answer.refused);
  assert_int_equal(plm_file_part_decode(answer.payload, answer.payload_bytes, &part, NULL), PLM_OK);
  assert_int_equal(answer.payload_bytes, PLM_FILE_PART_HEAD + bytes);
  assert_int_equal(part.sources, 3);
  assert_int_equal(part.file_bytes, size);
  assert_int_equal(part.of.source, request.source);
  assert_int_equal(part.of.file, request.file);
  assert_int_equal(part.of.offset, request.offset);
  assert_int_equal(part.of.bytes, bytes);
  assert_memory_equal(answer.payload + PLM_FILE_PART_HEAD, expected + request.offset, bytes);
  free(expected);
  free(answer.payload);
}

static uint32_t size_of(uint32_t source, const char *file)
{
  char path[300];
  uint64_t size;
  snprintf(path, sizeof path, "%.180s%u/%s", scratch_path("corpus"), source, file);
  assert_int_equal(plm_file_size(path, &size, NULL), PLM_OK);
  return (uint32_t)size;
}

static void parts_are_those_of_the_files(void **state)
{
  (void)state;
  open_server();
  for (uint16_t k = 0; k < 2; k++) {
    const uint32_t data = size_of(k, "data.mdb"), text = size_of(k, "corpus.json");
    is_part(part_of(k, PLM_FETCH_DESCRIPTION, 0, 100), "corpus.json", 100);
    is_part(part_of(k, PLM_FETCH_DESCRIPTION, 50, text), "corpus.json", text - 50);
    is_part(part_of(k, PLM_FETCH_DATA, 4096, 1000), "data.mdb", 1000);
    is_part(part_of(k, PLM_FETCH_DATA, data - 10, 10), "data.mdb", 10);
    is_part(part_of(k, PLM_FETCH_DATA, data - 10, 11), "data.mdb", 10);
    is_part(part_of(k, PLM_FETCH_DATA, data, 10), "data.mdb", 0);
  }
  close_server();
}

static void refuses(struct plm_fetch_request request, const char *what)
{
  char text[PLM_WIRE_TEXT + 1];
  enum plm_nack_reason reason;
  struct plm_fetch_answer answer = answer_to(request);
  assert_true(answer.refused);
  assert_int_equal(plm_nack_decode(answer.payload, answer.payload_bytes, &reason, text, NULL),
                   PLM_OK);
  assert_int_equal(reason, PLM_NACK_FAILED);
  if (strstr(text, what) == NULL) fail_msg("%s is not %s", text, what);
  free(answer.payload);
}

static void what_is_not_there_is_refused(void **state)
{
  (void)state;
  char what[64];
  open_server();
  const uint32_t data = size_of(0, "data.mdb");
  snprintf(what, sizeof what, "the file has %u bytes", data);
  refuses(part_of(0, PLM_FETCH_DATA, data + 1, 10), what);
  refuses(part_of(3, PLM_FETCH_DATA, 0, 10), "the run has 3 corpora");
  refuses(part_of(2, PLM_FETCH_DATA, 0, 10), "is not a corpus");
  close_server();
  /* a file of another size is not the one that ingest wrote */
  char path[300];
  snprintf(path, sizeof path, "%.180s1/data.mdb", scratch_path("corpus"));
  FILE *file = fopen(path, "a");
  assert_non_null(file);
  fputc('x', file);
  fclose(file);
  open_server();
  refuses(part_of(1, PLM_FETCH_DATA, 0, 10), "is not the file that ingest wrote");
  is_part(part_of(0, PLM_FETCH_DATA, 0, 10), "data.mdb", 10);
  close_server();
}

static bool gives_piece(uint16_t source, struct plm_hash corpus, char *text)
{
  const struct plm_fetch_question question = {.request = part_of(source, PLM_FETCH_DATA, 0, 10),
                                              .corpus = corpus};
  struct plm_fetch_answer answer;
  enum plm_nack_reason reason;
  assert_true(plm_fetch_server_ask(server, &question));
  await_answer();
  assert_true(plm_fetch_server_pop(server, &answer));
  text[0] = '\0';
  if (answer.refused)
    assert_int_equal(plm_nack_decode(answer.payload, answer.payload_bytes, &reason, text, NULL),
                     PLM_OK);
  free(answer.payload);
  return !answer.refused;
}

/* A folder whose corpus was replaced after the run began is not sent, also if it was sent before
 * anybody knew the run's corpus. */
static void another_corpus_than_the_run_s_is_refused(void **state)
{
  (void)state;
  char path[300], text[PLM_WIRE_TEXT + 1], hex[PLM_HASH_HEX_SIZE];
  char what[PLM_WIRE_TEXT + 400], wanted[PLM_HASH_HEX_SIZE];
  struct plm_corpus_description description;
  open_server();
  close_server();
  for (uint16_t k = 0; k < 2; k++) {
    snprintf(path, sizeof path, "%.180s%u", scratch_path("corpus"), k);
    assert_int_equal(plm_corpus_description_read(path, &description, NULL), PLM_OK);
    description.info.upgraded_from = (struct plm_hash){5, 6};
    forged_corpus_restate(path, &description);
    open_server();
    struct plm_hash other = description.info.fingerprint;
    assert_true(gives_piece(k, (struct plm_hash){0}, text));
    assert_true(gives_piece(k, description.info.fingerprint, text));
    assert_true(gives_piece(k, (struct plm_hash){5, 6}, text));
    assert_false(gives_piece(k, (struct plm_hash){5, 7}, text));
    other.high++;
    assert_false(gives_piece(k, other, text));
    plm_hash_to_hex(description.info.fingerprint, hex);
    plm_hash_to_hex(other, wanted);
    snprintf(what, sizeof what, "%s holds another corpus (fingerprint %s) than the run's (%s)",
             path, hex, wanted);
    assert_string_equal(text, what);
    plm_corpus_description_deinit(&description);
    close_server();
  }
}

/* 16 answers are made ahead, and 256 questions may wait behind them. */
static void questions_and_answers_are_limited(void **state)
{
  (void)state;
  enum { ANSWERS = 16, QUESTIONS = 256 };
  struct plm_fetch_question question = {.request = part_of(0, PLM_FETCH_DATA, 0, 10)};
  struct plm_fetch_answer answer;
  open_server();
  for (int i = 0; i < ANSWERS; i++, question.request_id++)
    assert_true(plm_fetch_server_ask(server, &question));
  for (int i = 0; i < ANSWERS; i++) await_answer();
  for (int i = 0; i < QUESTIONS; i++, question.request_id++)
    assert_true(plm_fetch_server_ask(server, &question));
  assert_false(plm_fetch_server_ask(server, &question));
  assert_int_not_equal(sem_trywait(&ready), 0); /* no answer is made before one is taken */
  for (uint64_t i = 0; i < ANSWERS + QUESTIONS; i++) {
    if (i >= ANSWERS) await_answer();
    assert_true(plm_fetch_server_pop(server, &answer));
    assert_int_equal(answer.question.request_id, i);
    free(answer.payload);
  }
  assert_false(plm_fetch_server_pop(server, &answer));
  assert_true(plm_fetch_server_ask(server, &question));
  await_answer(); /* it is closed with an answer that nobody took */
  close_server();
}

static void a_part_needs_memory(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  open_server();
  is_part(part_of(0, PLM_FETCH_DESCRIPTION, 0, 10), "corpus.json", 10); /* it is open from now on */
  checked_memory_fail(0);
  struct plm_fetch_answer answer = answer_to(part_of(0, PLM_FETCH_DESCRIPTION, 0, 10));
  checked_memory_pause();
  char text[PLM_WIRE_TEXT + 1];
  enum plm_nack_reason reason;
  assert_true(answer.refused);
  assert_int_equal(plm_nack_decode(answer.payload, answer.payload_bytes, &reason, text, NULL),
                   PLM_OK);
  assert_string_equal(text, "no memory for 10 bytes");
  free(answer.payload);
  close_server();
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  static const char *const folders[1] = {"/nowhere"};
  struct plm_fetch_server *opened = (void *)&ready;
  const plm_status status = plm_fetch_server_open(folders, 1, wake, context, &opened, error);
  assert_true(status == PLM_OK || opened == NULL);
  plm_fetch_server_close(opened);
  return status;
}

static void a_server_without_its_thread_is_an_error(void **state)
{
  assert_int_equal(failing_starts_try(open_and_close, state), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_are_those_of_the_files),
      cmocka_unit_test(questions_and_answers_are_limited),
      cmocka_unit_test(another_corpus_than_the_run_s_is_refused),
      cmocka_unit_test(what_is_not_there_is_refused),
      cmocka_unit_test(a_part_needs_memory),
      cmocka_unit_test(a_server_without_its_thread_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
