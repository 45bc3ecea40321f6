/* What evaluator.jsonl already reports: for each step the splits and sets that were evaluated, or
 * that it was skipped. Splits and sets are bits: bit s is split s of the run's own corpus, bit
 * PLM_SPLIT_COUNT + i is entry i of evaluator.sets, the bits after those of all sets are the
 * entries of evaluator.tasks, and PLM_HISTORY_OTHER is any other set. A step
 * that is published again with other weights is another checkpoint; reports about the earlier one
 * do not count for it. */
#ifndef PLM_COMMON_CHECKPOINT_HISTORY_H
#define PLM_COMMON_CHECKPOINT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/corpus/corpus.h"

enum { PLM_HISTORY_TASK = (int)PLM_SPLIT_COUNT + (int)PLM_MAX_SETS, PLM_HISTORY_OTHER = 31 };
_Static_assert((int)PLM_HISTORY_TASK + (int)PLM_MAX_TASKS <= (int)PLM_HISTORY_OTHER,
               "bits suffice");

struct plm_history_entry {
  uint64_t step;
  unsigned splits; /* bits that are reported for the weights with this identity */
  bool identified; /* false: the lines do not say which weights were evaluated */
  struct plm_hash identity;
  bool skipped; /* the last line about the step says that it was skipped */
  bool waits;   /* the last line says that it could not be read, so it is tried again */
};

/* In ascending order of steps. The caller owns it; {0} is empty. */
struct plm_history {
  const struct plm_config_evaluator *evaluator; /* its sets; NULL: none. Borrowed */
  struct plm_history_entry *entries;
  size_t count, capacity;
};

/* What an evaluator with this configuration has to report about each checkpoint: the bits of its
 * splits and sets. PLM_CONFIG: a split is unknown. */
plm_status plm_history_wanted(const struct plm_config_evaluator *evaluator, unsigned *bits,
                              struct plm_error *error);
/* The bits of the tasks that are due for a checkpoint: each `every`-th one, counted by steps of
 * trainer.checkpoint.every, and that of trainer.steps. */
unsigned plm_history_tasks_due(const struct plm_config *config, uint64_t step);
/* Adds what the file reports; a missing file reports nothing. */
plm_status plm_history_read(struct plm_history *history, const char *path, struct plm_error *error);
/* Adds the report of one split or set, the number of its bit. identity NULL: the weights are
 * unknown. */
void plm_history_add(struct plm_history *history, uint64_t step, const struct plm_hash *identity,
                     unsigned bit);
/* Notes that a step was skipped. */
void plm_history_add_skip(struct plm_history *history, uint64_t step);
/* Notes that a step could not be read and is tried again. */
void plm_history_add_wait(struct plm_history *history, uint64_t step);
/* NULL if nothing is reported about the step. */
const struct plm_history_entry *plm_history_find(const struct plm_history *history, uint64_t step);
/* The splits (bits) that are reported for the step with these weights, or with any if identity is
 * NULL. */
unsigned plm_history_splits(const struct plm_history *history, uint64_t step,
                            const struct plm_hash *identity);
/* Whether nothing is left to do for a step: all these splits (bits) are reported for these weights
 * (NULL: any), or the step was skipped. */
bool plm_history_settled(const struct plm_history *history, uint64_t step,
                         const struct plm_hash *identity, unsigned splits);
void plm_history_deinit(struct plm_history *history);

#endif
