/* Proving what a step was trained on. */
#ifndef PLM_STAGES_COMMANDS_TRACE_VERIFY_H
#define PLM_STAGES_COMMANDS_TRACE_VERIFY_H

#include "stages/commands/trace_sources.h"

/* Recomputes the chain of the run (common/plan/chain.h) from the checkpoint before step `step`
 * (from 1), or from the start if there is none, to the first checkpoint that contains the step.
 * Says what was proved; shows progress. PLM_NOT_FOUND: no checkpoint contains the step. PLM_CONFIG:
 * a corpus is not the one that the run began with. PLM_CORRUPT: the documents are not those that
 * were consumed, or not those that ingest hashed. */
plm_status plm_trace_verify(const struct plm_config *config, uint64_t step,
                            struct plm_trace_sources *sources, struct plm_error *error);

#endif
