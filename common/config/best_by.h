/* trainer.checkpoint.best_by: TASK.MEASURE, a task of evaluator.tasks and what keep_best compares.
 */
#ifndef PLM_COMMON_CONFIG_BEST_BY_H
#define PLM_COMMON_CONFIG_BEST_BY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"

/* The task's number and the measure, which belongs to the configuration. False: best_by is null, or
 * does not name a task and one of the measures of its kind. */
bool plm_config_best_by(const struct plm_config *config, uint32_t *task, const char **measure);
/* Whether a smaller value of a measure is better. */
bool plm_measure_falls(const char *measure);

#endif
