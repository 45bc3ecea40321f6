/* The chunks that an evaluation reads from a corpus are those of its plan, in the order of its
 * windows, whatever the sizes of the batches, and again after each beginning. */
#include "tests/support/harness/failing_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/numbers/philox.h"
#include "common/plan/assemble.h"
#include "evaluator/evaluate/corpus_stream.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { L = 64, MOST = 7, LONGEST = 150 };

/* Of each split: the second has three windows of one group, and the last one is the largest. */
static const int documents_of[PLM_SPLIT_COUNT] = {0, 600, 20};

static struct plm_corpus *corpus_of(enum plm_tokenizer_kind tokenizer)
{
  static const char letters[] = "LAGVSERTIDPKQNFYMHWC";
  struct plm_corpus_writer *writer;
  struct plm_corpus *corpus;
  char path[200];
  static int number;
  snprintf(path, sizeof path, "%.180s/corpus-%d", scratch_directory(), number++);
  const struct plm_corpus_writer_options options = {
      .directory = path, .tokenizer = tokenizer, .threads = 1};
  const struct plm_ingested_file made = {.name = "made", .bytes = 1, .documents = 1};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int split = 0; split < PLM_SPLIT_COUNT; split++)
    for (int n = 0; n < documents_of[split]; n++) {
      uint8_t residues[LONGEST];
      const uint32_t draw = plm_philox(3, (uint32_t)n, (uint64_t)split, 0).w[0];
      const size_t size = 1 + draw % (n < 512 ? 60 : LONGEST); /* the longest are cut */
      for (size_t i = 0; i < size; i++)
        residues[i] = (uint8_t)letters[(draw + i * 7 + i * i * 3) % 20];
      assert_int_equal(
          plm_corpus_writer_add(writer, (enum plm_split)split, "x", 1, residues, size, NULL),
          PLM_OK);
    }
  assert_int_equal(plm_corpus_writer_finish(writer, &made, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  assert_int_equal(plm_corpus_open(path, &(struct plm_corpus_options){0}, &corpus, NULL), PLM_OK);
  return corpus;
}

/* All chunks of a split, window after window. */
struct expected {
  uint32_t chunks, windows;
  size_t chunk_bytes;
  uint8_t *tokens;
  uint32_t *begin;
  struct plm_chunk_document *documents;
};

static struct expected expect(struct plm_corpus *corpus, const struct plm_plan_parameters *plan_of,
                              enum plm_split split)
{
  enum { MOST_CHUNKS = 1000, MOST_DOCUMENTS = 4000 };
  struct expected all = {.chunk_bytes = (size_t)plan_of->max_length *
                                        plm_tokenizer_of(plan_of->tokenizer)->token_bytes};
  struct plm_plan *plan;
  struct plm_corpus_cursor *cursor;
  struct plm_window window = {0};
  all.tokens = must(malloc(MOST_CHUNKS * all.chunk_bytes));
  all.begin = must(calloc(MOST_CHUNKS + 1, sizeof *all.begin));
  all.documents = must(calloc(MOST_DOCUMENTS, sizeof *all.documents));
  assert_int_equal(plm_plan_open_corpus(plan_of, corpus, split, &plan, NULL), PLM_OK);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  all.windows = (uint32_t)plm_plan_windows(plan);
  for (uint64_t w = 0; w < all.windows; w++) {
    const uint32_t before = all.begin[all.chunks];
    corpus_window(corpus, split, plan, 0, w, &window);
    assert_true(all.chunks + window.chunks <= MOST_CHUNKS);
    assert_true(before + window.document_count <= MOST_DOCUMENTS);
    assert_int_equal(plm_assemble_window(cursor, split, plan, &window,
                                         all.tokens + all.chunks * all.chunk_bytes, NULL),
                     PLM_OK);
    memcpy(all.documents + before, window.documents, window.document_count * sizeof *all.documents);
    for (uint32_t c = 1; c <= window.chunks; c++)
      all.begin[all.chunks + c] = before + window.chunk_begin[c];
    all.chunks += window.chunks;
  }
  plm_window_deinit(&window);
  plm_corpus_cursor_close(cursor);
  plm_plan_close(plan);
  return all;
}

static void forget(struct expected *all)
{
  free(all->tokens);
  free(all->begin);
  free(all->documents);
}

/* The batch has the chunks from `first` on. */
static void is_part(const struct plm_batch *batch, const struct expected *all, uint32_t first,
                    uint32_t count)
{
  assert_int_equal(batch->chunks, count);
  assert_int_equal(batch->max_length, L);
  assert_int_equal(batch->token_bytes * (size_t)L, all->chunk_bytes);
  assert_memory_equal(batch->tokens, all->tokens + first * all->chunk_bytes,
                      count * all->chunk_bytes);
  for (uint32_t c = 0; c <= count; c++)
    assert_int_equal(batch->document_begin[c], all->begin[first + c] - all->begin[first]);
  assert_memory_equal(batch->documents, all->documents + all->begin[first],
                      batch->document_begin[count] * sizeof *batch->documents);
}

static void has_ended(const struct plm_chunk_stream *stream)
{
  struct plm_batch batch;
  assert_int_equal(stream->next(stream->context, 2, &batch, NULL), PLM_OK);
  assert_int_equal(batch.chunks, 0);
}

static void reads(const struct plm_chunk_stream *stream, const struct expected *all,
                  enum plm_split split, bool counted)
{
  static const uint32_t counts[] = {MOST, 1, 3};
  struct plm_batch batch;
  uint64_t total = 0;
  assert_int_equal(stream->begin(stream->context, split, counted ? &total : NULL, NULL), PLM_OK);
  assert_int_equal(total, counted ? all->chunks : 0);
  uint32_t done = 0;
  for (int i = 0; done < all->chunks; i++) {
    const uint32_t left = all->chunks - done, wanted = counts[i % 3];
    const uint32_t count = left < wanted ? left : wanted;
    assert_int_equal(stream->next(stream->context, wanted, &batch, NULL), PLM_OK);
    is_part(&batch, all, done, count);
    stream->release(stream->context, &batch);
    assert_null(batch.tokens);
    done += count;
  }
  for (int i = 0; i < 2; i++) has_ended(stream);
}

static void chunks_are_those_of_the_plan(void **state)
{
  (void)state;
  for (int tokenizer = PLM_TOKENIZER_ESM; tokenizer <= PLM_TOKENIZER_BYTE; tokenizer++) {
    struct plm_plan_parameters plan = {.max_length = L,
                                       .alignment = 1,
                                       .window_groups = 1,
                                       .truncate = PLM_TRUNCATE_SPLIT,
                                       .tokenizer = (enum plm_tokenizer_kind)tokenizer};
    struct plm_corpus *corpus = corpus_of(plan.tokenizer);
    struct plm_corpus_stream *opened;
    struct expected valid = expect(corpus, &plan, PLM_SPLIT_VALID),
                    test = expect(corpus, &plan, PLM_SPLIT_TEST);
    assert_int_equal(valid.windows, 3);
    assert_int_equal(test.windows, 1);
    assert_int_equal(plm_corpus_stream_open(corpus, &plan, MOST, &opened, NULL), PLM_OK);
    const struct plm_chunk_stream stream = plm_stream_of_corpus(opened);
    reads(&stream, &test, PLM_SPLIT_TEST, true);
    reads(&stream, &valid, PLM_SPLIT_VALID, true);
    reads(&stream, &valid, PLM_SPLIT_VALID, false);
    reads(&stream, &test, PLM_SPLIT_TEST, false);
    /* what is left of a split is not read after the next beginning */
    struct plm_batch batch;
    uint64_t total = 1;
    assert_int_equal(stream.begin(stream.context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
    assert_int_equal(stream.next(stream.context, 2, &batch, NULL), PLM_OK);
    stream.release(stream.context, &batch);
    reads(&stream, &valid, PLM_SPLIT_VALID, true);
    assert_int_equal(stream.begin(stream.context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
    assert_int_equal(stream.next(stream.context, 2, &batch, NULL), PLM_OK);
    stream.release(stream.context, &batch);
    assert_int_equal(stream.begin(stream.context, PLM_SPLIT_TRAIN, &total, NULL), PLM_OK);
    assert_int_equal(total, 0);
    has_ended(&stream);
    plm_corpus_stream_close(opened);
    plm_corpus_stream_close(NULL);
    forget(&valid);
    forget(&test);
    plm_corpus_close(corpus);
  }
}

/* Both sides of the end: as many are left as are asked for, or fewer. */
static void a_batch_ends_with_the_split(void **state)
{
  (void)state;
  const struct plm_plan_parameters plan = {.max_length = L,
                                           .alignment = 1,
                                           .window_groups = 1,
                                           .truncate = PLM_TRUNCATE_HEAD,
                                           .token_limit = 300};
  struct plm_corpus *corpus = corpus_of(PLM_TOKENIZER_ESM);
  struct plm_corpus_stream *opened;
  struct plm_batch batch;
  struct expected all = expect(corpus, &plan, PLM_SPLIT_VALID);
  uint64_t total = 0;
  assert_true(all.chunks >= 4 && all.chunks <= MOST);
  assert_int_equal(plm_corpus_stream_open(corpus, &plan, MOST + 1, &opened, NULL), PLM_OK);
  const struct plm_chunk_stream stream = plm_stream_of_corpus(opened);
  for (uint32_t most = all.chunks - 1; most <= all.chunks + 1; most++) {
    const uint32_t first = most < all.chunks ? most : all.chunks;
    assert_int_equal(stream.begin(stream.context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
    assert_int_equal(total, all.chunks);
    assert_int_equal(stream.next(stream.context, most, &batch, NULL), PLM_OK);
    is_part(&batch, &all, 0, first);
    stream.release(stream.context, &batch);
    if (first < all.chunks) {
      assert_int_equal(stream.next(stream.context, most, &batch, NULL), PLM_OK);
      is_part(&batch, &all, first, all.chunks - first);
      stream.release(stream.context, &batch);
    }
    has_ended(&stream);
  }
  plm_corpus_stream_close(opened);
  forget(&all);
  plm_corpus_close(corpus);
}

/* Each document comes with its label record, or piece after piece with that of the whole one; and
 * without them unless the schema was asked for. */
static void labels_come_with_their_documents(void **state)
{
  (void)state;
  static const struct written_corpus of = {
      .documents = {10, 600, 20}, .longest = 150, .labelled = true};
  const struct plm_plan_parameters plan = {
      .max_length = L, .alignment = 1, .window_groups = 1, .truncate = PLM_TRUNCATE_SPLIT};
  struct plm_corpus *corpus = written_corpus_open("labelled", &of);
  struct plm_corpus_stream *opened;
  struct plm_corpus_cursor *cursor;
  struct plm_batch batch;
  const struct plm_label_schema *schema;
  uint64_t total, seen = 0;
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  assert_int_equal(plm_corpus_stream_open(corpus, &plan, MOST, &opened, NULL), PLM_OK);
  const struct plm_chunk_stream stream = plm_stream_of_corpus(opened);
  assert_int_equal(stream.begin(stream.context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
  assert_int_equal(stream.next(stream.context, MOST, &batch, NULL), PLM_OK);
  assert_null(batch.labels);
  stream.release(stream.context, &batch);
  assert_int_equal(stream.labels(stream.context, &schema, NULL), PLM_OK);
  assert_ptr_equal(schema, plm_corpus_schema(corpus));
  assert_int_equal(stream.begin(stream.context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
  for (;;) {
    assert_int_equal(stream.next(stream.context, MOST, &batch, NULL), PLM_OK);
    if (batch.chunks == 0) break;
    for (uint32_t d = 0; d < batch.document_begin[batch.chunks]; d++, seen++) {
      const uint64_t number = batch.documents[d].number;
      const uint8_t *records;
      const size_t *offsets;
      assert_int_equal(plm_corpus_labels(cursor, PLM_SPLIT_VALID, number / PLM_GROUP_DOCUMENTS,
                                         &records, &offsets, NULL),
                       PLM_OK);
      const size_t *at = offsets + number % PLM_GROUP_DOCUMENTS;
      assert_int_equal(batch.label_at[d + 1] - batch.label_at[d], at[1] - at[0]);
      assert_memory_equal(batch.labels + batch.label_at[d], records + at[0], at[1] - at[0]);
    }
    stream.release(stream.context, &batch);
  }
  assert_true(seen > 600); /* with pieces */
  plm_corpus_stream_close(opened);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
}

/* Two lengths whose sum stays are found, also if they are read together with labels. */
static void wrong_lengths_are_found(void **state)
{
  (void)state;
  static const struct written_corpus of = {
      .documents = {10, 600, 20}, .longest = 150, .labelled = true};
  const struct plm_plan_parameters plan = {
      .max_length = L, .alignment = 1, .window_groups = 1, .truncate = PLM_TRUNCATE_SPLIT};
  struct plm_corpus *corpus = written_corpus_open("forged", &of);
  char directory[PLM_PATH_SIZE];
  snprintf(directory, sizeof directory, "%s", plm_corpus_path(corpus));
  plm_corpus_close(corpus);
  forged_corpus_move_boundary(directory, PLM_SPLIT_VALID, 100);
  for (int labelled = 0; labelled < 2; labelled++) {
    struct plm_corpus_stream *opened;
    const struct plm_label_schema *schema;
    struct plm_batch batch;
    struct plm_error error;
    assert_int_equal(plm_corpus_open(directory, NULL, &corpus, NULL), PLM_OK);
    assert_int_equal(plm_corpus_stream_open(corpus, &plan, MOST, &opened, NULL), PLM_OK);
    const struct plm_chunk_stream stream = plm_stream_of_corpus(opened);
    if (labelled) assert_int_equal(stream.labels(stream.context, &schema, NULL), PLM_OK);
    assert_int_equal(stream.begin(stream.context, PLM_SPLIT_VALID, NULL, NULL), PLM_OK);
    assert_int_equal(stream.next(stream.context, MOST, &batch, &error), PLM_CORRUPT);
    assert_non_null(strstr(error.what, "or `lengths` is not what ingest wrote"));
    plm_corpus_stream_close(opened);
    plm_corpus_close(corpus);
  }
}

/* Replaces numbers that are at one place of a corpus's data, also for those who have it open. */
static void overwrite(const char *directory, const uint32_t *present, const uint32_t *wanted,
                      size_t count)
{
  char path[PLM_PATH_SIZE];
  struct stat file = {0};
  const size_t size = count * sizeof *present;
  assert_int_equal(plm_path_join(path, directory, PLM_CORPUS_DATA, NULL), PLM_OK);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  assert_true(descriptor >= 0 && fstat(descriptor, &file) == 0);
  char *data = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  assert_ptr_not_equal(data, MAP_FAILED);
  char *at = memmem(data, (size_t)file.st_size, present, size);
  assert_non_null(at);
  memcpy(at, wanted, size);
  munmap(data, (size_t)file.st_size);
  close(descriptor);
}

/* The plan's first documents have lengths that the cursor kept from counting, when they were wrong.
 * When the label records are read, the same lengths are read again, and are right. */
static void lengths_that_were_kept_are_compared_with_the_proven_ones(void **state)
{
  (void)state;
  enum { FIRST = 2 * PLM_GROUP_DOCUMENTS, COUNT = 88 };
  static const struct written_corpus of = {.documents = {10, FIRST + COUNT, 20},
                                           .longest = 150,
                                           .cluster_documents = 2,
                                           .labelled = true};
  /* One window, of the second group of clusters and then the first. Both have documents of the last
   * group of documents, and the second group of clusters has no others. */
  const struct plm_plan_parameters plan = {.seed = 2,
                                           .max_length = L,
                                           .alignment = 1,
                                           .window_groups = 2,
                                           .truncate = PLM_TRUNCATE_SPLIT,
                                           .sampling = PLM_SAMPLING_CLUSTERS,
                                           .shuffle = true};
  struct plm_corpus *corpus = written_corpus_open("kept", &of);
  uint32_t *lengths = corpus_lengths(corpus, PLM_SPLIT_VALID), wrong[COUNT];
  for (uint32_t i = 0; i < COUNT; i++) wrong[i] = lengths[FIRST + (i ^ 1)];
  for (int forged = 0; forged < 2; forged++) {
    struct plm_corpus_stream *opened;
    const struct plm_label_schema *schema;
    struct plm_batch batch;
    struct plm_error error;
    uint64_t total;
    assert_int_equal(plm_corpus_stream_open(corpus, &plan, MOST, &opened, NULL), PLM_OK);
    const struct plm_chunk_stream stream = plm_stream_of_corpus(opened);
    assert_int_equal(stream.labels(stream.context, &schema, NULL), PLM_OK);
    if (forged) overwrite(plm_corpus_path(corpus), lengths + FIRST, wrong, COUNT);
    assert_int_equal(stream.begin(stream.context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
    if (forged) overwrite(plm_corpus_path(corpus), wrong, lengths + FIRST, COUNT);
    assert_int_equal(stream.next(stream.context, MOST, &batch, &error),
                     forged ? PLM_CORRUPT : PLM_OK);
    if (forged) assert_non_null(strstr(error.what, "residues, but ingest wrote"));
    plm_corpus_stream_close(opened);
  }
  free(lengths);
  plm_corpus_close(corpus);
}

/* Opens a corpus and reads a split of it, with labels if it has any. */
static plm_status read_all(void *context, struct plm_error *error)
{
  const struct plm_plan_parameters plan = {
      .max_length = L, .alignment = 1, .window_groups = 1, .truncate = PLM_TRUNCATE_SPLIT};
  const struct plm_label_schema *schema;
  struct plm_corpus_stream *opened;
  struct plm_batch batch;
  uint64_t total, read = 0;
  PLM_TRY(plm_corpus_stream_open(context, &plan, MOST, &opened, error));
  const struct plm_chunk_stream stream = plm_stream_of_corpus(opened);
  plm_status status = stream.labels(stream.context, &schema, error);
  if (status == PLM_OK) status = stream.begin(stream.context, PLM_SPLIT_VALID, &total, error);
  for (bool more = status == PLM_OK; more;) {
    status = stream.next(stream.context, MOST, &batch, error);
    more = status == PLM_OK && batch.chunks > 0;
    if (!more) break;
    assert_int_equal(batch.labels != NULL, schema != NULL);
    assert_int_equal(batch.label_at != NULL, schema != NULL);
    read += batch.chunks;
    stream.release(stream.context, &batch);
  }
  if (status == PLM_OK) assert_int_equal(read, total);
  plm_corpus_stream_close(opened);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  for (int labelled = 0; labelled < 2; labelled++) {
    const struct written_corpus of = {
        .documents = {1, 40, 0}, .longest = 150, .labelled = labelled};
    struct plm_corpus *corpus = written_corpus_open(labelled ? "memory-labels" : "memory", &of);
    const struct plm_corpus_info *info = plm_corpus_info(corpus);
    assert_int_equal(plm_corpus_has_labels(info), labelled);
    failing_memory_try(read_all, corpus, labelled ? 10 : 7);
    plm_corpus_close(corpus);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_are_those_of_the_plan),
      cmocka_unit_test(a_batch_ends_with_the_split),
      cmocka_unit_test(labels_come_with_their_documents),
      cmocka_unit_test(wrong_lengths_are_found),
      cmocka_unit_test(lengths_that_were_kept_are_compared_with_the_proven_ones),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
