/* Scores of sequences with insertions and deletions against their definition, with windows, and
 * tables of them. */
#include "tests/support/harness/failing_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "evaluator/score/indel_scorer.h"
#include "evaluator/score/score_indels.h"
#include "evaluator/score/wild_type_file.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/changing_file.h"
#include "tests/support/harness/scratch.h"

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

struct opening {
  struct plm_inference *inference;
  enum plm_score_masking masking;
};

static plm_status open_and_close(void *context, struct plm_error *error)
{
  static const struct plm_wild_type wild_type = {"wild", (const uint8_t *)"MKLAVG", 6, 1,
                                                 PLM_TOKENIZER_ESM};
  const struct opening *opening = context;
  struct plm_indel_scorer *scorer;
  double score = 1;
  PLM_TRY(plm_indel_scorer_open(opening->inference, &wild_type, opening->masking, &scorer, error));
  const long at = checked_memory_pause();
  assert_int_equal(plm_indel_scorer_run(scorer, "MKLAVG", 6, &score, NULL), PLM_OK);
  assert_true(fabs(score) < 1e-5); /* what is open can be used */
  plm_indel_scorer_close(scorer);
  checked_memory_resume(at);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  struct inference_case c;
  (void)state;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  struct opening opening = {&c.inference, PLM_SCORE_UNMASKED};
  failing_memory_try(open_and_close, &opening, 8);
  opening.masking = PLM_SCORE_ADDITIVE;
  failing_memory_try(open_and_close, &opening, 8);
  inference_case_close(&c);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static plm_status score_table(struct inference_case *c, const char *csv, struct plm_error *error)
{
  static const struct plm_wild_type wild_type = {"wild", (const uint8_t *)"MKLAVG", 6, 1,
                                                 PLM_TOKENIZER_ESM};
  char table[PLM_PATH_SIZE];
  snprintf(table, sizeof table, "%s", scratch_path("table.csv"));
  scratch_write(table, csv, strlen(csv));
  const struct plm_variant_reader_request reader = {
      .csv = table, .mutations = "mutated_sequence", .added = "score"};
  *error = (struct plm_error){0};
  return plm_score_indels(&reader, scratch_path("out.csv"), PLM_SCORE_UNMASKED, &c->inference,
                          &wild_type, error);
}

/* Rows keep their fields, in any case of letters, and get the score of their sequence. A sequence
 * may be longer than the model takes, or as long. */
static void a_table_of_sequences(void **state)
{
  (void)state;
  struct inference_case c;
  struct plm_error error;
  char csv[500], expected[600], more[MOST + 1] = "", *text;
  size_t size;
  const uint8_t *wild = (const uint8_t *)"MKLAVG";
  plm_log_init("t", PLM_LOG_ERROR);
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  for (uint32_t i = 0; i < MOST; i++) more[i] = (char)letter(i);
  snprintf(csv, sizeof csv, "name,mutated_sequence,n\na,mklAVG,1\n\"b,c\",MKAVG,2\nd,%s,3\n", more);
  if (score_table(&c, csv, &error) != PLM_OK) fail_msg("%s", error.what);
  snprintf(expected, sizeof expected,
           "name,mutated_sequence,n,score\na,mklAVG,1,%.6f\n\"b,c\",MKAVG,2,", 0.0);
  assert_int_equal(plm_file_read(scratch_path("out.csv"), 1 << 20, &text, &size, NULL), PLM_OK);
  assert_memory_equal(text, expected, strlen(expected));
  char *at = text + strlen(expected);
  assert_true(fabs(strtod(at, &at) - expected_score(&c, PLM_SCORE_UNMASKED, wild, 6,
                                                    (const uint8_t *)"MKAVG", 5)) < 1e-3);
  snprintf(expected, sizeof expected, "\nd,%s,3,", more);
  assert_memory_equal(at, expected, strlen(expected));
  at += strlen(expected);
  assert_true(fabs(strtod(at, &at) - expected_score(&c, PLM_SCORE_UNMASKED, wild, 6,
                                                    (const uint8_t *)more, MOST)) < 1e-2);
  assert_string_equal(at, "\n");
  free(text);
  assert_int_equal(unlink(scratch_path("out.csv")), 0);
  inference_case_close(&c);
}

/* A model without a longest length gets room for the wild type, if that is longer than all. */
static void there_is_room_for_the_wild_type(void **state)
{
  (void)state;
  static const char *const tables[] = {"mutated_sequence\nMK\n", "mutated_sequence\nMKLAVGG\n"};
  static const uint32_t tokens[] = {6 + 2, 7 + 2};
  for (int i = 0; i < 2; i++) {
    struct inference_case c;
    struct plm_error error;
    inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 4, 2);
    c.inference.limit = 64;
    if (score_table(&c, tables[i], &error) != PLM_OK) fail_msg("%s", error.what);
    c.c.masks = c.inference.masks; /* there are new ones */
    assert_int_equal(c.inference.config.max_length, tokens[i]);
    assert_int_equal(unlink(scratch_path("out.csv")), 0);
    inference_case_close(&c);
  }
}

/* Each sequence is checked before any is scored, and the error names its line. */
static void wrong_sequences_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *csv, *what;
  } cases[] = {
      {"mutated_sequence\nMKLAVG\nMK1AV\n", "letter 3 of the sequence is not a residue"},
      {"mutated_sequence,n\nMKLAVG,1\n,2\n", "there is no sequence"},
      {"mutated_sequence,n\nMKLAVG,1\nMKL\n", "the row has 1 fields, but the header has 2"},
  };
  struct inference_case c;
  struct plm_error error;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(score_table(&c, cases[i].csv, &error), PLM_FORMAT);
    assert_string_equal(error.what, cases[i].what);
    assert_non_null(
        strstr(error.where, i < 2 ? "table.csv:3: column mutated_sequence" : "table.csv:3"));
    assert_false(plm_file_exists(scratch_path("out.csv")));
  }
  enum { HEADER = 17 }; /* bytes */
  static char csv[HEADER + PLM_WILD_TYPE_LIMIT + 2] = "mutated_sequence\n";
  memset(csv + HEADER, 'M', PLM_WILD_TYPE_LIMIT + 1);
  assert_int_equal(score_table(&c, csv, &error), PLM_LIMIT);
  assert_string_equal(error.what, "a sequence has at most 1048576 residues, not 1048577");
  inference_case_close(&c);
}

/* The table is opened again to be scored. */
static void a_table_that_changes_is_refused(void **state)
{
  static const struct {
    const char *csv;
    bool refused;
  } tables[] = {{"mutated_sequence\nMKLAVGG\nMK\n", false}, /* none is longer than the longest */
                {"mutated_sequence\nMKLAVGGG\nMK\n", true},
                {"mutated_sequence\nMKLAVG\nM1\n", true},
                {"mutated_sequence\nMKLAVG\n \n", true},
                {"mutated_sequence\nMKLAVG\nMK,1\n", true}};
  struct inference_case c;
  char path[PLM_PATH_SIZE];
  (void)state;
  snprintf(path, sizeof path, "%s", scratch_path("table.csv"));
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    struct plm_error error;
    char expected[PLM_PATH_SIZE + 40];
    changing_file(path, tables[i].csv);
    const plm_status status = score_table(&c, "mutated_sequence\nMKL\nMKLAVGG\n", &error);
    changing_file(path, NULL);
    assert_int_equal(status, tables[i].refused ? PLM_FORMAT : PLM_OK);
    snprintf(expected, sizeof expected, "%s changed while it was read", path);
    if (tables[i].refused)
      assert_string_equal(error.what,
                          i < 4 ? expected : "the row has 2 fields, but the header has 1");
    assert_int_equal(access(scratch_path("out.csv"), F_OK), tables[i].refused ? -1 : 0);
    if (!tables[i].refused) assert_int_equal(unlink(scratch_path("out.csv")), 0);
  }
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(they_are_those_of_the_definition),
                                     cmocka_unit_test(a_lack_of_memory_is_said),
                                     cmocka_unit_test(a_table_of_sequences),
                                     cmocka_unit_test(there_is_room_for_the_wild_type),
                                     cmocka_unit_test(wrong_sequences_are_named),
                                     cmocka_unit_test(a_table_that_changes_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
