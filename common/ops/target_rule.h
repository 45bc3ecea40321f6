/* How the targets of a step follow from its tokens: the one rule that the operator choose_targets
 * of every backend uses, and the host, which counts the targets beforehand.
 *
 * Source: doc/model.md#objectives. Draws come from Philox keyed by (seed, chunk of the run,
 * position), so the mask is the same on every backend, bit for bit, after any resume, for any
 * number of packers or micro-batches.
 */
#ifndef PLM_COMMON_OPS_TARGET_RULE_H
#define PLM_COMMON_OPS_TARGET_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/philox.h"
#include "common/ops/update.h"

/* The same for all chunks of a run. Thresholds are 24-bit, against (word >> 8): exact. */
struct plm_masking {
  uint64_t seed;
  uint32_t token_bytes; /* 1 or 2 */
  int32_t causal;       /* each position predicts the next of its document; nothing is masked */
  uint32_t to_mask, to_random; /* fate of a chosen token: below the first, below the second, else it
                                  stays */
  int32_t cls, eos, pad, mask;
  uint32_t first_random, random_count;
};

/* Of one chunk. */
struct plm_chunk_draw {
  uint64_t g;      /* its number in the run */
  uint32_t choose; /* threshold of the rate */
  float weight;    /* of its rows in the loss */
};

/* The tokens of a micro-batch, and what decides on them. */
struct plm_target_tokens {
  const void *tokens;                 /* (B, L) of masking->token_bytes each */
  const uint32_t *ends;               /* one bit for each position: plm_masking_ends */
  const struct plm_chunk_draw *draws; /* (B) */
  int64_t B, L;
};

/* Where the targets go. */
struct plm_target_rows {
  int32_t *inputs;             /* (B, L): what the model reads at each position */
  int32_t *positions, *labels; /* (capacity): labelled positions of B L, ascending; their labels */
  float *weights;              /* (capacity) */
  int64_t capacity;            /* at most B L */
};

/* What becomes of one position. */
struct plm_masked_token {
  int32_t input, label; /* label < 0: not a row */
};

PLM_HOST_AND_DEVICE static inline bool plm_masking_may_choose(const struct plm_masking *masking,
                                                              int32_t id)
{
  return id != masking->cls && id != masking->eos && id != masking->pad;
}

/* Position x of a chunk, its token, and for causal the next one (`next` < 0: it is the last of its
 * document, or padding). */
PLM_HOST_AND_DEVICE static inline struct plm_masked_token
plm_masking_apply(const struct plm_masking *masking, const struct plm_chunk_draw *draw, uint32_t x,
                  int32_t id, int32_t next)
{
  struct plm_masked_token token = {id, -1};
  if (masking->causal) {
    token.label = next;
    return token;
  }
  if (!plm_masking_may_choose(masking, id)) return token;
  const struct plm_philox_words words =
      plm_philox(masking->seed, x, draw->g, PLM_PURPOSE_TRAINING_MASK);
  if ((words.w[0] >> 8) >= draw->choose) return token;
  token.label = id;
  const uint32_t fate = words.w[1] >> 8;
  if (fate < masking->to_mask)
    token.input = masking->mask;
  else if (fate < masking->to_random)
    token.input = (int32_t)(masking->first_random +
                            (uint32_t)(((uint64_t)words.w[2] * masking->random_count) >> 32));
  return token;
}

PLM_HOST_AND_DEVICE static inline int32_t plm_masking_token(const struct plm_masking *masking,
                                                            const void *tokens, size_t i)
{
  return masking->token_bytes == 1 ? ((const uint8_t *)tokens)[i] : ((const uint16_t *)tokens)[i];
}

/* Bit i of `ends`: position i (of B L) is the last of its document, or padding. */
PLM_HOST_AND_DEVICE static inline bool plm_masking_ends(const uint32_t *ends, size_t i)
{
  return (ends[i / 32] >> (i % 32) & 1) != 0;
}

PLM_HOST_AND_DEVICE static inline int32_t plm_masking_next(const struct plm_masking *masking,
                                                           const void *tokens, const uint32_t *ends,
                                                           size_t i)
{
  return !masking->causal || plm_masking_ends(ends, i) ? -1
                                                       : plm_masking_token(masking, tokens, i + 1);
}

/* Writes the inputs of all positions and one row for each labelled position, on the host. Returns
 * the number of rows, which must not exceed to->capacity. */
int64_t plm_masking_targets(const struct plm_masking *masking, const struct plm_target_tokens *from,
                            const struct plm_target_rows *to);

#endif
