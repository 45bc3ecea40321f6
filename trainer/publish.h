/* The publisher: a writer thread beside training.
 *
 * The trainer takes a snapshot into host memory (begin, fill, submit), copied beside the next step
 * where the backend can, and goes on; the thread writes, names and announces the checkpoint, and
 * applies retention. There is one snapshot: a second one due while the writer is busy waits in
 * begin, so that which checkpoints exist does not depend on timing.
 */
#ifndef PLM_TRAINER_PUBLISH_H
#define PLM_TRAINER_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "common/wire/announce.h"
#include "trainer/checkpoint_folder.h"

struct plm_publisher;

/* Elements of a snapshot's buffers; 0: there is none. */
struct plm_publisher_sizes {
  size_t weights, average, first, second;
};

/* Starts the thread and takes host memory of ops for one snapshot, which ops->download_beside
 * reaches. Everything is borrowed; announcer may be NULL. */
plm_status plm_publisher_open(const struct plm_checkpoint_context *context, struct plm_ops *ops,
                              const struct plm_publisher_sizes *sizes,
                              struct plm_announcer *announcer, struct plm_publisher **publisher,
                              struct plm_error *error);
/* Waits for the checkpoint being written, ends the thread. NULL is fine. */
void plm_publisher_close(struct plm_publisher *publisher);

/* Waits until the writer is idle; then the snapshot is the caller's to fill, until submit. */
struct plm_snapshot *plm_publisher_begin(struct plm_publisher *publisher);
void plm_publisher_submit(struct plm_publisher *publisher);
/* A checkpoint that failed before it reached the writer counts as the writer's failures do; the
 * snapshot taken by begin is given back. */
void plm_publisher_fail(struct plm_publisher *publisher, const struct plm_error *error);

struct plm_publisher_outcome {
  bool any;                 /* one was published by this process */
  uint64_t step;            /* the newest published */
  struct plm_hash identity; /* of it */
  uint32_t failed_in_a_row;
  uint64_t failures;      /* of this process */
  uint64_t failed_step;   /* of the last failure */
  double seconds;         /* the last one took */
  plm_status status;      /* of the last one */
  struct plm_error error; /* its failure */
};
/* How it stands now; wait: after the writer is idle. */
struct plm_publisher_outcome plm_publisher_outcome(struct plm_publisher *publisher, bool wait);

#endif
