/* The checkpoints a watcher has seen: which wait, which vanished, which failed to verify. */
#ifndef PLM_EVALUATOR_CHECKPOINTS_SEEN_H
#define PLM_EVALUATOR_CHECKPOINTS_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A MANIFEST as the file system tells it: another one after a checkpoint was published anew. */
struct plm_manifest_stamp {
  uint64_t inode, size;
  int64_t seconds, nanoseconds;
};

struct plm_seen {
  uint64_t step;
  struct plm_manifest_stamp stamp;
  bool failed; /* this very MANIFEST did not verify */
};

/* Caller-owned, {0} is empty; ascending steps. */
struct plm_seen_list {
  struct plm_seen *items;
  size_t count, capacity;
};

/* The item of a step, made when it is not there; NULL: out of memory. */
struct plm_seen *plm_seen_at(struct plm_seen_list *list, uint64_t step);
void plm_seen_deinit(struct plm_seen_list *list);
/* False when the folder has no MANIFEST. */
bool plm_manifest_stamp_of(const char *directory, struct plm_manifest_stamp *stamp);
bool plm_manifest_stamp_equal(const struct plm_manifest_stamp *a,
                              const struct plm_manifest_stamp *b);

#endif
