/* Where a run goes on: its newest valid checkpoint, and the state in it. */
#ifndef PLM_TRAINER_RESUME_H
#define PLM_TRAINER_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/ops/open.h"
#include "trainer/clip.h"
#include "trainer/optimizers.h"
#include "trainer/trainer_state.h"

/* The newest checkpoint of a run that verifies. *found is false when the run has none at all.
 * PLM_CORRUPT when it has some and none verifies: nobody starts anew over a run's remains. */
plm_status plm_resume_find(const char *run, bool *found, uint64_t *step,
                           char directory[PLM_PATH_SIZE], struct plm_error *error);

/* trainer.json of that checkpoint into state (cursor initialised), checked against today's
 * configuration: PLM_CONFIG for a refused key; what changes the run is reported and remembered in
 * the state's history. */
plm_status plm_resume_read_state(const char *directory, const struct plm_config *config,
                                 struct plm_trainer_state *state, struct plm_error *error);

/* What to open to go on as saved: the saved choices where today's configuration says auto or all,
 * else its own. request points into saved. */
void plm_resume_request(const struct plm_resolved *saved, const struct plm_config *config,
                        struct plm_ops_request *request);
/* What was opened beside the saved choices: a line for each that differs, and state->exact becomes
 * false. Of another device only the device is said. */
void plm_resume_compare(struct plm_trainer_state *state, const struct plm_resolved *today);

/* Says once why a resume is not exact, and marks the state. */
void plm_resume_inexact(struct plm_trainer_state *state, const char *what, const char *before,
                        const char *now);

/* Weights, moments, average and clip history into their places. */
plm_status plm_resume_load_tensors(const char *directory, struct plm_model *model,
                                   struct plm_optimizer *optimizer, struct plm_clip *clip,
                                   struct plm_error *error);

#endif
