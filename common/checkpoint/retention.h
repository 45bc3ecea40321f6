/* Retention: which checkpoints stay and why. A pure function; trainer/retention_apply carries it
 * out, `plm-pipeline checkpoints` shows it.
 *
 * Never deleted: the newest valid one, and folders that are not ours. While the run has an
 * evaluator, none that it has not reported, up to max_unevaluated; beyond that the oldest goes.
 */
#ifndef PLM_COMMON_CHECKPOINT_RETENTION_H
#define PLM_COMMON_CHECKPOINT_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

struct plm_config_checkpoint;

/* Why a checkpoint stays: bits, and their names in the order of the bits. */
enum plm_kept_by {
  PLM_KEPT_NEWEST = 1,      /* the newest valid one */
  PLM_KEPT_LAST = 2,        /* keep_last */
  PLM_KEPT_BEST = 4,        /* keep_best */
  PLM_KEPT_EVERY = 8,       /* keep_every */
  PLM_KEPT_UNEVALUATED = 16 /* the evaluator has not reported it */
};
enum { PLM_KEPT_COUNT = 5 };
extern const char *const plm_kept_names[PLM_KEPT_COUNT];

/* One checkpoint, as the decision sees it. */
struct plm_retained {
  uint64_t step;
  bool identified; /* identity is known */
  struct plm_hash identity;
  bool reported; /* the evaluator has a line for it, a loss or a skip */
  double loss;   /* of its evaluation; NAN when there is none */
  bool newest_valid;
  unsigned kept; /* out: plm_kept_by bits */
  bool remove;   /* out: no reason to keep it */
};

/* Fills `kept` and `remove` of `count` checkpoints, ascending by step. */
void plm_retention_decide(const struct plm_config_checkpoint *rules, bool has_evaluator,
                          struct plm_retained *checkpoints, size_t count);

/* Reads evaluator.jsonl (missing: nothing reported) and fills reported and loss of each. loss is
 * that of `split`; the last line wins, a skip has none. Passed over are lines of another identity
 * (the step was published anew with other weights) and what is not JSON. */
plm_status plm_retention_read_reports(const char *path, const char *split,
                                      struct plm_retained *checkpoints, size_t count,
                                      struct plm_error *error);

/* Whether an evaluator works on this run, or has, or is about to: its lock, its metrics, or a
 * supervisor (which always starts one). */
bool plm_retention_has_evaluator(const char *run);

#endif
