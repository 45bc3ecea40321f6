/* Retention: which checkpoints go. The decision is a pure function; carrying it out is beside it.
 *
 * Never deleted: the newest valid one, and folders that are not ours. While the run has an
 * evaluator, none that it has not reported, up to max_unevaluated; beyond that the oldest goes.
 */
#ifndef PLM_TRAINER_RETENTION_H
#define PLM_TRAINER_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"

/* One checkpoint, as the decision sees it. */
struct plm_retained {
  uint64_t step;
  bool reported; /* the evaluator has a line for it, a loss or a skip */
  double loss;   /* of its evaluation; NAN when there is none */
  bool newest_valid;
  bool remove; /* out: the decision */
};

/* Fills `remove` of `count` checkpoints, ascending by step. */
void plm_retention_decide(const struct plm_config_checkpoint *rules, bool has_evaluator,
                          struct plm_retained *checkpoints, size_t count);

/* Reads evaluator.jsonl (missing: nothing reported) and fills reported and loss of each. loss is
 * that of `split`; the last line wins. Lines that are not JSON are passed over. */
plm_status plm_retention_read_reports(const char *path, const char *split,
                                      struct plm_retained *checkpoints, size_t count,
                                      struct plm_error *error);

/* Whether an evaluator works on this run, or has, or is about to: its lock, its metrics, or a
 * supervisor (which always starts one). */
bool plm_retention_has_evaluator(const char *run);

/* Applies the rules to a run's checkpoints folder: renames each that goes to .tmp-delete-NAME, then
 * deletes it. newest_valid is the step just published. split: whose losses keep_best compares, or
 * NULL. Called by the writer thread alone. */
plm_status plm_retention_apply(const char *run, const struct plm_config_checkpoint *rules,
                               const char *split, uint64_t newest_valid, struct plm_error *error);

#endif
