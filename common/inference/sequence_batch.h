/* Token sequences packed into the chunks of one batch, for inference: each sequence is a document
 * of its own that starts at the model's alignment, so results do not depend on who its neighbours
 * are (but for rounding), and no time goes into padding. Where `block` stands in the attention
 * pattern, whose boundaries count from the chunk's beginning, a sequence has a chunk of its own,
 * and one of less than three quarters of the first one's length waits for another batch.
 *
 *   plm_sequence_batch_reset(batch);
 *   while (there are more && plm_sequence_batch_add(batch, tokens, count)) …
 *   const struct plm_batch *chunks = plm_sequence_batch_finish(batch);
 *   plm_inference_run(inference, chunks, plm_sequence_batch_inputs(batch), …);
 *   row of sequence i's token t: plm_sequence_batch_row(batch, i) + t
 */
#ifndef PLM_COMMON_INFERENCE_SEQUENCE_BATCH_H
#define PLM_COMMON_INFERENCE_SEQUENCE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/plan/chunk.h"

struct plm_sequence_batch;

/* For at most max_chunks chunks of config->max_length tokens; pad fills the gaps. */
plm_status plm_sequence_batch_open(const struct plm_model_config *config, uint16_t pad,
                                   uint32_t max_chunks, struct plm_sequence_batch **batch,
                                   struct plm_error *error);
void plm_sequence_batch_close(struct plm_sequence_batch *batch); /* NULL is fine */

void plm_sequence_batch_reset(struct plm_sequence_batch *batch);
/* Copies a sequence of 1 <= count <= max_length tokens (<cls> and <eos> included) into the chunk
 * that it fills best. False, and nothing added, when no chunk has room. Best given longest first.
 */
bool plm_sequence_batch_add(struct plm_sequence_batch *batch, const int32_t *tokens,
                            uint32_t count);
/* Whether plm_sequence_batch_add would take a sequence of count tokens now. */
bool plm_sequence_batch_has_room(const struct plm_sequence_batch *batch, uint32_t count);
uint32_t plm_sequence_batch_count(const struct plm_sequence_batch *batch);

/* The batch, valid until the next reset: as many chunks as were begun, as long as the fullest one,
 * rounded up to the alignment. Documents are numbered by the order of adding. */
const struct plm_batch *plm_sequence_batch_finish(struct plm_sequence_batch *batch);
/* After _finish: its tokens (B, L). */
const int32_t *plm_sequence_batch_inputs(const struct plm_sequence_batch *batch);
/* After _finish: row in (B * L) of the first token of the i-th sequence added. */
uint32_t plm_sequence_batch_row(const struct plm_sequence_batch *batch, uint32_t i);

#endif
