/* What the states of all stages mean for the run: when it is over, and in which order its stages
 * stop. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_POLICY_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_POLICY_H

#include <stdbool.h>

#include "stages/supervisor/report/supervisor_screen.h"
#include "stages/supervisor/supervised.h"

struct drain {
  struct stages *stages; /* its `draining` says that it has begun */
  struct screen *screen;
  bool trains;        /* the trainer was chosen */
  bool killing;       /* all stages are killed, in no order */
  int signal;         /* the signal that began it; 0: none */
  unsigned signals;   /* SIGINT, SIGTERM and `down` so far */
  bool packers_fatal; /* endpoints.json says so */
};

/* Called each turn: begins to stop a run that is over, or continues to stop one. */
void drain_turn(struct drain *drain);
/* Begins to stop all stages in order. signal_number is SIGTERM for `down`, and 0 if the run ends by
 * itself. The second signal kills all stages; SIGUSR1 does not count (common/run/stop.h). */
void drain_begin(struct drain *drain, int signal_number);
/* Whether the run was stopped and no stage is left. */
bool drain_is_over(const struct drain *drain);

#endif
