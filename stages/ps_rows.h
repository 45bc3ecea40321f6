/* Rows of `ps` that the supervisor's table does not have: from the locks and the peers files of the
 * run folder. A row: {stage, instance, node, pid, state, ready, restarts, age_s}; packers that
 * serve somebody have {rate, queue, standby} as well. */
#ifndef PLM_STAGES_PS_ROWS_H
#define PLM_STAGES_PS_ROWS_H

struct cJSON;

/* The trainer and the evaluator that hold the run's locks, where rows has none of them: started by
 * hand, or left by a supervisor that was killed. */
void plm_ps_add_by_hand(const char *run, struct cJSON *rows);
/* rate (tokens/s), queue (requests that wait for their window) and standby into the rows of
 * packers, and rows in state "joined" for those that have none: they came from elsewhere. Their
 * instances are numbered after the rows' own. */
void plm_ps_add_packers(const char *run, struct cJSON *rows);

#endif
