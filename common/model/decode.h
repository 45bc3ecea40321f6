/* Incremental decoding of causal models. The keys and values of earlier positions are kept in a
 * cache, so that one more token costs one row through the model instead of the whole sequence.
 *
 * Each growing sequence has a slot. A call runs any mix of rows of one token each, for example all
 * rows of a new prompt together with single rows of other sequences. Except for rounding, the
 * logits of a row equal those that a full pass gives at its position if the sequence is the only
 * one in its chunk: position i sees those of positions 0..i that the attention pattern allows, with
 * its windows and blocks.
 *
 * It needs a `transformer` or `unet` in which every entry of attention.pattern is causal. The cache
 * is allocated on opening; activations are the model's buffers. doc/model.md#decoding
 */
#ifndef PLM_COMMON_MODEL_DECODE_H
#define PLM_COMMON_MODEL_DECODE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model.h"

struct plm_decode;

struct plm_decode_options {
  uint32_t slots;    /* number of sequences at a time */
  uint32_t capacity; /* positions of a slot, at most max_length */
  uint32_t rows;     /* most rows of one call; at most the tokens in a batch of the model */
  uint32_t window;   /* the window in force, in tokens */
};

/* The bytes of the cache. */
uint64_t plm_decode_memory(const struct plm_model_config *config, size_t act_bytes,
                           const struct plm_decode_options *options);
/* model is borrowed. PLM_UNSUPPORTED: positions of this model see later ones, or its backend has no
 * attention_cached. */
plm_status plm_decode_open(struct plm_model *model, const struct plm_decode_options *options,
                           struct plm_decode **decode, struct plm_error *error);
void plm_decode_close(struct plm_decode *decode); /* NULL is fine */

struct plm_decode_row {
  uint32_t slot, position;
  int32_t token;
};

/* Runs row_count rows (1 to options.rows). logits (count, V) receives the capped logits of the rows
 * whose indices are in wanted (count); if wanted is NULL, those of all row_count rows in order.
 * The positions of a slot's rows ascend by one. They continue the slot's sequence or go back to an
 * earlier position; position 0 begins a new sequence. PLM_CORRUPT: a token is outside the
 * vocabulary. */
plm_status plm_decode_run(struct plm_decode *decode, const struct plm_decode_row *rows,
                          uint32_t row_count, const int32_t *wanted, uint32_t count, float *logits,
                          struct plm_error *error);

#endif
