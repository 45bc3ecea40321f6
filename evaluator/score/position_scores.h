/* `score --per-position`: the log-probabilities of the 20 amino acids at each position of a
 * protein, that position masked and all others kept, or nothing masked. */
#ifndef PLM_EVALUATOR_SCORE_POSITION_SCORES_H
#define PLM_EVALUATOR_SCORE_POSITION_SCORES_H

#include "evaluator/score/score_variants.h"

/* Of the request, this reads checkpoint, weights, wild_type, choices, first, max_length and
 * masking, and output, of which position_output.h says what names mean ("-": CSV on stdout).
 * PLM_USAGE: a causal model, which masks nothing, or one whose letters are bytes. Memory: the
 * logits of each residue, and 20 doubles for each. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal.
 */
plm_status plm_score_positions(const struct plm_score_request *request, struct plm_ops *ops,
                               struct plm_error *error);

#endif
