/* Rank 0 receives chunks from the feed and sends every other rank its part of a step. These
 * functions are called by the threads that fill inputs (trainer/input/input.h), on their own lane.
 *
 * For each step, rank 0 sends one batch to every other rank, and all ranks then add up what their
 * batches contain. The end of the batches is a message of its own. */
#ifndef PLM_TRAINER_RANKS_RANK_INPUT_H
#define PLM_TRAINER_RANKS_RANK_INPUT_H

#include "common/plan/chunk.h"
#include "trainer/input/step_input.h"
#include "trainer/ranks/ranks.h"

/* Sends each rank its part of the step's batch, which has the same number of chunks for all. */
plm_status plm_rank_send_batch(struct plm_ranks *ranks, const struct plm_batch *batch,
                               struct plm_error *error);
/* Tells the others that no batch follows. */
void plm_rank_send_end(struct plm_ranks *ranks);

/* A batch in memory of its own. */
struct plm_rank_batch {
  struct plm_batch batch;
  void *memory;
  size_t capacity;
};
/* Receives this rank's part. *end: no batch follows. Zero `to` before the first call. */
plm_status plm_rank_receive_batch(struct plm_ranks *ranks, struct plm_rank_batch *to, bool *end,
                                  struct plm_error *error);
void plm_rank_batch_deinit(struct plm_rank_batch *batch); /* then it can be used again */

/* Adds up the totals of all ranks' parts of a step. All ranks call it for every batch that was
 * sent. */
plm_status plm_rank_add_totals(struct plm_ranks *ranks, struct plm_step_totals *totals,
                               struct plm_error *error);

#endif
