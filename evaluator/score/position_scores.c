/* Opens the model, runs a pass for each position (or one for all), and writes the table. */
#include "evaluator/score/position_scores.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/cli/output_file.h"
#include "evaluator/score/position_output.h"
#include "evaluator/score/variant_scorer.h"

static plm_status position_scores_check_model(const struct plm_score_request *request,
                                              const struct plm_inference *inference,
                                              struct plm_error *error)
{
  if (inference->objective == PLM_OBJECTIVE_CAUSAL) {
    plm_error_set(error, PLM_USAGE, "--per-position: %s is a causal model, which masks nothing",
                  request->checkpoint);
    return plm_error_hint(error, "--all scores each single substitution by its likelihood");
  }
  if (inference->tokenizer->kind == PLM_TOKENIZER_BYTE)
    return plm_error_set(error, PLM_USAGE,
                         "--per-position: this model's letters are bytes, not amino acids");
  return PLM_OK;
}

static plm_status position_scores_score(const struct plm_score_request *request,
                                        struct plm_inference *inference,
                                        const struct plm_wild_type *wild_type,
                                        struct plm_error *error)
{
  struct plm_variant_scorer *scorer;
  char residues[64];
  double *scores = plm_alloc_zeroed(wild_type->length, PLM_POSITION_COLUMNS * sizeof *scores);
  plm_status status =
      plm_variant_scorer_open(inference, wild_type, request->masking, &scorer, error);
  if (status == PLM_OK) {
    status = plm_variant_scorer_positions(scorer, PLM_POSITION_LETTERS, scores, error);
    plm_variant_scorer_close(scorer);
  }
  if (status == PLM_OK) status = plm_position_write(request->output, wild_type, scores, error);
  if (status == PLM_OK)
    plm_info("%s: %s of %s", plm_output_name(request->output),
             plm_format_quantity(wild_type->length, "position", residues), wild_type->name);
  free(scores);
  return status;
}

plm_status plm_score_positions(const struct plm_score_request *request, struct plm_ops *ops,
                               struct plm_error *error)
{
  PLM_TRY(plm_position_check_output(request->output, error));
  return plm_score_opened(request, ops, position_scores_check_model, position_scores_score, error);
}
