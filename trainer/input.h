/* The input beside training: a thread receives the chunks of the steps to come and fills their
 * inputs, a ring ahead, so that a step finds its own ready. What the trainer still waits for is the
 * data wait of the metrics.
 *
 * Everything that a step needs of the feed comes through here: while the thread runs it alone
 * speaks to the feed, but for plm_feed_release.
 */
#ifndef PLM_TRAINER_INPUT_H
#define PLM_TRAINER_INPUT_H

#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/feed/feed.h"
#include "common/plan/chunk.h"
#include "trainer/data_cursor.h"
#include "trainer/step_input.h"

enum { PLM_INPUT_RING = 2 };

struct plm_input_options {
  struct plm_feed *feed;                /* stands where cursor does */
  struct plm_step_shape shape;          /* its parts are borrowed */
  struct plm_ops *ops;                  /* for memory that copies reach fast */
  const struct plm_data_cursor *cursor; /* where the run stands; read when opening alone */
  uint64_t step, steps;                 /* the next step (from 0), and how many the run has */
};

/* One step's. */
struct plm_input_slot {
  struct plm_step_input input;
  struct plm_batch batch;      /* of the feed; first_chunk counts over the run */
  struct plm_hash fingerprint; /* of the corpus it came from */
  uint64_t first_epoch;        /* epoch_chunks[i]: chunks of epoch first_epoch + i, as far as */
  uint64_t *epoch_chunks;      /* the batch goes into them */
  size_t epoch_count, epoch_capacity;
  plm_status status; /* why there is none, and */
  struct plm_error error;
};

struct plm_input;
/* Takes the ring's memory from ops and starts the thread. */
plm_status plm_input_open(const struct plm_input_options *options, struct plm_input **input,
                          struct plm_error *error);
void plm_input_close(struct plm_input *input); /* NULL is fine */

/* The next step's, waiting for it; stop is polled. PLM_INTERRUPTED when it becomes nonzero; else
 * what plm_feed_next, plm_feed_epoch_chunks or plm_step_input_fill said, in their turn. */
plm_status plm_input_next(struct plm_input *input, const volatile int *stop,
                          struct plm_input_slot **slot, struct plm_error *error);
/* The one after those taken, if it is ready by now, else NULL. It stays in the ring. */
const struct plm_input_slot *plm_input_peek(struct plm_input *input);
/* Gives it back to the ring, its batch to the feed. */
void plm_input_release(struct plm_input *input, struct plm_input_slot *slot);

/* A plm_epoch_chunks whose context is a slot. */
plm_status plm_input_epoch_chunks(void *slot, uint64_t epoch, uint64_t *chunks,
                                  struct plm_error *error);

#endif
