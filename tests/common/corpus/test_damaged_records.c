/* Records that are not what ingest writes, although the description and the checks agree with them:
 * an error says which record it is and what is wrong, and the others can be read. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_handle.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"

enum { DOCUMENTS = 300, LONGEST = 20, CONTENT = 1 << 15 };
static const struct written_corpus written = {
    PLM_TOKENIZER_ESM, {DOCUMENTS, 0, 0}, LONGEST, 4, true};

/* ---- changes --------------------------------------------------------------------------------- */

/* Removes bytes at the end of what a frame holds, or of the record itself. */
static void shorter_frame(uint8_t *record, size_t *size, const void *context)
{
  uint8_t content[2 * CONTENT];
  const size_t bytes = forged_frame_unpack(record, *size, content, CONTENT);
  forged_frame_pack(record, size, content, bytes - *(const size_t *)context);
}

static void shorter_record(uint8_t *record, size_t *size, const void *context)
{
  (void)record;
  *size -= *(const size_t *)context;
}

static void longer_frame(uint8_t *record, size_t *size, const void *context)
{
  uint8_t content[2 * CONTENT]; /* room for more */
  const size_t bytes = forged_frame_unpack(record, *size, content, CONTENT),
               more = *(const size_t *)context;
  memset(content + bytes, 'A', more);
  forged_frame_pack(record, size, content, bytes + more);
}

/* Appends a frame that zstd skips: the content is still the same. */
static void with_skipped_frame(uint8_t *record, size_t *size, const void *context)
{
  static const uint8_t start[4] = {0x50, 0x2a, 0x4d, 0x18};
  const uint32_t bytes = (uint32_t) * (const size_t *)context;
  memcpy(record + *size, start, sizeof start);
  memcpy(record + *size + 4, &bytes, sizeof bytes);
  memset(record + *size + 8, 0, bytes);
  *size += 8 + bytes;
}

static void without_content_size(uint8_t *record, size_t *size, const void *context)
{
  uint8_t content[2 * CONTENT];
  const size_t bytes = forged_frame_unpack(record, *size, content, CONTENT);
  ZSTD_CCtx *zstd = ZSTD_createCCtx();
  (void)context;
  ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, 0);
  *size = ZSTD_compress2(zstd, record, *size + FORGED_ROOM, content, bytes);
  assert_false(ZSTD_isError(*size));
  ZSTD_freeCCtx(zstd);
}

static void no_frame(uint8_t *record, size_t *size, const void *context)
{
  (void)context;
  memset(record, 'A', *size);
}

/* Changes the checksum at the end of a frame, as if the content were false. */
static void other_checksum(uint8_t *record, size_t *size, const void *context)
{
  (void)context;
  record[*size - 1] ^= 1;
}

/* Makes the first line end of a frame a letter, or the second letter a line end. */
static void fewer_names(uint8_t *record, size_t *size, const void *context)
{
  uint8_t content[2 * CONTENT];
  const size_t bytes = forged_frame_unpack(record, *size, content, CONTENT);
  (void)context;
  *(uint8_t *)memchr(content, '\n', bytes) = 'A';
  forged_frame_pack(record, size, content, bytes);
}

static void more_names(uint8_t *record, size_t *size, const void *context)
{
  uint8_t content[2 * CONTENT];
  const size_t bytes = forged_frame_unpack(record, *size, content, CONTENT);
  (void)context;
  content[0] = '\n';
  forged_frame_pack(record, size, content, bytes);
}

/* Sets a number of 32 bits. */
struct set_number {
  size_t at;
  uint32_t value;
};

static void other_number(uint8_t *record, size_t *size, const void *context)
{
  const struct set_number *set = context;
  assert_true((set->at + 1) * sizeof set->value <= *size);
  memcpy(record + set->at * sizeof set->value, &set->value, sizeof set->value);
}

/* Exchanges the first two numbers that differ. */
static void exchanged_numbers(uint8_t *record, size_t *size, const void *context)
{
  uint32_t *numbers = (uint32_t *)(void *)record, i = 1;
  (void)context;
  while (numbers[i] == numbers[0]) i++;
  assert_true((i + 1) * sizeof *numbers <= *size);
  numbers[i] ^= numbers[0];
  numbers[0] ^= numbers[i];
  numbers[i] ^= numbers[0];
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads what a record of a kind has of a group. */
static plm_status read_group(struct plm_corpus_cursor *cursor, enum plm_record_kind kind,
                             uint64_t group, struct plm_error *error)
{
  static struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  const uint8_t *bytes;
  const uint32_t *numbers;
  const size_t *offsets;
  const char *name;
  uint64_t before;
  size_t size;
  switch (kind) {
  case PLM_RECORD_GROUPS:
    return plm_corpus_group(cursor, PLM_SPLIT_TRAIN, group, &bytes, &size, error);
  case PLM_RECORD_LENGTHS:
    return plm_corpus_group_lengths(cursor, PLM_SPLIT_TRAIN, group, &numbers, error);
  case PLM_RECORD_NAMES:
    return plm_corpus_name(cursor, PLM_SPLIT_TRAIN, group * PLM_GROUP_DOCUMENTS, &name, error);
  case PLM_RECORD_CLUSTERS:
    return plm_corpus_cluster_sizes(cursor, PLM_SPLIT_TRAIN, group, &numbers, &before, error);
  case PLM_RECORD_DIGESTS:
    return plm_corpus_digests(cursor, PLM_SPLIT_TRAIN, group, digests, error);
  case PLM_RECORD_LABELS:
    return plm_corpus_labels(cursor, PLM_SPLIT_TRAIN, group, &bytes, &offsets, error);
  case PLM_RECORD_CHECKS:
  case PLM_RECORD_ROOTS: break;
  }
  return PLM_OK;
}

/* What is made of several records of a group cannot be read if one of them is bad. */
static void check_all_that_need(struct plm_corpus_cursor *cursor, enum plm_record_kind kind,
                                uint64_t group)
{
  static struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  const uint64_t first = group * PLM_GROUP_DOCUMENTS;
  const uint8_t *bytes;
  const uint32_t *numbers;
  const size_t *offsets;
  size_t size;
  struct plm_error error = {0};
#define NEEDS(kinds, call)                                           \
  do {                                                               \
    if (((kinds) >> kind & 1) != 0 && (call) != PLM_CORRUPT)         \
      fail_msg("kind %d: %s gives \"%s\"", kind, #call, error.what); \
  } while (0)
  const unsigned lengths = 1u << PLM_RECORD_LENGTHS, residues = 1u << PLM_RECORD_GROUPS,
                 hashes = 1u << PLM_RECORD_DIGESTS, labels = 1u << PLM_RECORD_LABELS;
  NEEDS(lengths | residues,
        plm_corpus_group(cursor, PLM_SPLIT_TRAIN, group, &bytes, &size, &error));
  NEEDS(lengths | residues,
        plm_corpus_document(cursor, PLM_SPLIT_TRAIN, first, &bytes, &size, &error));
  NEEDS(lengths | labels,
        plm_corpus_labels(cursor, PLM_SPLIT_TRAIN, group, &bytes, &offsets, &error));
  NEEDS(lengths | labels,
        plm_corpus_label_digests(cursor, PLM_SPLIT_TRAIN, group, digests, &error));
  NEEDS(lengths | hashes | labels,
        plm_corpus_proven_lengths(cursor, PLM_SPLIT_TRAIN, group, &numbers, &error));
  NEEDS(lengths | residues | hashes | labels,
        plm_corpus_prove_group(cursor, PLM_SPLIT_TRAIN, group, &error));
#undef NEEDS
}

struct row {
  enum plm_record_kind kind;
  forged_change *change;
  const void *context;
  const char *what; /* is wrong */
  bool at_opening;
  int bad_group; /* the other one of the two can be read */
};

static void check_row(int number, const struct row *row)
{
  char name[24];
  struct plm_error error = {0};
  struct plm_corpus_cursor *cursor;
  snprintf(name, sizeof name, "damaged.%d", number);
  struct plm_corpus *corpus = written_corpus_open(name, &written);
  const char *directory = scratch_path(name);
  plm_corpus_close(corpus);
  forged_corpus_change(directory, row->kind, row->change, row->context);
  const plm_status status = plm_corpus_open(directory, NULL, &corpus, &error);
  if (row->at_opening) {
    assert_int_equal(status, PLM_CORRUPT);
  } else {
    assert_int_equal(status, PLM_OK);
    assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
    for (int i = 0; i < 4; i++) { /* nothing of a bad group is kept, and nothing is shared */
      const uint64_t bad = (uint64_t)row->bad_group;
      if (i == 2) plm_corpus_share_labels(corpus, 1 << 20);
      assert_int_equal(read_group(cursor, row->kind, 1 - bad, NULL), PLM_OK);
      check_all_that_need(cursor, row->kind, bad);
      assert_int_equal(read_group(cursor, row->kind, bad, &error), PLM_CORRUPT);
      assert_int_equal(read_group(cursor, row->kind, bad, &error), PLM_CORRUPT);
    }
    plm_corpus_cursor_close(cursor);
    plm_corpus_close(corpus);
  }
  if (strstr(error.what, row->what) == NULL) fail_msg("row %d: %s", number, error.what);
  plm_path_remove(directory, NULL);
}

static void what_is_wrong_with_a_record_is_said(void **state)
{
  static const size_t one = 1, four = 4, large = 1 << 14;
  static const struct set_number none = {7, 0}, negative = {9, UINT32_MAX},
                                 above = {299, PLM_DOCUMENT_LIMIT + 1}, two = {1, 0},
                                 large_cluster = {1, 99};
  static const char not_written[] = " is not what ingest wrote";
  static const char wrong_size[] = " states no content size, or a wrong one";
  static const struct row rows[] = {
      {PLM_RECORD_GROUPS, with_skipped_frame, &large, not_written, false, 0},
      {PLM_RECORD_GROUPS, without_content_size, NULL, wrong_size, false, 0},
      {PLM_RECORD_GROUPS, no_frame, NULL, wrong_size, false, 0},
      {PLM_RECORD_GROUPS, longer_frame, &one, wrong_size, false, 0},
      {PLM_RECORD_GROUPS, shorter_frame, &one, "record 0 of train.groups is not as long as its",
       false, 0},
      {PLM_RECORD_GROUPS, shorter_record, &one, "record 0 of train.groups ", false, 0},
      {PLM_RECORD_LABELS, with_skipped_frame, &large, not_written, false, 0},
      {PLM_RECORD_LABELS, without_content_size, NULL, wrong_size, false, 0},
      {PLM_RECORD_LABELS, longer_frame, &one, wrong_size, false, 0},
      {PLM_RECORD_LABELS, other_checksum, NULL, "doesn't match checksum", false, 0},
      {PLM_RECORD_LABELS, shorter_frame, &one, "is not as long as its label records", false, 0},
      {PLM_RECORD_LABELS, shorter_record, &one, "record 0 of train.labels ", false, 0},
      {PLM_RECORD_NAMES, fewer_names, NULL, " has a wrong number of names", false, 0},
      {PLM_RECORD_NAMES, more_names, NULL, " has a wrong number of names", false, 0},
      {PLM_RECORD_LENGTHS, shorter_record, &four, "record 0 of train.lengths is too short", false,
       1},
      {PLM_RECORD_LENGTHS, other_number, &none, "document 7 of train has length 0", false, 0},
      {PLM_RECORD_LENGTHS, other_number, &negative, "document 9 of train has length 4294967295",
       false, 0},
      {PLM_RECORD_LENGTHS, other_number, &above, "document 299 of train has length 268435457",
       false, 1},
      {PLM_RECORD_DIGESTS, shorter_record, &one, "record 0 of train.digests is too short", false,
       1},
      {PLM_RECORD_CLUSTERS, shorter_record, &four, "record 0 of train.clusters has a wrong size",
       true, 0},
      {PLM_RECORD_CLUSTERS, other_number, &two, "do not add up to its documents", true, 0},
      {PLM_RECORD_CLUSTERS, other_number, &large_cluster, "do not add up to its documents", true,
       0},
      {PLM_RECORD_CLUSTERS, exchanged_numbers, NULL,
       "the clusters of train are not those that ingest wrote", true, 0},
      {PLM_RECORD_CHECKS, shorter_record, &one, "record 0 of train.checks has a wrong size", true,
       0},
      {PLM_RECORD_ROOTS, shorter_record, &one, "record 0 of train.roots has a wrong size", true, 0},
      {PLM_RECORD_ROOTS, other_number, &none, "the roots of train are not those that ingest wrote",
       true, 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row((int)i, &rows[i]);
}

/* A length may be as large as the limit. */
static void the_longest_document_has_a_length(void **state)
{
  static const struct set_number most = {300 - 1, PLM_DOCUMENT_LIMIT};
  struct plm_corpus *corpus = written_corpus_open("longest", &written);
  const char *directory = scratch_path("longest");
  struct plm_corpus_cursor *cursor;
  const uint32_t *lengths;
  (void)state;
  plm_corpus_close(corpus);
  forged_corpus_change(directory, PLM_RECORD_LENGTHS, other_number, &most);
  assert_int_equal(plm_corpus_open(directory, NULL, &corpus, NULL), PLM_OK);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  assert_int_equal(plm_corpus_group_lengths(cursor, PLM_SPLIT_TRAIN, 1, &lengths, NULL), PLM_OK);
  assert_int_equal(lengths[DOCUMENTS - PLM_GROUP_DOCUMENTS - 1], PLM_DOCUMENT_LIMIT);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  plm_path_remove(directory, NULL);
}

/* A number behind the last one is not found, in any record. */
static void the_last_number_is_the_last(void **state)
{
  static const enum plm_record_kind kinds[] = {PLM_RECORD_GROUPS, PLM_RECORD_LENGTHS,
                                               PLM_RECORD_DIGESTS, PLM_RECORD_LABELS};
  struct plm_corpus *corpus = written_corpus_open("whole", &written);
  const struct plm_corpus_split *split = &plm_corpus_info(corpus)->splits[PLM_SPLIT_TRAIN];
  struct plm_corpus_cursor *cursor;
  struct plm_error error = {0};
  const uint32_t *sizes;
  const uint8_t *residues;
  const char *name;
  size_t size;
  (void)state;
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    assert_int_equal(read_group(cursor, kinds[i], 1, NULL), PLM_OK);
    assert_int_equal(read_group(cursor, kinds[i], 2, &error), PLM_NOT_FOUND);
    assert_non_null(strstr(error.what, " has no group 2 in train: it has 2"));
  }
  const uint64_t groups = plm_corpus_group_count(split->clusters);
  assert_int_equal(
      plm_corpus_cluster_sizes(cursor, PLM_SPLIT_TRAIN, groups - 1, &sizes, NULL, NULL), PLM_OK);
  assert_int_equal(plm_corpus_cluster_sizes(cursor, PLM_SPLIT_TRAIN, groups, &sizes, NULL, NULL),
                   PLM_NOT_FOUND);
  assert_int_equal(plm_corpus_name(cursor, PLM_SPLIT_TRAIN, DOCUMENTS - 1, &name, NULL), PLM_OK);
  assert_int_equal(plm_corpus_name(cursor, PLM_SPLIT_TRAIN, DOCUMENTS, &name, NULL), PLM_NOT_FOUND);
  assert_int_equal(
      plm_corpus_document(cursor, PLM_SPLIT_TRAIN, DOCUMENTS - 1, &residues, &size, NULL), PLM_OK);
  assert_int_equal(plm_corpus_document(cursor, PLM_SPLIT_TRAIN, DOCUMENTS, &residues, &size, NULL),
                   PLM_NOT_FOUND);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  plm_path_remove(scratch_path("whole"), NULL);
}

/* The facts that a description states, against each other and against the records. */
static void what_a_description_states_is_checked(void **state)
{
  enum { VALID_ROOT, VALID_CLUSTERS, CLUSTERS, TOO_MANY, CHECKS, STATISTICS, CHANGES };
  static const char *const what[CHANGES] = {
      "data.mdb: the roots of valid are not those that ingest wrote",
      "data.mdb: the clusters of valid are not those that ingest wrote",
      "data.mdb: train has more clusters than documents",
      "data.mdb is too small for its 1125899906842624 documents",
      "data.mdb: `checks` is not what ingest wrote",
      ": the statistics of train are not those of its documents"};
  const char *directory = scratch_path("stated");
  (void)state;
  for (int change = 0; change < CHANGES; change++) {
    struct plm_corpus_description description;
    struct plm_error error = {0};
    plm_corpus_close(written_corpus_open("stated", &written));
    assert_int_equal(plm_corpus_description_read(directory, &description, NULL), PLM_OK);
    struct plm_corpus_split *splits = description.info.splits;
    if (change == VALID_ROOT) splits[PLM_SPLIT_VALID].root[31]++;
    if (change == VALID_CLUSTERS) splits[PLM_SPLIT_VALID].cluster_root[31]++;
    if (change == CLUSTERS) splits[PLM_SPLIT_TRAIN].clusters = DOCUMENTS + 1;
    if (change == TOO_MANY) splits[PLM_SPLIT_TRAIN].documents = UINT64_C(1) << 50;
    if (change == CHECKS) description.files.checks.low++;
    if (change == STATISTICS) splits[PLM_SPLIT_TRAIN].histogram[31]++;
    forged_corpus_restate(directory, &description);
    assert_int_equal(
        plm_corpus_verify_written(directory, &description.info, NULL, NULL, NULL, &error),
        PLM_CORRUPT);
    if (strstr(error.what, what[change]) == NULL) fail_msg("%s: %s", what[change], error.what);
    plm_corpus_description_deinit(&description);
    plm_path_remove(directory, NULL);
  }
}

static void what_lmdb_says_is_told(void **state)
{
  static const struct {
    int code;
    plm_status status;
    const char *what;
  } rows[] = {{ENOMEM, PLM_NO_MEMORY, "cannot read the/file: out of memory"},
              {EIO, PLM_IO, "cannot read the/file: Input/output error"},
              {MDB_CORRUPTED, PLM_CORRUPT,
               "cannot read the/file: MDB_CORRUPTED: Located page was wrong type"}};
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  char what[PLM_PATH_SIZE];
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(plm_corpus_lmdb_error(rows[i].code, "the/file", "cannot read", &error),
                     rows[i].status);
    assert_string_equal(error.what, rows[i].what);
  }
  plm_corpus_close(written_corpus_open("dropped", &written));
  forged_corpus_drop(scratch_path("dropped"), PLM_RECORD_GROUPS);
  assert_int_equal(plm_corpus_open(scratch_path("dropped"), NULL, &corpus, &error), PLM_CORRUPT);
  snprintf(what, sizeof what, "cannot open %.200s/data.mdb: MDB_NOTFOUND: No matching key",
           scratch_path("dropped"));
  assert_memory_equal(error.what, what, strlen(what));
  /* Flags decide how keys are compared. */
  for (unsigned flags = 0; flags <= MDB_INTEGERKEY; flags += MDB_INTEGERKEY) {
    const char *directory = scratch_path(flags == 0 ? "emptied" : "flagged");
    plm_corpus_close(written_corpus_open(flags == 0 ? "emptied" : "flagged", &written));
    forged_corpus_flag(directory, PLM_RECORD_NAMES, flags);
    assert_int_equal(plm_corpus_open(directory, NULL, &corpus, &error),
                     flags == 0 ? PLM_OK : PLM_CORRUPT);
    if (flags == 0)
      plm_corpus_close(corpus);
    else
      assert_non_null(strstr(error.what, "MDB_INCOMPATIBLE"));
  }
}

/* Sizes of clusters are proven again whenever they are read: those of the last group here, which
 * are in the first record as well, unlike the digests of such a group. */
static void sizes_that_change_meanwhile_are_noticed(void **state)
{
  enum { CLUSTERS = PLM_DIGESTS_BLOCK + 99, GROUP = PLM_DIGESTS_BLOCK / PLM_GROUP_DOCUMENTS };
  static const struct written_corpus alone = {PLM_TOKENIZER_ESM, {CLUSTERS, 0, 0}, 2, 1, false};
  static uint32_t ones[CLUSTERS]; /* each cluster has one document */
  struct plm_corpus *corpus = written_corpus_open("changing", &alone);
  struct plm_corpus_cursor *cursor;
  struct plm_error error = {0};
  const uint32_t *sizes;
  char path[PLM_PATH_SIZE], *bytes;
  size_t size;
  (void)state;
  snprintf(path, sizeof path, "%s", scratch_path("changing/data.mdb"));
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  assert_int_equal(plm_corpus_info(corpus)->splits[PLM_SPLIT_TRAIN].clusters, CLUSTERS);
  for (int i = 0; i < CLUSTERS; i++) ones[i] = 1;
  assert_int_equal(plm_corpus_cluster_sizes(cursor, PLM_SPLIT_TRAIN, GROUP, &sizes, NULL, NULL),
                   PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &bytes, &size, NULL), PLM_OK);
  const char *found = memmem(bytes, size, ones, sizeof ones);
  assert_non_null(found);
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  assert_int_equal(
      pwrite(file, "\x63", 1, found - bytes + (off_t)(PLM_DIGESTS_BLOCK * sizeof *sizes)), 1);
  close(file);
  free(bytes);
  plm_corpus_cursor_close(cursor);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  assert_int_equal(plm_corpus_cluster_sizes(cursor, PLM_SPLIT_TRAIN, GROUP, &sizes, NULL, &error),
                   PLM_CORRUPT);
  assert_string_equal(error.what, "record 0 of train.clusters is not what ingest wrote");
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_wrong_with_a_record_is_said),
      cmocka_unit_test(the_longest_document_has_a_length),
      cmocka_unit_test(the_last_number_is_the_last),
      cmocka_unit_test(what_a_description_states_is_checked),
      cmocka_unit_test(what_lmdb_says_is_told),
      cmocka_unit_test(sizes_that_change_meanwhile_are_noticed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
