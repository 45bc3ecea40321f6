/* What `ps` knows beyond the supervisor's table, from the locks, the metrics and the peers files of
 * the run folder. A row is {stage, instance, node, pid, state, ready, restarts, age_s}. rate
 * (tokens a second) and queue are added if they are known; packers that serve a consumer also get
 * standby.
 */
#ifndef PLM_STAGES_SUPERVISOR_CONTROL_PS_ROWS_H
#define PLM_STAGES_SUPERVISOR_CONTROL_PS_ROWS_H

#include <stddef.h>

#include "common/base/status.h"

struct cJSON;

/* The rows of a run, from its supervisor or, without one, from the run folder. The caller deletes
 * *rows. PLM_NOT_RUNNING, and what plm_socket_ask returns. */
plm_status plm_ps_read(const char *run, struct cJSON **rows, struct plm_error *error);

/* The packers among the rows of a run. */
struct plm_ps_packers {
  size_t serve;           /* known to a consumer, those on standby included */
  struct cJSON *troubled; /* {packer: "packer.1", activity}, of those that wait, are silent, stopped
                             by a signal, in back-off or failed */
};
/* Of a run that is running: what plm_ps_read knows, or, if the supervisor does not answer, what the
 * peers files tell. The caller deletes troubled. */
void plm_ps_packers(const char *run, struct plm_ps_packers *packers);

/* Adds the trainer and the evaluator that hold the run's locks, unless rows has one already. They
 * were started by hand, or a supervisor that was killed left them. */
void plm_ps_add_by_hand(const char *run, struct cJSON *rows);
/* Adds to the rows of the trainer and the evaluator what their metrics files have reported since
 * the row's process took its lock. The trainer's rate counts real tokens, and falls while no step
 * ends; step_age_s is the time since its last step, and activity says what it waits for, if it does
 * (stages/views/run_activity.h).
 * Both get sign_age_s, the time since the last sign of life, and doing, if they say what they do.
 * The evaluator's is the rate of predicted tokens in its last evaluation; its queue is the number
 * of checkpoints that wait for evaluation. */
void plm_ps_add_metrics(const char *run, struct cJSON *rows);
/* Adds sign_age_s (since a consumer has heard of it), rate, queue (requests that wait for their
 * window) and standby to the rows of packers. A
 * packer without a row was not started by this supervisor: it gets one with the state "joined", and
 * is numbered after the others. */
void plm_ps_add_packers(const char *run, struct cJSON *rows);

#endif
