/* The publisher: a thread that writes checkpoints while training continues.
 *
 * The trainer fills a snapshot in host memory (begin, fill, submit) and continues. The thread
 * writes, names and announces the checkpoint and applies retention. There is one snapshot: if
 * another is due while the thread is writing, begin waits, so that which checkpoints exist does not
 * depend on timing. See doc/training.md#publishing-during-training.
 */
#ifndef PLM_TRAINER_CHECKPOINT_PUBLISH_H
#define PLM_TRAINER_CHECKPOINT_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "common/wire/announce.h"
#include "trainer/checkpoint/checkpoint_folder.h"

struct plm_publisher;

/* Elements of a snapshot's buffers; 0 for a buffer that is not needed. */
struct plm_publisher_sizes {
  size_t weights, average, first, second;
};

/* Starts the thread and allocates the snapshot with ops->allocate_host. All pointers are borrowed;
 * announcer may be NULL. */
plm_status plm_publisher_open(const struct plm_checkpoint_context *context, struct plm_ops *ops,
                              const struct plm_publisher_sizes *sizes,
                              struct plm_announcer *announcer, struct plm_publisher **publisher,
                              struct plm_error *error);
/* From now on, `waiting` is called several times a second by a thread that waits here for the
 * writer, for its signs of life, and with nothing locked. */
void plm_publisher_waiting(struct plm_publisher *publisher, void (*waiting)(void *context),
                           void *context);
/* Waits for the checkpoint that is being written and ends the thread. NULL is fine. */
void plm_publisher_close(struct plm_publisher *publisher);

/* Waits until the writer is idle and returns the snapshot, which the caller fills and submits. */
struct plm_snapshot *plm_publisher_begin(struct plm_publisher *publisher);
void plm_publisher_submit(struct plm_publisher *publisher);
/* Called instead of submit: returns the snapshot, and no checkpoint is written. */
void plm_publisher_cancel(struct plm_publisher *publisher);
/* Called instead of submit: the checkpoint counts as failed, for the reason in error, and the
 * snapshot is returned. */
void plm_publisher_fail(struct plm_publisher *publisher, const struct plm_error *error);

struct plm_publisher_outcome {
  bool any;                 /* whether this process has published a checkpoint */
  uint64_t step;            /* of the newest published checkpoint */
  struct plm_hash identity; /* of the newest published checkpoint */
  uint32_t failed_in_a_row;
  uint64_t failures;           /* in this process */
  uint64_t failed_step;        /* of the last failure */
  uint64_t written_step;       /* the last checkpoint that was written, or failed */
  uint64_t began_ns, ended_ns; /* when it was written (plm_clock_ns); 0: there was none */
  double seconds;              /* that it took */
  plm_status status;           /* of the last checkpoint */
  struct plm_error error;      /* if that is not PLM_OK */
};
/* What has been published so far; with `wait`, after the writer is idle. */
struct plm_publisher_outcome plm_publisher_outcome(struct plm_publisher *publisher, bool wait);

#endif
