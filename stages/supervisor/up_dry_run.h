/* `up --dry-run`: what a run would start and need. Touches nothing. */
#ifndef PLM_STAGES_SUPERVISOR_UP_DRY_RUN_H
#define PLM_STAGES_SUPERVISOR_UP_DRY_RUN_H

#include "common/config/config.h"
#include "stages/commands/command.h"
#include "stages/supervisor/run_prepare.h"
#include "stages/supervisor/supervisor_table.h"

plm_status plm_dry_run(const struct plm_command_context *context, const struct plm_config *config,
                       const bool chosen[PLM_KIND_COUNT], const char *fingerprint,
                       const struct plm_prepared *prepared, struct plm_error *error);

#endif
