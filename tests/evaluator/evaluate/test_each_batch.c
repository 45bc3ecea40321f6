/* The loop over a split: how it is cut into batches, and what ends it. */
#include "tests/support/harness/cmocka_all.h"

#include "evaluator/evaluate/each_batch.h"
#include "tests/support/corpora/packed_documents.h"
#include "tests/support/harness/shown_progress.h"

enum { CHUNKS = 6 };

struct visits {
  const struct packed_documents *packed;
  uint32_t count, sizes[CHUNKS], chunks;
  uint32_t fails_at; /* the visit that fails, from 1; 0: none */
};

static plm_status visit(void *context, const struct plm_batch *batch, struct plm_error *error)
{
  struct visits *visits = context;
  assert_int_equal(visits->packed->held, 1);
  assert_int_equal(batch->documents->number, 2 * visits->chunks); /* two in each chunk */
  visits->sizes[visits->count++] = batch->chunks;
  visits->chunks += batch->chunks;
  return visits->count == visits->fails_at ? plm_error_set(error, PLM_NOT_FINITE, "no") : PLM_OK;
}

/* Allows as many batches as its context says. */
static plm_status stop(void *context, struct plm_error *error)
{
  uint32_t *left = context;
  return (*left)-- == 0 ? plm_error_set(error, PLM_INTERRUPTED, "stop") : PLM_OK;
}

/* progress: the label of a bar; NULL: none, so that nobody needs the number of chunks. */
static plm_status walk_with(const char *progress, enum plm_split split, uint32_t most,
                            uint32_t *allowed, struct visits *visits, struct plm_error *error)
{
  static struct packed_documents packed;
  packed_documents_make(&packed, PLM_TOKENIZER_ESM, CHUNKS, 64, 20);
  const struct plm_chunk_stream stream = packed_documents_stream(&packed);
  const struct plm_batch_walk walk = {.stream = &stream,
                                      .split = split,
                                      .most = most,
                                      .stop = allowed != NULL ? stop : NULL,
                                      .stop_context = allowed,
                                      .progress = progress};
  visits->packed = &packed;
  const plm_status status = plm_each_batch(&walk, visit, visits, error);
  assert_int_equal(packed.begins, 1);
  assert_int_equal(packed.totals, progress != NULL);
  assert_int_equal(packed.held, 0);
  packed_documents_free(&packed);
  return status;
}

static plm_status walk(enum plm_split split, uint32_t most, uint32_t *allowed,
                       struct visits *visits, struct plm_error *error)
{
  return walk_with(NULL, split, most, allowed, visits, error);
}

static void all_batches_but_the_last_are_full(void **state)
{
  (void)state;
  static const struct {
    uint32_t most, count, sizes[CHUNKS];
  } cases[] = {
      {1, 6, {1, 1, 1, 1, 1, 1}},
      {3, 2, {3, 3}},
      {4, 2, {4, 2}},
      {5, 2, {5, 1}},
      {6, 1, {6}},
      {7, 1, {6}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct visits visits = {0};
    assert_int_equal(walk(PLM_SPLIT_VALID, cases[i].most, NULL, &visits, NULL), PLM_OK);
    assert_int_equal(visits.count, cases[i].count);
    assert_memory_equal(visits.sizes, cases[i].sizes, sizeof visits.sizes);
  }
}

static void an_empty_split_is_an_error(void **state)
{
  (void)state;
  struct visits visits = {0};
  struct plm_error error = {0};
  assert_int_equal(walk(PLM_SPLIT_TRAIN, 2, NULL, &visits, &error), PLM_CONFIG);
  assert_string_equal(error.what, "the corpus has no documents in split train");
  assert_string_equal(error.hint, "ingest more sequences, ingest with another --split, or evaluate "
                                  "another split (evaluator.splits)");
  assert_int_equal(visits.count, 0);
}

static void an_error_of_the_visit_ends_it(void **state)
{
  (void)state;
  struct visits visits = {.fails_at = 2};
  struct plm_error error = {0};
  assert_int_equal(walk(PLM_SPLIT_VALID, 2, NULL, &visits, &error), PLM_NOT_FINITE);
  assert_string_equal(error.what, "no");
  assert_int_equal(visits.count, 2);
  visits = (struct visits){.fails_at = 1}; /* nothing was visited completely, but it is not empty */
  assert_int_equal(walk(PLM_SPLIT_VALID, 2, NULL, &visits, &error), PLM_NOT_FINITE);
}

static void it_can_be_stopped_before_each_batch(void **state)
{
  (void)state;
  for (uint32_t allowed = 0; allowed <= 3; allowed++) {
    struct visits visits = {0};
    uint32_t left = allowed;
    assert_int_equal(walk(PLM_SPLIT_VALID, 2, &left, &visits, NULL),
                     allowed < 3 ? PLM_INTERRUPTED : PLM_OK);
    assert_int_equal(visits.count, allowed);
  }
}

static void chunks_are_counted_for_a_bar(void **state)
{
  (void)state;
  struct visits visits = {0};
  shown_progress_begin();
  assert_int_equal(walk_with("evaluate", PLM_SPLIT_VALID, 4, NULL, &visits, NULL), PLM_OK);
  shown_progress_end("evaluate 67 %  4 chunks, \nevaluate 100 %  6 chunks, \n");
  assert_int_equal(visits.chunks, CHUNKS);
}

/* Hands out the documents of the whole table, of which a batch has those from document_begin[0]. */
static plm_status next_of_table(void *context, uint32_t most, struct plm_batch *batch,
                                struct plm_error *error)
{
  struct packed_documents *packed = context;
  const uint32_t first = packed->next;
  const plm_status status = packed_documents_stream(packed).next(packed, most, batch, error);
  batch->document_begin = packed->begin + first;
  batch->documents = packed->documents;
  return status;
}

static plm_status visit_nothing(void *context, const struct plm_batch *batch,
                                struct plm_error *error)
{
  (void)context, (void)batch, (void)error;
  return PLM_OK;
}

static void each_document_counts_once(void **state)
{
  (void)state;
  static struct packed_documents packed;
  struct plm_document_lengths expected = {0};
  packed_documents_make(&packed, PLM_TOKENIZER_ESM, CHUNKS, 64, 20);
  for (uint32_t d = 0; d < 2 * CHUNKS; d++) {
    const struct plm_chunk_document *document = &packed.documents[d];
    expected.cut += document->residues + 2 > document->tokens;
    if (document->tokens > expected.longest) expected.longest = document->tokens;
  }
  for (int whole = 0; whole < 2; whole++) {
    struct plm_chunk_stream stream = packed_documents_stream(&packed);
    struct plm_document_lengths lengths = {0};
    if (whole) stream.next = next_of_table;
    const struct plm_batch_walk walk = {
        .stream = &stream, .split = PLM_SPLIT_VALID, .most = 2, .lengths = &lengths};
    assert_int_equal(plm_each_batch(&walk, visit_nothing, NULL, NULL), PLM_OK);
    assert_int_equal(lengths.cut, expected.cut);
    assert_int_equal(lengths.longest, expected.longest);
  }
  packed_documents_free(&packed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_batches_but_the_last_are_full),
      cmocka_unit_test(an_empty_split_is_an_error),
      cmocka_unit_test(an_error_of_the_visit_ends_it),
      cmocka_unit_test(it_can_be_stopped_before_each_batch),
      cmocka_unit_test(chunks_are_counted_for_a_bar),
      cmocka_unit_test(each_document_counts_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
