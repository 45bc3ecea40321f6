/* Processes of stages: made so that they die with the supervisor and can be found with all that
 * they started, whatever groups and sessions it put itself into. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_PROCESS_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

#include "common/base/status.h"

/* This process adopts orphans below it, so that nothing of a stage escapes. Once, before the first
 * stage is made. */
plm_status plm_process_adopt(struct plm_error *error);

/* Variable that marks every process of a stage, inherited by its children: "PID.stage.instance",
 * PID the supervisor's. */
#define PLM_PROCESS_MARK "PLM_SUPERVISED"

struct plm_process_start {
  char *const *argv;
  const char *stage; /* "trainer" */
  unsigned instance;
  const char *log_path; /* appended to: standard output and error */
  int nice;
};

/* fork, then in the child: own session, SIGTERM when this process dies (getppid checked), niceness,
 * log, PLM_READY_FD, exec. *ready is the reading end, non-blocking. A program that cannot be run is
 * an error here, not an exit code. */
plm_status plm_process_start(const struct plm_process_start *start, pid_t *pid, int *ready,
                             struct plm_error *error);

/* Processes below this one that belong to the stage, by descent from pid (0: gone already) or by
 * mark; at most `room` into pids. Returns how many there are. Zombies do not count. */
size_t plm_process_find(const char *stage, unsigned instance, pid_t pid, pid_t *pids, size_t room);

/* Sends the signal to all that plm_process_find finds; returns how many. */
size_t plm_process_signal_all(const char *stage, unsigned instance, pid_t pid, int number);

#endif
