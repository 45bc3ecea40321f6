/* Where the run stands in the data: the consumed position, never the received one.
 *
 * It is all that a resume needs to go on in the plan, and a rolling hash over everything consumed
 * that tells two runs apart. Source: data.md, "The cursor in the checkpoint".
 */
#ifndef PLM_TRAINER_DATA_CURSOR_H
#define PLM_TRAINER_DATA_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/plan/chunk.h"

struct plm_data_cursor {
  struct plm_hash fingerprint; /* of the corpus; zero: no packer was seen yet */
  struct plm_hash plan;        /* plm_plan_hash */
  uint64_t seed;
  uint64_t chunks;        /* g: consumed over the whole run */
  struct plm_hash chain;  /* XXH3-128 over every consumed batch and the chain before it */
  uint64_t *epoch_totals; /* chunks of the epochs that were passed */
  size_t epoch_count, epoch_capacity;
  uint64_t passed;        /* sum of epoch_totals */
  uint64_t current_total; /* chunks of the epoch the cursor is in; 0: not known yet */
  struct plm_hasher *hasher;
};

plm_status plm_data_cursor_init(struct plm_data_cursor *cursor, struct plm_hash plan, uint64_t seed,
                                struct plm_error *error);
void plm_data_cursor_deinit(struct plm_data_cursor *cursor);

/* The next chunk's place. */
void plm_data_cursor_position(const struct plm_data_cursor *cursor, uint64_t *epoch,
                              uint64_t *chunk);

/* Asks how many chunks an epoch has; a feed in production, a table in tests. */
typedef plm_status plm_epoch_chunks(void *context, uint64_t epoch, uint64_t *chunks,
                                    struct plm_error *error);

/* The batch is consumed: g, chain, and the epochs it passed. total is asked only of epochs of
 * which chunks were consumed. */
plm_status plm_data_cursor_consume(struct plm_data_cursor *cursor, const struct plm_batch *batch,
                                   plm_epoch_chunks *total, void *context, struct plm_error *error);

struct cJSON;
struct cJSON *plm_data_cursor_to_json(const struct plm_data_cursor *cursor);
/* Into an initialised cursor, its plan included. */
plm_status plm_data_cursor_from_json(struct plm_data_cursor *cursor, const struct cJSON *json,
                                     struct plm_error *error);
/* PLM_CONFIG when the cursor counts in another plan than today's. */
plm_status plm_data_cursor_check_plan(const struct plm_data_cursor *cursor, struct plm_hash plan,
                                      struct plm_error *error);

#endif
