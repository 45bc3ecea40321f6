/* Licences as the Hub knows them. It refuses a model card whose `license` is none of its list. */
#ifndef PLM_STAGES_EXPORT_HUB_LICENSE_H
#define PLM_STAGES_EXPORT_HUB_LICENSE_H

#include "common/base/status.h"

/* PLM_USAGE with a suggestion unless license is in the list of
 * https://huggingface.co/docs/hub/repositories-licenses. */
plm_status plm_hub_license_check(const char *license, struct plm_error *error);

#endif
