/* The log of a gang. mpirun keeps the descriptors that it was started with, so if these were the
 * log file, nobody could rotate it while the gang runs. Therefore mpirun writes into a pipe, and a
 * process of its own copies the pipe to the log. That process outlives the supervisor: if the
 * supervisor is killed, the ranks still publish a checkpoint, and their messages are not lost. */
#ifndef PLM_STAGES_SUPERVISOR_GANG_GANG_LOG_H
#define PLM_STAGES_SUPERVISOR_GANG_GANG_LOG_H

#include <sys/types.h>

#include "common/base/status.h"
#include "stages/supervisor/gang/gang_folder.h"

struct plm_gang_log {
  const char *path; /* lines are appended to it, and it is rotated (common/base/log/log_file.h) */
  int input;        /* the reading end of the pipe */
  const struct plm_gang_folder *folder;
};

/* Makes the pipe. Both ends are closed on exec. */
plm_status plm_gang_log_pipe(int ends[2], struct plm_error *error);

/* Starts the writer in a session of its own, with all signals blocked, since a batch system signals
 * every process of a job. It exits with 0 once all writing ends of the pipe are closed, that is,
 * when mpirun has ended. If this process is gone by then, the writer removes the folder. If the
 * writer itself is killed, what is in the pipe stays there for the next writer, as long as somebody
 * has the reading end. */
plm_status plm_gang_log_start(const struct plm_gang_log *log, pid_t *pid, struct plm_error *error);

#endif
