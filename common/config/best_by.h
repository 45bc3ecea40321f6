/* trainer.checkpoint.best_by: TASK.MEASURE, a task of evaluator.tasks and what keep_best compares.
 */
#ifndef PLM_COMMON_CONFIG_BEST_BY_H
#define PLM_COMMON_CONFIG_BEST_BY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text/text.h"
#include "common/config/config.h"

/* The task's number and the measure, which belongs to the configuration. False: best_by is null, or
 * does not name a task and one of the measures of its kind and of its labels, if these are given.
 */
bool plm_config_best_by(const struct plm_config *config, uint32_t *task, const char **measure);
/* Says why best_by, which is not null, names no measure of a task. */
void plm_config_best_by_fault(const struct plm_config *config, struct plm_text *fault);
/* Whether a smaller value of a measure is better. */
bool plm_measure_falls(const char *measure);

#endif
