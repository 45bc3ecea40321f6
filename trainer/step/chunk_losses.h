/* The loss of each chunk of a step, which the losses by source of a mixture are made of. It is the
 * sum over the chunk's rows, so the share and the rank that have the chunk do not matter. */
#ifndef PLM_TRAINER_STEP_CHUNK_LOSSES_H
#define PLM_TRAINER_STEP_CHUNK_LOSSES_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "trainer/input/step_input.h"
#include "trainer/ranks/ranks.h"

struct plm_chunk_loss {
  double loss; /* nats, not divided */
  struct plm_objective_totals totals;
};

struct plm_chunk_losses;
/* ops and ranks (NULL: no other process takes part) are borrowed. step_chunks and micro_chunks are
 * those of this process. */
plm_status plm_chunk_losses_open(struct plm_ops *ops, struct plm_ranks *ranks, uint32_t step_chunks,
                                 uint32_t micro_chunks, struct plm_chunk_losses **losses,
                                 struct plm_error *error);
void plm_chunk_losses_close(struct plm_chunk_losses *losses); /* NULL is fine */
/* Bytes that plm_chunk_losses_open takes on a rank. */
void plm_chunk_losses_memory(uint32_t ranks, uint32_t step_chunks, uint32_t micro_chunks,
                             uint64_t *device, uint64_t *host);

/* A step begins. Asynchronous, like all until plm_chunk_losses_finish. */
void plm_chunk_losses_begin(struct plm_chunk_losses *losses);
/* Where a micro-batch writes its losses (device, micro_chunks). It is the same for all
 * micro-batches, because they are recorded. */
double *plm_chunk_losses_micro(struct plm_chunk_losses *losses);
/* Keeps the losses that a micro-batch has written there. A micro-batch without labels writes none,
 * and its chunks keep a loss of 0. */
void plm_chunk_losses_keep(struct plm_chunk_losses *losses, const struct plm_micro_input *micro);

/* Waits for the step and exchanges the losses of all ranks, which all call it. chunks: this rank's
 * part of the totals (step_chunks). *all: of each chunk of the step, until the next call. */
plm_status plm_chunk_losses_finish(struct plm_chunk_losses *losses,
                                   const struct plm_objective_totals *chunks,
                                   const struct plm_chunk_loss **all, struct plm_error *error);

#endif
