/* The checkpoints that a watching evaluator has seen: which weights each step had, which of them
 * failed to verify, and why a step that was due never appeared. */
#ifndef PLM_EVALUATOR_WATCH_CHECKPOINTS_SEEN_H
#define PLM_EVALUATOR_WATCH_CHECKPOINTS_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

/* How the file system describes a MANIFEST. It differs once the checkpoint is published again. */
struct plm_manifest_stamp {
  uint64_t inode, size;
  int64_t seconds, nanoseconds;
};

struct plm_seen {
  uint64_t step;
  struct plm_manifest_stamp stamp;
  bool failed;     /* the checkpoint with this stamp did not verify or load */
  bool identified; /* a MANIFEST has been read: the one with this stamp, or an earlier one */
  struct plm_hash identity; /* XXH3-128 of the weights that it lists */
  unsigned attempts;        /* that failed for a reason that may pass, since the last success */
  int64_t retry_at_ms;      /* by the monotonic clock: no attempt before this */
};

/* In ascending order of steps. The caller owns it; {0} is empty, plm_seen_deinit frees it. */
struct plm_seen_list {
  struct plm_seen *items;
  size_t count, capacity;
};

/* The item of a step, which is added if it is missing. It is valid until the next one is added.
 */
struct plm_seen *plm_seen_at(struct plm_seen_list *list, uint64_t step);
/* As plm_seen_at, and reads the identity from the checkpoint's MANIFEST if that has changed since
 * the last look. `checkpoints` is the folder of all checkpoints. */
struct plm_seen *plm_seen_look(struct plm_seen_list *list, const char *checkpoints, uint64_t step);
/* Whether an error in reading may pass: input/output, memory, descriptors, a busy file. */
bool plm_seen_may_pass(plm_status status);
/* Whether an error means that the checkpoint itself is at fault, and not that it could not be read.
 */
bool plm_seen_is_corrupt(plm_status status);
/* Notes that the checkpoint could not be read, for a reason that may pass. Returns the seconds
 * until the next attempt: 1, 2, 4 and so on up to 60; 0 after ten attempts in a row, which are all.
 */
unsigned plm_seen_postpone(struct plm_seen *seen, int64_t now_ms);
/* The identity of the weights that the step had last; NULL if none was ever read. */
const struct plm_hash *plm_seen_identity(const struct plm_seen *seen);
void plm_seen_deinit(struct plm_seen_list *list);

/* Whether the trainer failed to publish `step`, and why. The trainer records its failures in the
 * trainer.json of later checkpoints; later_checkpoint is the folder of one. The reason goes into
 * why, cut to size bytes. false if the file cannot be read or does not mention the step. */
bool plm_seen_unpublished(const char *later_checkpoint, uint64_t step, char *why, size_t size);

#endif
