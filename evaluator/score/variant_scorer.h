/* Scores of variants: how likely a model finds substitutions, compared with the wild type.
 *
 * x is the wild type as tokens, <cls> residues <eos>; S is the set of a variant's substituted
 * positions.
 *
 * Masked models, `additive` (the default):
 *
 *   score = sum over i in S of log p(mutant_i | x, i masked) - log p(wildtype_i | x, i masked)
 *
 * One position is masked at a time, and all others keep the wild type's residue, so each position
 * takes one pass, however many variants there are. `joint` masks all of S at once:
 *
 *   score = sum over i in S of log p(mutant_i | x, S masked) - log p(wildtype_i | x, S masked)
 *
 * `none` masks nothing, so one pass gives all positions their scores:
 *
 *   score = sum over i in S of log p(mutant_i | x) - log p(wildtype_i | x)
 *
 * The first two are the masked marginals, and the third the wild-type marginals, of Meier et al.,
 * "Language models enable zero-shot prediction of the effects of mutations on protein function",
 * NeurIPS 2021. With `joint`, each set of positions takes one pass; for one substitution it is the
 * same as `additive`.
 *
 * Causal models: score = log p(mutant sequence) - log p(wild type), each a sum of next-token
 * log-probabilities, <eos> included. Terms before the first substitution are equal and are left
 * out.
 *
 * p is the softmax of the capped logits over the whole vocabulary. Sums are doubles of fp32 logits;
 * in marginals the denominators of the softmax cancel. An unchanged sequence scores 0.
 *
 * If the wild type has T > max_length tokens (plm_inference_most), the model sees a window of
 * max_length tokens, a slice of x: <cls> is in it only if it begins at the first token, <eos> only
 * if it ends at the last. If a and b are the tokens of the first and last position of the pass
 * (additive, none: a = b), the window begins at token
 *
 *   max(0, min((a + b + 1) / 2 - max_length / 2, T - max_length))
 *
 * where divisions round down. With `none`, positions with the same window share a pass. With joint
 * masking and causal models, a variant whose positions do not fit into one window is refused.
 *
 * PLMForMaskedLM.score in modeling_plm.py computes the same. */
#ifndef PLM_EVALUATOR_SCORE_VARIANT_SCORER_H
#define PLM_EVALUATOR_SCORE_VARIANT_SCORER_H

#include <stddef.h>
#include <stdint.h>

#include "common/inference/inference.h"
#include "evaluator/score/variant.h"

enum plm_score_masking { PLM_SCORE_ADDITIVE, PLM_SCORE_JOINT, PLM_SCORE_UNMASKED };
extern const char *const plm_score_masking_names[]; /* NULL-terminated */

struct plm_variant_scorer;

/* inference, which is given room, and wild_type are borrowed. A causal model ignores masking.
 * Memory: one row of fp32 logits for each residue of the wild type, and the buffers of one batch.
 * PLM_NO_MEMORY. */
plm_status plm_variant_scorer_open(struct plm_inference *inference,
                                   const struct plm_wild_type *wild_type,
                                   enum plm_score_masking masking,
                                   struct plm_variant_scorer **scorer, struct plm_error *error);
void plm_variant_scorer_close(struct plm_variant_scorer *scorer); /* NULL is fine */

/* Announces a variant that will be scored. Positions that are masked one at a time are then run
 * together, before the first score. PLM_LIMIT: the variant's positions do not fit into one window.
 */
plm_status plm_variant_scorer_expect(struct plm_variant_scorer *scorer,
                                     const struct plm_variant *variant, struct plm_error *error);
/* Whether a variant can be scored, with the positions of those that were announced. */
bool plm_variant_scorer_expects(const struct plm_variant_scorer *scorer,
                                const struct plm_variant *variant);

/* Scores `count` variants that were announced; scores (count) are in the order of the variants.
 * Within a call, variants with the same set of positions share a pass. Progress goes to stderr.
 * PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. PLM_NOT_FINITE: the model computes NaN or
 * infinity at a position, which the message names. */
plm_status plm_variant_scorer_run(struct plm_variant_scorer *scorer,
                                  const struct plm_variant *variants, size_t count, double *scores,
                                  struct plm_error *error);

/* The log-probabilities of `letters` at each position of the wild type, masked by itself, log
 * p(letter | x, i masked), or with PLM_SCORE_UNMASKED log p(letter | x). scores (length, count),
 * where count is the number of letters. A causal model has none: the caller checks that. Progress
 * and stop signals as above. */
plm_status plm_variant_scorer_positions(struct plm_variant_scorer *scorer, const char *letters,
                                        double *scores, struct plm_error *error);

#endif
