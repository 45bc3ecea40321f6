/* How `generate` chooses tokens. modeling_plm.py chooses them by the same rules and draws.
 *
 * Candidates: the 20 amino acids, or all bytes with the byte vocabulary; for causal models also
 * <eos>.
 *
 * Draw: u = (w0 >> 8) * 2^-24, where w0 is the first Philox word for key = seed, x = position of
 * the token in its sequence (<cls> is 0), y = number of the sequence in the output (from 0), and
 * purpose = PLM_PURPOSE_GENERATE + 256 * pass; a causal model has only pass 0. A token therefore
 * does not depend on which other sequences are generated.
 *
 * Temperature T > 0: p = softmax(logits / T) in double, sorted from the largest down, the lower id
 * first on a tie. The shortest prefix whose sum reaches top_p is kept (nucleus sampling, Holtzman
 * et al. 2020), and the token is the first one whose cumulative sum exceeds u times the sum of the
 * prefix. top_k > 0 keeps at most the top_k first tokens of that prefix (Fan et al. 2018). T = 0
 * takes the most probable token, the lowest id on a tie; its p is that at T = 1.
 *
 * Unmasking (MaskGIT, Chang et al. 2022): the masks of a sequence are filled in N passes. Pass t =
 * 0 .. N-1 chooses a token for every mask that is left, and fills the ceil(remaining / (N - t))
 * masks whose tokens have the largest p (of the softmax over all candidates), the lower position
 * first on a tie. The next pass sees them filled.
 *
 * Remasking, with a share R from 0 to below 1: after each pass but the last, floor(R F) of the F
 * residues that were filled so far, and are filled now, become masks again. They are those with the
 * smallest p, which is that of the pass that filled them; the higher position comes first on a tie.
 * Later passes fill them anew. Residues of the input are never masked.
 *
 * The logits are fp32, after the soft cap. Another batch size or number of threads may round them
 * differently, which changes a token only if two of these numbers are that close together.
 */
#ifndef PLM_EVALUATOR_GENERATE_SAMPLING_H
#define PLM_EVALUATOR_GENERATE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/corpus/tokenizer.h"

enum { PLM_GENERATED_IDS = 257 }; /* at most */

struct plm_sampler {
  double temperature, top_p;
  uint32_t top_k; /* 0: no limit */
  uint64_t seed;
  uint32_t count;
  uint16_t ids[PLM_GENERATED_IDS]; /* (count) the candidates, ascending */
};

/* The candidates follow from the tokenizer and from `causal`. temperature >= 0, 0 < top_p <= 1;
 * top_k 0 sets no limit. */
void plm_sampler_init(struct plm_sampler *sampler, const struct plm_tokenizer *tokenizer,
                      bool causal, double temperature, double top_p, uint32_t top_k, uint64_t seed);

/* A token and its p, before top_p and top_k. */
struct plm_sampled {
  int32_t token;
  double probability;
};
/* Chooses from one row of logits (V). */
struct plm_sampled plm_sampler_choose(const struct plm_sampler *sampler, const float *logits,
                                      uint32_t position, uint64_t sequence, uint32_t pass);
/* The same with a given draw u in [0, 1). */
struct plm_sampled plm_sampler_choose_with(const struct plm_sampler *sampler, const float *logits,
                                           double u);

#endif
