/* Steps whose checkpoints are gone before they were evaluated. */
#ifndef PLM_EVALUATOR_WATCH_MISSING_STEPS_H
#define PLM_EVALUATOR_WATCH_MISSING_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "evaluator/watch/checkpoints_seen.h"
#include "evaluator/watch/watch_journal.h"

/* The checkpoints that are there now. */
struct plm_published {
  const char *folder;
  uint64_t every;        /* checkpoint.every; 0: no steps are due */
  const uint64_t *steps; /* (count), ascending */
  size_t count;
};

/* Reports steps that are gone without a report: those that were seen here, those that an earlier
 * evaluator could not read, and those that were due according to checkpoint.every. list: those that
 * this one has seen; bits: what is evaluated of a step, as in plm_history_settled. */
plm_status plm_missing_report(struct plm_watch_journal *journal, const struct plm_seen_list *list,
                              const struct plm_published *published, unsigned bits,
                              struct plm_error *error);

#endif
