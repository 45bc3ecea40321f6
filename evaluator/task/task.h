/* The tasks of plm-evaluator, `plm-evaluator TASK …`: each is a file task_NAME.c and an entry in
 * the table of evaluator_main.c. */
#ifndef PLM_EVALUATOR_TASK_TASK_H
#define PLM_EVALUATOR_TASK_TASK_H

#include "common/cli/program.h"
#include "common/ops/open.h"

extern const struct plm_program plm_task_evaluate, plm_task_embed, plm_task_generate,
    plm_task_score, plm_task_probe, plm_task_predict;

/* Opens the operators that --device, --threads and --precision ask for. Without --device and
 * --threads the request decides ({0}: a GPU if there is one, and all threads); without --precision
 * it is fp32. PLM_USAGE: an option has an invalid value. */
plm_status plm_task_open_ops(const struct plm_arguments *arguments, struct plm_ops_request request,
                             struct plm_ops **ops, struct plm_error *error);

/* Reads option --NAME as a number in (low, high], or in [low, high] if low_included. *value is not
 * changed if the option is not given. PLM_USAGE: not a number in that range. */
plm_status plm_task_number(const struct plm_arguments *arguments, const char *name, double low,
                           bool low_included, double high, double *value, struct plm_error *error);

/* Reads option --max-length: *tokens is 0 if it is not given. PLM_USAGE: not a number of tokens. */
plm_status plm_task_max_length(const struct plm_arguments *arguments, uint32_t *tokens,
                               struct plm_error *error);

#endif
