/* `score --assays`: scores all assays of a benchmark in ProteinGym's format, and says how well the
 * scores agree with the measurements (assay_statistics.h). Substitutions are scored as in
 * variant_scorer.h, indels as in indel_scorer.h. */
#ifndef PLM_EVALUATOR_SCORE_SCORE_ASSAYS_H
#define PLM_EVALUATOR_SCORE_SCORE_ASSAYS_H

#include <stdbool.h>

#include "common/ops/ops.h"
#include "evaluator/score/assay_list.h"
#include "evaluator/score/assay_statistics.h"
#include "evaluator/score/variant_scorer.h"

struct plm_assays_request {
  const char *checkpoint;
  const char *weights;   /* NULL, "model" or "ema" */
  const char *reference; /* the list of assays (assay_list.h) */
  const char *assays;    /* the folder of their files */
  struct plm_assay_choice choice;
  const char *scores; /* the folder that keeps the scores (assay_scores.h) */
  enum plm_score_masking masking;
  bool masking_given;
  uint32_t max_length; /* as in struct plm_score_request */
  const char *output;  /* file for the CSV; NULL: stdout, unless json */
  bool json;           /* write an object to stdout */
  /* Called before each assay (may be NULL); anything but PLM_OK ends the work with it. */
  plm_status (*check)(void *context, struct plm_error *error);
  void *context;
  /* NULL, or takes the results in place of the output; weights: "model" or "ema". */
  plm_status (*take)(void *take_context, const struct plm_assay_result *results, size_t count,
                     const char *weights, struct plm_error *error);
  void *take_context;
};

/* Writes one row for each assay, in the order of the reference file:
 *
 *   DMS_id,UniProt_ID,coarse_selection_type,number_mutants,Spearman,AUC,MCC,NDCG,Top_recall
 *
 * A statistic that does not exist is an empty field, or null in JSON:
 *
 *   {"assays": [{"DMS_id": "…", …}, …],
 *    "selection_types": [{"coarse_selection_type": "Activity", "Spearman": 0.4, …}, …],
 *    "average": {"Spearman": 0.4, …}}
 *
 * An assay whose scores are in the folder already is not scored again. Memory: the largest assay's
 * numbers. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal; the finished assays are kept. */
plm_status plm_score_assays(const struct plm_assays_request *request, struct plm_ops *ops,
                            struct plm_error *error);

#endif
