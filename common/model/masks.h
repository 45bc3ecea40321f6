/* The attention masks of a batch, as intervals, on every level of the model.
 *
 * On level k a chunk has L >> k groups of 2^k tokens. A group belongs to the last document that has
 * a token in it, and it is real if any of its tokens is one of a document, not padding. The real
 * groups of a document are contiguous. A mask is the intersection of that run with the runs of the
 * pattern entry's other kinds, all in positions of the level, for the query at position q:
 *
 *   causal     [0, q]
 *   local      (q - window, q + window)
 *   block      [q - q mod block, q - q mod block + block)   counted from the chunk's beginning
 *
 * Each kind is symmetric or, for causal, mirrored when seen from the key. The queries that see a
 * key are therefore contiguous as well, and both intervals are exact. A group that is not real has
 * empty intervals, with begin = end = 0. doc/model.md#attention-masks */
#ifndef PLM_COMMON_MODEL_MASKS_H
#define PLM_COMMON_MODEL_MASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model_config.h"
#include "common/ops/ops.h"
#include "common/plan/chunk.h"

/* The masks of one batch: one for each level and each distinct entry of attention.pattern. They are
 * opened once, for max_chunks chunks, and filled again for each batch. */
struct plm_masks;

/* PLM_CONFIG: the pattern is empty or too long. PLM_LIMIT: more than INT32_MAX positions. */
plm_status plm_masks_open(const struct plm_model_config *config, struct plm_ops *ops,
                          uint32_t max_chunks, struct plm_masks **masks, struct plm_error *error);
void plm_masks_close(struct plm_masks *masks); /* NULL is fine */
/* Whether the masks were opened for a configuration of this length and attention pattern. */
bool plm_masks_fit(const struct plm_masks *masks, const struct plm_model_config *config);

/* Builds the masks of a batch and uploads them. batch->chunks is at most max_chunks;
 * batch->max_length is at most the configuration's, and a multiple of plm_architecture_group().
 * window (>= 1) is the window in force, and counts positions of each level. Takes O(B L) time for
 * each kind and level, and allocates nothing. */
void plm_masks_fill(struct plm_masks *masks, const struct plm_batch *batch, uint32_t window);

/* The mask of a level and a pattern entry; its arrays lie on the device. */
const struct plm_interval_mask *plm_masks_at(const struct plm_masks *masks, int level, int entry);
/* The allowed query-key pairs of that mask, for counting FLOPs. */
uint64_t plm_masks_pairs(const struct plm_masks *masks, int level, int entry);
/* The same for one of these masks, by its address; 0 if it is none of them. */
uint64_t plm_masks_pairs_of(const struct plm_masks *masks, const struct plm_interval_mask *mask);

/* The steps of plm_masks_fill, for a caller that builds the next batch's masks while the device
 * computes. plm_masks_build writes plm_masks_values(config, chunks, length) int32 values to host
 * memory and changes nothing else. plm_masks_place makes the masks those of that batch; the caller
 * copies the values to plm_masks_device. */
enum { PLM_MASK_LEVELS = 32, PLM_MASK_KINDS = 16 };
struct plm_mask_pairs { /* allowed query-key pairs, by level and distinct pattern entry */
  uint64_t of[PLM_MASK_LEVELS][PLM_MASK_KINDS];
};
size_t plm_masks_values(const struct plm_model_config *config, uint32_t chunks, uint32_t length);
void plm_masks_build(const struct plm_masks *masks, const struct plm_batch *batch, uint32_t window,
                     int32_t *values, struct plm_mask_pairs *pairs);
void plm_masks_place(struct plm_masks *masks, uint32_t chunks, uint32_t length,
                     const struct plm_mask_pairs *pairs);
int32_t *plm_masks_device(struct plm_masks *masks);

/* The number of int32 values in one mask of B chunks of L positions. */
size_t plm_mask_values(int32_t B, int32_t L);

/* Builds the mask of one level and one set of kinds (plm_attention_kind bits) in `values`, which is
 * host memory for plm_mask_values. If mask is not NULL, it receives pointers into `views`, which is
 * `values` itself or its copy on the device. Returns the allowed query-key pairs. */
uint64_t plm_mask_build(const struct plm_batch *batch, int level, unsigned kinds, uint32_t window,
                        uint32_t block, int32_t *values, const int32_t *views,
                        struct plm_interval_mask *mask);

#endif
