/* Options of the one-shot tasks of plm-evaluator: evaluate, embed, predict, score, generate,
 * probe. For each, plm-pipeline has a command with the same table, which executes `plm-evaluator
 * TASK` with its arguments. The last row of each table has no name; plm_common_options are added to
 * every table.
 */
#ifndef PLM_COMMON_CLI_TASK_OPTIONS_H
#define PLM_COMMON_CLI_TASK_OPTIONS_H

#include "common/cli/options.h"

extern const struct plm_option plm_evaluate_options[], plm_embed_options[];
extern const struct plm_option plm_generate_options[], plm_score_options[], plm_probe_options[];
extern const struct plm_option plm_predict_options[];

/* PLM_USAGE if --NAME is absent. The message is "--NAME ARGUMENT is needed: PURPOSE". */
plm_status plm_task_needs(const struct plm_arguments *arguments, const struct plm_option *table,
                          const char *name, const char *purpose, struct plm_error *error);

#endif
