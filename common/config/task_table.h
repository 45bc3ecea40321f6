/* The table of a probe in evaluator.tasks, for who reads it. */
#ifndef PLM_COMMON_CONFIG_TASK_TABLE_H
#define PLM_COMMON_CONFIG_TASK_TABLE_H

#include "common/config/config.h"
#include "common/sequences/labelled_table.h"

/* As the columns are named in the configuration, which owns the strings. */
struct plm_labelled_request plm_task_table(const struct plm_config *config,
                                           const struct plm_config_task *task);

#endif
