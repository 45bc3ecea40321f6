/* Inputs of the steps to come. A thread receives chunks from the feed and fills a ring of inputs
 * while training runs, so that a step usually finds its input ready. The metric data_wait_ms is the
 * time that the trainer still waits.
 *
 * While the thread runs, only it calls the feed, except for plm_feed_release. With several ranks,
 * that of rank 0 also sends every other rank its chunks (trainer/ranks/rank_input.h).
 */
#ifndef PLM_TRAINER_INPUT_INPUT_H
#define PLM_TRAINER_INPUT_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/feed/feed.h"
#include "common/plan/chunk.h"
#include "trainer/input/data_cursor.h"
#include "trainer/input/step_input.h"
#include "trainer/ranks/rank_input.h"

enum { PLM_INPUT_RING = 2 };

struct plm_input_options {
  struct plm_feed *feed;       /* positioned at cursor; NULL on all ranks but the first */
  struct plm_ranks *ranks;     /* borrowed */
  struct plm_step_shape shape; /* what it points to is borrowed */
  struct plm_ops *ops;         /* allocates the host memory of the inputs */
  /* Position of the run; read only by plm_input_open, but its mixture is borrowed. */
  const struct plm_data_cursor *cursor;
  uint64_t step, steps; /* the next step (from 0), and the run's number of steps */
};

/* The input of one step. */
struct plm_input_slot {
  struct plm_step_input input;
  struct plm_batch batch;      /* the feed's; first_chunk counts over the run */
  struct plm_rank_batch part;  /* what rank 0 sent, on the other ranks */
  struct plm_hash fingerprint; /* of the corpus it came from */
  uint8_t *sources;            /* of the batch's chunks */
  /* After this batch, of each source that it has chunks of. The feed may be further by now. */
  struct plm_feed_position next[PLM_MAX_SOURCES];
  plm_status status; /* not PLM_OK: there is no input, for the reason in error */
  struct plm_error error;
};

struct plm_input;
/* Allocates the ring from ops and starts the thread. */
plm_status plm_input_open(const struct plm_input_options *options, struct plm_input **input,
                          struct plm_error *error);
void plm_input_close(struct plm_input *input); /* NULL is fine */

/* Waits for the next step's input. PLM_INTERRUPTED after the last one; other errors are
 * those of plm_feed_next for that step. */
plm_status plm_input_next(struct plm_input *input, struct plm_input_slot **slot,
                          struct plm_error *error);
/* Waits a little. True if plm_input_next would return at once. Ends early once *stop is nonzero. */
bool plm_input_wait(struct plm_input *input, const volatile int *stop);
/* The input that plm_input_next would return, if it is ready now, else NULL. It stays in the ring.
 */
const struct plm_input_slot *plm_input_peek(struct plm_input *input);
/* Returns the slot to the ring and its batch to the feed. */
void plm_input_release(struct plm_input *input, struct plm_input_slot *slot);

#endif
