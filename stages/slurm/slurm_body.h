/* The part of the job script that is the same for every run: slurm_body.sh, embedded at build time.
 * It handles signals, restarts and requeueing, and follows the variables that slurm_script.c
 * writes. */
#ifndef PLM_STAGES_SLURM_SLURM_BODY_H
#define PLM_STAGES_SLURM_SLURM_BODY_H

/* Its first line is a comment for shellcheck and does not belong in a script. */
extern const char plm_slurm_body[];

#endif
