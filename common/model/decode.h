/* Incremental decoding of causal models: the keys and values of earlier positions are kept, so that
 * a token more costs one row through the model, not the whole sequence again.
 *
 * Every sequence that grows has a slot. A call runs any mix of rows, one token each: a prompt's
 * rows beside single rows of other sequences. A row gives the logits that the full pass over its
 * sequence, alone in a chunk, gives at its position (but for rounding): position i sees what
 * attention.md allows it of 0..i, windows and blocks included.
 *
 * For `transformer` and `unet` where every entry of attention.pattern is causal. Memory is taken at
 * opening; the activations are the model's own.
 */
#ifndef PLM_COMMON_MODEL_DECODE_H
#define PLM_COMMON_MODEL_DECODE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model.h"

struct plm_decode;

struct plm_decode_options {
  uint32_t slots;    /* sequences at a time */
  uint32_t capacity; /* positions of each, at most max_length */
  uint32_t rows;     /* of one call at most: no more than a batch of the model has tokens */
  uint32_t window;   /* in force, tokens */
};

/* Bytes of the cache, without taking anything. */
uint64_t plm_decode_memory(const struct plm_model_config *config, size_t act_bytes,
                           const struct plm_decode_options *options);
/* PLM_UNSUPPORTED when a position of this model sees later ones, or its backend lacks
 * attention_cached. model is borrowed. */
plm_status plm_decode_open(struct plm_model *model, const struct plm_decode_options *options,
                           struct plm_decode **decode, struct plm_error *error);
void plm_decode_close(struct plm_decode *decode); /* NULL is fine */

struct plm_decode_row {
  uint32_t slot, position;
  int32_t token;
};

/* Runs 1..options.rows rows; of the `count` rows numbered in `wanted` (NULL: of all, in order) the
 * capped logits go to logits (count, V). A slot's rows ascend by one from where it stands: position
 * 0 begins a new sequence in it, a position that was there before goes back to it. PLM_CORRUPT for
 * a token outside the vocabulary. */
plm_status plm_decode_run(struct plm_decode *decode, const struct plm_decode_row *rows,
                          uint32_t row_count, const int32_t *wanted, uint32_t count, float *logits,
                          struct plm_error *error);

#endif
