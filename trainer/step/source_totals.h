/* Tokens and loss of a step by the corpus that they come from, in a run on several corpora. Only
 * rank 0 adds them up, because only it knows the sources of all chunks. */
#ifndef PLM_TRAINER_STEP_SOURCE_TOTALS_H
#define PLM_TRAINER_STEP_SOURCE_TOTALS_H

#include <stdint.h>

#include "common/config/config.h"
#include "common/plan/chunk.h"
#include "trainer/step/chunk_losses.h"

struct plm_source_totals {
  uint32_t count; /* sources; 0: the corpora are no list, and nothing is added up */
  char names[PLM_MAX_SOURCES][PLM_SOURCE_NAME_SIZE]; /* plm_config_source_name */
  uint64_t tokens[PLM_MAX_SOURCES];                  /* real tokens of the last step */
  double losses[PLM_MAX_SOURCES]; /* of the last step, nats; NAN if no position had a label */
};

/* Adds up a step anew, in the order of its chunks. losses: of each chunk of the batch; not read if
 * there are no sources. */
void plm_source_totals_count(struct plm_source_totals *totals, const struct plm_batch *batch,
                             const struct plm_chunk_loss *losses);

#endif
