/* Plans of products kept beside runs: what one run has measured, the next takes. So runs of one
 * configuration on one card give the same bits, and start without measuring.
 *
 * A file for each library, version, card and precision, in the folder that the environment variable
 * PLM_PLAN_CACHE names (empty: none is kept), else in plm-pipeline/ under $XDG_CACHE_HOME or
 * ~/.cache. A file that cannot be read, taken or written costs a warning and a tuning, no run.
 */
#ifndef PLM_TRAINER_PLAN_FILE_H
#define PLM_TRAINER_PLAN_FILE_H

#include "common/ops/ops.h"

/* Imports the file's plans, where there is one. */
void plm_plan_file_take(struct plm_ops *ops);
/* Replaces the file by all plans that the backend has. */
void plm_plan_file_keep(struct plm_ops *ops);

#endif
