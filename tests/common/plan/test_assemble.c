/* The tokens of windows of a real corpus against documents that are read one by one, and the
 * padding of the sequences that ship with the project. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/corpus/tokenizer.h"
#include "common/plan/assemble.h"
#include "common/plan/shuffle.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/known_split.h"
#include "tests/support/harness/scratch.h"

enum { DOCUMENTS = 1100, LENGTH = 128 };

/* Clusters of 1 to 9 documents, and one that is larger than two groups. */
static bool begins_cluster(uint64_t document)
{
  return document < 300 ? document * 7 % 9 < 3 : document > 900;
}

static void make_corpus(const char *directory, enum plm_tokenizer_kind tokenizer)
{
  static const char letters[] = "LAGVSERTIDPKQNFYMHWCXBUZO";
  const struct plm_corpus_writer_options options = {
      .directory = directory, .tokenizer = tokenizer, .clustered = true, .threads = 1};
  struct plm_corpus_writer *writer;
  struct plm_error error;
  uint8_t residues[8 * LENGTH];
  assert_int_equal(plm_corpus_writer_open(&options, &writer, &error), PLM_OK);
  for (uint64_t d = 0; d < DOCUMENTS; d++) {
    struct plm_draws draws = plm_draws_begin(17, d, 100);
    const uint32_t size = 1 + plm_draws_below(&draws, d % 7 == 0 ? 8 * LENGTH : LENGTH);
    char name[32];
    for (uint32_t i = 0; i < size; i++)
      residues[i] = tokenizer == PLM_TOKENIZER_BYTE ? (uint8_t)plm_draws_below(&draws, 256)
                                                    : (uint8_t)letters[plm_draws_below(&draws, 25)];
    if (begins_cluster(d))
      assert_int_equal(plm_corpus_writer_begin_cluster(writer, PLM_SPLIT_TRAIN, &error), PLM_OK);
    const int name_size = snprintf(name, sizeof name, "document-%d", (int)d);
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, name, (size_t)name_size,
                                           residues, size, &error),
                     PLM_OK);
  }
  const plm_status status = plm_corpus_writer_finish(writer, NULL, 0, NULL, NULL, NULL, &error);
  if (status != PLM_OK) fail_msg("%s", error.what);
  plm_corpus_writer_close(writer);
}

static void put(void *tokens, uint32_t width, uint64_t at, uint16_t id)
{
  if (width == 1)
    ((uint8_t *)tokens)[at] = (uint8_t)id;
  else
    ((uint16_t *)tokens)[at] = id;
}

/* The token at position i of a document's `<cls> residues <eos>`. */
static uint16_t token_of(const struct plm_tokenizer *tokenizer, const uint8_t *residues,
                         size_t size, uint64_t i)
{
  if (i == 0) return tokenizer->cls;
  return i == size + 1 ? tokenizer->eos : plm_tokenizer_encode(tokenizer, residues[i - 1]);
}

static void *reference(struct plm_corpus_cursor *cursor, const struct plm_plan *plan,
                       const struct plm_window *window)
{
  const struct plm_plan_parameters *p = plm_plan_parameters(plan);
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(p->tokenizer);
  const uint32_t width = tokenizer->token_bytes;
  void *tokens = malloc(plm_assemble_bytes(plan, window));
  for (uint64_t i = 0; i < (uint64_t)window->chunks * p->max_length; i++)
    put(tokens, width, i, tokenizer->pad);
  for (uint32_t c = 0; c < window->chunks; c++)
    for (uint32_t k = window->chunk_begin[c]; k < window->chunk_begin[c + 1]; k++) {
      const struct plm_chunk_document *piece = &window->documents[k];
      const uint8_t *residues;
      size_t size;
      assert_int_equal(
          plm_corpus_document(cursor, PLM_SPLIT_TRAIN, piece->number, &residues, &size, NULL),
          PLM_OK);
      assert_int_equal(size, piece->residues);
      for (uint32_t i = 0; i < piece->tokens; i++)
        put(tokens, width, (uint64_t)c * p->max_length + piece->start + i,
            token_of(tokenizer, residues, size, plm_piece_begin(piece) + i));
    }
  return tokens;
}

static void check_plan(struct plm_corpus *corpus, const struct plm_plan_parameters *parameters)
{
  struct plm_corpus_cursor *cursor;
  struct plm_plan *plan;
  struct plm_window window = {0};
  struct plm_error error;
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, &error), PLM_OK);
  assert_int_equal(plm_plan_open_corpus(parameters, corpus, PLM_SPLIT_TRAIN, &plan, &error),
                   PLM_OK);
  for (uint64_t w = 0; w < plm_plan_windows(plan); w++) {
    corpus_window(corpus, PLM_SPLIT_TRAIN, plan, 1, w, &window);
    const size_t bytes = plm_assemble_bytes(plan, &window);
    void *expected = reference(cursor, plan, &window);
    uint8_t *got = malloc(bytes + 64);
    memset(got, 0xee, bytes + 64);
    assert_int_equal(plm_assemble_window(cursor, PLM_SPLIT_TRAIN, plan, &window, got, &error),
                     PLM_OK);
    assert_memory_equal(got, expected, bytes);
    for (size_t i = bytes; i < bytes + 64; i++) assert_int_equal(got[i], 0xee);
    const struct plm_assembly assembly = {
        .split = PLM_SPLIT_TRAIN, .plan = plan, .window = &window, .tokens = got};
    memset(got, 0xee, bytes); /* once more, group by group from the last */
    for (uint32_t g = window.group_count; g-- > 0;)
      assert_int_equal(plm_assemble_groups(cursor, &assembly, g, 1, &error), PLM_OK);
    assert_memory_equal(got, expected, bytes);
    free(got);
    free(expected);
  }
  plm_window_deinit(&window);
  plm_plan_close(plan);
  plm_corpus_cursor_close(cursor);
}

static void tokens_are_the_documents(void **state)
{
  (void)state;
  static const uint32_t alignments[] = {1, 4, 32};
  for (int tokenizer = 0; tokenizer < 2; tokenizer++) {
    const char *directory = scratch_path(tokenizer == 0 ? "esm.corpus" : "byte.corpus");
    struct plm_corpus *corpus;
    struct plm_error error;
    make_corpus(directory, (enum plm_tokenizer_kind)tokenizer);
    const struct plm_corpus_options options = {.allow_remote = true};
    assert_int_equal(plm_corpus_open(directory, &options, &corpus, &error), PLM_OK);
    for (int truncate = 0; truncate < 3; truncate++)
      for (int packing = 0; packing < 2; packing++)
        for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++) {
          struct plm_plan_parameters parameters = {.seed = 3,
                                                   .max_length = LENGTH,
                                                   .alignment = alignments[a],
                                                   .window_groups = 2,
                                                   .packing = (enum plm_packing)packing,
                                                   .truncate = (enum plm_truncate)truncate,
                                                   .tokenizer = (enum plm_tokenizer_kind)tokenizer,
                                                   .shuffle = true};
          check_plan(corpus, &parameters);
          parameters.sampling = PLM_SAMPLING_CLUSTERS;
          check_plan(corpus, &parameters);
        }
    /* lengths of another corpus */
    uint32_t lengths[DOCUMENTS];
    for (int d = 0; d < DOCUMENTS; d++) lengths[d] = 7 * LENGTH;
    const struct plm_plan_parameters parameters = {.max_length = LENGTH,
                                                   .alignment = 1,
                                                   .window_groups = 1,
                                                   .tokenizer = (enum plm_tokenizer_kind)tokenizer};
    struct plm_corpus_cursor *cursor;
    const struct known_split split = {.lengths = lengths, .documents = DOCUMENTS};
    struct plm_plan *plan = known_split_plan(&split, &parameters);
    struct plm_window window = {0};
    assert_int_equal(known_split_window(&split, plan, 0, 0, &window, &error), PLM_OK);
    assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, &error), PLM_OK);
    void *tokens = malloc(plm_assemble_bytes(plan, &window));
    assert_int_equal(plm_assemble_window(cursor, PLM_SPLIT_TRAIN, plan, &window, tokens, &error),
                     PLM_CORRUPT);
    assert_non_null(strstr(error.what, "group 0"));
    free(tokens);
    plm_window_deinit(&window);
    plm_plan_close(plan);
    plm_corpus_cursor_close(cursor);
    plm_corpus_close(corpus);
  }
}

static double padding_of(struct plm_corpus *corpus, uint32_t max_length, enum plm_packing packing)
{
  const struct plm_plan_parameters parameters = {.seed = 1,
                                                 .max_length = max_length,
                                                 .alignment = 1,
                                                 .window_groups = 64,
                                                 .packing = packing,
                                                 .shuffle = true};
  struct plm_plan *plan;
  struct plm_window window = {0};
  uint64_t real = 0, all = 0;
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, NULL), PLM_OK);
  for (uint64_t w = 0; w < plm_plan_windows(plan); w++) {
    corpus_window(corpus, PLM_SPLIT_TRAIN, plan, 0, w, &window);
    real += window.real_tokens;
    all += (uint64_t)window.chunks * max_length;
  }
  plm_window_deinit(&window);
  plm_plan_close(plan);
  return (double)(all - real) / (double)all;
}

static void real_sequences_pad_little(void **state)
{
  (void)state;
  static const uint32_t max_lengths[] = {512, 1024, 2048};
  const char *bin = getenv("PLM_BIN"), *root = getenv("PLM_ROOT");
  const char *directory = scratch_path("sample.corpus");
  char command[4096];
  struct plm_corpus *corpus;
  struct plm_error error;
  snprintf(command, sizeof command,
           "'%s/plm-pipeline' ingest -q '%s/tests/data/sample.fasta.gz' --corpus '%s' >/dev/null",
           bin != NULL ? bin : "build/bin", root != NULL ? root : ".", directory);
  assert_int_equal(system(command), 0);
  const struct plm_corpus_options options = {.allow_remote = true};
  assert_int_equal(plm_corpus_open(directory, &options, &corpus, &error), PLM_OK);
  for (size_t i = 0; i < sizeof max_lengths / sizeof *max_lengths; i++) {
    const double best = padding_of(corpus, max_lengths[i], PLM_PACKING_BEST_FIT);
    const double next = padding_of(corpus, max_lengths[i], PLM_PACKING_NEXT_FIT);
    printf("padding at %u: best fit %.3f %%, next fit %.1f %%\n", max_lengths[i], 100 * best,
           100 * next);
    if (max_lengths[i] == 1024) assert_true(best <= 0.005);
    assert_true(best < next);
  }
  plm_corpus_close(corpus);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_are_the_documents),
      cmocka_unit_test(real_sequences_pad_little),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
