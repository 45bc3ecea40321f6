/* `up --dry-run`: prints what a run would start and need, and changes nothing. */
#ifndef PLM_STAGES_SUPERVISOR_UP_DRY_RUN_H
#define PLM_STAGES_SUPERVISOR_UP_DRY_RUN_H

#include "common/config/config.h"
#include "stages/supervisor/prepare/run_prepare.h"
#include "stages/supervisor/prepare/supervisor_table.h"

struct plm_dry_run {
  const struct plm_config *config;
  const char *program_directory;       /* where the stages' programs lie */
  const char *fingerprint;             /* of the corpus, in hex; "" if there is none here */
  const bool *chosen;                  /* (PLM_KIND_COUNT) which stages would run */
  const struct plm_prepared *prepared; /* what plm_run_inspect found */
  const char *const *trainer_options;  /* further arguments; ends with NULL; or NULL */
};

/* Prints to stdout. plm-trainer is asked for the memory that it would need; if it does not answer,
 * that part says so. PLM_LIMIT if a path is too long. */
plm_status plm_dry_run(const struct plm_dry_run *run, struct plm_error *error);

#endif
