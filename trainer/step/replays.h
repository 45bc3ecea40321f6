/* Operations of a step that are recorded and replayed (ops.h), if the backend can.
 *
 * An operation has one or several segments, and the caller does other things between them, which
 * are not recorded. The first time, its segments run directly, and product algorithms are measured.
 * The second time they are recorded, and from then on they are replayed. If a recording fails, a
 * warning says so once, and what is not recorded yet runs directly, with the same results. All
 * segments of an operation run every time, in their order. While operators are observed
 * (common/ops/observed.h), everything runs directly. */
#ifndef PLM_TRAINER_STEP_REPLAYS_H
#define PLM_TRAINER_STEP_REPLAYS_H

#include <stdint.h>

#include "common/ops/ops.h"

/* Operations with the same key call the same operators on the same memory. */
struct plm_replay_key {
  uint32_t kind, chunks, rows;
};

struct plm_replays;
struct plm_replays *plm_replays_open(struct plm_ops *ops);
void plm_replays_close(struct plm_replays *replays); /* NULL is fine */

/* Runs segment `segment` of `segments`, by way of call(context, key, segment) or a recording of it.
 */
typedef void plm_replay_call(void *context, struct plm_replay_key key, uint32_t segment);
void plm_replays_run(struct plm_replays *replays, struct plm_replay_key key, uint32_t segment,
                     uint32_t segments, plm_replay_call *call, void *context);

#endif
