/* The Slurm job script of a run (doc/slurm.md). One component of the job holds the trainer's ranks
 * and the evaluator. The packers run beside them, or on nodes of their own as a second component.
 */
#ifndef PLM_STAGES_SLURM_SLURM_SCRIPT_H
#define PLM_STAGES_SLURM_SLURM_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/base/text/text.h"
#include "common/config/config.h"

/* Strings may be NULL where that is said. Lists may be NULL, and end with a NULL. */
struct plm_slurm_job {
  const struct plm_config *config;             /* read from a file: its path is in the script */
  const struct plm_config_override *overrides; /* of the command line; `run` is passed over */
  size_t override_count;
  const char *program_directory; /* absolute; of plm-trainer and the others */
  const char *working_directory; /* absolute; relative paths in overrides begin there */
  unsigned nodes;                /* of the trainer; divides trainer.ranks */
  unsigned cpus;                 /* of each rank */
  unsigned evaluator_cpus;       /* 0: no evaluator */
  unsigned packer_nodes;         /* 0: the packers run on the trainer's first node */
  unsigned packer_cpus;          /* of each packer */
  unsigned notice_s;             /* from SIGUSR1 to the time limit */
  const char *time;              /* the limit, as sbatch takes it */
  const char *account, *partition, *packer_partition; /* or NULL */
  const char *const *sbatch;        /* further #SBATCH options of the trainer's nodes */
  const char *const *packer_sbatch; /* of the packers' nodes */
  const char *const *setup;         /* shell commands before the stages start */
};

/* Appends the script to *text. PLM_USAGE or PLM_CONFIG if the configuration does not fit the nodes,
 * or if a text has a control character. */
plm_status plm_slurm_script(const struct plm_slurm_job *job, struct plm_text *text,
                            struct plm_error *error);

#endif
