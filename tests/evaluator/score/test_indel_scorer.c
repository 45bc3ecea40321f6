/* Scores of sequences with insertions and deletions against their definition, with windows. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/score/indel_scorer.h"
#include "tests/support/cases/inference_case.h"

enum { L = 32, MOST = 90 };

static uint8_t letter(uint32_t i)
{
  return (uint8_t) "LAGVSERTIDPKQNFYMHWC"[plm_philox(8, i, 0, 0).w[0] % 20];
}

/* L of at most max_length tokens of a sequence from its token `begin` on. */
static double likelihood(struct inference_case *c, enum plm_score_masking masking,
                         const uint8_t *residues, uint32_t length, uint32_t begin)
{
  const struct plm_tokenizer *words = c->inference.tokenizer;
  const uint32_t V = c->inference.config.vocab_size, T = length + 2;
  const uint32_t count = T - begin < L ? T - begin : L;
  int32_t tokens[L] = {0};
  double sum = 0;
  for (uint32_t t = 0; t < count; t++)
    tokens[t] = begin + t == 0       ? words->cls
                : begin + t == T - 1 ? words->eos
                                     : plm_tokenizer_encode(words, residues[begin + t - 1]);
  if (c->inference.objective == PLM_OBJECTIVE_CAUSAL) {
    const float *logits = inference_case_logits(c, tokens, count);
    for (uint32_t t = 0; t + 1 < count; t++)
      sum += inference_case_log_p(c, logits + (size_t)t * V, tokens[t + 1]);
    return sum;
  }
  for (uint32_t t = 0; t < count; t++) {
    const int32_t token = tokens[t];
    if (!plm_token_is_residue(words, token)) continue;
    if (masking != PLM_SCORE_UNMASKED) tokens[t] = words->mask;
    sum += inference_case_log_p(c, inference_case_logits(c, tokens, count) + (size_t)t * V, token);
    tokens[t] = token;
  }
  return sum;
}

static double expected_score(struct inference_case *c, enum plm_score_masking masking,
                             const uint8_t *wild, uint32_t wild_length, const uint8_t *residues,
                             uint32_t length)
{
  uint32_t head = 0, tail = 0;
  int64_t begin = 0;
  while (head < length && head < wild_length && residues[head] == wild[head]) head++;
  while (tail < length - head && tail < wild_length - head &&
         residues[length - 1 - tail] == wild[wild_length - 1 - tail])
    tail++;
  if (length + 2 > L) {
    const int64_t a = head + 1, b = length - tail > head ? length - tail : a;
    begin = (a + b + 1) / 2 - L / 2;
    if (begin > (int64_t)length + 2 - L) begin = (int64_t)length + 2 - L;
    if (begin < 0) begin = 0;
  }
  const int64_t latest = wild_length + 2 > L ? (int64_t)wild_length + 2 - L : 0;
  return likelihood(c, masking, residues, length, (uint32_t)begin) -
         likelihood(c, masking, wild, wild_length, (uint32_t)(begin < latest ? begin : latest));
}

/* Deletes `deleted` letters at a place, and inserts others. */
static uint32_t changed(const uint8_t *wild, uint32_t length, uint32_t place, uint32_t deleted,
                        uint32_t inserted, uint8_t *residues)
{
  memcpy(residues, wild, place);
  for (uint32_t i = 0; i < inserted; i++) residues[place + i] = letter(1000 + i);
  memcpy(residues + place + inserted, wild + place + deleted, length - place - deleted);
  return length - deleted + inserted;
}

static void scores(enum plm_architecture architecture, enum plm_objective objective,
                   enum plm_score_masking masking, uint32_t length)
{
  static const uint32_t changes[][2] = {{0, 0}, {1, 0}, {0, 1}, {3, 0}, {0, 4}, {2, 2}, {5, 1}};
  struct inference_case c;
  struct plm_indel_scorer *scorer;
  uint8_t wild[MOST], residues[MOST + 8];
  double largest = 0;
  for (uint32_t i = 0; i < length; i++) wild[i] = letter(i);
  const struct plm_wild_type wild_type = {"wild", wild, length, 1, PLM_TOKENIZER_ESM};
  inference_case_open(&c, architecture, objective, PLM_TOKENIZER_ESM, L, 2);
  assert_int_equal(plm_indel_scorer_open(&c.inference, &wild_type, masking, &scorer, NULL), PLM_OK);
  for (size_t k = 0; k < sizeof changes / sizeof *changes; k++)
    for (uint32_t place = 0; place + changes[k][0] <= length;
         place += k == 0 ? length : length / 4 + 1) {
      const uint32_t size = changed(wild, length, place, changes[k][0], changes[k][1], residues);
      double score;
      if (size == 0) continue;
      assert_int_equal(plm_indel_scorer_run(scorer, (const char *)residues, size, &score, NULL),
                       PLM_OK);
      const double expected = expected_score(&c, masking, wild, length, residues, size);
      if (!(fabs(score - expected) <= 5e-4))
        fail_msg("%u residues, -%u +%u at %u: %.7g is not %.7g", length, changes[k][0],
                 changes[k][1], place, score, expected);
      if (k == 0) assert_true(fabs(score) < 1e-5);
      largest = fmax(largest, fabs(expected));
    }
  assert_true(largest > 0.1);
  plm_indel_scorer_close(scorer);
  inference_case_close(&c);
}

static void they_are_those_of_the_definition(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {9, L - 3, L - 2, L - 1, 70};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    scores(PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_SCORE_ADDITIVE, lengths[i]);
    scores(PLM_UNET, PLM_OBJECTIVE_MLM, PLM_SCORE_UNMASKED, lengths[i]);
    scores(PLM_UNET, PLM_OBJECTIVE_CAUSAL, PLM_SCORE_ADDITIVE, lengths[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(they_are_those_of_the_definition)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
