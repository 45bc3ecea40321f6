/* Philox4x32-10, the counter-based generator of every random choice in a run.
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Known answer:
 * key 0, counter 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
 *
 * Key = (seed low, seed high), counter = (x, y low, y high, purpose). A draw is therefore a pure
 * function of its purpose and place: the same on every machine, after every resume and in any
 * order.
 */
#ifndef PLM_COMMON_BASE_NUMBERS_PHILOX_H
#define PLM_COMMON_BASE_NUMBERS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PLM_PHILOX_FUNCTION __host__ __device__ static inline
#else
#define PLM_PHILOX_FUNCTION static inline
#endif

enum plm_philox_purpose {
  PLM_PURPOSE_TRAINING_MASK = 0,   /* x = position in the chunk, y = chunk of the run (g) */
  PLM_PURPOSE_DIFFUSION_RATE = 1,  /* x = 0, y = step from 0 */
  PLM_PURPOSE_EVALUATION_MASK = 2, /* x = position in the document, y = document */
  PLM_PURPOSE_WEIGHTS = 3,         /* x = element / 4, y = XXH32(name) */
  PLM_PURPOSE_GROUPS = 4,          /* this and the next: common/plan/plan.h */
  PLM_PURPOSE_DOCUMENTS = 5,
  PLM_PURPOSE_CHUNKS = 6,
  PLM_PURPOSE_CROPS = 7,
  PLM_PURPOSE_MEMBERS = 8,    /* x = epoch, y = cluster: common/plan/plan.h */
  PLM_PURPOSE_SOURCES = 9,    /* x = 0, y = step from 0: common/plan/mixture.h */
  PLM_PURPOSE_ELBO_MASK = 10, /* evaluator/evaluate/measures.h */
  PLM_PURPOSE_BOOTSTRAP = 11, /* x = draw / 4, y = replicate: evaluator/measures/bootstrap.h */
  PLM_PURPOSE_DROPOUT = 12,   /* x = column / 4, y = row: common/ops/label_operands.h */
  /* `generate`: pass t has PLM_PURPOSE_GENERATE + 256 t (evaluator/generate/sampling.h). It has the
   * number of PLM_PURPOSE_MEMBERS, and keeps it, because another would change the sequences that a
   * seed gives. This does no harm: no result depends on both. */
  PLM_PURPOSE_GENERATE = 8,
};

struct plm_philox_words {
  uint32_t w[4];
};

PLM_PHILOX_FUNCTION struct plm_philox_words plm_philox(uint64_t seed, uint32_t x, uint64_t y,
                                                       uint32_t purpose)
{
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  uint32_t c0 = x, c1 = (uint32_t)y, c2 = (uint32_t)(y >> 32), c3 = purpose;
  for (int round = 0; round < 10; round++) {
    const uint64_t product0 = (uint64_t)0xD2511F53u * c0;
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t next0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
    const uint32_t next2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
    c1 = (uint32_t)product1;
    c3 = (uint32_t)product0;
    c0 = next0;
    c2 = next2;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const struct plm_philox_words words = {{c0, c1, c2, c3}};
  return words;
}

/* u(w) = (w >> 8) * 2^-24, in [0, 1): exact in float and double. */
static inline double plm_philox_unit(uint32_t word)
{
  return (double)(word >> 8) * 0x1p-24;
}

#endif
