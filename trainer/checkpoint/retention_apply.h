/* Deletes the checkpoints that a run no longer keeps, as common/checkpoint/retention decides. */
#ifndef PLM_TRAINER_CHECKPOINT_RETENTION_APPLY_H
#define PLM_TRAINER_CHECKPOINT_RETENTION_APPLY_H

#include "common/checkpoint/retention.h"

/* Applies the rules to a run's checkpoints: renames each one to be removed to .tmp-delete-NAME,
 * then deletes it. newest_valid is the step that was just published. judge: by what keep_best
 * judges. Only the writer thread calls this. */
plm_status plm_retention_apply(const char *run, const struct plm_config_checkpoint *rules,
                               const struct plm_retention_judge *judge, uint64_t newest_valid,
                               struct plm_error *error);

#endif
