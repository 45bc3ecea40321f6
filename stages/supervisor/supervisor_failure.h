/* What happens after a stage has failed: what is known of the failure is gathered from its process,
 * its log and its metrics, stage_failure.h judges it, and a person is told. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_FAILURE_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_FAILURE_H

#include "stages/supervisor/report/supervisor_screen.h"
#include "stages/supervisor/stage/stage_failure.h"
#include "stages/supervisor/supervised.h"

/* Moves the stage on to a back-off or, for good, to FATAL. how: "exited with 2". */
void supervised_failed(struct stages *stages, struct screen *screen, struct supervised *stage,
                       enum plm_failure_kind kind, const char *how);
/* Notes that this is the next permanent failure of the run. */
void supervised_note_failure(struct stages *stages, struct supervised *stage, const char *how);

#endif
