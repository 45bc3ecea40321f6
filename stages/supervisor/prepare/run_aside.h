/* Moving the earlier state of a run to previous-N/ in its folder, for `up --resume never` and `up
 * --resume PATH`. A move takes many renames. previous-N/MOVING says what was to be moved until all
 * of them are on disk, so that one that was killed is finished by the next `up`; otherwise a
 * trainer that finds metrics but no checkpoint would start over and truncate them. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_RUN_ASIDE_H
#define PLM_STAGES_SUPERVISOR_PREPARE_RUN_ASIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/* Moves everything, or only what came after `step`: later checkpoints, later lines of the metrics,
 * and DONE. Does nothing if no run was ever started here. The caller holds the supervisor's lock.
 */
plm_status plm_run_move_aside(const char *run, bool everything, uint64_t step,
                              struct plm_error *error);
/* Finishes the moves that were interrupted. */
plm_status plm_run_finish_move(const char *run, struct plm_error *error);

#endif
