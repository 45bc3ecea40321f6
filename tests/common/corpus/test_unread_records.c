/* Each record that cannot be read is an error of whatever needs it, and says which one it is. */
#include <stdio.h>

#include "common/corpus/corpus_handle.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_lmdb.h"
#include "tests/support/harness/scratch.h"

enum { DOCUMENTS = 300 };
static const enum plm_split split = PLM_SPLIT_TRAIN;
static const struct written_corpus written = {PLM_TOKENIZER_ESM, {DOCUMENTS, 0, 0}, 20, 4, true};

static plm_status open_corpus(void *directory, struct plm_error *error)
{
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  PLM_TRY(plm_corpus_open(directory, NULL, &corpus, error));
  const plm_status status = plm_corpus_cursor_open(corpus, &cursor, error);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  return status;
}

static plm_status verify_corpus(void *directory, struct plm_error *error)
{
  return plm_corpus_verify(directory, NULL, NULL, error);
}

/* What is read with a cursor that holds nothing of the group. */
enum reading { GROUP, DOCUMENT, NAME, SIZES, LABELS, LABEL_DIGESTS, PROVEN, PROVE, READINGS };

static plm_status read_of_group(struct plm_corpus_cursor *cursor, enum reading reading,
                                struct plm_error *error)
{
  struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  const uint8_t *bytes;
  const uint32_t *numbers;
  const size_t *offsets;
  const char *name;
  uint64_t before;
  size_t size;
  switch (reading) {
  case GROUP: return plm_corpus_group(cursor, split, 0, &bytes, &size, error);
  case DOCUMENT: return plm_corpus_document(cursor, split, 7, &bytes, &size, error);
  case NAME: return plm_corpus_name(cursor, split, 7, &name, error);
  case SIZES: return plm_corpus_cluster_sizes(cursor, split, 0, &numbers, &before, error);
  case LABELS: return plm_corpus_labels(cursor, split, 0, &bytes, &offsets, error);
  case LABEL_DIGESTS: return plm_corpus_label_digests(cursor, split, 0, digests, error);
  case PROVEN: return plm_corpus_proven_lengths(cursor, split, 0, &numbers, error);
  case PROVE: return plm_corpus_prove_group(cursor, split, 0, error);
  case READINGS: break;
  }
  return PLM_OK;
}

struct scene {
  struct plm_corpus *corpus;
  enum reading reading;
  bool held; /* the cursor holds the group, but the lengths of another one */
};

static plm_status read_with_cursor(void *context, struct plm_error *error)
{
  const struct scene *s = context;
  struct plm_corpus_cursor *cursor;
  const uint32_t *lengths;
  const long at = failing_disk_pause();
  assert_int_equal(plm_corpus_cursor_open(s->corpus, &cursor, NULL), PLM_OK);
  if (s->held) {
    assert_int_equal(read_of_group(cursor, s->reading, NULL), PLM_OK);
    assert_int_equal(plm_corpus_group_lengths(cursor, split, 1, &lengths, NULL), PLM_OK);
  }
  failing_disk_resume(at);
  const plm_status status = read_of_group(cursor, s->reading, error);
  /* a failure was the only one: what could not be read is not taken for what was */
  if (status != PLM_OK) assert_int_equal(read_of_group(cursor, s->reading, NULL), PLM_OK);
  plm_corpus_cursor_close(cursor);
  return status;
}

static void opening_says_what_cannot_be_read(void **state)
{
  /* without its record, it is another's; three lengths are only read ahead */
  static const char *const opening[] = {"mdb_get *", NULL};
  static const char *const verifying[] = {"mdb_get *", "mdb_get *", "mdb_get *", "mdb_get *", NULL};
  (void)state;
  plm_corpus_close(written_corpus_open("opened", &written));
  char directory[PLM_PATH_SIZE];
  snprintf(directory, sizeof directory, "%s", scratch_path("opened"));
  failing_disk_try(open_corpus, directory, opening);
  failing_disk_try(verify_corpus, directory, verifying);
}

static void each_record_is_needed(void **state)
{
  (void)state;
  struct scene s = {.corpus = written_corpus_open("read", &written)};
  for (s.reading = 0; s.reading < READINGS; s.reading++)
    failing_disk_try(read_with_cursor, &s, NULL);
  s.held = true;
  static const enum reading again[] = {DOCUMENT, PROVEN, PROVE};
  for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
    s.reading = again[i];
    failing_disk_try(read_with_cursor, &s, NULL);
  }
  plm_corpus_close(s.corpus);
}

int main(void)
{
  failing_lmdb_reads = true;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opening_says_what_cannot_be_read),
      cmocka_unit_test(each_record_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
