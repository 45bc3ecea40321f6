/* What a run that trains labels (trainer.objective regression, classification, multilabel or
 * residues) knows about them: the columns that trainer.labels names, in the schemas of its corpora.
 */
#ifndef PLM_TRAINER_OPEN_OPEN_LABELS_H
#define PLM_TRAINER_OPEN_OPEN_LABELS_H

#include "common/base/status.h"

struct plm_trainer;

/* After the feed and the device are open, and before the model is. All ranks call it; rank 0 waits
 * for packers, which know the schemas. resumed: on rank 0, the checkpoint that the run continues
 * from, or NULL. Sets trainer->labels, and the head of the model's configuration. Does nothing for
 * the other objectives. PLM_CONFIG as plm_label_choose; PLM_INTERRUPTED on all ranks if rank 0 was
 * asked to stop while it waited. */
plm_status plm_open_labels(struct plm_trainer *trainer, const char *resumed,
                           struct plm_error *error);
void plm_close_labels(struct plm_trainer *trainer);

#endif
