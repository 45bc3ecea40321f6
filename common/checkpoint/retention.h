/* Retention: which checkpoints are kept, and why. The decision is a pure function;
 * trainer/checkpoint/retention_apply.c carries it out, and `plm-pipeline checkpoints` shows it.
 *
 * The newest valid checkpoint is never deleted, nor is a folder that is not ours. While the run has
 * an evaluator, up to max_unevaluated checkpoints that it has not reported are kept; if there are
 * more, the oldest of them are deleted. doc/checkpoints.md#retention
 */
#ifndef PLM_COMMON_CHECKPOINT_RETENTION_H
#define PLM_COMMON_CHECKPOINT_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

struct plm_config;
struct plm_config_checkpoint;

/* By what keep_best judges: a measure of a split of the run's own corpus, or of a task, as
 * trainer.checkpoint.best_by says. Everything is borrowed. */
struct plm_retention_judge {
  const char *split;   /* of the run's own corpus; NULL: none is evaluated */
  const char *measure; /* "spearman"; NULL: the loss */
  /* If a task of evaluator.tasks has the measure, else NULL. */
  const struct plm_config *config; /* says which steps the task measures */
  uint32_t task;                   /* its number */
};
struct plm_retention_judge plm_retention_judge_of(const struct plm_config *config);

/* Reasons to keep a checkpoint: bits, and their names in the order of the bits. */
enum plm_kept_by {
  PLM_KEPT_NEWEST = 1,      /* it is the newest valid one */
  PLM_KEPT_LAST = 2,        /* keep_last */
  PLM_KEPT_BEST = 4,        /* keep_best */
  PLM_KEPT_EVERY = 8,       /* keep_every */
  PLM_KEPT_UNEVALUATED = 16 /* the evaluator has not reported it */
};
enum { PLM_KEPT_COUNT = 5 };
extern const char *const plm_kept_names[PLM_KEPT_COUNT];

/* What the decision needs to know about a checkpoint. */
struct plm_retained {
  uint64_t step;
  bool identified; /* identity is known */
  struct plm_hash identity;
  /* The evaluator has written a line for it: a loss, or that it was skipped. A skip does not count
   * if the checkpoint is intact and only could not be read ("corrupt": false). */
  bool reported;
  double loss;  /* of its evaluation; NAN if there is none */
  double value; /* what keep_best compares, the smaller the better; NAN if there is none */
  bool newest_valid;
  unsigned kept; /* out: plm_kept_by bits */
  bool remove;   /* out: no reason to keep it */
};

/* Fills `kept` and `remove` of `count` checkpoints, which are in ascending order of step. */
void plm_retention_decide(const struct plm_config_checkpoint *rules, bool has_evaluator,
                          struct plm_retained *checkpoints, size_t count);

/* Fills `reported`, `loss` and `value` of each checkpoint from evaluator.jsonl; if there is no such
 * file, nothing is reported. The loss is that of the split of the run's own corpus (not of
 * evaluator.sets) in the last line that has one. If the judge is a task, a checkpoint that is due
 * for it is reported when the task is. Lines with another identity are ignored, because the step
 * was published again with other weights; so are lines that are not JSON. PLM_NO_MEMORY, and the
 * errors of reading the file: what was filled is not all then. */
plm_status plm_retention_read_reports(const char *path, const struct plm_retention_judge *judge,
                                      struct plm_retained *checkpoints, size_t count,
                                      struct plm_error *error);

/* Whether the run has an evaluator, had one, or is about to get one: its lock or its metrics exist,
 * or a supervisor runs, which always starts one. */
bool plm_retention_has_evaluator(const char *run);

#endif
