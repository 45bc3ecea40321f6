/* The product algorithms of a run: measured in its first step, kept in trainer.json, and taken from
 * there by every resume, which then measures nothing. A backend that does not choose algorithms
 * (the CPU) needs none of this. */
#ifndef PLM_TRAINER_TUNING_TUNING_H
#define PLM_TRAINER_TUNING_TUNING_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/ranks/ranks.h"

/* Takes state->algorithms. If the backend refuses them, a warning says so and state->exact becomes
 * false. If there are none or they were refused, takes those that earlier runs kept
 * (algorithm_file.h), switches tuning on and sets *tuning to true.
 *
 * Several ranks take what rank 0 has kept. They tune in a rehearsal (plm_step_rehearse) instead of
 * the first step, because each measures something else. ranks may be NULL. */
plm_status plm_tuning_begin(struct plm_trainer_state *state, struct plm_ops *ops,
                            struct plm_ranks *ranks, bool *tuning, struct plm_error *error);

/* After the first step or its rehearsal, which meets every shape: switches tuning off and exports
 * what was found into state->algorithms. All ranks then use the same algorithms: for each shape,
 * what the lowest rank has that met it. */
plm_status plm_tuning_end(struct plm_trainer_state *state, struct plm_ops *ops,
                          struct plm_ranks *ranks, struct plm_error *error);

#endif
