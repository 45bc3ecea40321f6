/* How a run scales numbers before it learns them: as when it began. */
#ifndef PLM_TRAINER_OPEN_LABEL_SCALING_H
#define PLM_TRAINER_OPEN_LABEL_SCALING_H

#include "common/base/status.h"

struct plm_trainer;

/* After trainer->label_choice is known, and before anything copies its mean and deviation, which
 * are those of the training splits of all corpora. A resume may have further corpora, but the head
 * has learnt numbers that were scaled without them, so it keeps what the config.json of its
 * checkpoint says. All ranks call it; `directory` is the checkpoint on rank 0, or NULL if the run
 * begins. Does nothing for labels that are no numbers. */
plm_status plm_keep_label_scaling(struct plm_trainer *trainer, const char *directory,
                                  struct plm_error *error);

#endif
