/* Corpora are written by ingest's writer and read back: contents, limits, and damage of every kind.
 * Documents are a function of (seed, split, number), so that what is read can be checked. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/numbers/philox.h"
#include "common/base/process/thread.h"
#include "common/corpus/corpus.h"
#include "common/corpus/corpus_format.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/harness/scratch.h"

enum { LONGEST = 3000 };
static const char letters[] = "LAGVSERTIDPKQNFYMHWCXBUZO.-J";

struct example {
  uint64_t documents[PLM_SPLIT_COUNT];
  uint32_t longest;           /* residues */
  uint32_t cluster_documents; /* in each cluster but the last; 0: no clusters */
};

static size_t make_document(const struct example *example, int split, uint64_t number,
                            uint8_t residues[LONGEST], char name[64])
{
  const struct plm_philox_words head = plm_philox(7, (uint32_t)split, number, 900);
  const size_t size = 1 + head.w[0] % example->longest;
  for (size_t i = 0; i < size; i++)
    residues[i] =
        (uint8_t)letters[plm_philox(7, (uint32_t)i, number, 901 + (uint32_t)split).w[0] % 28];
  snprintf(name, 64, "%s|%llu", plm_split_name((enum plm_split)split),
           (unsigned long long)(number % 97)); /* names repeat */
  return size;
}

static void write_example(const char *directory, const struct example *example, unsigned threads)
{
  struct plm_error error = {0};
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {.directory = directory,
                                                    .tokenizer = PLM_TOKENIZER_ESM,
                                                    .clustered = example->cluster_documents != 0,
                                                    .threads = threads};
  const struct plm_ingested_file source = {
      .name = "an \"example\"\\\n", .bytes = 1, .documents = 2};
  uint8_t residues[LONGEST];
  char name[64];
  assert_int_equal(plm_corpus_writer_open(&options, &writer, &error), PLM_OK);
  /* the splits take turns, as in ingest */
  for (uint64_t number = 0, more = 1; more; number++) {
    more = 0;
    for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
      if (number >= example->documents[s]) continue;
      more = 1;
      const size_t size = make_document(example, s, number, residues, name);
      if (example->cluster_documents != 0 && number % example->cluster_documents == 0)
        assert_int_equal(plm_corpus_writer_begin_cluster(writer, (enum plm_split)s, &error),
                         PLM_OK);
      assert_int_equal(plm_corpus_writer_add(writer, (enum plm_split)s, name, strlen(name),
                                             residues, size, &error),
                       PLM_OK);
    }
  }
  if (plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, &error) != PLM_OK)
    fail_msg("%s: %s", error.where, error.what);
  plm_corpus_writer_close(writer);
}

/* The number of clusters of a split that are not as they were written. */
static int wrong_clusters(struct plm_corpus *corpus, const struct example *example, int s)
{
  const uint64_t documents = example->documents[s], size = example->cluster_documents;
  uint32_t *sizes = corpus_clusters(corpus, (enum plm_split)s);
  const uint64_t clusters = plm_corpus_info(corpus)->splits[s].clusters;
  if (size == 0) return sizes != NULL || clusters != 0;
  int wrong = clusters != (documents + size - 1) / size;
  for (uint64_t c = 0; wrong == 0 && c < clusters; c++)
    wrong += sizes[c] != (c + 1 < clusters ? size : documents - c * size);
  free(sizes);
  return wrong;
}

/* Reads the hashes of the sequences of a group. *wrong counts those that differ. */
static plm_status read_digests(struct plm_corpus_cursor *cursor, const struct example *example,
                               int s, uint64_t group, int *wrong, struct plm_error *error)
{
  const uint64_t first = group * PLM_GROUP_DOCUMENTS;
  struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  PLM_TRY(plm_corpus_digests(cursor, (enum plm_split)s, group, digests, error));
  for (uint64_t d = first; d < example->documents[s] && d < first + PLM_GROUP_DOCUMENTS; d++) {
    uint8_t residues[LONGEST], tokens[LONGEST];
    char name[64];
    const size_t size = make_document(example, s, d, residues, name);
    plm_tokenizer_encode_all(plm_tokenizer_of(PLM_TOKENIZER_ESM), residues, size, tokens);
    const struct plm_proof_digest expected = plm_proof_sequence(1, tokens, size);
    *wrong += memcmp(&digests[d - first], &expected, sizeof expected) != 0;
  }
  return PLM_OK;
}

/* Reads the documents and names. Returns an error if any read gave one. wrong counts what was read
 * without an error but differs from what was written. */
static plm_status read_all(const char *directory, const struct example *example, int *wrong,
                           struct plm_error *error)
{
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  plm_status status = plm_corpus_open(directory, NULL, &corpus, error);
  if (status != PLM_OK) return status;
  status = plm_corpus_cursor_open(corpus, &cursor, error);
  for (int s = 0; s < PLM_SPLIT_COUNT && cursor != NULL; s++) {
    if (plm_corpus_info(corpus)->splits[s].documents != example->documents[s]) (*wrong)++;
    *wrong += wrong_clusters(corpus, example, s);
    plm_corpus_prefetch(corpus, (enum plm_split)s, 0, 100);
    for (uint64_t d = 0; d < example->documents[s]; d++) {
      uint8_t expected[LONGEST];
      char expected_name[64];
      const uint8_t *residues;
      const char *name;
      size_t size;
      const size_t expected_size = make_document(example, s, d, expected, expected_name);
      plm_status one = PLM_OK;
      if (d % PLM_GROUP_DOCUMENTS == 0) /* the hashes count once they are proven */
        one = plm_corpus_prove_group(cursor, (enum plm_split)s, d / PLM_GROUP_DOCUMENTS, error);
      if (d % PLM_GROUP_DOCUMENTS == 0 && one == PLM_OK)
        one = read_digests(cursor, example, s, d / PLM_GROUP_DOCUMENTS, wrong, error);
      if (one != PLM_OK) status = one;
      one = plm_corpus_document(cursor, (enum plm_split)s, d, &residues, &size, error);
      if (one == PLM_OK && (size != expected_size || memcmp(residues, expected, size) != 0))
        (*wrong)++;
      if (one != PLM_OK) status = one;
      one = plm_corpus_name(cursor, (enum plm_split)s, d, &name, error);
      if (one == PLM_OK && strcmp(name, expected_name) != 0) (*wrong)++;
      if (one != PLM_OK) status = one;
      if (status != PLM_OK)
        d += PLM_GROUP_DOCUMENTS / 2; /* the rest of the group gives the same error */
    }
  }
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  return status;
}

static void documents_come_back(void **state)
{
  (void)state;
  static const struct example examples[] = {{{1, 0, 0}, 10, 0},    {{256, 257, 255}, 50, 0},
                                            {{0, 0, 513}, 300, 0}, {{700, 3, 1}, LONGEST, 0},
                                            {{700, 3, 0}, 40, 1},  {{1, 513, 300}, 40, 300}};
  for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
    struct plm_error error = {0};
    int wrong = 0;
    char name[32];
    snprintf(name, sizeof name, "back-%zu", i);
    const char *directory = scratch_path(name);
    write_example(directory, &examples[i], 1 + (unsigned)i);
    assert_int_equal(plm_corpus_verify(directory, NULL, NULL, &error), PLM_OK);
    if (read_all(directory, &examples[i], &wrong, &error) != PLM_OK) fail_msg("%s", error.what);
    assert_int_equal(wrong, 0);
    plm_path_remove(directory, NULL);
  }
}

static void threads_do_not_change_a_byte(void **state)
{
  (void)state;
  const struct example example = {{900, 30, 20}, 400, 7};
  struct plm_hash hashes[2];
  for (unsigned i = 0; i < 2; i++) {
    const char *directory = scratch_path(i == 0 ? "one-thread" : "many-threads");
    char path[PLM_PATH_SIZE];
    write_example(directory, &example, i == 0 ? 1 : 7);
    plm_path_join(path, directory, PLM_CORPUS_DATA, NULL);
    assert_int_equal(plm_hash_file(path, &hashes[i], NULL, NULL, NULL), PLM_OK);
    plm_path_remove(directory, NULL);
  }
  assert_true(plm_hash_equal(hashes[0], hashes[1]));
}

static void more_lengths_than_a_block(void **state)
{
  (void)state;
  const struct example example = {{PLM_LENGTHS_BLOCK + 300, 0, 0}, 3, 1};
  const char *directory = scratch_path("many");
  struct plm_error error = {0};
  int wrong = 0;
  write_example(directory, &example, 2);
  assert_int_equal(read_all(directory, &example, &wrong, &error), PLM_OK);
  assert_int_equal(wrong, 0);
  plm_path_remove(directory, NULL);
}

struct reading_thread {
  pthread_t thread;
  struct plm_corpus *corpus;
  const struct example *example;
  uint64_t first; /* where this thread begins */
  int wrong;
};

static void *read_with_own_cursor(void *argument)
{
  struct reading_thread *reading = argument;
  const uint64_t documents = reading->example->documents[PLM_SPLIT_TRAIN];
  struct plm_corpus_cursor *cursor;
  if (plm_corpus_cursor_open(reading->corpus, &cursor, NULL) != PLM_OK) {
    reading->wrong = -1;
    return NULL;
  }
  for (uint64_t i = 0; i < documents; i++) {
    const uint64_t d = (reading->first + i) % documents;
    uint8_t expected[LONGEST];
    char expected_name[64];
    const uint8_t *residues;
    const char *name;
    size_t size;
    const size_t expected_size = make_document(reading->example, 0, d, expected, expected_name);
    plm_corpus_prefetch(reading->corpus, PLM_SPLIT_TRAIN, d / PLM_GROUP_DOCUMENTS, 1);
    if (plm_corpus_document(cursor, PLM_SPLIT_TRAIN, d, &residues, &size, NULL) != PLM_OK ||
        plm_corpus_name(cursor, PLM_SPLIT_TRAIN, d, &name, NULL) != PLM_OK ||
        size != expected_size || memcmp(residues, expected, size) != 0 ||
        strcmp(name, expected_name) != 0)
      reading->wrong++;
  }
  plm_corpus_cursor_close(cursor);
  return NULL;
}

static void threads_read_one_corpus(void **state)
{
  (void)state;
  enum { THREADS = 4 };
  const struct example example = {{1500, 0, 0}, 60, 0};
  const char *directory = scratch_path("shared");
  struct reading_thread threads[THREADS];
  struct plm_corpus *corpus;
  write_example(directory, &example, 2);
  assert_int_equal(plm_corpus_open(directory, NULL, &corpus, NULL), PLM_OK);
  for (uint64_t t = 0; t < THREADS; t++) {
    threads[t] = (struct reading_thread){.corpus = corpus, .example = &example, .first = 400 * t};
    assert_int_equal(
        plm_thread_start(&threads[t].thread, "reader", read_with_own_cursor, &threads[t], NULL),
        PLM_OK);
  }
  for (int t = 0; t < THREADS; t++) {
    pthread_join(threads[t].thread, NULL);
    assert_int_equal(threads[t].wrong, 0);
  }
  plm_corpus_close(corpus);
  plm_path_remove(directory, NULL);
}

static void what_is_not_there_is_an_error(void **state)
{
  (void)state;
  const struct example example = {{3, 0, 0}, 10, 0};
  const char *directory = scratch_path("few");
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  const uint8_t *residues;
  const char *name;
  size_t size;
  write_example(directory, &example, 1);
  assert_int_equal(plm_corpus_open(directory, NULL, &corpus, &error), PLM_OK);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, &error), PLM_OK);
  assert_int_equal(plm_corpus_document(cursor, PLM_SPLIT_TRAIN, 3, &residues, &size, &error),
                   PLM_NOT_FOUND);
  assert_int_equal(plm_corpus_group(cursor, PLM_SPLIT_VALID, 0, &residues, &size, &error),
                   PLM_NOT_FOUND);
  assert_int_equal(plm_corpus_name(cursor, PLM_SPLIT_TRAIN, UINT64_MAX, &name, &error),
                   PLM_NOT_FOUND);
  assert_int_equal(plm_corpus_digests(cursor, PLM_SPLIT_TRAIN, 1, digests, &error), PLM_NOT_FOUND);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  assert_int_equal(plm_corpus_open(scratch_path("nowhere"), NULL, &corpus, &error), PLM_NOT_FOUND);
  plm_path_remove(directory, NULL);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void flip(const char *path, uint64_t bit)
{
  unsigned char byte;
  const int descriptor = open(path, O_RDWR);
  assert_true(descriptor >= 0);
  assert_int_equal(pread(descriptor, &byte, 1, (off_t)(bit / 8)), 1);
  byte ^= (unsigned char)(1u << bit % 8);
  assert_int_equal(pwrite(descriptor, &byte, 1, (off_t)(bit / 8)), 1);
  close(descriptor);
}

/* Without fsync, since it is called hundreds of times. */
static void write_file(const char *path, const void *bytes, size_t size)
{
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

/* plm_corpus_verify detects any flipped bit and any truncation of either file. */
static void verify_finds_every_flip(void **state)
{
  (void)state;
  const struct example example = {{300, 20, 10}, 60, 9};
  const char *directory = scratch_path("flipped");
  static const char *const files[] = {PLM_CORPUS_DATA, PLM_CORPUS_DESCRIPTION};
  write_example(directory, &example, 2);
  for (int f = 0; f < 2; f++) {
    char path[PLM_PATH_SIZE], *bytes;
    size_t size;
    assert_int_equal(plm_path_join(path, directory, files[f], NULL), PLM_OK);
    assert_int_equal(plm_file_read(path, 1 << 30, &bytes, &size, NULL), PLM_OK);
    /* all bits of corpus.json, and some of data.mdb */
    const uint64_t tries = f == 1 ? 8 * size : 600;
    for (uint64_t i = 0; i < tries; i++) {
      const uint64_t bit = f == 1 ? i : plm_philox(3, (uint32_t)i, 0, 902).w[0] % (8 * size);
      struct plm_error error = {0};
      flip(path, bit);
      if (plm_corpus_verify(directory, NULL, NULL, &error) == PLM_OK)
        fail_msg("bit %llu of %s", (unsigned long long)bit, files[f]);
      assert_string_not_equal(error.what, "");
      flip(path, bit);
    }
    for (size_t cut = 0; cut < size; cut += 1 + size / 97) {
      assert_int_equal(truncate(path, (off_t)cut), 0);
      assert_int_not_equal(plm_corpus_verify(directory, NULL, NULL, NULL), PLM_OK);
      write_file(path, bytes, size);
    }
    free(bytes);
  }
  assert_int_equal(plm_corpus_verify(directory, NULL, NULL, NULL), PLM_OK);
  plm_path_remove(directory, NULL);
}

enum outcome { OUTCOME_RIGHT, OUTCOME_ERROR, OUTCOME_MESSAGE, OUTCOME_COUNT };

/* Reads everything in a child process. Only correct data, an error or the guard's message is
 * accepted. */
static enum outcome read_in_child(const char *directory, const struct example *example,
                                  const char *log_path, unsigned long long bit)
{
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const int log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(log, STDERR_FILENO);
    int wrong = 0;
    struct plm_error error = {0};
    const plm_status status = read_all(directory, example, &wrong, &error);
    _exit(wrong != 0 ? 99 : status == PLM_OK ? 0 : 42);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return OUTCOME_RIGHT;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 42) return OUTCOME_ERROR;
  char *log;
  size_t size;
  assert_int_equal(plm_file_read(log_path, 1 << 20, &log, &size, NULL), PLM_OK);
  const bool message = strstr(log, "corpus file changed or unreadable") != NULL;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !message)
    fail_msg("bit %llu: status %#x: %s", bit, (unsigned)status, log);
  free(log);
  return OUTCOME_MESSAGE;
}

/* Even if the checks on opening are bypassed, a flipped bit gives no wrong document, name or
 * length. */
static void a_reader_never_gives_wrong_documents(void **state)
{
  (void)state;
  const struct example example = {{900, 300, 30}, 12, 4};
  const char *directory = scratch_path("forged"), *log_path = scratch_path("child.log");
  struct plm_corpus_description description;
  char data[PLM_PATH_SIZE];
  unsigned outcomes[OUTCOME_COUNT] = {0};
  uint64_t size;
  write_example(directory, &example, 2);
  plm_path_join(data, directory, PLM_CORPUS_DATA, NULL);
  assert_int_equal(plm_corpus_description_read(directory, &description, NULL), PLM_OK);
  assert_int_equal(plm_file_size(data, &size, NULL), PLM_OK);
#ifdef PLM_SANITIZED
  const uint32_t tries = 150;
#else
  const uint32_t tries = 600;
#endif
  for (uint32_t i = 0; i < tries; i++) {
    const struct plm_philox_words words = plm_philox(11, i, 0, 903);
    uint64_t bit = words.w[0] % (8 * size);
    /* half of them in the first bytes of pages, where LMDB's own numbers are */
    if (i % 2 == 0) bit = words.w[1] % (size / 4096) * 4096 * 8 + words.w[2] % (8 * 64);
    flip(data, bit);
    forged_corpus_describe(directory, &description); /* so that opening goes on */
    outcomes[read_in_child(directory, &example, log_path, (unsigned long long)bit)]++;
    flip(data, bit);
  }
  print_message("%u right (the bit is in no record), %u errors, %u ends with the message\n",
                outcomes[OUTCOME_RIGHT], outcomes[OUTCOME_ERROR], outcomes[OUTCOME_MESSAGE]);
  assert_true(outcomes[OUTCOME_ERROR] > tries / 10); /* the forged description gets past opening */
  plm_corpus_description_deinit(&description);
  plm_path_remove(directory, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(documents_come_back),
      cmocka_unit_test(threads_do_not_change_a_byte),
      cmocka_unit_test(more_lengths_than_a_block),
      cmocka_unit_test(threads_read_one_corpus),
      cmocka_unit_test(what_is_not_there_is_an_error),
      cmocka_unit_test(verify_finds_every_flip),
      cmocka_unit_test(a_reader_never_gives_wrong_documents),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
