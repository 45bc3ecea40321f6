/* Evaluation masks depend only on the document, the seed and the rate, whatever the packing, and
 * follow the Philox counters of their definition. Causal questions. */
#include "tests/support/harness/failing_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/evaluate/masking.h"

enum { L = 64, DOCUMENTS = 6 };

/* Two chunks with three documents each, of tokens from 4 on. `shuffled` packs them in another
 * order. */
struct packed {
  uint8_t tokens[2 * L];
  uint32_t begin[3];
  struct plm_chunk_document documents[DOCUMENTS];
  struct plm_batch batch;
};

static const uint32_t lengths[DOCUMENTS] = {20, 12, 30, 7, 25, 16};

static void pack(struct packed *packed, const int order[DOCUMENTS])
{
  memset(packed->tokens, 1, sizeof packed->tokens); /* <pad> */
  for (int chunk = 0; chunk < 2; chunk++) {
    uint32_t start = 0;
    packed->begin[chunk] = 3u * (unsigned)chunk;
    for (int i = 0; i < 3; i++) {
      const int number = order[3 * chunk + i];
      const uint32_t tokens = lengths[number];
      packed->documents[3 * chunk + i] =
          (struct plm_chunk_document){(uint64_t)number, start, tokens, 0, tokens - 2};
      uint8_t *out = packed->tokens + chunk * L + start;
      out[0] = 0;
      for (uint32_t t = 1; t + 1 < tokens; t++) out[t] = (uint8_t)(4 + (t * 7 + number) % 20);
      out[tokens - 1] = 2;
      start += tokens;
    }
    assert_true(start <= L);
  }
  packed->begin[2] = DOCUMENTS;
  packed->batch = (struct plm_batch){.chunks = 2,
                                     .max_length = L,
                                     .token_bytes = 1,
                                     .tokens = packed->tokens,
                                     .document_begin = packed->begin,
                                     .documents = packed->documents};
}

/* Marks every masked token by its document and its position in the document. */
static void masked_places(const struct plm_question *question, const struct packed *packed,
                          bool places[DOCUMENTS][L])
{
  memset(places, 0, sizeof(bool[DOCUMENTS][L]));
  for (uint32_t row = 0; row < question->rows; row++) {
    const uint32_t chunk = (uint32_t)question->positions[row] / L;
    const uint32_t at = (uint32_t)question->positions[row] % L;
    for (uint32_t d = packed->begin[chunk]; d < packed->begin[chunk + 1]; d++) {
      const struct plm_chunk_document *document = &packed->documents[d];
      if (at < document->start || at >= document->start + document->tokens) continue;
      places[document->number][at - document->start] = true;
      assert_int_equal(question->residues[row], document->residues);
    }
  }
}

static void masks_follow_the_document_not_the_packing(void **state)
{
  (void)state;
  static const int first_order[] = {0, 1, 2, 3, 4, 5}, second_order[] = {5, 4, 0, 2, 3, 1};
  struct packed first, second;
  struct plm_question question;
  bool expected[DOCUMENTS][L] = {{0}}, places[DOCUMENTS][L];
  const uint64_t seed = 0x123456789abcdefu;
  const double rate = 0.4;
  pack(&first, first_order);
  pack(&second, second_order);
  for (uint32_t n = 0; n < DOCUMENTS; n++)
    for (uint32_t x = 1; x + 1 < lengths[n]; x++)
      expected[n][x] = (plm_philox(seed, x, n, 2).w[0] >> 8) < 6710887u; /* ceil(0.4 * 2^24) */
  assert_int_equal(plm_question_init(&question, 2 * L, NULL), PLM_OK);
  plm_question_masked(&question, &first.batch, plm_tokenizer_of(PLM_TOKENIZER_ESM), seed, rate);
  masked_places(&question, &first, places);
  assert_memory_equal(places, expected, sizeof places);
  for (uint32_t row = 0; row < question.rows; row++) {
    assert_int_equal(question.inputs[question.positions[row]], 32); /* <mask> */
    assert_int_equal(question.labels[row], first.tokens[question.positions[row]]);
    if (row > 0) assert_true(question.positions[row] > question.positions[row - 1]);
  }
  plm_question_masked(&question, &second.batch, plm_tokenizer_of(PLM_TOKENIZER_ESM), seed, rate);
  masked_places(&question, &second, places);
  assert_memory_equal(places, expected, sizeof places);
  plm_question_deinit(&question);
}

static void causal_asks_for_the_next_token_of_the_document(void **state)
{
  (void)state;
  static const int order[] = {0, 1, 2, 3, 4, 5};
  struct packed packed;
  struct plm_question question;
  uint32_t rows = 0;
  pack(&packed, order);
  assert_int_equal(plm_question_init(&question, 2 * L, NULL), PLM_OK);
  plm_question_causal(&question, &packed.batch);
  for (int n = 0; n < DOCUMENTS; n++) rows += lengths[n] - 1; /* the last token has no target */
  assert_int_equal(question.rows, rows);
  for (uint32_t row = 0; row < rows; row++)
    assert_int_equal(question.labels[row], packed.tokens[question.positions[row] + 1]);
  plm_question_deinit(&question);
}

/* The pieces of long documents have neither <cls> nor <eos>, and one may begin where another ends:
 * each residue is asked about once, as part of its own document. */
static void pieces_that_touch_keep_their_tokens(void **state)
{
  (void)state;
  static const uint8_t tokens[8] = {4, 5, 6, 7, 8, 9, 1, 1};
  static const uint32_t begin[2] = {0, 2};
  static const struct plm_chunk_document documents[] = {{3, 0, 4, 10, 30}, {5, 4, 2, 0, 40}};
  const struct plm_batch batch = {.chunks = 1,
                                  .max_length = 8,
                                  .token_bytes = 1,
                                  .tokens = tokens,
                                  .document_begin = begin,
                                  .documents = documents};
  struct plm_question question;
  assert_int_equal(plm_question_init(&question, 8, NULL), PLM_OK);
  plm_question_masked(&question, &batch, plm_tokenizer_of(PLM_TOKENIZER_ESM), 1, 1);
  assert_int_equal(question.rows, 6);
  for (uint32_t row = 0; row < 6; row++) {
    assert_int_equal(question.positions[row], row);
    assert_int_equal(question.labels[row], tokens[row]);
    assert_int_equal(question.residues[row], row < 4 ? 30 : 40);
  }
  assert_int_equal(question.inputs[6], 1);
  plm_question_causal(&question, &batch);
  assert_int_equal(question.rows, 4);
  static const int positions[] = {0, 1, 2, 4};
  for (uint32_t row = 0; row < 4; row++) {
    assert_int_equal(question.positions[row], positions[row]);
    assert_int_equal(question.labels[row], tokens[positions[row] + 1]);
    assert_int_equal(question.residues[row], row < 3 ? 30 : 40);
  }
  plm_question_deinit(&question);
}

static plm_status make_question(void *context, struct plm_error *error)
{
  struct plm_question question;
  (void)context;
  PLM_TRY(plm_question_init(&question, L, error));
  plm_question_deinit(&question);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  failing_memory_try(make_question, NULL, 4);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masks_follow_the_document_not_the_packing),
      cmocka_unit_test(causal_asks_for_the_next_token_of_the_document),
      cmocka_unit_test(pieces_that_touch_keep_their_tokens),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
