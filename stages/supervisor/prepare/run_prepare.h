/* What `up` does before the first stage starts: it checks what a resume may change, moves old files
 * aside, and prepares the run folder. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_RUN_PREPARE_H
#define PLM_STAGES_SUPERVISOR_PREPARE_RUN_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"

enum plm_resume_mode {
  PLM_RESUME_AUTO,  /* continue from the newest checkpoint that verifies */
  PLM_RESUME_NEVER, /* start over; everything moves to previous-N/ */
  PLM_RESUME_PATH,  /* continue from this checkpoint; what came later moves to previous-N/ */
};

struct plm_prepared {
  bool resumes;  /* there are checkpoints */
  bool complete; /* DONE holds (done.h) and names a valid checkpoint */
  uint64_t step; /* of DONE if complete, of the given checkpoint, or of the newest one by name */
};

/* Checks everything without changing anything, for --dry-run and before plm_run_prepare:
 *
 * - of a resumed run, the configuration against the one it was started with (PLM_CONFIG);
 * - of a fresh run, the folder of trainer.init_from (PLM_CONFIG);
 * - the checkpoint of PLM_RESUME_PATH (PLM_USAGE, or what plm_checkpoint_verify returns).
 *
 * What a resume changes is printed to stderr, or that it has no effect because no step will run:
 * the run is complete, or its trainer is not started (`trains` is false). path is the checkpoint
 * for PLM_RESUME_PATH, and ignored otherwise. */
plm_status plm_run_inspect(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, bool trains, struct plm_prepared *prepared,
                           struct plm_error *error);

/* Calls plm_run_inspect, makes the folders, moves aside what the mode requires, removes an outdated
 * DONE, and writes pipeline.yaml. If no step of a run that has checkpoints will run, what
 * pipeline.yaml says about training stays (plm_config_print_kept). The caller holds
 * supervisor.lock. */
plm_status plm_run_prepare(const struct plm_config *config, enum plm_resume_mode mode,
                           const char *path, bool trains, struct plm_prepared *prepared,
                           struct plm_error *error);

/* What the supervisor of a stage beside the run's own does instead: makes the folder of the logs
 * and writes the stage's configuration (PLM_RUN_CONFIG_APART). The rest of the run stays as it is.
 * The caller holds the lock of that supervisor. */
plm_status plm_run_prepare_apart(const struct plm_config *config, struct plm_error *error);

#endif
