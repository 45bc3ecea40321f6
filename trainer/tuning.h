/* Plans of products over a run's life: measured in its first step, kept in trainer.json, taken from
 * there by every resume, which measures nothing. Backends without plans: nothing is done. */
#ifndef PLM_TRAINER_TUNING_H
#define PLM_TRAINER_TUNING_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "trainer/trainer_state.h"

/* Takes state->plans, and in a new run those that earlier runs have kept (plan_file.h); where there
 * are none, or they cannot be taken (a line says so and state->exact becomes false), tuning is
 * switched on and *tuning is true. */
plm_status plm_tuning_begin(struct plm_trainer_state *state, struct plm_ops *ops, bool *tuning,
                            struct plm_error *error);

/* After the first step that met every shape: tuning off, what was found into state->plans. */
plm_status plm_tuning_end(struct plm_trainer_state *state, struct plm_ops *ops,
                          struct plm_error *error);

#endif
