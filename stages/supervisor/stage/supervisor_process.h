/* Processes of stages: they are started so that they die with the supervisor, and so that every
 * process they start in turn can be found, whatever groups and sessions it moves to. */
#ifndef PLM_STAGES_SUPERVISOR_STAGE_SUPERVISOR_PROCESS_H
#define PLM_STAGES_SUPERVISOR_STAGE_SUPERVISOR_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/status.h"

/* Makes this process adopt orphans among its descendants, so that no process of a stage escapes.
 * Called once, before the first stage is started. */
plm_status plm_process_adopt(struct plm_error *error);

/* What differs if the process is mpirun. */
struct plm_process_gang {
  const char *folder; /* for its files and the shared memory of the ranks on this host */
  int output;         /* becomes its standard output and error, instead of the log */
  int kept[2];        /* descriptors that stay open in it */
};

struct plm_process_start {
  char *const *argv;
  const char *stage; /* "trainer" */
  unsigned instance;
  const char *log_path; /* standard output and error are appended to it */
  int nice;
  const struct plm_process_gang *gang; /* NULL unless argv starts mpirun */
  bool elsewhere; /* argv starts what starts the stage elsewhere, and passes SIGUSR1 on to it */
};

/* Starts a process with its own session, niceness and log, which receives SIGTERM if this process
 * dies. mpirun receives SIGUSR1 instead, which it passes on (SIGTERM would kill the ranks), gets no
 * PLM_READY_FD, since it closes descriptors, and may run as root if this process does. *ready is
 * the non-blocking reading end of the pipe whose writing end PLM_READY_FD names. A program that
 * cannot be run is an error here, not an exit code. */
plm_status plm_process_start(const struct plm_process_start *start, pid_t *pid, int *ready,
                             struct plm_error *error);

/* Finds the descendants of this process that belong to the stage, by descent from pid (0 if that is
 * gone already) or by their mark. Writes at most `room` of them to pids and returns how many there
 * are. Zombies do not count. */
size_t plm_process_find(const char *stage, unsigned instance, pid_t pid, pid_t *pids, size_t room);

/* Whether the process runs this program, or a script of this name. The kernel keeps the first
 * PLM_PROCESS_NAME bytes of a program's name. */
enum { PLM_PROCESS_NAME = 15 };
bool plm_process_runs(pid_t pid, const char *program);

/* Whether a signal (SIGSTOP) has stopped the process. */
bool plm_process_is_paused(pid_t pid);

/* Sends the signal to all processes that plm_process_find finds, and returns how many there are. */
size_t plm_process_signal_all(const char *stage, unsigned instance, pid_t pid, int number);

#endif
