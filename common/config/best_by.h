/* What checkpoints are judged by. trainer.checkpoint.best_by, for keep_best, is MEASURE: on the
 * first of evaluator.splits of the run's own corpus; or TASK.MEASURE: of a task of evaluator.tasks.
 * trainer.stop_when.metric is a measure of the same split. */
#ifndef PLM_COMMON_CONFIG_BEST_BY_H
#define PLM_COMMON_CONFIG_BEST_BY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text/text.h"
#include "common/config/config.h"

enum { PLM_NO_TASK = -1 };
/* The task's number, or PLM_NO_TASK, and the measure. If best_by is null, that of
 * trainer.stop_when, if it may end the run. False: both are the loss, or best_by names neither a
 * measure of the objective, nor a task and one of the measures of its kind and of its labels, if
 * these are given. */
bool plm_config_best_by(const struct plm_config *config, int32_t *task, const char **measure);
/* Says why best_by, which is not null, names no measure of a task. */
void plm_config_best_by_fault(const struct plm_config *config, struct plm_text *fault);
/* Whether the evaluation of a split has no such measure, by trainer.objective. If so, appends
 * "objective mlm has loss, accuracy and mcc, not rmse". */
bool plm_objective_lacks(const struct plm_config *config, const char *measure,
                         struct plm_text *fault);

#endif
