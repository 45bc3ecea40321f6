/* model.preset: the sizes of a known model, for the keys that nothing else gives. */
#ifndef PLM_COMMON_CONFIG_PRESETS_H
#define PLM_COMMON_CONFIG_PRESETS_H

#include "common/config/problems.h"

/* What the preset of this configuration gives a row of the settings, as YAML. NULL: there is no
 * preset, or it does not give this row. */
const char *plm_preset_value(const struct plm_config *config, const struct plm_setting *setting);

/* Stores the values of the preset in the rows that have their default. Their origin is then
 * PLM_ORIGIN_PRESET, and their place that of model.preset. Adds a problem if the preset cannot be
 * used with the architecture. The rows of a preset that was refused are marked as bad, so that
 * checks do not judge their defaults. */
void plm_presets_settle(struct plm_loader *loader);

/* Appends a line for each size that was given and differs from that of the preset. */
void plm_presets_advise(const struct plm_config *config, struct plm_text *text);

#endif
