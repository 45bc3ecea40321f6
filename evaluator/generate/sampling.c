/* Chooses tokens by the rules of sampling.h. */
#include "evaluator/generate/sampling.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/numbers/philox.h"
#include "common/base/status.h"

enum { PURPOSES_A_PASS = 256 };

void plm_sampler_init(struct plm_sampler *sampler, const struct plm_tokenizer *tokenizer,
                      bool causal, double temperature, double top_p, uint32_t top_k, uint64_t seed)
{
  PLM_ASSERT(temperature >= 0 && top_p > 0 && top_p <= 1);
  *sampler = (struct plm_sampler){
      .temperature = temperature, .top_p = top_p, .top_k = top_k, .seed = seed};
  const uint16_t first = tokenizer->first_random, end = first + tokenizer->random_count;
  if (causal && tokenizer->eos < first) sampler->ids[sampler->count++] = tokenizer->eos;
  for (uint16_t id = first; id < end; id++) sampler->ids[sampler->count++] = id;
  if (causal && tokenizer->eos >= end) sampler->ids[sampler->count++] = tokenizer->eos;
}

struct candidate {
  double p;
  uint16_t id;
};

/* The largest p first; on a tie, the lower id. */
static int by_probability(const void *left, const void *right)
{
  const struct candidate *a = left, *b = right;
  if (a->p != b->p) return a->p > b->p ? -1 : 1;
  return (int)a->id - (int)b->id;
}

/* softmax(logits / T) over the candidates, sorted. */
static void rank(const struct plm_sampler *sampler, const float *logits,
                 struct candidate candidates[PLM_GENERATED_IDS])
{
  const double T = sampler->temperature > 0 ? sampler->temperature : 1;
  double largest = -INFINITY, sum = 0;
  for (uint32_t i = 0; i < sampler->count; i++) {
    candidates[i] = (struct candidate){(double)logits[sampler->ids[i]] / T, sampler->ids[i]};
    if (candidates[i].p > largest) largest = candidates[i].p;
  }
  for (uint32_t i = 0; i < sampler->count; i++) {
    candidates[i].p = exp(candidates[i].p - largest);
    sum += candidates[i].p;
  }
  for (uint32_t i = 0; i < sampler->count; i++) candidates[i].p /= sum;
  qsort(candidates, sampler->count, sizeof *candidates, by_probability);
}

struct plm_sampled plm_sampler_choose_with(const struct plm_sampler *sampler, const float *logits,
                                           double u)
{
  struct candidate candidates[PLM_GENERATED_IDS];
  rank(sampler, logits, candidates);
  uint32_t chosen = 0;
  if (sampler->temperature > 0) {
    double kept_sum = 0, sum = 0;
    uint32_t kept = 0;
    const uint32_t most =
        sampler->top_k != 0 && sampler->top_k < sampler->count ? sampler->top_k : sampler->count;
    while (kept < most && kept_sum < sampler->top_p) kept_sum += candidates[kept++].p;
    const double bound = u * kept_sum;
    while (chosen + 1 < kept && (sum += candidates[chosen].p) <= bound) chosen++;
  }
  return (struct plm_sampled){candidates[chosen].id, candidates[chosen].p};
}

struct plm_sampled plm_sampler_choose(const struct plm_sampler *sampler, const float *logits,
                                      uint32_t position, uint64_t sequence, uint32_t pass)
{
  const struct plm_philox_words words =
      plm_philox(sampler->seed, position, sequence, PLM_PURPOSE_GENERATE + PURPOSES_A_PASS * pass);
  return plm_sampler_choose_with(sampler, logits, plm_philox_unit(words.w[0]));
}
