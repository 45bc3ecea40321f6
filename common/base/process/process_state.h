/* What /proc/PID/stat says of a process. proc(5) */
#ifndef PLM_COMMON_BASE_PROCESS_PROCESS_STATE_H
#define PLM_COMMON_BASE_PROCESS_PROCESS_STATE_H

#include <stdbool.h>
#include <sys/types.h>

/* *state: R, S and others run; T is stopped by a signal; Z and X have ended, but the parent has not
 * waited for it. *parent: its parent's number. Returns false, and leaves both as they are, if there
 * is no such process. */
bool plm_process_state(pid_t pid, char *state, pid_t *parent);

#endif
