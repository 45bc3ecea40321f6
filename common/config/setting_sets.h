/* Reading evaluator.sets, for the other files of this folder. */
#ifndef PLM_COMMON_CONFIG_SETTING_SETS_H
#define PLM_COMMON_CONFIG_SETTING_SETS_H

#include "common/config/yaml_records.h"

/* Reads the list into the loader's configuration. False: it has mistakes, which were added to the
 * loader's problems. */
bool plm_config_sets_read(struct plm_loader *loader, const struct plm_yaml_list *list);

#endif
