/* The checkpoints a watcher has seen: which wait, which vanished, which failed to verify. */
#ifndef PLM_EVALUATOR_WATCH_CHECKPOINTS_SEEN_H
#define PLM_EVALUATOR_WATCH_CHECKPOINTS_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"

/* A MANIFEST as the file system tells it: another one after a checkpoint was published anew. */
struct plm_manifest_stamp {
  uint64_t inode, size;
  int64_t seconds, nanoseconds;
};

struct plm_seen {
  uint64_t step;
  struct plm_manifest_stamp stamp;
  bool failed;     /* this very MANIFEST did not verify */
  bool identified; /* a MANIFEST was read, this one or one before it */
  struct plm_hash identity;
};

/* Caller-owned, {0} is empty; ascending steps. */
struct plm_seen_list {
  struct plm_seen *items;
  size_t count, capacity;
};

/* The item of a step, made when it is not there; NULL: out of memory. */
struct plm_seen *plm_seen_at(struct plm_seen_list *list, uint64_t step);
/* Looks at the checkpoint's MANIFEST: where it is another one than before, its identity is read
 * anew. NULL: out of memory. The item is valid until the next one is made. */
struct plm_seen *plm_seen_look(struct plm_seen_list *list, const char *checkpoints, uint64_t step);
/* What is known of a step's weights; NULL: nothing. */
const struct plm_hash *plm_seen_identity(const struct plm_seen *seen);
void plm_seen_deinit(struct plm_seen_list *list);

#endif
