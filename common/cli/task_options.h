/* Options of the one-shot tasks of plm-evaluator: evaluate, embed, score, generate. plm-pipeline
 * has a command for each with the same table and becomes `plm-evaluator TASK` with what it was
 * given. Each table ends with a row without a name and stands beside plm_common_options. */
#ifndef PLM_COMMON_CLI_TASK_OPTIONS_H
#define PLM_COMMON_CLI_TASK_OPTIONS_H

#include "common/cli/options.h"

extern const struct plm_option plm_evaluate_options[], plm_embed_options[];
extern const struct plm_option plm_generate_options[], plm_score_options[];

/* PLM_USAGE when --NAME was not given; purpose ends the sentence "--NAME ARGUMENT is needed: ". */
plm_status plm_task_needs(const struct plm_arguments *arguments, const struct plm_option *table,
                          const char *name, const char *purpose, struct plm_error *error);

#endif
