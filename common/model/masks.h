/* Interval masks without a model: what plm_model_attention_masks does, as a function of
 * (configuration, batch, window), and the mask of one level and kind by itself.
 *
 * On level k the chunk has L >> k groups of 2^k tokens. A group's document is the larger of its
 * tokens' (so of its last token: ids ascend, padding keeps the preceding one); it is real when any
 * token is. The real groups of a document are contiguous, and every mask is the intersection of
 * that run with the runs of the other kinds, computed in positions of the level:
 *
 *   causal     [0, q]
 *   local      (q - window, q + window)
 *   block      [q - q mod block, q - q mod block + block)   positions of the chunk
 *
 * All four are symmetric or (causal) reversed from the key's side, so the queries of a key are a
 * contiguous run as well, and exact. A group that is not real has empty runs, begin = end = 0.
 */
#ifndef PLM_COMMON_MODEL_MASKS_H
#define PLM_COMMON_MODEL_MASKS_H

#include <stddef.h>
#include <stdint.h>

#include "common/model/model.h"

/* Fills masks (opened for at least batch->chunks chunks) for every level and pattern entry, and
 * uploads them. batch->max_length: at most the configuration's, a multiple of the merged group.
 * window >= 1, in positions of each level. O(B L) a kind; takes no memory. */
void plm_masks_fill(struct plm_masks *masks, const struct plm_batch *batch, uint32_t window);

/* The same in parts, for who builds a batch's masks ahead, beside the computation:
 * build writes plm_masks_values(chunks, length) int32 values to host memory and touches nothing
 * else; place makes the masks those of such a batch, whose values the caller then copies to
 * plm_masks_device. */
enum { PLM_MASK_LEVELS = 32, PLM_MASK_KINDS = 16 };
struct plm_mask_pairs { /* allowed query-key pairs, for FLOPs */
  uint64_t of[PLM_MASK_LEVELS][PLM_MASK_KINDS];
};
size_t plm_masks_values(const struct plm_model_config *config, uint32_t chunks, uint32_t length);
void plm_masks_build(const struct plm_masks *masks, const struct plm_batch *batch, uint32_t window,
                     int32_t *values, struct plm_mask_pairs *pairs);
void plm_masks_place(struct plm_masks *masks, uint32_t chunks, uint32_t length,
                     const struct plm_mask_pairs *pairs);
int32_t *plm_masks_device(struct plm_masks *masks);

/* int32 values that one mask of B chunks of L positions occupies. */
size_t plm_mask_values(int32_t B, int32_t L);

/* The mask of one level and kind (plm_attention_kind bits) into `values` (host memory,
 * plm_mask_values). mask (may be NULL) receives views of `views`, values' place on the device, or
 * values itself. Returns the allowed pairs. */
uint64_t plm_mask_build(const struct plm_batch *batch, int level, unsigned kinds, uint32_t window,
                        uint32_t block, int32_t *values, const int32_t *views,
                        struct plm_interval_mask *mask);

#endif
