/* Reading evaluator.sets, for the other files of this folder. */
#ifndef PLM_COMMON_CONFIG_SETTING_SETS_H
#define PLM_COMMON_CONFIG_SETTING_SETS_H

#include "common/config/yaml_records.h"

/* Reads the list into the loader's configuration. False: it has mistakes, which were added to the
 * loader's problems. */
bool plm_config_sets_read(struct plm_loader *loader, const struct plm_yaml_list *list);

/* Whether a record of sets or tasks may have this text under `key`: a name must be one that
 * plm_config_is_set_name accepts and must not be PLM_OWN_SET; other keys take any text. The message
 * says what was expected. */
bool plm_config_set_name_accepts(const struct plm_setting *key, const char *text,
                                 char message[512]);

#endif
