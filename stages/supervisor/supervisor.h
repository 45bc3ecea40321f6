/* The supervisor: starts the stages of a run, keeps them alive, shows what they log, and stops them
 * in order. It is one process with one thread and one loop. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "stages/supervisor/prepare/supervisor_table.h"

struct plm_supervisor_options {
  const struct plm_config *config;
  const char *run;       /* --run, as it was given, or NULL; for messages, like the next */
  bool sets;             /* --set was given */
  struct plm_lock *lock; /* of the supervisor; watched */
  const char *program_directory;
  const char *fingerprint;            /* of the corpus, in hex; "" if there is none here */
  bool chosen[PLM_KIND_COUNT];        /* which stages to run */
  const char *const *trainer_options; /* further arguments; ends with NULL; or NULL */
  const char *const *packer_options;  /* likewise */
  const char
      *launch[PLM_KIND_COUNT]; /* what starts a kind of stages elsewhere: a shell's words, to
                                  which the stage's command line is appended; NULL: nothing */
  bool apart; /* another supervisor has the run: these stages have their configuration in a file of
                 its own (PLM_RUN_CONFIG_APART), no command reaches this supervisor, and it writes
                 nothing that the other one does */
  bool detached; /* in the background: the stages' lines stay in their logs */
  bool color, quiet;
  int started_fd; /* receives a byte once the control socket answers, and is closed; -1: none */
};

/* Runs until the run is complete and evaluated, was stopped, or failed. *exit_code is `up`'s: 0, 1,
 * 2, 4, 5, 6, 7, 130 or 143. The caller holds supervisor.lock (or, apart, the stage's own) and has
 * prepared the run folder (run_prepare.h). Only failures of the supervisor itself are errors here:
 * signals, the control socket, the address of metrics.prometheus. */
plm_status plm_supervise(const struct plm_supervisor_options *options, int *exit_code,
                         struct plm_error *error);

#endif
