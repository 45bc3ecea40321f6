/* The rule that derives the targets of a step from its tokens. The operator choose_targets of every
 * backend uses it, and so does the host, which counts the targets beforehand.
 *
 * Source: doc/model.md#objectives. Random numbers come from Philox keyed by (seed, number of the
 * chunk in the run, position). The mask is therefore the same, bit for bit, on every backend, after
 * any resume, and for any number of packers or micro-batches.
 */
#ifndef PLM_COMMON_OPS_TARGET_RULE_H
#define PLM_COMMON_OPS_TARGET_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/philox.h"
#include "common/ops/update.h"

/* Constants of a run. Thresholds are 24-bit integers that are compared with (word >> 8), so the
 * comparison is exact. */
struct plm_masking {
  uint64_t seed;
  uint32_t token_bytes; /* 1 or 2 */
  int32_t causal; /* each position predicts the next token of its document; nothing is masked */
  uint32_t to_mask, to_random; /* a chosen token is masked below to_mask, replaced by a random one
                                  below to_random, and else kept */
  int32_t cls, eos, pad, mask;
  uint32_t first_random, random_count;
};

/* What the rule needs to know about one chunk. */
struct plm_chunk_draw {
  uint64_t g;      /* number of the chunk in the run */
  uint32_t choose; /* threshold for the masking rate */
  float weight;    /* weight of the chunk's rows in the loss */
};

/* The tokens of a micro-batch and what the choice of targets depends on. */
struct plm_target_tokens {
  const void *tokens;                 /* (B, L), masking->token_bytes each */
  const uint32_t *ends;               /* one bit per position, see plm_masking_ends */
  const struct plm_chunk_draw *draws; /* (B) */
  int64_t B, L;
};

/* Results of the rule. */
struct plm_target_rows {
  int32_t *inputs;             /* (B, L): what the model reads at each position */
  int32_t *positions, *labels; /* (capacity): ascending, in [0, B L); their labels */
  float *weights;              /* (capacity) */
  int64_t capacity;            /* at most B L */
};

/* The result for one position. */
struct plm_masked_token {
  int32_t input, label; /* label < 0: the position is not labelled */
};

PLM_HOST_AND_DEVICE static inline bool plm_masking_may_choose(const struct plm_masking *masking,
                                                              int32_t id)
{
  return id != masking->cls && id != masking->eos && id != masking->pad;
}

/* Applies the rule to position x of a chunk. `id` is the token there. `next` is read only if
 * `causal`: it is the next token, or < 0 if the position is the last of its document or padding. */
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

/* Reads bit i of `ends`: whether position i, in [0, B L), ends its document or is padding. */
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

/* Writes, on the host, the inputs of all positions and one row for each labelled position. Returns
 * the number of rows, which must not exceed to->capacity. */
int64_t plm_masking_targets(const struct plm_masking *masking, const struct plm_target_tokens *from,
                            const struct plm_target_rows *to);

#endif
