/* How long a run is in epochs, for `up --dry-run`. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_RUN_LENGTH_H
#define PLM_STAGES_SUPERVISOR_PREPARE_RUN_LENGTH_H

#include "common/config/config.h"
#include "common/plan/plan.h"

/* Prints the length of the run in epochs of its first corpus and, if the run has trained already,
 * in time; and what the literature says about its size. Nothing if the corpus is not here.
 * parameters: of the model; 0: unknown. */
void plm_run_length_say(const struct plm_config *config, double parameters);

/* The chunks of the first epoch of a plan. They are counted, or estimated from windows with about a
 * million documents, if there are more. */
plm_status plm_run_length_chunks(const struct plm_plan *plan, plm_plan_read *read,
                                 const void *context, uint64_t *chunks, bool *estimated,
                                 struct plm_error *error);

/* The advice, for a run of so many epochs of a corpus with so many tokens (real ones). */
enum { PLM_ADVICE_SIZE = 256 };
void plm_run_length_advice(double epochs, double tokens, double parameters, uint64_t steps,
                           char text[PLM_ADVICE_SIZE]);

#endif
