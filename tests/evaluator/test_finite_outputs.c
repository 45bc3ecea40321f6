/* Finite weights with which the model overflows for sequences that have a W: each task then ends
 * with an error that names the sequence, and computes the others as before. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/embed/embed.h"
#include "evaluator/evaluate/evaluate.h"
#include "evaluator/generate/generate.h"
#include "evaluator/score/indel_scorer.h"
#include "evaluator/score/variant_scorer.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/corpora/packed_documents.h"
#include "tests/support/harness/scratch.h"

enum { L = 32, CHUNKS = 2 };

static void open_case(struct inference_case *c, enum plm_objective objective, char folder[200])
{
  inference_case_open(c, PLM_TRANSFORMER, objective, PLM_TOKENIZER_ESM, L, CHUNKS);
  inference_case_overflow(c, 'W');
  snprintf(folder, 200, "%.199s", scratch_path("model"));
  inference_case_save(c, folder);
}

static void says(plm_status status, const struct plm_error *error, const char *where,
                 const char *what)
{
  assert_int_equal(status, PLM_NOT_FINITE);
  assert_string_equal(error->where, where);
  assert_non_null(strstr(error->what, "the model computes "));
  if (strstr(error->what, what) == NULL) fail_msg("\"%s\" instead of \"%s\"", error->what, what);
  assert_non_null(strstr(error->hint, "overflow"));
}

static void write_input(const char *text)
{
  scratch_write(scratch_path("in.fasta"), text, strlen(text));
}

static void embed_names_the_sequence(void **state)
{
  (void)state;
  static const struct {
    enum plm_embed_kind kind;
    const char *pooling;
  } cases[] = {{PLM_EMBED_PER_TOKEN, NULL}, {PLM_EMBED_LOGITS, NULL}, {PLM_EMBED_POOLED, "max"}};
  struct inference_case c;
  char folder[200];
  open_case(&c, PLM_OBJECTIVE_MLM, folder);
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    const bool overflows = i % 2 == 1;
    const char *const inputs[] = {scratch_path("in.fasta")};
    struct plm_embed_request request = {.of.checkpoint = folder,
                                        .of.inputs = inputs,
                                        .of.input_count = 1,
                                        .of.output = scratch_path("out.safetensors"),
                                        .kind = cases[i / 2].kind,
                                        .of.fresh = true,
                                        .of.batch_tokens = CHUNKS * L};
    struct plm_error error = {0};
    if (cases[i / 2].pooling != NULL)
      assert_int_equal(plm_pooling_parse(cases[i / 2].pooling, &request.pooling, NULL), PLM_OK);
    write_input(overflows ? ">first one\nMKLAV\n>second\nMKLAVW\n" : ">first\nMKLAV\n>b\nMKLAV\n");
    const plm_status status = plm_embed(&request, c.inference.ops, &error);
    if (overflows)
      says(status, &error, "", "for sequence second");
    else if (status != PLM_OK)
      fail_msg("%s", error.what);
    assert_int_equal(plm_file_exists(request.of.output), !overflows);
    if (!overflows) assert_int_equal(unlink(request.of.output), 0);
  }
  inference_case_close(&c);
}

static void generate_names_the_sequence(void **state)
{
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    struct inference_case c;
    char folder[200];
    open_case(&c, causal ? PLM_OBJECTIVE_CAUSAL : PLM_OBJECTIVE_MLM, folder);
    const struct plm_generate_request request = {.checkpoint = folder,
                                                 .input = scratch_path("in.fasta"),
                                                 .output = scratch_path("out.fasta"),
                                                 .temperature = 0,
                                                 .top_p = 1,
                                                 .count = 1,
                                                 .max_tokens = causal ? 1 : 0};
    struct plm_error error = {0};
    write_input(causal ? ">a\nMKLAV\n" : ">a\nMK<mask>LAV\n");
    assert_int_equal(plm_generate(&request, c.inference.ops, &error), PLM_OK);
    assert_int_equal(unlink(request.output), 0);
    write_input(causal ? ">a\nMKLAV\n>b\nMWLAV\n" : ">a\nMK<mask>LAV\n>b\nMW<mask>LAV\n");
    says(plm_generate(&request, c.inference.ops, &error), &error, "",
         causal ? "for sequence b_1" : "for sequence b");
    assert_false(plm_file_exists(request.output));
    inference_case_close(&c);
  }
}

/* Scores substitutions of L by `mutant` at the third residue of a wild type. */
static plm_status score(struct inference_case *c, const char *residues, uint8_t mutant,
                        enum plm_score_masking masking, struct plm_error *error)
{
  const struct plm_wild_type wild_type = {"wild", (const uint8_t *)residues,
                                          (uint32_t)strlen(residues), 10, PLM_TOKENIZER_ESM};
  struct plm_substitution items[] = {{2, 'L', mutant}, {3, 'A', 'V'}};
  const struct plm_variant variant = {items, 2, 2};
  struct plm_variant_scorer *scorer;
  double value;
  assert_int_equal(plm_variant_scorer_open(&c->inference, &wild_type, masking, &scorer, NULL),
                   PLM_OK);
  assert_int_equal(plm_variant_scorer_expect(scorer, &variant, NULL), PLM_OK);
  const plm_status status = plm_variant_scorer_run(scorer, &variant, 1, &value, error);
  plm_variant_scorer_close(scorer);
  return status;
}

static void score_names_the_position(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct inference_case c;
  char folder[200];
  open_case(&c, PLM_OBJECTIVE_MLM, folder);
  for (enum plm_score_masking masking = PLM_SCORE_ADDITIVE; masking <= PLM_SCORE_JOINT; masking++) {
    assert_int_equal(score(&c, "MKLAV", 'G', masking, &error), PLM_OK);
    says(score(&c, "MKLAW", 'G', masking, &error), &error, "", "for position 12 of wild");
  }
  inference_case_close(&c);
  open_case(&c, PLM_OBJECTIVE_CAUSAL, folder);
  assert_int_equal(score(&c, "MKLAV", 'G', PLM_SCORE_ADDITIVE, &error), PLM_OK);
  says(score(&c, "MKLAV", 'W', PLM_SCORE_ADDITIVE, &error), &error, "", "for position 12 of wild");
  says(score(&c, "MWLAV", 'G', PLM_SCORE_ADDITIVE, &error), &error, "", "for position 12 of wild");
  inference_case_close(&c);
}

static plm_status score_indel(struct inference_case *c, const char *wild, const char *residues,
                              struct plm_error *error)
{
  const struct plm_wild_type wild_type = {"wild", (const uint8_t *)wild, (uint32_t)strlen(wild), 1,
                                          PLM_TOKENIZER_ESM};
  struct plm_indel_scorer *scorer;
  double value;
  *error = (struct plm_error){0};
  assert_int_equal(
      plm_indel_scorer_open(&c->inference, &wild_type, PLM_SCORE_ADDITIVE, &scorer, NULL), PLM_OK);
  const plm_status status =
      plm_indel_scorer_run(scorer, residues, (uint32_t)strlen(residues), &value, error);
  plm_indel_scorer_close(scorer);
  return status;
}

static void indels_name_the_wild_type_or_leave_the_place_to_the_caller(void **state)
{
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    struct plm_error error;
    struct inference_case c;
    char folder[200];
    open_case(&c, causal ? PLM_OBJECTIVE_CAUSAL : PLM_OBJECTIVE_MLM, folder);
    assert_int_equal(score_indel(&c, "MKLAV", "MKAV", &error), PLM_OK);
    says(score_indel(&c, "MKLAW", "MKAV", &error), &error, "wild type wild", "of a sequence");
    says(score_indel(&c, "MKLAV", "MKLAVW", &error), &error, "", "of a sequence");
    inference_case_close(&c);
  }
}

/* Makes every residue of the documents an L, except one of document `n`, which becomes a W. */
static void place_residue(struct packed_documents *packed, uint32_t n)
{
  const struct plm_tokenizer *words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  for (size_t i = 0; i < (size_t)packed->chunks * packed->max_length; i++)
    if (plm_token_is_residue(words, packed->tokens[i]))
      packed->tokens[i] = (uint8_t)plm_tokenizer_encode(words, 'L');
  packed->tokens[(size_t)(n / 2) * packed->max_length + packed->documents[n].start + 1] =
      (uint8_t)plm_tokenizer_encode(words, 'W');
}

static void evaluate_names_the_sequence(void **state)
{
  (void)state;
  static const struct {
    enum plm_objective objective;
    struct plm_evaluation_options options;
    bool in_where;
  } cases[] = {
      {PLM_OBJECTIVE_MLM, {.mask_rate = 0.5, .seed = 1}, false},
      {PLM_OBJECTIVE_CAUSAL, {.mask_rate = 0.5}, false},
      /* a rate at which no residue is masked leaves the finding to the measures */
      {PLM_OBJECTIVE_MLM, {.mask_rate = 0, .pseudo_perplexity = true}, true},
      {PLM_OBJECTIVE_MLM,
       {.mask_rate = 0,
        .pseudo_perplexity_fast = true,
        .random_fraction = 0.1,
        .keep_fraction = 0.1},
       false},
      {PLM_OBJECTIVE_MLM, {.mask_rate = 0, .elbo_rates = 8, .seed = 2}, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct inference_case c;
    struct packed_documents packed;
    struct plm_evaluation *evaluation;
    struct plm_evaluation_result result;
    struct plm_error error = {0};
    char folder[200];
    open_case(&c, cases[i].objective, folder);
    packed_documents_make(&packed, PLM_TOKENIZER_ESM, 3, L, L / 2);
    place_residue(&packed, 3);
    const struct plm_chunk_stream stream = packed_documents_stream(&packed);
    assert_int_equal(plm_evaluation_open(folder, 0, c.inference.ops, &evaluation, NULL), PLM_OK);
    assert_int_equal(plm_evaluation_load(evaluation, folder, NULL, NULL), PLM_OK);
    const plm_status status = plm_evaluation_run(evaluation, &stream, PLM_SPLIT_VALID,
                                                 &cases[i].options, NULL, NULL, &result, &error);
    static const char name[] = "sequence 3 (from 0) of its split";
    says(status, &error, cases[i].in_where ? name : "", cases[i].in_where ? "of a sequence" : name);
    assert_int_equal(packed.held, 0);
    plm_evaluation_close(evaluation);
    packed_documents_free(&packed);
    inference_case_close(&c);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(embed_names_the_sequence),
      cmocka_unit_test(generate_names_the_sequence),
      cmocka_unit_test(score_names_the_position),
      cmocka_unit_test(indels_name_the_wild_type_or_leave_the_place_to_the_caller),
      cmocka_unit_test(evaluate_names_the_sequence),
  };
  plm_log_init("t", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
