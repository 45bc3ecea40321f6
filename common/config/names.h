/* Names of the choices that config.h declares, as the file writes them: NULL-terminated, in the
 * order of the enums. */
#ifndef PLM_COMMON_CONFIG_NAMES_H
#define PLM_COMMON_CONFIG_NAMES_H

extern const char *const plm_rate_scope_names[];
extern const char *const plm_optimizer_names[];
extern const char *const plm_muon_scale_names[];
extern const char *const plm_schedule_names[];
extern const char *const plm_restart_names[];

#endif
