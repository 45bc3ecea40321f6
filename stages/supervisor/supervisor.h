/* The supervisor: starts the stages of a run, keeps them alive, shows what they say, stops them in
 * order. One process, one thread, one loop. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "stages/supervisor/supervisor_table.h"

struct plm_supervisor_options {
  const struct plm_config *config;
  const char *program_directory;
  const char *fingerprint;     /* hex, "" without a corpus here */
  bool chosen[PLM_KIND_COUNT]; /* which stages to run */
  bool detached;               /* no terminal: lines stay in the log files */
  bool color, quiet;
  int started_fd; /* a byte is written when the control socket answers; -1: none */
};

/* Runs until the run is complete and evaluated, was stopped, or failed; *exit_code is `up`'s: 0, 1,
 * 2, 4, 130 or 143. The caller holds supervisor.lock and has prepared the run folder
 * (stages/supervisor/run_prepare.h). An error is one of the supervisor itself: the socket. */
plm_status plm_supervise(const struct plm_supervisor_options *options, int *exit_code,
                         struct plm_error *error);

#endif
