/* Scores of whole sequences, which may have insertions and deletions:
 *
 *   score = L(sequence) - L(wild type)
 *
 * For a masked model L is the pseudo-log-likelihood (common/inference/pseudo_likelihood.h), which
 * takes one pass for each residue. With masking `none` it is the sum over all residues of
 * log p(x_i | x), which takes one pass. For a causal model it is the sum of the log-probabilities
 * of all tokens, <eos> included.
 *
 * If the sequence has T > max_length tokens (plm_inference_slice), <cls> residues <eos>, then L is
 * that of a window of max_length tokens. Let a be the first token that differs from the wild type,
 * and b the last one (what both have at the beginning, and then at the end, is left out). The
 * window begins at token
 *
 *   max(0, min((a + b + 1) / 2 - max_length / 2, T - max_length))
 *
 * where divisions round down, and the wild type's window begins there too, or at the last token
 * from which max_length tokens are left. */
#ifndef PLM_EVALUATOR_SCORE_INDEL_SCORER_H
#define PLM_EVALUATOR_SCORE_INDEL_SCORER_H

#include "common/inference/inference.h"
#include "evaluator/score/variant_scorer.h"

struct plm_indel_scorer;

/* inference and wild_type are borrowed. PLM_NO_MEMORY. */
plm_status plm_indel_scorer_open(struct plm_inference *inference,
                                 const struct plm_wild_type *wild_type,
                                 enum plm_score_masking masking, struct plm_indel_scorer **scorer,
                                 struct plm_error *error);
void plm_indel_scorer_close(struct plm_indel_scorer *scorer); /* NULL is fine */

/* residues (length > 0) are letters, upper case for the esm tokenizer. PLM_INTERRUPTED,
 * PLM_TERMINATED: a stop signal. PLM_NOT_FINITE: the model computes NaN or infinity; the error's
 * place is set only for the wild type. */
plm_status plm_indel_scorer_run(struct plm_indel_scorer *scorer, const char *residues,
                                uint32_t length, double *score, struct plm_error *error);

#endif
