/* Scores of variants: what a model thinks of substitutions, against the wild type.
 *
 * x is the wild type as tokens, <cls> residues <eos>; S the substituted positions of a variant.
 *
 * Masked models, `additive` (the default):
 *   score = sum over i in S of log p(mutant_i | x, i masked) - log p(wildtype_i | x, i masked)
 * Each position is masked on its own, the others are the wild type's: one pass a position, however
 * many the variants. `joint`: all of S masked at once,
 *   score = sum over i in S of log p(mutant_i | x, S masked) - log p(wildtype_i | x, S masked)
 * the masked marginals of Meier et al., "Language models enable zero-shot prediction of the effects
 * of mutations on protein function", NeurIPS 2021; one pass a set of positions. With one
 * substitution the two are the same.
 *
 * Causal models: score = log p(mutant sequence) - log p(wild type), sums over next-token
 * log-probabilities, <eos> included. Those in front of the first substitution are the same in both
 * and are left out.
 *
 * p is the softmax over the whole vocabulary of the capped logits. Sums are doubles of fp32 logits;
 * in the masked scores the softmax's denominators cancel. A variant without substitutions scores 0.
 *
 * A wild type of T > max_length tokens is seen through a window of max_length tokens, a slice of x:
 * <cls> is in it only when it begins at the first token, <eos> only when it ends at the last. With
 * a and b the tokens of the first and last position that the pass is about (additive: a = b), it
 * begins at token max(0, min((a + b + 1) / 2 - max_length / 2, T - max_length)), divisions rounding
 * down. Positions that do not fit into one window are refused (joint, causal).
 *
 * modeling_plm.py, PLMForMaskedLM.score, follows this word by word. */
#ifndef PLM_EVALUATOR_SCORE_VARIANT_SCORER_H
#define PLM_EVALUATOR_SCORE_VARIANT_SCORER_H

#include <stddef.h>
#include <stdint.h>

#include "common/inference/inference.h"
#include "evaluator/score/variant.h"

enum plm_score_masking { PLM_SCORE_ADDITIVE, PLM_SCORE_JOINT };

struct plm_variant_scorer;

/* inference and wild_type are borrowed; masking means nothing to a causal model. Memory: wild type
 * x vocabulary fp32 logits, and the buffers of one batch. */
plm_status plm_variant_scorer_open(struct plm_inference *inference,
                                   const struct plm_wild_type *wild_type,
                                   enum plm_score_masking masking,
                                   struct plm_variant_scorer **scorer, struct plm_error *error);
void plm_variant_scorer_close(struct plm_variant_scorer *scorer); /* NULL is fine */

/* Says that the variant will come: positions that are masked on their own are run together, before
 * the first score. PLM_LIMIT: its positions do not fit into a window. */
plm_status plm_variant_scorer_expect(struct plm_variant_scorer *scorer,
                                     const struct plm_variant *variant, struct plm_error *error);

/* Scores variants that were expected, (count), in their order. Passes over one set of positions are
 * shared within a call. Progress goes to stderr. PLM_INTERRUPTED after a stop signal. */
plm_status plm_variant_scorer_run(struct plm_variant_scorer *scorer,
                                  const struct plm_variant *variants, size_t count, double *scores,
                                  struct plm_error *error);

#endif
