/* Measures of a masked model beside its loss at one mask rate. Each is a bound on, or an estimate
 * of, how probable the model finds whole sequences.
 *
 * ELBO of masked diffusion (Sahoo et al., "Simple and Effective Masked Diffusion Language Models",
 * NeurIPS 2024), as the objective masked_diffusion weights it. K rates for each document,
 * stratified over [1e-3, 1] and fixed by the document, n its number in the split, k = 0 … K-1:
 *
 *   t_nk = 1e-3 + 0.999 * frac(u + v(n) + k/K)
 *   elbo = sum over n, k and chosen tokens of (-log p)/t_nk  /  (K * maskable tokens)   (nats)
 *
 * u = unit(word 0) of the Philox draw with key seed, x = 0, y = 0, purpose 10; v(n) is the van der
 * Corput sequence, the bits of n (32) reversed behind the point. The token at position x of its
 * document (<cls> is 0) is chosen if (w0 >> 8) < ceil(t_nk * 2^24), where w0 is word 0 of the draw
 * with x + (k << 20), y = n, purpose 10. All checkpoints and all ways of packing get the same
 * masks.
 *
 * Pseudo-perplexity (Salazar et al., ACL 2020): exp of minus the mean over all residues of
 * log p(x_i | all others), each masked by itself (common/inference/pseudo_likelihood.h).
 *
 * Its estimate from one pass without masks, for models that were trained with random and kept
 * tokens. The idea is that of Gordon, Lu and Abbeel (ICLR 2025, algorithm 2); the formula is
 * derived here. (Kantroo et al., 2024, learn a map from embeddings instead.) At a position that
 * shows token s, a chosen token is s either because it was kept (share b = keep_fraction) or
 * because it was drawn at random (a = random_fraction / R, R the number of random tokens). By
 * Bayes' rule a perfect model answers
 *
 *   q(s) = p(s) (b + a) / (p(s) b + a),   so   p(s) = q(s) a / (a + b (1 - q(s)))
 *
 * where p(s) is what it would answer to <mask>. */
#ifndef PLM_EVALUATOR_EVALUATE_MEASURES_H
#define PLM_EVALUATOR_EVALUATE_MEASURES_H

#include "common/inference/inference.h"
#include "evaluator/evaluate/each_batch.h"
#include "evaluator/evaluate/masking.h"

/* What the measures borrow. */
struct plm_measure_buffers {
  struct plm_inference *inference;
  struct plm_question *question;
  float *logits; /* (tokens of a batch, V) */
};

/* `rates` is K, 1 to 64. *elbo in nats per maskable token. */
plm_status plm_measure_elbo(const struct plm_measure_buffers *buffers,
                            const struct plm_batch_walk *walk, uint32_t rates, uint64_t seed,
                            double *elbo, struct plm_error *error);
/* One pass for each residue, so it takes as long as hundreds of evaluations. */
plm_status plm_measure_pseudo_perplexity(const struct plm_measure_buffers *buffers,
                                         const struct plm_batch_walk *walk, double *perplexity,
                                         struct plm_error *error);
/* random_fraction and keep_fraction as the model was trained with; random_fraction > 0. */
plm_status plm_measure_pseudo_perplexity_fast(const struct plm_measure_buffers *buffers,
                                              const struct plm_batch_walk *walk,
                                              double random_fraction, double keep_fraction,
                                              double *perplexity, struct plm_error *error);

#endif
