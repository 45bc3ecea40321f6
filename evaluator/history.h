/* What has been reported: (step, split) pairs and skipped steps, from evaluator.jsonl. */
#ifndef PLM_EVALUATOR_HISTORY_H
#define PLM_EVALUATOR_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"

struct plm_history_entry {
  uint64_t step;
  unsigned splits; /* bit s: split s is reported */
  bool skipped;
};

/* Ascending steps. Caller-owned; {0} is empty. */
struct plm_history {
  struct plm_history_entry *entries;
  size_t count, capacity;
};

/* Reads the file; a missing one is empty. */
plm_status plm_history_read(struct plm_history *history, const char *path, struct plm_error *error);
/* The entry of a step, made when it is not there. NULL: out of memory. */
struct plm_history_entry *plm_history_at(struct plm_history *history, uint64_t step);
/* NULL when nothing was said of the step. */
const struct plm_history_entry *plm_history_find(const struct plm_history *history, uint64_t step);
/* All wanted splits reported, or the step skipped. */
bool plm_history_settled(const struct plm_history *history, uint64_t step, unsigned splits);
void plm_history_deinit(struct plm_history *history);

#endif
