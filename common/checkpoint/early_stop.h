/* Early stopping: how long ago the checkpoint with the best metric was, in checkpoints that the
 * evaluator has reported. */
#ifndef PLM_COMMON_CHECKPOINT_EARLY_STOP_H
#define PLM_COMMON_CHECKPOINT_EARLY_STOP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/* What counts as a report. */
struct plm_early_stop_rule {
  const char *split;  /* of the run's own corpus, not of evaluator.sets */
  const char *metric; /* its name in evaluator.jsonl */
  bool higher;        /* whether a higher value is better */
  uint64_t until;     /* reports of later steps do not count */
};

struct plm_early_stop {
  uint32_t reported; /* checkpoints with a number */
  uint32_t since;    /* how many of them are later than the best one */
  uint64_t best_step;
  double best; /* NAN if none was reported */
};

/* Reads evaluator.jsonl at path; a missing file reports nothing. The last line about a step counts.
 * Of equal values the first is the best. Lines that are not JSON, and null values, are ignored. */
plm_status plm_early_stop_read(const char *path, const struct plm_early_stop_rule *rule,
                               struct plm_early_stop *found, struct plm_error *error);

#endif
