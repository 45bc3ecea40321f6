/* What of a request to score does not fit the model, and scores by position. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/score/position_scores.h"
#include "evaluator/score/score_variants.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

#define RESIDUES "MKLAVG"
enum { L = 32, LENGTH = sizeof RESIDUES - 1 };

static struct inference_case model;
static char out[200];

static int begin(void **state)
{
  (void)state;
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  snprintf(out, sizeof out, "%.199s", scratch_path("out.csv"));
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}

static int end(void **state)
{
  (void)state;
  inference_case_close(&model);
  return 0;
}

static struct plm_score_request request_of_all(void)
{
  return (struct plm_score_request){
      .first = 1, .reader = {.mutations = "mutant", .added = "score"}, .output = out};
}

static char *output(void)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(out, 1 << 20, &text, &size, NULL), PLM_OK);
  assert_int_equal(unlink(out), 0);
  return text;
}

/* The score of a first residue, from the logits where it is masked. */
static double first_by_definition(struct inference_case *c, uint8_t residue)
{
  const struct plm_tokenizer *words = c->inference.tokenizer;
  int32_t tokens[LENGTH + 2] = {words->cls, words->mask};
  for (uint32_t i = 1; i < LENGTH; i++)
    tokens[i + 1] = plm_tokenizer_encode(words, (uint8_t)RESIDUES[i]);
  tokens[LENGTH + 1] = words->eos;
  const float *logits = inference_case_logits(c, tokens, LENGTH + 2) + words->vocab_size;
  return inference_case_log_p(c, logits, plm_tokenizer_encode(words, residue)) -
         inference_case_log_p(c, logits, plm_tokenizer_encode(words, (uint8_t)RESIDUES[0]));
}

static void options_have_to_fit_the_model(void **state)
{
  (void)state;
  char folder[200];
  struct plm_error error = {0};
  for (int bytes = 0; bytes < 2; bytes++) {
    struct inference_case other;
    snprintf(folder, sizeof folder, "%.199s", scratch_path(bytes ? "bytes" : "causal"));
    inference_case_open(&other, PLM_TRANSFORMER, bytes ? PLM_OBJECTIVE_MLM : PLM_OBJECTIVE_CAUSAL,
                        bytes ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM, L, 2);
    inference_case_save(&other, folder);
    static const char *const texts[] = {"M1A"};
    struct plm_score_request request = request_of_all();
    request.checkpoint = folder;
    request.wild_type = RESIDUES;
    request.masking_given = true;
    request.max_length = 1 << 30; /* no model has positions for so many */
    assert_int_equal(plm_score_variants(&request, other.inference.ops, &error), PLM_USAGE);
    assert_memory_equal(error.what, "--max-length", strlen("--max-length"));
    request.max_length = 0;
    if (!bytes) {
      assert_int_equal(plm_score_variants(&request, other.inference.ops, &error), PLM_USAGE);
      assert_non_null(strstr(error.what, "is a causal model, which masks nothing"));
      request.masking_given = false;
    } else {
      assert_int_equal(plm_score_variants(&request, other.inference.ops, &error), PLM_USAGE);
      assert_string_equal(error.what, "--all: this model's letters are bytes, not amino acids");
      request.reader.texts = texts;
      request.reader.text_count = 1;
    }
    captured_begin(STDERR_FILENO);
    const plm_status status = plm_score_variants(&request, other.inference.ops, &error);
    captured_end();
    assert_int_equal(status, PLM_OK);
    char *rows = output();
    if (bytes) {
      const double score = strtod(strstr(rows, "M1A,") + 4, NULL);
      assert_true(fabs(score - first_by_definition(&other, 'A')) <= 1e-5);
    }
    free(rows);
    assert_int_equal(plm_score_positions(&request, other.inference.ops, &error), PLM_USAGE);
    assert_int_equal(strncmp(error.what, "--per-position: ", 16), 0);
    assert_non_null(strstr(error.what, bytes ? "this model's letters are bytes"
                                             : "is a causal model, which masks nothing"));
    inference_case_close(&other);
  }
}

static void a_model_that_is_not_there_is_named(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_score_request request = request_of_all();
  request.checkpoint = scratch_path("none");
  request.wild_type = RESIDUES;
  assert_int_equal(plm_score_variants(&request, model.inference.ops, &error), PLM_NOT_FOUND);
  request.output = "out.png"; /* an output that is impossible is named before */
  assert_int_equal(plm_score_positions(&request, model.inference.ops, &error), PLM_USAGE);
}

/* A row for each position, with a column for each amino acid. */
static void positions_are_scored(void **state)
{
  (void)state;
  char folder[200];
  struct plm_error error = {0};
  snprintf(folder, sizeof folder, "%.199s", scratch_path("positions"));
  inference_case_save(&model, folder);
  const struct plm_score_request request = {
      .checkpoint = folder, .wild_type = RESIDUES, .first = 1, .output = out};
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_score_positions(&request, model.inference.ops, &error);
  const char *text = captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
  if (strstr(text, "out.csv: 6 positions of the sequence given\n") == NULL) fail_msg("%s", text);
  char *rows = output(), expected[16];
  const char *at = rows;
  for (int i = 0; i < LENGTH; i++) {
    snprintf(expected, sizeof expected, "\n%d,%c,-", i + 1, RESIDUES[i]);
    at = strstr(at, expected);
    if (at == NULL) fail_msg("no %s in %s", expected, rows);
  }
  free(rows);
  struct plm_score_request wrong = request;
  wrong.wild_type = "not letters";
  assert_int_equal(plm_score_positions(&wrong, model.inference.ops, &error), PLM_NOT_FOUND);
  assert_false(plm_file_exists(out));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(options_have_to_fit_the_model),
      TEST(a_model_that_is_not_there_is_named),
      TEST(positions_are_scored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
