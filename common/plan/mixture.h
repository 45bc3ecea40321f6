/* Mixtures: which corpus each chunk of a step comes from, when a run trains on several. Each corpus
 * of the list is a *source* with a plan of its own. doc/data.md#mixtures-of-corpora
 *
 * In step s (from 0), source k has the weight
 *
 *   w_k(s) = w_k + (f_k - w_k) * min(1, s / S)
 *
 * with its weight w_k, final weight f_k and S = data.mixture_steps; without a final weight, w_k.
 * Chunk i of the step's C chunks comes from the first source k with
 *
 *   frac(u + i / C) < (w_0(s) + ... + w_k(s)) / (the sum of all weights),
 *
 * where u is the step's Philox draw: purpose 9, x = 0, y = s, word 0, as a number in [0, 1). All of
 * it is computed in double, sums in the order of the list. So every step has the weights'
 * proportions to within one chunk of each source. The chunks of a source are taken in the order of
 * its own plan. All of this depends only on the seed, the step and the weights.
 */
#ifndef PLM_COMMON_PLAN_MIXTURE_H
#define PLM_COMMON_PLAN_MIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

enum { PLM_MAX_SOURCES = 16 };

struct plm_mixture {
  uint32_t count; /* sources; at least 1 */
  double weights[PLM_MAX_SOURCES];
  double final_weights[PLM_MAX_SOURCES]; /* negative: none */
  uint64_t steps;                        /* S */
};

/* The weights of the sources in step s, into weights (count). */
void plm_mixture_weights(const struct plm_mixture *mixture, uint64_t s, double *weights);
/* The source of each of the step's chunks, into sources (chunks). */
void plm_mixture_draw(const struct plm_mixture *mixture, uint64_t seed, uint64_t s, uint32_t chunks,
                      uint8_t *sources);
bool plm_mixture_equal(const struct plm_mixture *a, const struct plm_mixture *b);

/* The mixture of a run over time: a resume may add sources at the end of the list or change
 * weights. Begin with {0}. */
struct plm_mixture_history {
  struct plm_mixture_part {
    uint64_t first;  /* the step (from 0) from which this part holds, until that of the next */
    uint32_t chunks; /* of a step */
    struct plm_mixture mixture;
  } * parts; /* (count) by ascending first; that of the first part is 0 */
  size_t count;
};
void plm_mixture_history_deinit(struct plm_mixture_history *history);
/* From step s on, steps have `chunks` chunks of this mixture. Parts that begin at s or later are
 * replaced; nothing changes if it is already so. */
void plm_mixture_history_add(struct plm_mixture_history *history, uint64_t s, uint32_t chunks,
                             const struct plm_mixture *mixture);
/* The part that holds in step s. There must be one. */
const struct plm_mixture_part *plm_mixture_history_at(const struct plm_mixture_history *history,
                                                      uint64_t s);
/* The chunks of each source in steps 0 to s - 1, into counts (PLM_MAX_SOURCES). One draw a step
 * of several sources: PLM_NO_MEMORY is the only error. */
plm_status plm_mixture_history_count(const struct plm_mixture_history *history, uint64_t seed,
                                     uint64_t s, uint64_t *counts, struct plm_error *error);

/* As JSON: an array of {step, chunks, mixture_steps, weights, final_weights}, where step is the
 * first one that the part holds for, from 1. */
struct cJSON;
struct cJSON *plm_mixture_history_to_json(const struct plm_mixture_history *history);
/* Reads into an empty history. PLM_FORMAT names a defect. */
plm_status plm_mixture_history_from_json(struct plm_mixture_history *history,
                                         const struct cJSON *json, struct plm_error *error);

#endif
