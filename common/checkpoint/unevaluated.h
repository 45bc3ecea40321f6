/* Which published checkpoints of a run its evaluator still has to evaluate. */
#ifndef PLM_COMMON_CHECKPOINT_UNEVALUATED_H
#define PLM_COMMON_CHECKPOINT_UNEVALUATED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"

struct plm_unevaluated {
  size_t count;
  uint64_t first; /* the step of the oldest; 0 if there is none */
};

/* Reads a run folder. A checkpoint counts unless evaluator.jsonl reports all of the evaluator's
 * splits and sets for its weights, or says that it was skipped. What has been deleted does not
 * count. PLM_IO, PLM_NO_MEMORY, and what plm_history_wanted returns. */
plm_status plm_unevaluated_read(const char *run, const struct plm_config_evaluator *evaluator,
                                struct plm_unevaluated *left, struct plm_error *error);

#endif
