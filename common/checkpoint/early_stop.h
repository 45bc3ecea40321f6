/* Early stopping: how long ago the checkpoint with the best metric was, in checkpoints that the
 * evaluator has reported. */
#ifndef PLM_COMMON_CHECKPOINT_EARLY_STOP_H
#define PLM_COMMON_CHECKPOINT_EARLY_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* What counts as a report. */
struct plm_early_stop_rule {
  const char *split;  /* of the run's own corpus, not of evaluator.sets */
  const char *metric; /* its name in evaluator.jsonl */
  bool higher;        /* whether a higher value is better */
};

struct plm_early_stop {
  uint32_t reported; /* checkpoints with a number */
  uint32_t since;    /* how many of them are later than the best one */
  uint64_t best_step;
  double best; /* NAN if none was reported */
};

/* The reports that were read. {0} has none; _deinit frees them. */
struct plm_reported_value;
struct plm_tail;
struct plm_early_stop_reports {
  struct plm_reported_value *values; /* (count), by ascending steps */
  size_t count, capacity;
  struct plm_tail *tail; /* NULL before the first call */
};
void plm_early_stop_deinit(struct plm_early_stop_reports *reports);

/* Reads what evaluator.jsonl at path has more than at the last call, and all of it again if it is
 * another file by now; a missing file reports nothing. The last line about a step counts. Of equal
 * values the first is the best. Lines that are not JSON, steps that are no whole numbers up to
 * 2^53, and null values are ignored. Path and rule are the same at each call. until: reports of
 * later steps do not count. PLM_NO_MEMORY, and those of reading the file: the next call continues.
 */
plm_status plm_early_stop_read(const char *path, const struct plm_early_stop_rule *rule,
                               uint64_t until, struct plm_early_stop_reports *reports,
                               struct plm_early_stop *found, struct plm_error *error);

#endif
