/* A corpus that is opened and read while memory runs out or the disk fails: each attempt says so,
 * or reads all. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

enum { DOCUMENTS = 300, LONGEST = 40 };

static plm_status read_group(struct plm_corpus_cursor *cursor, struct plm_error *error)
{
  static struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  const enum plm_split split = PLM_SPLIT_TRAIN;
  const uint8_t *bytes;
  const uint32_t *numbers;
  const size_t *offsets;
  const char *name;
  uint64_t before;
  size_t size;
  PLM_TRY(plm_corpus_group_lengths(cursor, split, 1, &numbers, error));
  PLM_TRY(plm_corpus_proven_lengths(cursor, split, 1, &numbers, error));
  PLM_TRY(plm_corpus_group(cursor, split, 1, &bytes, &size, error));
  assert_true(size > 0);
  PLM_TRY(plm_corpus_document(cursor, split, DOCUMENTS - 1, &bytes, &size, error));
  assert_in_range(size, 1, LONGEST);
  PLM_TRY(plm_corpus_name(cursor, split, DOCUMENTS - 1, &name, error));
  assert_true(name[0] != '\0');
  PLM_TRY(plm_corpus_cluster_sizes(cursor, split, 0, &numbers, &before, error));
  PLM_TRY(plm_corpus_digests(cursor, split, 1, digests, error));
  PLM_TRY(plm_corpus_labels(cursor, split, 1, &bytes, &offsets, error));
  PLM_TRY(plm_corpus_label_digests(cursor, split, 1, digests, error));
  PLM_TRY(plm_corpus_check_lengths(cursor, NULL, error));
  return plm_corpus_prove_group(cursor, split, 1, error);
}

static plm_status open_and_read(void *context, struct plm_error *error)
{
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  PLM_TRY(plm_corpus_open(context, NULL, &corpus, error));
  plm_status status = plm_corpus_cursor_open(corpus, &cursor, error);
  if (status == PLM_OK) {
    status = read_group(cursor, error);
    plm_corpus_cursor_close(cursor);
  }
  if (status == PLM_OK) { /* once more, with labels that cursors share */
    plm_corpus_share_labels(corpus, 1 << 20);
    status = plm_corpus_cursor_open(corpus, &cursor, error);
    if (status == PLM_OK) {
      status = read_group(cursor, error);
      plm_corpus_cursor_close(cursor);
    }
  }
  plm_corpus_close(corpus);
  return status;
}

static plm_status verify(void *context, struct plm_error *error)
{
  return plm_corpus_verify(context, NULL, NULL, error);
}

static void what_fails_is_said(void **state)
{
  const struct written_corpus of = {PLM_TOKENIZER_ESM, {DOCUMENTS, 3, 0}, LONGEST, 2, true};
  char directory[PLM_PATH_SIZE];
  struct plm_error error = {0};
  (void)state;
  struct plm_corpus *corpus = written_corpus_open("memory", &of);
  snprintf(directory, sizeof directory, "%s", plm_corpus_path(corpus));
  plm_corpus_close(corpus);
  if (open_and_read(directory, &error) != PLM_OK) fail_msg("%s", error.what);
  if (verify(directory, &error) != PLM_OK) fail_msg("%s", error.what);
  failing_disk_try(open_and_read, directory, NULL);
  failing_disk_try(verify, directory, NULL);
  failing_memory_try(open_and_read, directory, 15);
  failing_memory_try(verify, directory, 10);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_fails_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
