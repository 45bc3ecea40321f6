/* What has been reported, from evaluator.jsonl: of each step the splits that were evaluated with
 * the weights it had last, or that it was skipped. A step that is published anew with other weights
 * is another checkpoint: what was said of the former one does not settle it. */
#ifndef PLM_EVALUATOR_WATCH_HISTORY_H
#define PLM_EVALUATOR_WATCH_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/corpus/corpus.h"

struct plm_history_entry {
  uint64_t step;
  unsigned splits; /* bit s: split s is reported, of the checkpoint with this identity */
  bool identified; /* false: the lines do not say which weights */
  struct plm_hash identity;
  bool skipped; /* the last line says so */
};

/* Ascending steps. Caller-owned; {0} is empty. */
struct plm_history {
  struct plm_history_entry *entries;
  size_t count, capacity;
};

/* Reads the file; a missing one is empty. */
plm_status plm_history_read(struct plm_history *history, const char *path, struct plm_error *error);
/* A report of one split; identity NULL: of unknown weights. PLM_NO_MEMORY. */
plm_status plm_history_add(struct plm_history *history, uint64_t step,
                           const struct plm_hash *identity, enum plm_split split,
                           struct plm_error *error);
plm_status plm_history_add_skip(struct plm_history *history, uint64_t step,
                                struct plm_error *error);
/* NULL when nothing was said of the step. */
const struct plm_history_entry *plm_history_find(const struct plm_history *history, uint64_t step);
/* The splits (bits) reported of the step with these weights; NULL: with any. */
unsigned plm_history_splits(const struct plm_history *history, uint64_t step,
                            const struct plm_hash *identity);
/* All wanted splits reported of the step with these weights (NULL: any), or the step skipped. */
bool plm_history_settled(const struct plm_history *history, uint64_t step,
                         const struct plm_hash *identity, unsigned splits);
void plm_history_deinit(struct plm_history *history);

#endif
