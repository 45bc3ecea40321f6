/* Whether a run is running, from its locks, FAILED and DONE. */
#ifndef PLM_STAGES_VIEWS_RUN_STATE_H
#define PLM_STAGES_VIEWS_RUN_STATE_H

#include <stdbool.h>

/* "running", "failed" (its last start ended with a failure), "complete" or "stopped". */
const char *plm_run_state(const char *run);
/* Whether the folder is a run: it holds the configuration that a run was started with. */
bool plm_is_run(const char *directory);

#endif
