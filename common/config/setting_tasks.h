/* The value of evaluator.tasks, for the other files of this folder. */
#ifndef PLM_COMMON_CONFIG_SETTING_TASKS_H
#define PLM_COMMON_CONFIG_SETTING_TASKS_H

#include "common/base/text/text.h"
#include "common/config/yaml_records.h"

/* A plm_records_reader. */
bool plm_config_tasks_read(struct plm_loader *loader, const struct plm_yaml_list *list);
void plm_config_tasks_release(struct plm_config_evaluator *evaluator);
/* As YAML on one line. */
void plm_config_tasks_print(const struct plm_config_evaluator *evaluator, struct plm_text *text);

#endif
