/* How `generate` chooses tokens. modeling_plm.py does the same, number for number.
 *
 * Who takes part: the 20 amino acids (bytes for the byte vocabulary), and <eos> of causal models.
 *
 * Draw: u = (w0 >> 8) * 2^-24 of Philox, key = seed, x = position of the token in its sequence
 * (<cls> is 0), y = number of the sequence in the output (from 0), purpose = 8 + 256 * pass; causal
 * models have one pass, 0. So a token does not depend on who else is generated.
 *
 * Temperature T > 0: p = softmax(logits / T) in double, sorted from the largest, the lower id first
 * on a tie; the smallest prefix whose sum reaches top_p is kept (nucleus sampling, Holtzman et al.
 * 2020); the token is the first whose cumulative sum exceeds u times the kept sum. T = 0: the most
 * probable, the lowest id on a tie, with the probability that it has at T = 1.
 *
 * Unmasking (MaskGIT, Chang et al. 2022): a sequence's masks are filled in N passes; pass t = 0 ..
 * N-1 fills ceil(remaining / (N - t)) of them, those whose chosen token has the largest p (before
 * top_p), the lower position first on a tie. Each pass sees what was filled before.
 *
 * Logits are the fp32 ones of the model, after its cap. Other batch sizes or threads may round them
 * differently; a token changes only where two of the above lie that close together.
 */
#ifndef PLM_EVALUATOR_GENERATE_SAMPLING_H
#define PLM_EVALUATOR_GENERATE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/corpus/tokenizer.h"

enum { PLM_GENERATED_IDS = 257 }; /* at most */

struct plm_sampler {
  double temperature, top_p;
  uint64_t seed;
  uint32_t count;
  uint16_t ids[PLM_GENERATED_IDS]; /* (count) that take part, ascending */
};

/* temperature >= 0, 0 < top_p <= 1. */
void plm_sampler_init(struct plm_sampler *sampler, const struct plm_tokenizer *tokenizer,
                      bool causal, double temperature, double top_p, uint64_t seed);

struct plm_sampled {
  int32_t token;
  double probability;
};
/* From one row of logits (V). */
struct plm_sampled plm_sampler_choose(const struct plm_sampler *sampler, const float *logits,
                                      uint32_t position, uint64_t sequence, uint32_t pass);
/* The same with a given draw. */
struct plm_sampled plm_sampler_choose_with(const struct plm_sampler *sampler, const float *logits,
                                           double u);

#endif
