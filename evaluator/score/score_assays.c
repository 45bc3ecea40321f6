/* Scores one assay after another, then reads the scores of all and reports. */
#include "evaluator/score/score_assays.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "evaluator/score/assay_report.h"
#include "evaluator/score/assay_scores.h"
#include "evaluator/score/score_indels.h"
#include "evaluator/score/score_variants.h"

struct benchmark {
  const struct plm_assays_request *request;
  struct plm_inference *inference;
  struct plm_assay_list list;
  struct plm_assay_scores scores;
  struct plm_assay_result *results; /* (list.count) */
};

static plm_status score_one(struct benchmark *benchmark, const struct plm_assay *assay,
                            const char *path, struct plm_error *error)
{
  const struct plm_wild_type wild_type = {
      .name = assay->id,
      .residues = assay->target,
      .length = assay->length,
      .first = 1,
      .tokenizer = benchmark->inference->tokenizer->kind,
  };
  const struct plm_score_request table = {
      .fixed_first = true,
      .reader = {.csv = assay->file,
                 .mutations = assay->indels ? "mutated_sequence" : "mutant",
                 .measured = "DMS_score",
                 .added = PLM_ASSAY_SCORE_COLUMN,
                 .most = benchmark->request->choice.max_variants},
      .masking = benchmark->request->masking,
      .output = path,
  };
  if (assay->indels)
    return plm_score_indels(&table.reader, path, table.masking, benchmark->inference, &wild_type,
                            error);
  return plm_score_table(&table, benchmark->inference, &wild_type, error);
}

/* Scores the assay unless its file exists, and reads the file. */
static plm_status do_assay(struct benchmark *benchmark, size_t i, struct plm_error *error)
{
  const struct plm_assay *assay = &benchmark->list.items[i];
  struct plm_assay_result *result = &benchmark->results[i];
  struct plm_assay_values values;
  char path[PLM_PATH_SIZE];
  bool exists;
  PLM_TRY(plm_assay_scores_path(&benchmark->scores, assay, path, error));
  PLM_TRY(plm_file_look(path, &exists, error));
  if (!exists) {
    plm_info("assay %zu of %zu: %s (%s)", i + 1, benchmark->list.count, assay->id,
             assay->indels ? "indels" : "substitutions");
    PLM_TRY(score_one(benchmark, assay, path, error));
  }
  PLM_TRY(
      plm_assay_scores_read(path, assay, benchmark->request->choice.max_variants, &values, error));
  *result = (struct plm_assay_result){.id = assay->id,
                                      .uniprot = assay->uniprot,
                                      .selection = assay->selection,
                                      .variants = values.count};
  const plm_status status = plm_assay_statistics(&values, result->statistics, error);
  plm_assay_values_deinit(&values);
  return status;
}

static size_t count_finished(const struct benchmark *benchmark)
{
  size_t finished = 0;
  for (size_t i = 0; i < benchmark->list.count; i++) {
    char path[PLM_PATH_SIZE];
    finished += plm_assay_scores_path(&benchmark->scores, &benchmark->list.items[i], path, NULL) ==
                    PLM_OK &&
                plm_file_exists(path);
  }
  return finished;
}

static plm_status do_all(struct benchmark *benchmark, struct plm_error *error)
{
  const struct plm_assays_request *request = benchmark->request;
  const size_t count = benchmark->list.count, finished = count_finished(benchmark);
  benchmark->results = plm_alloc_zeroed(count, sizeof *benchmark->results);
  if (finished > 0)
    plm_info("%zu of %zu assays have been scored already, in %s", finished, count,
             benchmark->request->scores);
  for (size_t i = 0; i < count; i++) {
    if (request->check != NULL) PLM_TRY(request->check(request->context, error));
    PLM_TRY(do_assay(benchmark, i, error));
  }
  if (request->take != NULL)
    return request->take(request->take_context, benchmark->results, count,
                         benchmark->inference->weights, error);
  return plm_assay_report(benchmark->results, count, benchmark->request->output,
                          benchmark->request->json, error);
}

static plm_status open_model(struct benchmark *benchmark, struct plm_ops *ops,
                             struct plm_error *error)
{
  const struct plm_assays_request *request = benchmark->request;
  struct plm_assay_origin origin = {
      .masking = plm_score_masking_names[request->masking],
      .max_length = request->max_length,
      .max_variants = request->choice.max_variants,
      .precision = plm_ops_precision(ops),
  };
  PLM_TRY(plm_inference_open_verified(request->checkpoint, request->weights, ops,
                                      PLM_INFERENCE_BATCH_TOKENS, &benchmark->inference,
                                      &origin.weights, error));
  if (benchmark->inference->objective == PLM_OBJECTIVE_CAUSAL && request->masking_given)
    return plm_error_set(error, PLM_USAGE,
                         "--masking: %s is a causal model, which masks nothing: leave it out",
                         request->checkpoint);
  PLM_TRY(plm_inference_set_limit(benchmark->inference, request->max_length, error));
  return plm_assay_scores_open(request->scores, &origin, &benchmark->scores, error);
}

plm_status plm_score_assays(const struct plm_assays_request *request, struct plm_ops *ops,
                            struct plm_error *error)
{
  struct benchmark benchmark = {.request = request, .scores = {.lock = -1}};
  PLM_TRY(plm_assay_list_read(request->reference, request->assays, &request->choice,
                              &benchmark.list, error));
  plm_status status = open_model(&benchmark, ops, error);
  if (status == PLM_OK) status = do_all(&benchmark, error);
  plm_assay_scores_close(&benchmark.scores);
  plm_inference_close(benchmark.inference);
  plm_assay_list_deinit(&benchmark.list);
  free(benchmark.results);
  return status;
}
