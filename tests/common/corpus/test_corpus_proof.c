/* A corpus whose records agree with each other, but not with the hash tree. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "common/base/files/file.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"

/* All in train: document d has d % 50 + 1 residues. */
static void write_documents(const char *directory, int documents)
{
  const struct plm_corpus_writer_options options = {.directory = directory, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  struct plm_corpus_writer *writer;
  uint8_t residues[50];
  memset(residues, 'V', sizeof residues);
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int d = 0; d < documents; d++)
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, "n", 1, residues,
                                           (size_t)(d % 50 + 1), NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
}

/* Puts another byte into a frame, which stays whole. */
static void change_frame(uint8_t *record, size_t *size, const void *context)
{
  const size_t at = *(const size_t *)context;
  uint8_t content[1 << 16];
  const size_t bytes = forged_frame_unpack(record, *size, content, sizeof content);
  assert_true(at < bytes);
  content[at] ^= 3;
  forged_frame_pack(record, size, content, bytes);
}

static void a_changed_document_is_named(void **state)
{
  (void)state;
  const char *directory = scratch_path("changed");
  const size_t first = 0; /* residue */
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  const uint8_t *residues;
  size_t size;
  write_documents(directory, 300);
  forged_corpus_change(directory, PLM_RECORD_GROUPS, change_frame, &first);
  if (plm_corpus_open(directory, NULL, &corpus, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, &error), PLM_OK);
  assert_int_equal(plm_corpus_group(cursor, PLM_SPLIT_TRAIN, 0, &residues, &size, &error), PLM_OK);
  assert_int_equal(plm_corpus_prove_group(cursor, PLM_SPLIT_TRAIN, 1, &error), PLM_OK);
  assert_int_equal(plm_corpus_prove_group(cursor, PLM_SPLIT_TRAIN, 0, &error), PLM_CORRUPT);
  assert_string_equal(error.what, "document 0 of train has another sequence than ingest hashed");
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  plm_path_remove(directory, NULL);
}

static void a_changed_label_is_named(void **state)
{
  static const struct written_corpus of = {PLM_TOKENIZER_ESM, {300, 0, 0}, 20, 0, true};
  const char *directory = scratch_path("label");
  const size_t family = 8; /* of document 0 (label_schema_make) */
  struct plm_error error = {0};
  struct plm_corpus_cursor *cursor;
  const uint8_t *records;
  const size_t *offsets;
  (void)state;
  struct plm_corpus *corpus = written_corpus_open("label", &of);
  plm_corpus_close(corpus);
  assert_int_equal(plm_corpus_verify(directory, NULL, NULL, &error), PLM_OK);
  forged_corpus_change(directory, PLM_RECORD_LABELS, change_frame, &family);
  if (plm_corpus_open(directory, NULL, &corpus, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, &error), PLM_OK);
  assert_int_equal(plm_corpus_labels(cursor, PLM_SPLIT_TRAIN, 0, &records, &offsets, &error),
                   PLM_OK);
  assert_int_equal(plm_corpus_prove_group(cursor, PLM_SPLIT_TRAIN, 1, &error), PLM_OK);
  assert_int_equal(plm_corpus_prove_group(cursor, PLM_SPLIT_TRAIN, 0, &error), PLM_CORRUPT);
  assert_non_null(strstr(error.what, "train.labels"));
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  assert_int_equal(plm_corpus_verify(directory, NULL, NULL, &error), PLM_CORRUPT);
  plm_path_remove(directory, NULL);
}

/* A writer that is given a record of no form writes a corpus that agrees with its tree, so only a
 * look at the record shows it. The writer itself looks. */
static void a_malformed_label_is_named(void **state)
{
  struct plm_label_schema schema = {0};
  const char *directory = scratch_path("malformed");
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 3};
  struct plm_corpus_writer *writer;
  struct plm_error error = {0};
  uint8_t record[64];
  (void)state;
  label_schema_make(&schema);
  const struct plm_corpus_writer_options options = {
      .directory = directory, .threads = 1, .labels = &schema};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int d = 0; d < 3; d++) {
    plm_label_record_clear(&schema, 4, record);
    if (d == 2) record[0] = 1; /* of a number: a NaN that is not the missing one */
    plm_corpus_writer_labels(writer, record);
    assert_int_equal(
        plm_corpus_writer_add(writer, PLM_SPLIT_VALID, "n", 1, (const uint8_t *)"ACDE", 4, NULL),
        PLM_OK);
  }
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, &error),
                   PLM_FORMAT);
  assert_non_null(strstr(error.where, "data.mdb: document 2 of valid"));
  assert_non_null(strstr(error.what, "stability"));
  plm_corpus_writer_close(writer);
  plm_label_schema_deinit(&schema);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_changed_document_is_named),
      cmocka_unit_test(a_changed_label_is_named),
      cmocka_unit_test(a_malformed_label_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
