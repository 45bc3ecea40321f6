/* `score` while memory runs out, at each of its allocations, or the disk fails, at each of its
 * calls. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/score/position_scores.h"
#include "evaluator/score/score_assays.h"
#include "evaluator/score/score_indels.h"
#include "evaluator/score/score_variants.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

static char model[200], table[200], list[200], folder[200], scores[200], indels[200];

static void put(const char *path, const char *text)
{
  scratch_write(path, text, strlen(text));
}

static void make_files(enum plm_objective objective)
{
  struct inference_case c;
  snprintf(folder, sizeof folder, "%.199s", scratch_directory());
  snprintf(model, sizeof model, "%.199s", scratch_path("model"));
  snprintf(table, sizeof table, "%.199s", scratch_path("table.csv"));
  snprintf(list, sizeof list, "%.199s", scratch_path("list.csv"));
  snprintf(scores, sizeof scores, "%.199s", scratch_path("scores"));
  snprintf(indels, sizeof indels, "%.199s", scratch_path("two.csv"));
  inference_case_open(&c, PLM_TRANSFORMER, objective, PLM_TOKENIZER_ESM, 4, 2); /* it gets more */
  inference_case_save(&c, model);
  inference_case_close(&c);
  put(table, "mutant,dms\nL1A,1\nA2G:V4S,2\nG3L,3\n");
  put(list, "DMS_id,DMS_filename,UniProt_ID,target_seq,coarse_selection_type,"
            "DMS_binarization_cutoff\none,one.csv,P,LAGV,t,1.5\ntwo,two.csv,Q,LAGV,u,1.5\n");
  put(scratch_path("one.csv"), "mutant,DMS_score\nL1A,1\nA2G:V4S,2\n");
  put(indels, "mutated_sequence,DMS_score\nLLAGV,1\nLGV,2\n");
  plm_log_init("t", PLM_LOG_ERROR);
}

/* Runs one of the ways to score on a device of its own, because one keeps its failure. */
typedef plm_status way(struct plm_ops *ops, struct plm_error *error);

static plm_status run(void *context, struct plm_error *error)
{
  way *const *const score = context;
  struct plm_ops *ops;
  const long at = checked_memory_pause();
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  checked_memory_resume(at);
  const plm_status status = (*score)(ops, error);
  checked_memory_pause();
  ops->close(ops);
  checked_memory_resume(at);
  return status;
}

static void tries(way *score, long least)
{
  captured_begin(STDOUT_FILENO);
  failing_disk_try(run, &score, NULL);
  failing_memory_try(run, &score, least);
  captured_end();
}

static plm_status score_table(struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_score_request request = {
      .checkpoint = model,
      .wild_type = "LAGV",
      .first = 1,
      .reader = {.csv = table, .mutations = "mutant", .measured = "dms", .added = "score"},
      .masking = PLM_SCORE_JOINT,
      .json = true};
  return plm_score_variants(&request, ops, error);
}

static plm_status score_all(struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_score_request request = {.checkpoint = model,
                                            .wild_type = "LAGV",
                                            .first = 1,
                                            .reader = {.mutations = "mutant", .added = "score"},
                                            .plot = true};
  return plm_score_variants(&request, ops, error);
}

static plm_status score_positions(struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_score_request request = {
      .checkpoint = model, .wild_type = "LAGV", .first = 1, .output = "-"};
  return plm_score_positions(&request, ops, error);
}

static plm_status score_indels(struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_wild_type wild_type = {"w", (const uint8_t *)"LAGV", 4, 1, PLM_TOKENIZER_ESM};
  const struct plm_variant_reader_request reader = {
      .csv = indels, .mutations = "mutated_sequence", .measured = "DMS_score", .added = "score"};
  struct plm_inference *inference;
  PLM_TRY(plm_inference_open_verified(model, NULL, ops, 64, &inference, NULL, error));
  const plm_status status =
      plm_score_indels(&reader, "-", PLM_SCORE_ADDITIVE, inference, &wild_type, error);
  plm_inference_close(inference);
  return status;
}

/* The scores are there already. */
static plm_status report_assays(struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_assays_request request = {
      .checkpoint = model, .reference = list, .assays = folder, .scores = scores, .json = true};
  return plm_score_assays(&request, ops, error);
}

static void masked_models(void **state)
{
  (void)state;
  make_files(PLM_OBJECTIVE_MLM);
  tries(score_table, 100);
  tries(score_all, 100);
  tries(score_positions, 100);
  tries(score_indels, 100);
  way *first = report_assays; /* which makes the scores */
  assert_int_equal(plm_path_remove(scores, NULL), PLM_OK);
  captured_begin(STDOUT_FILENO);
  assert_int_equal(run(&first, NULL), PLM_OK);
  captured_end();
  tries(report_assays, 100);
}

static void causal_models(void **state)
{
  (void)state;
  make_files(PLM_OBJECTIVE_CAUSAL);
  tries(score_all, 100);
  tries(score_indels, 100);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(masked_models),
                                     cmocka_unit_test(causal_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
