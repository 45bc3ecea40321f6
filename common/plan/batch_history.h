/* The size of a run's steps over time, from what the run's checkpoint says about its resumes. */
#ifndef PLM_COMMON_PLAN_BATCH_HISTORY_H
#define PLM_COMMON_PLAN_BATCH_HISTORY_H

#include <stdint.h>

#include "common/plan/mixture.h"

/* Of an entry of the history that says that the size of a step changed: {before, now}, in chunks.
 */
#define PLM_HISTORY_CHUNKS "step_chunks"

struct cJSON;
/* Adds to an empty history how many chunks each step of a run on one corpus took, as parts of a
 * mixture of this corpus alone. changes is `history` of trainer.json, whose entries tell what a
 * resume changed, trainer.batch_tokens among it; NULL: nothing. chunks: of a step, if no entry
 * tells of the batch. max_length: tokens of a chunk, for entries that have only sentences.
 * PLM_FORMAT names a defect. */
plm_status plm_batch_history_read(struct plm_mixture_history *history, const struct cJSON *changes,
                                  uint32_t max_length, uint32_t chunks, struct plm_error *error);

/* The chunks that steps 0 to s - 1 took from all sources. The history has at least one part. */
uint64_t plm_batch_history_sum(const struct plm_mixture_history *history, uint64_t s);

#endif
