/* The guard of a corpus: a map that cannot be read, or that LMDB itself finds damaged, ends the
 * process with a message, and a fault elsewhere is not blamed on the corpus. */
#include "common/corpus/corpus_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_format.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static const struct written_corpus written = {PLM_TOKENIZER_ESM, {2000, 0, 0}, 1000, 4, true};

/* Writes a corpus, of which the child that reads it is the only user. */
static const char *write_corpus(const char *name, char data[PLM_PATH_SIZE])
{
  const char *directory = scratch_path(name);
  plm_corpus_close(written_corpus_open(name, &written));
  assert_int_equal(plm_path_join(data, directory, PLM_CORPUS_DATA, NULL), PLM_OK);
  return directory;
}

/* Opens the corpus, and reads in one of the ways that there are. An error ends the process. */
enum { ONLY_CORPUS, ONLY_CURSOR, FIRST_READ, LAST_READ = 8 };
static void read_somehow(const char *directory, int way, void (*between)(const char *data))
{
  static struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor = NULL;
  char data[PLM_PATH_SIZE];
  const uint8_t *bytes;
  const uint32_t *numbers;
  const size_t *offsets;
  const char *name;
  size_t size;
  if (plm_path_join(data, directory, PLM_CORPUS_DATA, NULL) != PLM_OK) _exit(50);
  if (plm_corpus_open(directory, NULL, &corpus, NULL) != PLM_OK) _exit(51);
  if (way != ONLY_CORPUS && plm_corpus_cursor_open(corpus, &cursor, NULL) != PLM_OK) _exit(52);
  between(data);
  plm_status status = PLM_OK;
  switch (way) {
  case ONLY_CORPUS:
  case ONLY_CURSOR: break;
  case FIRST_READ:
    status = plm_corpus_group(cursor, PLM_SPLIT_TRAIN, 0, &bytes, &size, NULL);
    break;
  case 3: status = plm_corpus_group_lengths(cursor, PLM_SPLIT_TRAIN, 0, &numbers, NULL); break;
  case 4: status = plm_corpus_name(cursor, PLM_SPLIT_TRAIN, 0, &name, NULL); break;
  case 5:
    status = plm_corpus_cluster_sizes(cursor, PLM_SPLIT_TRAIN, 0, &numbers, NULL, NULL);
    break;
  case 6: status = plm_corpus_digests(cursor, PLM_SPLIT_TRAIN, 0, digests, NULL); break;
  case 7: status = plm_corpus_labels(cursor, PLM_SPLIT_TRAIN, 0, &bytes, &offsets, NULL); break;
  case LAST_READ: plm_corpus_prefetch(corpus, PLM_SPLIT_TRAIN, 0, 1); break;
  default: _exit(50);
  }
  if (status != PLM_OK) _exit(53);
}

/* A child that reads in this way must end as the guard ends a process. */
static void ends_with_the_message(const char *directory, int way, void (*between)(const char *data),
                                  const char *data)
{
  const char *log_path = scratch_path("child.log");
  int status;
  char *log;
  size_t size;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    read_somehow(directory, way, between);
    _exit(55);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(plm_file_read(log_path, 1 << 20, &log, &size, NULL), PLM_OK);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) fail_msg("%#x: %s", (unsigned)status, log);
  assert_non_null(strstr(log, "corpus file changed or unreadable: "));
  assert_non_null(strstr(log, data));
  free(log);
}

static void cut(const char *data)
{
  if (truncate(data, 0) != 0) _exit(54);
}

static void leave(const char *data)
{
  (void)data;
}

/* The file is truncated while it is mapped, which raises SIGBUS and must give the message. */
static void a_cut_under_the_map_ends_with_the_message(void **state)
{
  (void)state;
  for (int way = FIRST_READ; way <= LAST_READ; way++) {
    char data[PLM_PATH_SIZE];
    const char *directory = write_corpus("cut", data);
    ends_with_the_message(directory, way, cut, data);
    plm_path_remove(directory, NULL);
  }
}

/* Gives a database the root page 1, which LMDB takes for a mistake of its own. */
static void damage_root(const char *data, const char *database)
{
  enum { ROOT_AT = 40 }; /* within what the record of a database holds */
  char *bytes;
  size_t size, found = 0;
  assert_int_equal(plm_file_read(data, 1 << 30, &bytes, &size, NULL), PLM_OK);
  const size_t length = strlen(database);
  for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), database, length)) != NULL;
       at += length, found++) {
    const uint64_t root = 1;
    memcpy(at + length + ROOT_AT, &root, sizeof root);
  }
  assert_true(found > 0);
  assert_int_equal(plm_file_write(data, bytes, size, 0600, NULL), PLM_OK);
  free(bytes);
}

/* An assertion of LMDB gives the same message. */
static void what_lmdb_asserts_ends_with_the_message(void **state)
{
  (void)state;
  struct plm_corpus_description description;
  char data[PLM_PATH_SIZE], name[PLM_DATABASE_NAME_SIZE];
  const char *directory = write_corpus("asserted", data);
  assert_int_equal(plm_corpus_description_read(directory, &description, NULL), PLM_OK);
  plm_corpus_database_name(PLM_SPLIT_TRAIN, PLM_RECORD_GROUPS, name);
  damage_root(data, name);
  forged_corpus_describe(directory, &description);
  plm_corpus_description_deinit(&description);
  ends_with_the_message(directory, FIRST_READ, leave, data);
  plm_path_remove(directory, NULL);
}

/* Opening and reading a corpus leave nothing guarded. */
static void a_fault_elsewhere_is_not_blamed_on_the_corpus(void **state)
{
  (void)state;
  char data[PLM_PATH_SIZE];
  const char *directory = write_corpus("elsewhere", data);
  for (int way = 0; way <= LAST_READ; way++) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL); /* before the corpus installs its handler */
      read_somehow(directory, way, leave);
      raise(SIGSEGV); /* taken by the handler, which puts back the action before */
      raise(SIGSEGV);
      _exit(55);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
      fail_msg("way %d: %#x", way, (unsigned)status);
  }
  plm_path_remove(directory, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cut_under_the_map_ends_with_the_message),
      cmocka_unit_test(what_lmdb_asserts_ends_with_the_message),
      cmocka_unit_test(a_fault_elsewhere_is_not_blamed_on_the_corpus),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
