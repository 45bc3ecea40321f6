/* The one-shot tasks of plm-evaluator: `plm-evaluator TASK …`, one file task_NAME.c each, entered
 * in the table of evaluator_main.c. */
#ifndef PLM_EVALUATOR_TASK_H
#define PLM_EVALUATOR_TASK_H

#include "common/cli/program.h"
#include "common/ops/open.h"

extern const struct plm_program plm_task_evaluate, plm_task_embed, plm_task_generate,
    plm_task_score;

/* Operators as --device, --threads and --precision (fp32 when not given) say; the request has what
 * holds without the first two: {0}, the device if there is one and all threads. */
plm_status plm_task_open_ops(const struct plm_arguments *arguments, struct plm_ops_request request,
                             struct plm_ops **ops, struct plm_error *error);

/* --NAME as a number in (low, high] or [low, high]; *value stays when it was not given. PLM_USAGE
 * with an example. */
plm_status plm_task_number(const struct plm_arguments *arguments, const char *name, double low,
                           bool low_included, double high, double *value, struct plm_error *error);

/* PLM_OK until a stop signal came; then PLM_INTERRUPTED or PLM_TERMINATED, "stopped by Ctrl-C" or
 * "stopped by a signal" and what follows. */
plm_status plm_task_stopped(const char *what_follows, struct plm_error *error);

#endif
