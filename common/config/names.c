/* Names of the choices that common/config declares. */
#include "common/config/names.h"

#include <stddef.h>

const char *const plm_rate_scope_names[] = {"chunk", "batch", NULL};
const char *const plm_optimizer_names[] = {"muon", "adamw", NULL};
const char *const plm_muon_scale_names[] = {"match_adamw", "spectral", NULL};
const char *const plm_schedule_names[] = {"wsd", "linear", "cosine", NULL};
const char *const plm_restart_names[] = {"no", "on-failure", "always", NULL};
