/* The payload of a window, which a consumer must be able to prove. */
#include "packer/window_build.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/wire/data.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

/* A split of an open corpus, and the memory of a worker, which is used for every window. */
struct scene {
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct window_memory memory;
  struct packed_window *packed;
  struct plm_data_scratch scratch;
};

static void begin(struct scene *s, const char *name, const struct written_corpus *of)
{
  *s = (struct scene){.corpus = written_corpus_open(name, of),
                      .packed = must(calloc(1, sizeof *s->packed))};
  assert_int_equal(plm_corpus_cursor_open(s->corpus, &s->cursor, NULL), PLM_OK);
}

static void end(struct scene *s)
{
  plm_data_scratch_deinit(&s->scratch);
  packed_window_free(s->packed);
  window_memory_deinit(&s->memory);
  plm_corpus_cursor_close(s->cursor);
  plm_corpus_close(s->corpus);
}

static struct plm_plan *open_plan(const struct scene *s, enum plm_split split,
                                  enum plm_truncate truncate, uint32_t max_length)
{
  const struct plm_plan_parameters parameters = {.seed = 5,
                                                 .max_length = max_length,
                                                 .alignment = 4,
                                                 .window_groups = 2,
                                                 .packing = PLM_PACKING_BEST_FIT,
                                                 .truncate = truncate,
                                                 .tokenizer = plm_corpus_info(s->corpus)->tokenizer,
                                                 .shuffle = true};
  struct plm_plan *plan;
  assert_int_equal(plm_plan_open_corpus(&parameters, s->corpus, split, &plan, NULL), PLM_OK);
  return plan;
}

/* The hashes of the sequences, or of the label records, of a window's documents. */
static struct plm_proof_digest *digests_of(struct scene *s, enum plm_split split,
                                           const struct plm_window *window, bool labels)
{
  struct plm_proof_digest *digests = must(malloc(window->document_count * sizeof *digests));
  struct plm_proof_digest *group = must(malloc(PLM_GROUP_DOCUMENTS * sizeof *group));
  const uint64_t groups =
      plm_corpus_group_count(plm_corpus_info(s->corpus)->splits[split].documents);
  for (uint64_t g = 0; g < groups; g++) {
    assert_int_equal(
        (labels ? plm_corpus_label_digests : plm_corpus_digests)(s->cursor, split, g, group, NULL),
        PLM_OK);
    for (uint32_t i = 0; i < window->document_count; i++)
      if (window->documents[i].number / PLM_GROUP_DOCUMENTS == g)
        digests[i] = group[window->documents[i].number % PLM_GROUP_DOCUMENTS];
  }
  free(group);
  return digests;
}

static void check_range(struct scene *s, const struct plm_data_known *known, uint32_t first,
                        uint32_t count)
{
  struct plm_error error = {0};
  const uint64_t at = s->packed->offset[first];
  if (plm_data_check(known, first, count, s->packed->bytes + at,
                     s->packed->offset[first + count] - at, &s->scratch, &error) != PLM_OK)
    fail_msg("chunks %u to %u: %s", first, first + count - 1, error.what);
}

/* Each chunk and ranges of them pass the consumer's check. */
static void check_payload(struct scene *s, enum plm_split split, const struct plm_window *window,
                          const struct plm_plan_parameters *parameters)
{
  const uint32_t chunks = window->chunks;
  PLM_ASSERT(chunks > 0);
  uint64_t *offset = must(malloc((chunks + 1) * sizeof *offset));
  const struct plm_label_schema *schema = plm_corpus_schema(s->corpus);
  if (schema->count == 0) schema = NULL;
  struct plm_proof_digest *digests = digests_of(s, split, window, false);
  struct plm_proof_digest *labels = schema == NULL ? NULL : digests_of(s, split, window, true);
  const struct plm_data_known known = {.tokenizer = plm_tokenizer_of(parameters->tokenizer),
                                       .max_length = parameters->max_length,
                                       .window = window,
                                       .digests = digests,
                                       .offset = offset,
                                       .schema = schema,
                                       .labels = labels};
  plm_data_layout(known.tokenizer, known.max_length, schema, window, offset);
  assert_memory_equal(s->packed->offset, offset, (chunks + 1) * sizeof *offset);
  for (uint32_t c = 0; c < chunks; c++) check_range(s, &known, c, 1);
  for (uint32_t i = 0; i < 20; i++) {
    const struct plm_philox_words draw = plm_philox(1, i, chunks, 930);
    const uint32_t first = draw.w[0] % chunks;
    check_range(s, &known, first, 1 + draw.w[1] % (chunks - first));
  }
  check_range(s, &known, 0, chunks);
  free(digests);
  free(labels);
  free(offset);
}

/* Builds a window and checks all of it. Returns its number of pieces. */
static uint32_t check_window(struct scene *s, enum plm_split split, const struct plm_plan *plan,
                             uint64_t index)
{
  const struct plm_plan_parameters *parameters = plm_plan_parameters(plan);
  const struct packed_window *packed = s->packed;
  struct plm_window window = {0};
  uint64_t tokens = 0;
  uint32_t pieces = 0;
  assert_int_equal(
      packed_window_build(s->packed, &s->memory, s->cursor, split, plan, 1, index, NULL), PLM_OK);
  corpus_window(s->corpus, split, plan, 1, index, &window);
  assert_int_equal(packed->chunks, window.chunks);
  assert_int_equal(packed->max_length, parameters->max_length);
  assert_int_equal(packed->token_bytes, plm_tokenizer_of(parameters->tokenizer)->token_bytes);
  for (uint32_t c = 0; c < window.chunks; c++) {
    assert_int_equal(packed->tokens[c], tokens);
    assert_int_equal(packed->documents[c], window.chunk_begin[c]);
    for (uint32_t i = window.chunk_begin[c]; i < window.chunk_begin[c + 1]; i++) {
      tokens += window.documents[i].tokens;
      pieces += window.documents[i].tokens < window.documents[i].residues;
    }
  }
  assert_int_equal(packed->tokens[window.chunks], tokens);
  assert_int_equal(packed->documents[window.chunks], window.document_count);
  assert_true(packed->capacity >= packed->offset[window.chunks]);
  check_payload(s, split, &window, parameters);
  plm_window_deinit(&window);
  return pieces;
}

static void windows_prove_themselves(void **state)
{
  static const uint32_t lengths[] = {64, 1024, 4096};
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    const enum plm_tokenizer_kind tokenizer = kind ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM;
    struct scene s;
    begin(&s, kind ? "byte" : "esm",
          &(struct written_corpus){
              .tokenizer = tokenizer, .documents = {700, 0, 0}, .longest = 3000, .labelled = true});
    for (int truncate = 0; truncate < 3; truncate++)
      for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct plm_plan *plan =
            open_plan(&s, PLM_SPLIT_TRAIN, (enum plm_truncate)truncate, lengths[i]);
        uint32_t pieces = 0;
        assert_int_equal(plm_plan_windows(plan), 2);
        for (uint64_t w = 0; w < 2; w++) pieces += check_window(&s, PLM_SPLIT_TRAIN, plan, w);
        assert_true(lengths[i] > 3000 ? pieces == 0 : pieces > 400);
        plm_plan_close(plan);
      }
    end(&s);
  }
}

/* So many that they do not wait together until all are there, although they have few residues. Four
 * tokens end within a byte. */
static void many_short_documents_prove_their_pieces(void **state)
{
  (void)state;
  struct scene s;
  begin(&s, "short", &(struct written_corpus){PLM_TOKENIZER_ESM, {512, 0, 0}, 200, 0, false});
  for (int truncate = 0; truncate < 3; truncate++)
    for (uint32_t length = truncate == PLM_TRUNCATE_SPLIT ? 64 : 4; length <= 64; length += 60) {
      struct plm_plan *plan = open_plan(&s, PLM_SPLIT_TRAIN, (enum plm_truncate)truncate, length);
      assert_true(check_window(&s, PLM_SPLIT_TRAIN, plan, 0) > 2 * EVIDENCE_DOCUMENTS);
      plm_plan_close(plan);
    }
  end(&s);
}

/* The documents of two splits have the same numbers, but other sequences. */
static void evidence_is_of_the_split(void **state)
{
  (void)state;
  struct scene s;
  begin(&s, "splits", &(struct written_corpus){PLM_TOKENIZER_ESM, {1, 1, 1}, 2000, 0, false});
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    struct plm_plan *plan = open_plan(&s, (enum plm_split)split, PLM_TRUNCATE_SPLIT, 32);
    assert_true(check_window(&s, (enum plm_split)split, plan, 0) > 1);
    plm_plan_close(plan);
  }
  end(&s);
}

static void a_window_that_is_not_there_is_an_error(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error = {0};
  begin(&s, "few", &(struct written_corpus){PLM_TOKENIZER_ESM, {513, 0, 0}, 20, 0, false});
  struct plm_plan *plan = open_plan(&s, PLM_SPLIT_TRAIN, PLM_TRUNCATE_HEAD, 64);
  (void)check_window(&s, PLM_SPLIT_TRAIN, plan, 1);
  assert_int_equal(
      packed_window_build(s.packed, &s.memory, s.cursor, PLM_SPLIT_TRAIN, plan, 0, 2, &error),
      PLM_NOT_FOUND);
  plm_plan_close(plan);
  end(&s);
}

/* The memory of a window is kept for later ones. It has whole pages, and a window may fill them;
 * behind its memory, a test program lets nobody write. */
static void a_window_may_fill_its_memory(void **state)
{
  static const struct {
    uint32_t length, capacity;
  } rows[] = {{512, 4096}, {2048, 4096}, {4096, 12288}, {512, 12288}};
  struct scene s;
  (void)state;
  begin(&s, "one", &(struct written_corpus){PLM_TOKENIZER_BYTE, {1, 0, 0}, 500, 0, false});
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_plan *plan = open_plan(&s, PLM_SPLIT_TRAIN, PLM_TRUNCATE_HEAD, rows[i].length);
    (void)check_window(&s, PLM_SPLIT_TRAIN, plan, 0);
    assert_int_equal(s.packed->offset[s.packed->chunks], 2 * rows[i].length);
    assert_int_equal(s.packed->capacity, rows[i].capacity);
    plm_plan_close(plan);
  }
  end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_prove_themselves),
      cmocka_unit_test(many_short_documents_prove_their_pieces),
      cmocka_unit_test(evidence_is_of_the_split),
      cmocka_unit_test(a_window_that_is_not_there_is_an_error),
      cmocka_unit_test(a_window_may_fill_its_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
