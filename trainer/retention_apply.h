/* Retention, carried out on a run's folder. The decision is common/checkpoint/retention. */
#ifndef PLM_TRAINER_RETENTION_APPLY_H
#define PLM_TRAINER_RETENTION_APPLY_H

#include "common/checkpoint/retention.h"

/* Applies the rules to a run's checkpoints folder: renames each that goes to .tmp-delete-NAME, then
 * deletes it. newest_valid is the step just published. split: whose losses keep_best compares, or
 * NULL. Called by the writer thread alone. */
plm_status plm_retention_apply(const char *run, const struct plm_config_checkpoint *rules,
                               const char *split, uint64_t newest_valid, struct plm_error *error);

#endif
