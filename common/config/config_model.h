/* Checks of the settings below `model.`, and the values that an architecture implies. */
#ifndef PLM_COMMON_CONFIG_CONFIG_MODEL_H
#define PLM_COMMON_CONFIG_CONFIG_MODEL_H

#include "common/config/problems.h"

/* Fills in what the architecture implies, and adds a problem for each key of the model that is at
 * fault. */
void plm_config_check_model(struct plm_loader *loader);

#endif
