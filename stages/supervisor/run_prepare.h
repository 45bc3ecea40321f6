/* Before the first stage starts: the run folder, what a resume may change, what moves aside. */
#ifndef PLM_STAGES_SUPERVISOR_RUN_PREPARE_H
#define PLM_STAGES_SUPERVISOR_RUN_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"

enum plm_resume_mode {
  PLM_RESUME_AUTO,  /* from the newest checkpoint that verifies */
  PLM_RESUME_NEVER, /* everything moves to previous-N/ */
  PLM_RESUME_PATH,  /* from this checkpoint: later ones and later lines move to previous-N/ */
};

struct plm_prepared {
  bool resumes;  /* there are checkpoints */
  bool complete; /* DONE stands, and no more steps are asked for */
  uint64_t step; /* newest checkpoint by name, or DONE's */
};

/* Only looks, for --dry-run and before anything is touched: the resume check of the configuration
 * against the one the run was started with (PLM_CONFIG), the checkpoint of PLM_RESUME_PATH, of a
 * fresh run the folder of trainer.init_from (PLM_CONFIG). Lines
 * of what a resume changes go to stderr. */
plm_status plm_run_inspect(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, struct plm_prepared *prepared,
                           struct plm_error *error);

/* Makes the folders, moves aside what the mode says, removes a DONE that more steps outdate, writes
 * pipeline.yaml. The caller holds supervisor.lock. plm_run_inspect comes first. */
plm_status plm_run_prepare(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, struct plm_prepared *prepared,
                           struct plm_error *error);

#endif
