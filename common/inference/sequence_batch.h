/* Packs token sequences into the chunks of one batch, for inference. Each sequence is a document
 * that starts at a multiple of the model's alignment, so its result does not depend on its
 * neighbours, except for rounding, and little time is spent on padding. If the attention pattern
 * has `block`, whose boundaries are counted from the beginning of the chunk, each sequence gets its
 * own chunk; a sequence shorter than three quarters of the first one is then left for another
 * batch.
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
#include "common/model/model_config.h"
#include "common/plan/chunk.h"

struct plm_sequence_batch;

/* A batch of at most max_chunks chunks of config->max_length tokens. pad is the id of <pad>. */
plm_status plm_sequence_batch_open(const struct plm_model_config *config, uint16_t pad,
                                   uint32_t max_chunks, struct plm_sequence_batch **batch,
                                   struct plm_error *error);
void plm_sequence_batch_close(struct plm_sequence_batch *batch); /* NULL is fine */

/* Each sequence becomes several documents, which do not see each other: a new one begins at each
 * `token`. For models with an alignment of 1. Positions still count through the whole sequence. */
void plm_sequence_batch_split_at(struct plm_sequence_batch *batch, int32_t token);

void plm_sequence_batch_reset(struct plm_sequence_batch *batch);
/* Copies a sequence of 1 to max_length tokens, including <cls> and <eos>, into the fullest chunk
 * that has room for it. False: no chunk has room, and nothing was added. Packing is best if the
 * longest sequences are added first. */
bool plm_sequence_batch_add(struct plm_sequence_batch *batch, const int32_t *tokens,
                            uint32_t count);
/* Whether plm_sequence_batch_add would take a sequence of count tokens now. */
bool plm_sequence_batch_has_room(const struct plm_sequence_batch *batch, uint32_t count);
uint32_t plm_sequence_batch_count(const struct plm_sequence_batch *batch);

/* The numbers of sequences that wait for a batch. */
struct plm_sequence_queue {
  uint32_t *waiting;
  uint32_t count;
  uint32_t (*length)(void *context, uint32_t i);       /* in tokens */
  const int32_t *(*tokens)(void *context, uint32_t i); /* valid until the next call */
  void *context;
};
/* The longest come first, and of equally long ones the lowest number. */
void plm_sequence_queue_sort(struct plm_sequence_queue *queue);
/* Resets the batch, and moves from the sorted queue into it the longest waiting sequences and then
 * the longest that fit into the gaps that they leave. taken receives their numbers in the order of
 * adding. Returns how many there are. */
uint32_t plm_sequence_batch_fill(struct plm_sequence_batch *batch, struct plm_sequence_queue *queue,
                                 uint32_t *taken);

/* The batch, valid until the next reset. It has as many chunks as are in use, all as long as the
 * fullest one, which is a multiple of the alignment. Documents are numbered in the order of adding.
 */
const struct plm_batch *plm_sequence_batch_finish(struct plm_sequence_batch *batch);
/* After _finish: the tokens of the batch, (B, L). */
const int32_t *plm_sequence_batch_inputs(const struct plm_sequence_batch *batch);
/* After _finish: the row, in B * L, of the first token of the i-th sequence that was added. */
uint32_t plm_sequence_batch_row(const struct plm_sequence_batch *batch, uint32_t i);

#endif
