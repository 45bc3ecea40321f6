/* Rows of `ps` that the supervisor's table does not have: from the locks and the peers files of the
 * run folder. A row: {stage, instance, node, pid, state, ready, restarts, age_s}; once known also
 * {rate, queue}: tokens/s, and what waits. Packers that serve somebody have standby as well. */
#ifndef PLM_STAGES_SUPERVISOR_PS_ROWS_H
#define PLM_STAGES_SUPERVISOR_PS_ROWS_H

struct cJSON;

/* The trainer and the evaluator that hold the run's locks, where rows has none of them: started by
 * hand, or left by a supervisor that was killed. */
void plm_ps_add_by_hand(const char *run, struct cJSON *rows);
/* Into the rows of the trainer and the evaluator what their metrics files say since the row's
 * process started: the trainer's real tokens/s (falling while no step ends); the evaluator's
 * predicted tokens/s of the last evaluation, queue: checkpoints that wait for theirs. */
void plm_ps_add_metrics(const char *run, struct cJSON *rows);
/* rate (tokens/s), queue (requests that wait for their window) and standby into the rows of
 * packers, and rows in state "joined" for those that have none: they came from elsewhere. Their
 * instances are numbered after the rows' own. */
void plm_ps_add_packers(const char *run, struct cJSON *rows);

#endif
