/* Names of the configuration's choices as they stand in the file; NULL-terminated, in the order of
 * the enums of config.h. */
#ifndef PLM_COMMON_CONFIG_NAMES_H
#define PLM_COMMON_CONFIG_NAMES_H

extern const char *const plm_rate_scope_names[];
extern const char *const plm_optimizer_names[];
extern const char *const plm_muon_scale_names[];
extern const char *const plm_schedule_names[];
extern const char *const plm_restart_names[];

#endif
