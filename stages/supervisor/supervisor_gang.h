/* What differs if the trainer is a gang (trainer.ranks above 1): it is started by mpirun, which
 * closes the ready pipe, passes on only SIGUSR1 without killing, and may hang when a rank is gone.
 * There is one trainer, and so one gang. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_GANG_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_GANG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/config/config.h"
#include "stages/supervisor/gang/gang_command.h"
#include "stages/supervisor/gang/gang_folder.h"
#include "stages/supervisor/report/supervisor_screen.h"
#include "stages/supervisor/stage/supervisor_process.h"
#include "stages/supervisor/supervised.h"

struct gang {
  const struct plm_config *config;
  const char *socket_path; /* of the run's control socket, which names the folder */
  struct screen *screen;
  struct plm_gang_folder folder; /* of the present mpirun */
  bool ranks_seen;               /* a rank has run on this host since the start */
  int first_fd;                  /* a pidfd of rank 0; -1 until it is known */
  int64_t first_gone_ms;         /* when rank 0 was seen to be gone; 0: it lives */
  int64_t ask_ms;                /* when it is asked to stop again; 0: never */
  bool hung;     /* mpirun was killed because it did not end after rank 0, since the last start */
  pid_t log_pid; /* of the writer of its log (gang_log.h); 0 if it has ended */
  int log_fd;    /* the pipe from which it reads; -1: none */
};

/* The caller has set config, socket_path and screen. Nothing runs yet. */
void gang_init(struct gang *gang);

/* What a gang is started with. */
struct gang_start {
  struct plm_gang_command command;
  struct plm_process_gang process;
};
/* Called before each start: makes mpirun's folder and its command line, and starts the writer of
 * its log. The caller then calls gang_prepared, also after an error. */
plm_status gang_prepare(struct gang *gang, const struct supervised *stage, char *const *rank_argv,
                        struct gang_start *start, struct plm_error *error);
/* Called after each start: frees what only mpirun needs. */
void gang_prepared(struct gang_start *start);
/* Asks the ranks to stop. If they were not ready yet, asks again each second: mpirun passes a
 * signal only to ranks that it has started. */
void gang_stop(struct gang *gang, pid_t mpirun, bool was_ready);
/* Called each turn while mpirun lives: starts the writer of the log again if somebody has killed
 * it, and kills an mpirun that does not end after rank 0. */
void gang_tick(struct gang *gang, const struct supervised *stage, int64_t now_ms);
/* Called when no process of the gang is left. */
void gang_ended(struct gang *gang);

/* The writer of the log ends by itself after mpirun, and the log is complete only then. All of
 * these take NULL for a stage that is no gang. _reaped is called for each child that has ended. */
bool gang_still_writes(const struct gang *gang);
void gang_kill_writer(const struct gang *gang);
void gang_reaped(struct gang *gang, pid_t pid);
/* Whether mpirun was killed because it hung. */
bool gang_has_hung(const struct gang *gang);

#endif
