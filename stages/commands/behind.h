/* Running a supervisor in the background: `up -d` and `join -d`. */
#ifndef PLM_STAGES_COMMANDS_BEHIND_H
#define PLM_STAGES_COMMANDS_BEHIND_H

#include "common/base/status.h"

/* What runs in the background, and the exit code of its process. started_fd receives a byte once
 * the stages are started (struct plm_supervisor_options). Before that the body calls
 * plm_behind_log. */
typedef plm_status plm_behind_body(void *context, int started_fd, int *exit_code,
                                   struct plm_error *error);

/* Forks a process of its own session for the body, in which only the standard streams are open, and
 * waits until it has started its stages. *pid becomes its process id. An error of the body before
 * that is returned. */
plm_status plm_behind_start(plm_behind_body *body, void *context, int *pid,
                            struct plm_error *error);

/* From here on, the process in the background writes its lines to the log of a run's supervisor and
 * reads nothing. */
plm_status plm_behind_log(const char *run, struct plm_error *error);

/* Waits until all stages of a run are ready, whose process plm_behind_start has told. The status is
 * that of the command `wait --ready`, or that of the run if it has already ended. */
plm_status plm_behind_wait_ready(const char *run, int pid, struct plm_error *error);

#endif
